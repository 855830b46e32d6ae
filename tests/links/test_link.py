"""Links, chains and chain lists: registration, hierarchy, copies, hooks."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import kusari
from kusari import Chain, ChainList, Link, Parameter, tape
from kusari.epochs import Attributes
from kusari.link.walk import all_params


class Dense(Link):
    """A small link that needs no functions."""

    def __init__(self, n_in: int | None = 2, n_out: int = 3) -> None:
        super().__init__()
        with self.init_scope():
            self.W = Parameter(kusari.initializers.Normal(), None if n_in is None else (n_out, n_in))
            self.b = Parameter(0, (n_out,))
        self.add_persistent("mean", np.zeros(n_out, "f"))
        self.add_persistent("count", 0)

    def forward(self, x, scale=1):
        return x * scale


class Net(Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.second = Dense(3, 1)
            self.first = Dense()
            self.own = Parameter(1.0, ())
            self.late = Parameter()


def paths(link: Link) -> list[str]:
    return [path for path, _ in link.namedparams()]


def test_hierarchy_is_sorted_by_name() -> None:
    net = Net()
    assert paths(net) == ["/late", "/own", "/first/W", "/first/b", "/second/W", "/second/b"]
    assert [path for path, _ in net.namedparams(include_uninit=False)][:1] == ["/own"]
    assert [path for path, _ in net.namedlinks()] == ["/", "/first", "/second"]
    assert [link.name for link in net.links(skipself=True)] == ["first", "second"]
    assert net["first"] is net.first and net.name is None
    assert list(net.params()) == [param for _, param in net.namedparams()]


def test_shapes_as_arguments() -> None:
    link = Link(W=(2, 3), b=3, d=((2, 2), "float64"), u=None)
    assert link.W.shape == (2, 3) and link.b.shape == (3,) and link.d.dtype == np.float64
    assert np.isnan(link.W.array).all() and not link.u.is_initialized
    assert [(link.W.name, link.b.name)] == [("W", "b")]


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda n: n.add_param("own", (2,)), AttributeError, "attribute exists"),
        (lambda n: n.add_persistent("own", 1), AttributeError, "attribute exists"),
        (lambda n: n.register_persistent("nope"), AttributeError, "non-existent"),
        (lambda n: n.add_link("own", Dense()), AttributeError, "attribute exists"),
        (lambda n: n.add_link("x", 3), TypeError, "non-link"),
        (lambda n: n.copy("shallow"), ValueError, "'init', 'copy', or 'share'"),
        (lambda n: n.repeat(2, "shallow"), ValueError, "'init', 'copy', or 'share'"),
        (lambda n: n.delete_hook("nope"), KeyError, "does not exist"),
        (lambda n: n.copyparams(Chain(first=Dense())), KeyError, "Chain has no 'late'"),
        (lambda n: ChainList(n, 3), TypeError, "non-link"),
        (lambda n: n(), AttributeError, "forward"),
    ],
)
def test_wrong_use(act, error, words) -> None:
    with pytest.raises(error, match=words):
        act(Net())


def test_a_child_cannot_be_registered_twice() -> None:
    net = Net()
    with net.init_scope(), pytest.raises(AttributeError, match="attribute exists"):
        net.first = Dense()
    net.first = replaced = Dense()  # outside the scope an attribute is an attribute
    assert list(net.children())[0] is replaced


def test_super_init_forgotten() -> None:
    class Bad(Link):
        def __init__(self) -> None:
            with self.init_scope():
                pass

    with pytest.raises(RuntimeError, match=r"super\(\)\.__init__\(\)"):
        Bad()
    with pytest.raises(RuntimeError, match="has not been called"):
        Bad.__new__(Bad)(1)


def test_deletion() -> None:
    net = Net()
    del net.first, net.own
    assert paths(net) == ["/late", "/second/W", "/second/b"]


def test_call_passes_arguments_and_hooks_nest() -> None:
    class Log(kusari.LinkHook):
        def __init__(self, name: str) -> None:
            self.name = name

        def added(self, link) -> None:
            log.append((self.name, "added", link))

        def deleted(self, link) -> None:
            log.append((self.name, "deleted", link))

        def forward_preprocess(self, args) -> None:
            log.append((self.name, "pre", args.forward_name, args.args, args.kwargs))

        def forward_postprocess(self, args) -> None:
            log.append((self.name, "post", args.out))

    log: list = []
    link = Dense()
    assert link(3, scale=2) == 6 and not log
    assert link.add_hook(Log("local")) is link
    with pytest.raises(KeyError, match="already exists"):
        link.add_hook(Log("local"))
    with Log("thread"):
        with pytest.raises(KeyError, match="already exists"):
            Log("thread").__enter__()
        link(1, scale=5)
    link.delete_hook("local")
    link(1)
    seen = ("forward", (1,), {"scale": 5})
    assert log == [
        ("local", "added", link), ("thread", "added", None), ("thread", "pre", *seen), ("local", "pre", *seen),
        ("thread", "post", 5), ("local", "post", 5), ("thread", "deleted", None), ("local", "deleted", link),
    ]  # fmt: skip


def test_call_of_a_mix_in() -> None:
    class Mixed(Link, type("Callable", (), {"__call__": lambda self, x: x + 1})):
        pass

    assert Mixed()(1) == 2


def test_copy_modes() -> None:
    net = Net()
    net.first.W.grad[...] = 5
    shared, copied, fresh = net.copy(), net.copy("copy"), net.copy("init")
    for other in (shared, copied, fresh):
        assert paths(other) == paths(net) and other.first is not net.first and other.first.W is not net.first.W
        assert other.name is None and other.first.name == "first"
    assert shared.first.W.array is net.first.W.array and shared.first.mean is net.first.mean
    assert shared.first.W.grad is None and (net.first.W.grad == 5).all()
    assert (copied.first.W.array == net.first.W.array).all() and copied.first.W.array is not net.first.W.array
    assert (fresh.first.W.array != net.first.W.array).all()
    del shared.first
    assert "/first/W" in paths(net)


def test_repeat() -> None:
    thrice = Dense().repeat(3)
    assert [path for path, _ in thrice.namedlinks()] == ["/", "/0", "/1", "/2"]
    assert (thrice[0].W.array != thrice[1].W.array).all()
    assert len(Dense().repeat(0)) == len(Dense().repeat(-1)) == 0
    same = Dense().repeat(2, "copy")
    assert (same[0].W.array == same[1].W.array).all() and same[0].W.array is not same[1].W.array
    assert same.repeat(2, "share")[1][0].W.array is same[0].W.array


def test_copyparams_and_addgrads() -> None:
    one, two = Net(), Net()
    two.late.initialize((2,))
    two.first.mean[...] = 3
    two.first.count = 7
    one.copyparams(two)
    assert (one.first.W.array == two.first.W.array).all() and one.late.shape == (2,)
    assert (one.first.mean == 3).all() and one.first.mean is not two.first.mean and one.first.count == 7
    two.first.count = 8
    one.copyparams(two, copy_persistent=False)
    assert one.first.count == 7
    for net in (one, two):
        for param in net.params():
            param.grad = np.ones_like(param.array)
    one.addgrads(two)
    assert all((param.grad == 2).all() for param in one.params())


def test_gradients_are_cleared_wherever_parameters_are() -> None:
    net = Net()

    def cleared() -> bool:
        for param in net.params():
            if param.is_initialized:
                param.grad = np.ones_like(param.array)
        net.cleargrads()
        return all(param.grad is None for param in net.params())

    assert cleared() and cleared()
    net.first.W = Parameter(np.ones((3, 2), "f"))  # replaced outside init_scope
    assert cleared()
    net.second.__dict__["b"] = Parameter(np.ones(1, "f"))
    assert cleared()
    net.second = ChainList(Dense(), Dense())
    assert cleared()
    net.second.append(Dense())
    assert cleared()
    net.second[0].add_param("extra", (2,))
    assert cleared()
    net.second._children.append(Dense())  # nobody should, somebody will
    net.second.reverse()
    assert cleared()
    del net.first.W
    assert cleared()
    with net.init_scope():
        net.other = Net()
    assert cleared()
    net.other.own = Parameter(np.ones(1, "f"))
    assert cleared()


def test_a_kept_walk_is_exactly_a_new_one() -> None:
    net = Net()
    assert all_params(net) is all_params(net)
    assert all(a is b for a, b in zip(all_params(net), net.params(), strict=True))

    class Frozen(Dense):
        def params(self, include_uninit: bool = True):
            yield self.b

    net.first = Frozen()
    for _ in range(2):
        found = {id(param) for param in all_params(net)}
        assert id(net.first.W) not in found and id(net.first.b) in found
    kept = all_params(net)
    Net()  # outdates the walk, but the parameters are the same ones
    assert all_params(net) is kept
    net.own = Parameter(1.0, ())
    assert all_params(net) is not kept
    for other in (copy.copy(net), copy.deepcopy(net), net.copy()):
        assert all(a is b for a, b in zip(all_params(other), other.params(), strict=True))


def test_a_kept_walk_is_no_assignment() -> None:
    """Walks see that attributes of links were assigned, and are none: each would be the reason for the next."""
    net, other = Chain(a=Dense()), Chain(a=Dense())
    for link in (net, other, net):
        kept = all_params(link)
        link.name = "assigned"
        version = Attributes.version
        assert all_params(link) is all_params(link) is kept and Attributes.version is version


def test_a_kept_walk_keeps_no_model_alive() -> None:
    net = Net()
    net.cleargrads()
    alive = weakref.ref(net), weakref.ref(net.first), weakref.ref(net.first.W)
    gc.disable()
    try:
        del net
        assert [one() for one in alive] == [None, None, None]
    finally:
        gc.enable()


def test_an_active_tape_sees_the_links_called() -> None:
    class Tape:
        def __init__(self) -> None:
            self.links: list[Link] = []

        def link(self, link: Link) -> None:
            self.links.append(link)

    net = Net()
    tape.current.tape = watching = Tape()
    try:
        net.first(net.second(1))
    finally:
        tape.current.tape = None
    net.first(1)
    assert watching.links == [net.second, net.first]


def test_deepcopy_and_pickle() -> None:
    net = Net()
    net.cleargrads()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert paths(other) == paths(net)
        assert (other.first.W.array == net.first.W.array).all()
        other.first.add_param("more", (1,))
        assert "/first/more" in paths(other) and "/first/more" not in paths(net)


def test_updates_are_enabled_and_disabled() -> None:
    net = Net()
    assert not net.update_enabled
    net.disable_update()
    kusari.optimizers.SGD().setup(net)
    assert net.update_enabled
    net.first.disable_update()
    assert net.update_enabled and not net.first.update_enabled
    net.disable_update()
    assert not net.update_enabled
    net.enable_update()
    assert net.first.update_enabled


def test_count_params_warns_of_unknown_shapes() -> None:
    with pytest.warns(UserWarning, match="'/late' has not been initialized"):
        assert Net().count_params() == 1 + 9 + 4


def test_zerograds_is_deprecated() -> None:
    link = Dense()
    with pytest.warns(DeprecationWarning):
        link.zerograds()
    assert (link.W.grad == 0).all()


def test_persistent_and_parameter_exclude_each_other() -> None:
    link = Dense()
    link.register_persistent("b")
    assert paths(link) == ["/W"] and "b" in link._persistent
    with link.init_scope():
        link.mean = Parameter(0, (1,))
    assert paths(link) == ["/W", "/mean"] and "mean" not in link._persistent


def test_devices() -> None:
    net = Net()
    assert net.xp is np and net.to_device("@numpy") is net
    assert str(net.device) == "@numpy"


def test_links_send_what_they_override() -> None:
    with pytest.warns(DeprecationWarning, match="overrides to_cpu: override device_resident_accept"):

        class Old(Dense):
            sent = 0

            def to_cpu(self):
                self.sent += 1
                return super().to_cpu()

    class New(Dense):
        table = [0.0]

        def device_resident_accept(self, visitor):
            super().device_resident_accept(visitor)
            self.table = visitor.visit_array(np.array(self.table))

    chain = Chain(old=Old(), list=ChainList(New()))
    with pytest.warns(DeprecationWarning, match="to_cpu is deprecated"):
        chain.to_device("@numpy")
    assert chain.old.sent == 1 and isinstance(chain.list[0].table, np.ndarray)
    with pytest.warns(DeprecationWarning, match="to_cpu is deprecated"):
        chain.old.to_cpu()
    assert chain.old.sent == 2


def test_deep_copies_keep_names_and_new_values_have_no_gradients() -> None:
    net = Net()
    net.first.W.grad = np.ones_like(net.first.W.array)
    assert [net.first.copy(mode).name for mode in ("copy", "init", "share")] == ["first", "first", None]
    assert (net.first.copy("copy").W.grad == 1).all() and np.isnan(net.first.copy("init").W.grad).all()
    net.first.W.initialize((3, 2))
    assert net.first.W.grad is None


def test_printing() -> None:
    class Named(Dense):
        @property
        def printable_specs(self):
            yield "size", 3

    chain = Chain(a=Named(), b=ChainList(Named()))
    expected = "Chain(\n  (a): Named(size=3),\n  (b): ChainList(\n    (0): Named(size=3),\n  ),\n)"
    assert str(chain) == expected and str(Chain()) == "Chain()" and str(ChainList()) == "ChainList()"


def test_list_operations_rename_children() -> None:
    links = ChainList(Dense(1), Dense(2))
    links.append(Dense(3))
    links.insert(0, Dense(4))
    del links[1]
    links[0] = Dense(5)
    links.extend([Dense(6)])
    links += [Dense(7)]
    assert [link.W.shape[1] for link in links] == [5, 2, 3, 6, 7]
    links[1:3] = [Dense(8)]
    links.reverse()
    assert links.pop().W.shape[1] == 5
    links.add_link(Dense(9))
    assert [(link.name, link.W.shape[1]) for link in links] == [("0", 7), ("1", 6), ("2", 8), ("3", 9)]
    assert len(links[1:]) == 3 and links[-1].name == "3"
    with links.init_scope():
        links.scale = Parameter(1, (1,))
        with pytest.raises(TypeError, match="append"):
            links.x = Dense()
    assert paths(links)[0] == "/scale"
    with pytest.raises(ValueError, match="0 children, ChainList has 4"):
        ChainList().copyparams(links)


def test_a_link_that_stands_twice_is_counted_twice() -> None:
    dense = Dense()
    links = ChainList(dense, dense)
    assert paths(links) == ["/0/W", "/0/b", "/1/W", "/1/b"]
