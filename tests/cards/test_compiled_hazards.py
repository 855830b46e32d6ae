"""What may go wrong with compiled calls on a card: draws, indices, memory, devices, streams, arrays that are shared."""
from __future__ import annotations

import gc
import pickle
from contextlib import nullcontext
from typing import Any

import cupy_kernels
import cupy_memory
import numpy as np
import pytest
from cards.machines import Machine

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.runtime.card.indices import Watch
from kusari.static import StaticGraphWarning
from kusari.static.card.place import CardPlace, NoKernel

X = np.random.RandomState(0).rand(5, 7).astype("f")
T = np.array([0, 1, 2, 1, 0], "i")


class Net(kusari.Chain):
    """Two layers with dropout, and an embedding."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(7, 6, initialW=0.3), L.Linear(6, 3, initialW=0.2)

    @kusari.static_graph
    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.l2(F.relu(self.l1(x))), t)


class Words(kusari.Chain):
    """An embedding, whose indices may be wrong."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.embed, self.l = L.EmbedID(4, 3, initialW=0.5), L.Linear(3, 2, initialW=0.3)

    @kusari.static_graph
    def loss(self, i: Any) -> Any:
        return F.sum(F.tanh(self.l(self.embed(i))) ** 2)


@kusari.static_graph
def dropped(x: Any) -> Any:
    return F.dropout(F.tanh(x), 0.4) * 2


@kusari.static_graph
def noisy(x: Any) -> Any:
    return F.gaussian(x, x * 0.5) + F.rrelu(x)


@pytest.mark.slow
@pytest.mark.parametrize("function", [dropped, noisy])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_seed_same_draws(card: Machine, function: Any, dtype: str) -> None:
    def run() -> list[Any]:
        card.xp.random.seed(5)
        found: list[Any] = []
        for k in range(4):
            x = kusari.Variable(card.xp.asarray((X * (k + 1) - 1).astype(dtype)))
            y = function(x)
            y.grad = card.xp.ones_like(y.array)
            y.backward()
            found += [card.host(y.array).copy(), card.host(x.grad).copy()]
        return [*found, card.host(card.xp.random.rand(3))]
    compiled = run()
    with kusari.using_config("use_static_graph", False):
        expected = run()
    for y, e in zip(compiled, expected, strict=True):
        np.testing.assert_allclose(y, e, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(y == 0, e == 0)


def test_gradients_of_gradients_repeat_the_draws_of_the_call(card: Machine) -> None:
    def run() -> list[Any]:
        card.xp.random.seed(5)
        for _ in range(3):
            x = kusari.Variable(card.xp.asarray(X - 0.5))
            y = dropped(x)
        gx, = kusari.grad([y], [x], enable_double_backprop=True)
        ggx, = kusari.grad([gx * gx], [x])
        return [card.host(a.array).copy() for a in (y, gx, ggx)] + [card.host(card.xp.random.rand(3))]
    found = run()
    with kusari.using_config("use_static_graph", False):
        expected = run()
    for y, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(y, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("has_kernels", [True, False])
def test_gradients_are_compiled_when_they_are_asked_for(card: Machine, monkeypatch: pytest.MonkeyPatch,
                                                        has_kernels: bool) -> None:
    """Inference compiles none; those without a kernel are define-by-run's, with one warning."""
    compiled: list[str] = []
    compile_ = CardPlace.compile

    def compiling(place: CardPlace, graph: Any, *arguments: Any) -> Any:
        compiled.append(graph.name)
        if "backward" in graph.name and not has_kernels:
            raise NoKernel(graph.nodes[0])
        return compile_(place, graph, *arguments)

    @kusari.static_graph
    def scaled(x: Any) -> Any:
        return F.tanh(x) * 3

    monkeypatch.setattr(CardPlace, "compile", compiling)
    for _ in range(4):
        scaled(kusari.Variable(card.xp.asarray(X)))
    assert compiled == ["scaled"]
    for k in range(3):
        x = kusari.Variable(card.xp.asarray(X * k))
        y = scaled(x)
        y.grad = card.xp.ones_like(y.array)
        with nullcontext() if has_kernels or k else pytest.warns(StaticGraphWarning, match="no kernel of a graphics"):
            y.backward()
        np.testing.assert_allclose(card.host(x.grad), 3 - 3 * np.tanh(X * k) ** 2, rtol=1e-5, atol=1e-6)
    assert compiled == ["scaled", "scaled_backward"]


def moved(model: Any, device: str = "@cupy:0") -> Any:
    model.to_device(device)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "joined", "parts"])
@pytest.mark.parametrize("late", [True, False], ids=["late", "at once"])
def test_an_index_out_of_bounds_changes_nothing(card: Machine, kind: str, late: bool) -> None:
    model = moved(Words())
    updater = kusari.optimizers.Adam().setup(model)
    good, bad = card.xp.asarray(np.array([0, 3], "i")), card.xp.asarray(np.array([0, 4], "i"))

    def step(indices: Any) -> None:
        if kind == "whole":
            updater.update(model.loss, indices)
        elif kind == "joined":
            loss = model.loss(indices)
            model.cleargrads()
            loss.backward()
            updater.update()
        else:
            loss = model.loss(indices)
            model.cleargrads()
            loss.backward()
            if not late:
                card.xp.cuda.get_current_stream().synchronize()
            updater.update()

    for _ in range(4):
        step(good)
    before = {name: card.host(p.array).copy() for name, p in model.namedparams()}
    clock = updater.t
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
        for indices in (bad, *[good] * 2):
            step(indices)
            if indices is bad:
                for name, p in model.namedparams():
                    np.testing.assert_array_equal(card.host(p.array), before[name])
            card.xp.cuda.get_current_stream().synchronize()
    if kind != "parts":
        assert updater.t == clock
    for name, p in model.namedparams():
        np.testing.assert_array_equal(card.host(p.array), before[name])
    step(good)
    assert any((card.host(p.array) != before[name]).any() for name, p in model.namedparams())


@pytest.mark.slow
def test_clocks_go_back_by_the_steps_that_an_index_has_undone(card: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    model = moved(Words())
    updater = kusari.optimizers.Adam().setup(model)
    good, bad = card.xp.asarray(np.array([0, 3], "i")), card.xp.asarray(np.array([0, 4], "i"))
    look = kusari.static_graph(lambda i: F.sum(model.embed(i)))
    for _ in range(4):
        look(good)
        updater.update(model.loss, good)
    for wrong, undone in (lambda: updater.update(model.loss, bad), 3), (lambda: look(bad), 2):
        card.xp.cuda.get_current_stream().synchronize()
        updater.update(model.loss, good)  # all reports have arrived
        clock = updater.t
        with monkeypatch.context() as patch:
            patch.setattr(Watch, "look", lambda _: None)  # until others have begun
            wrong()
            for _ in range(2):
                updater.update(model.loss, good)
        assert updater.t == clock + undone
        card.xp.cuda.get_current_stream().synchronize()
        with pytest.raises(IndexError, match="index 4 is out of bounds"):
            updater.update(model.loss, good)
        assert updater.t == clock and {p.update_rule.t for p in model.params()} == {clock}


@pytest.mark.slow
def test_out_of_memory_names_the_plan_and_changes_nothing(card: Machine) -> None:
    if not card.simulated:
        pytest.skip("the limit of the stand-in's pool")
    model = moved(Net())
    updater = kusari.optimizers.Adam().setup(model)
    big = card.xp.asarray(np.tile(X, (60, 1))), card.xp.asarray(np.tile(T, 60))
    small = card.xp.asarray(X), card.xp.asarray(T)
    updater.update(model.loss, *big)
    before = {name: card.host(p.array).copy() for name, p in model.namedparams()}
    clock = updater.t, [p.update_rule.t for p in model.params()]
    gc.collect()  # arrays of other tests would make room
    cupy_memory.pool.set_limit(cupy_memory.pool.used_bytes() + 9_000)
    with pytest.raises(MemoryError, match=r"no memory left for [\d,]+ bytes of frames of 'loss_step'.*an arena of"):
        updater.update(model.loss, *big)
    assert (updater.t, [p.update_rule.t for p in model.params()]) == clock
    for name, p in model.namedparams():
        np.testing.assert_array_equal(card.host(p.array), before[name])
    for _ in range(3):
        updater.update(model.loss, *small)
    cupy_memory.pool.set_limit(0)
    updater.update(model.loss, *big)


@pytest.mark.slow
def test_models_move_between_devices(two_cards: Machine) -> None:
    model = Net()
    updater = kusari.optimizers.SGD(0.1).setup(model)
    expected = Net()
    other = kusari.optimizers.SGD(0.1).setup(expected)
    for place in ("@cupy:0", "@cupy:1", "@numpy", "@cupy:1", "@cupy:0") * 2:
        model.to_device(place)
        device = kusari.get_device(place)
        for _ in range(3):
            updater.update(model.loss, device.send(X), device.send(T))
            with kusari.using_config("use_static_graph", False):
                other.update(expected.loss, X, T)
    model.to_device("@numpy")
    for (_, p), (_, q) in zip(sorted(model.namedparams()), sorted(expected.namedparams()), strict=True):
        np.testing.assert_allclose(p.array, q.array, rtol=1e-5)


def test_another_device_may_be_the_current_one(two_cards: Machine) -> None:
    model = moved(Net(), "@cupy:1")
    updater = kusari.optimizers.SGD(0.1).setup(model)
    with two_cards.xp.cuda.Device(1):
        x, t = two_cards.xp.asarray(X), two_cards.xp.asarray(T)
    before = dict(cupy_kernels.launches)
    for _ in range(4):
        updater.update(model.loss, x, t)
    assert cupy_kernels.launches != before or not two_cards.simulated
    assert two_cards.xp.cuda.Device().id == 0 and all(p.array.device.id == 1 for p in model.params())


@pytest.mark.slow
def test_devices_are_not_mixed(two_cards: Machine) -> None:
    model = moved(Net())
    x, t = two_cards.xp.asarray(X), two_cards.xp.asarray(T)
    for _ in range(3):
        model.loss(x, t)
    with two_cards.xp.cuda.Device(1):
        x, t = two_cards.xp.asarray(X), two_cards.xp.asarray(T)
    with pytest.raises(Exception, match="(?i)device"):
        model.loss(x, t)
    with pytest.raises(Exception, match="(?i)numpy|device|type"):
        model.loss(X, T)


def test_streams_of_the_caller(card: Machine) -> None:
    model, expected = moved(Net()), moved(Net())
    updater, other = (kusari.optimizers.SGD(0.1).setup(m) for m in (model, expected))
    x, t = card.xp.asarray(X), card.xp.asarray(T)
    for _ in range(6):
        stream = card.xp.cuda.Stream(non_blocking=True)
        with stream:
            updater.update(model.loss, x, t)
            loss = model.loss(x, t)
        stream.synchronize()
        with kusari.using_config("use_static_graph", False):
            other.update(expected.loss, x, t)
            np.testing.assert_allclose(card.host(loss.array), card.host(expected.loss(x, t).array), rtol=1e-5)


def test_results_and_gradients_that_are_held_stay(card: Machine) -> None:
    model = moved(Net())
    updater = kusari.optimizers.SGD(0.1).setup(model)
    x, t = card.xp.asarray(X), card.xp.asarray(T)
    held: list[Any] = []
    copies: list[Any] = []
    for _ in range(6):
        updater.update(model.loss, x, t)
        held += [model.l1.W.grad, model.l1.b.grad[1:], model.loss(x, t).array]
        copies += [card.host(a).copy() for a in held[-3:]]
    for a, c in zip(held, copies, strict=True):
        np.testing.assert_array_equal(card.host(a), c)
    assert len({float(c) for c in copies[2::3]}) == 6


@pytest.mark.slow
def test_parameters_that_share_memory_stay_define_by_run(card: Machine) -> None:
    model = moved(Net())
    whole = card.xp.zeros(9, "f")
    model.l1.b.array, model.l2.b.array = whole[:6], whole[3:6]
    updater = kusari.optimizers.SGD(0.1).setup(model)
    x, t = card.xp.asarray(X), card.xp.asarray(T)
    expected = [whole.get()]
    for _ in range(3):
        updater.update(model.loss, x, t)
        assert model.l2.b.array.data.ptr == model.l1.b.array.data.ptr + 12
        expected.append(whole.get())
    assert len({e.tobytes() for e in expected}) == 4


def test_parameters_get_other_arrays(card: Machine) -> None:
    model, expected = moved(Net()), moved(Net())
    x, t = card.xp.asarray(X), card.xp.asarray(T)
    for k in range(12):
        for m in (model, expected):
            if k % 2:
                m.l1.W.array = m.l1.W.array * 0.9
            elif k > 6:
                m.l1.W.array = card.xp.asarray(np.asfortranarray(card.host(m.l1.W.array)))
        y = model.loss(x, t)
        with kusari.using_config("use_static_graph", False):
            z = expected.loss(x, t)
        np.testing.assert_allclose(card.host(y.array), card.host(z.array), rtol=1e-5)


def test_pickled_models_train_on(card: Machine) -> None:
    model = moved(Net())
    updater = kusari.optimizers.SGD(0.1).setup(model)
    x, t = card.xp.asarray(X), card.xp.asarray(T)
    for _ in range(3):
        updater.update(model.loss, x, t)
    copy = pickle.loads(pickle.dumps(model))
    other = kusari.optimizers.SGD(0.1).setup(copy)
    for _ in range(3):
        updater.update(model.loss, x, t)
        other.update(copy.loss, x, t)
    for (_, p), (_, q) in zip(sorted(model.namedparams()), sorted(copy.namedparams()), strict=True):
        np.testing.assert_allclose(card.host(p.array), card.host(q.array), rtol=1e-5)


def test_without_graphs_kernels_are_launched(card: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_CUDA_GRAPH", "0")
    model = moved(Net())
    updater = kusari.optimizers.SGD(0.1).setup(model)
    x, t = card.xp.asarray(X), card.xp.asarray(T)
    for _ in range(4):
        cupy_kernels.launches.clear()
        updater.update(model.loss, x, t)
    if card.simulated:
        assert cupy_kernels.launches["graphs"] == 0 and cupy_kernels.launches["kernels"] > 5


class Own(kusari.FunctionNode):
    """A function of the user's own, which Python runs between two graphs."""

    def forward(self, inputs: Any) -> Any:
        self.retain_inputs((0,))
        return inputs[0] * inputs[0],

    def backward(self, indexes: Any, gys: Any) -> Any:
        x, = self.get_retained_inputs()
        return 2 * x * gys[0],


@kusari.static_graph
def with_own(x: Any) -> Any:
    return F.sum(F.tanh(Own().apply((F.sin(x) * 3,))[0] + x))


@pytest.mark.slow
def test_functions_of_the_users_run_between_graphs(card: Machine) -> None:
    with_own.static.caches()
    for k in range(4):
        x, z = (kusari.Variable(card.xp.asarray(X * (k + 1))) for _ in range(2))
        cupy_kernels.launches.clear()
        with_own(x).backward()
        if card.simulated and k > 1:
            assert cupy_kernels.launches["graphs"] >= 3
        with kusari.using_config("use_static_graph", False):
            with_own(z).backward()
        np.testing.assert_allclose(card.host(x.grad), card.host(z.grad), rtol=1e-4, atol=1e-5)


@kusari.static_graph
def branching(x: Any) -> Any:
    return F.relu(x) if float(x.array.sum()) > 0 else F.tanh(x)


@kusari.static_graph
def doubling(x: Any) -> Any:
    return F.relu(x * 2)


@kusari.static_graph
def masked(x: Any) -> Any:
    return F.relu(x) * x.xp.ones((5, 7), "f")


@pytest.mark.parametrize("function", [branching, doubling], ids=["branching", "doubling"])
def test_elements_read_by_the_user_stay_define_by_run(card: Machine, function: Any) -> None:
    def given(k: int) -> Any:
        x = card.xp.asarray(X - k * 0.7)
        return kusari.Variable(x) if function is branching else x
    with pytest.warns(StaticGraphWarning, match="card|computed|taken|array"):
        found = [card.host(function(given(k)).array).copy() for k in range(4)]
    with kusari.using_config("use_static_graph", False):
        for k, y in enumerate(found):
            np.testing.assert_array_equal(y, card.host(function(given(k)).array))


@pytest.mark.filterwarnings("error::kusari.static.StaticGraphWarning")
def test_arrays_of_numbers_are_constants(card: Machine) -> None:
    for k in range(3):
        found = card.host(masked(kusari.Variable(card.xp.asarray(X - k * 0.3))).array)
        np.testing.assert_array_equal(found, np.maximum(X - np.float32(k * 0.3), 0))


@pytest.mark.slow
def test_states_of_links(card: Machine) -> None:
    class Normalized(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l, self.bn = L.Linear(7, 4, initialW=0.3), L.BatchNormalization(4)

        @kusari.static_graph
        def loss(self, x: Any) -> Any:
            return F.sum(F.tanh(self.bn(self.l(x))) * self.l.b)

    found: list[Any] = []
    for static in (True, False):
        model = moved(Normalized())
        updater = kusari.optimizers.MomentumSGD(0.01).setup(model)
        with kusari.using_config("use_static_graph", static):
            for k in range(4):
                updater.update(model.loss, card.xp.asarray(X + k))
            model.cleargrads()
            model.loss(card.xp.asarray(X)).backward()
        arrays = model.bn.avg_mean, model.bn.avg_var, model.l.W.array, model.l.W.grad
        found.append([card.host(a).copy() for a in arrays])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_explain_shows_the_plan_of_the_card(card: Machine) -> None:
    model = moved(Net())
    updater = kusari.optimizers.SGD(0.1).setup(model)
    for _ in range(3):
        updater.update(model.loss, card.xp.asarray(X), card.xp.asarray(T))
    summary, plan = str(model.static.explain()), str(model.static.explain("plan"))
    assert "launches of" in summary and "on card 0, as CUDA graphs" in summary and "GB/s" in summary
    assert "a frame is one buffer of" in plan and "of constants" in plan and "moves" in plan


def test_verification_says_that_it_does_not_compare(card: Machine) -> None:
    class Verified(Net):
        loss = kusari.static_graph(verify=1)(Net.loss.static.fn)

    model = moved(Verified())
    with pytest.warns(StaticGraphWarning, match="not verified where its arrays lie on a graphics card"):
        for _ in range(3):
            model.loss(card.xp.asarray(X), card.xp.asarray(T))


REFUSED = [
    ("an allocation", lambda xp, x: xp.empty(3)), ("a copy to the host", lambda xp, x: x.get()),
    ("a number", lambda xp, x: float(x.sum())), ("a product", lambda xp, x: x @ x.T),
    ("a draw", lambda xp, x: xp.random.rand(3)), ("a wait", lambda xp, x: xp.cuda.get_current_stream().synchronize())]


@pytest.mark.parametrize("refused", [row[1] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_the_stand_in_refuses_in_a_capture(card: Machine, refused: Any) -> None:
    if not card.simulated:
        pytest.skip("of the stand-in")
    x = card.xp.asarray(X)
    with card.xp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        with pytest.raises(RuntimeError, match="cudaErrorStreamCaptureUnsupported"):
            refused(card.xp, x)
        with pytest.raises(RuntimeError, match="empty graph"):
            stream.end_capture()
    with pytest.raises(RuntimeError, match="default"):
        card.xp.cuda.Stream.null.begin_capture()
