"""Loops whose loss, backward and update are one schedule do what they do in parts; and which loops those are."""
from __future__ import annotations

import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.training_loops import IN_PARTS, JOINED, STEPS, Called, Net, Own, World, clears_after, clears_before

import kusari
from kusari import optimizers
from kusari.epochs import Scaled
from kusari.link.namespace import is_exposed
from kusari.static.step.joined import Joined, JoinedStep
from kusari.static.step.straight_code import UNTRIED, sites

pytestmark = pytest.mark.skipif(sys.version_info >= UNTRIED, reason="loops are made in parts by this version of Python")


def same(xs: list[Any], ys: list[Any]) -> None:
    assert len(xs) == len(ys)
    for x, y in zip(xs, ys, strict=True):
        if isinstance(x, np.ndarray) and x.dtype.kind == "f":
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6)
        elif isinstance(x, float):
            assert y == pytest.approx(x, rel=1e-5)
        else:
            np.testing.assert_array_equal(x, y)


def ran(loop: Callable[[World], None], join: bool, **world: Any) -> World:
    with kusari.using_config("join_loops", join):
        w = World(**world)
        loop(w)
        w.trace.append(w.device.xp.random.rand(3))  # what is drawn next
        return w


OPTIMIZERS = pytest.mark.parametrize("optimizer", [optimizers.AdaBound, optimizers.SGD])  # the latter's are usual


@OPTIMIZERS
@pytest.mark.parametrize("loop", JOINED, ids=lambda f: f.__name__)
def test_joined(loop: Callable[[World], None], optimizer: Any) -> None:
    now, before = (ran(loop, join, optimizer=optimizer) for join in (True, False))
    assert (now.joined, before.joined) == (True, False)
    same(now.state(), before.state())


@OPTIMIZERS
@pytest.mark.parametrize("loop", IN_PARTS, ids=lambda f: f.__name__)
def test_in_parts(loop: Callable[[World], None], optimizer: Any) -> None:
    now, before = (ran(loop, join, optimizer=optimizer) for join in (True, False))
    assert not now.joined
    same(now.state(), before.state())


@pytest.mark.parametrize("loop", [clears_after, clears_before])
def test_a_step_like_the_last_is_one_function(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the place nor the step is looked at in the general way once there is a function of both."""
    monkeypatch.setattr(Scaled, "ever", False)  # what other tests have scaled is looked at for ever
    looked: list[type] = []
    for kind in (Joined, JoinedStep):
        def run(self: Any, *args: Any, kind: Any = kind, before: Any = kind._run) -> Any:
            looked.append(kind)
            return before(self, *args)
        monkeypatch.setattr(kind, "_run", run)
    w = ran(loop, True, optimizer=optimizers.SGD)
    assert w.joined and looked == [Joined, JoinedStep]


def test_a_loop_goes_on_where_its_function_comes_to_fall_back() -> None:
    """Python's part of a replay gives something else, which only a run shows."""
    @kusari.static_graph
    def loss_of(model: Any, x: Any) -> Any:
        return kusari.functions.sum(model(x) ** 2) * min(1, 1 / (x ** 2).sum())

    def losses(static: bool) -> list[float]:
        np.random.seed(0)
        model, found = kusari.links.Linear(2, 2), []
        opt = optimizers.SGD(0.01).setup(model)
        with kusari.using_config("use_static_graph", static):
            for i in range(12):
                loss = loss_of(model, np.full((1, 2), 0.1 if i % 2 else 3, "f"))
                model.cleargrads()
                loss.backward()
                opt.update()
                found.append(float(loss.array))
        return found

    with pytest.warns(kusari.static.StaticGraphWarning, match="min takes"):
        found = losses(True)
    np.testing.assert_allclose(found, losses(False), 1e-5)


def test_neither_says_that_its_attributes_may_change_unseen() -> None:
    """After that every call compares all of them."""
    w = ran(clears_after, True)
    assert w.joined and not is_exposed(w.model)
    v = World(kind=Called)
    for _ in range(3):
        v.opt.update(v.model, v.x[0], v.t[0])
    assert not is_exposed(v.model)


@pytest.mark.parametrize("optimizer", [optimizers.SGD, optimizers.MomentumSGD, optimizers.RMSprop])
def test_optimizers_and_draws(optimizer: Any) -> None:
    now, before = (ran(clears_after, join, optimizer=optimizer, dropout=True) for join in (True, False))
    assert now.joined
    same(now.state(), before.state())


def called(w: World) -> None:
    model, opt = w.model, w.opt
    for x, t in zip(w.x, w.t, strict=True):
        loss = model(x, t)
        model.cleargrads()
        loss.backward()
        opt.update()
        w.trace.append(float(loss.array))


@pytest.mark.parametrize("kind", [Called, Own])
def test_a_model_is_called(kind: Any) -> None:
    now, before = ran(called, True, kind=kind), ran(called, False, kind=kind)
    assert now.joined
    same(now.state(), before.state())


@pytest.mark.parametrize(("kind", "name"), [(Net, "cleargrads"), (optimizers.SGD, "update"),
                                            (kusari.Variable, "backward")])
def test_methods_of_the_users_run(kind: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that is overridden sees what it sees in parts."""
    def loop(w: World) -> None:
        original = getattr(kind, name)

        def own(self: Any, *args: Any, **kwargs: Any) -> Any:
            w.trace.append(float(w.model.a.W.array.sum()))
            return original(self, *args, **kwargs)

        with monkeypatch.context() as m:
            m.setattr(kind, name, own)
            clears_after(w)

    now, before = (ran(loop, join, optimizer=optimizers.SGD) for join in (True, False))
    assert not now.joined
    same(now.state(), before.state())


def test_nothing_is_kept_alive_and_all_can_be_pickled() -> None:
    w = ran(clears_after, True)
    assert w.joined
    again = pickle.loads(pickle.dumps((w.model, w.opt)))
    assert again[1].t == w.opt.t
    gone = weakref.ref(w.model), weakref.ref(w.opt)
    del w
    gc.collect()
    assert [r() for r in gone] == [None, None]
    assert not kusari.tape.updates


class Stop(Exception):
    """Stands for a signal."""


def interrupted(w: World, fail: list[bool]) -> None:
    model, opt = w.model, w.opt
    for i, (x, t) in enumerate(zip(w.x, w.t, strict=True)):
        fail[0] = i == 3
        kusari.config.join_loops = i != 4
        try:
            loss = model.loss(x, t)
            model.cleargrads()
            loss.backward()
            opt.update()
        except Stop:
            w.trace.append(i)


def test_an_update_after_an_interrupt_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward whose update never came does not stand for the update of a later step of the same loop."""
    original, fail = kusari.tape.updated, [False]

    def updated(*args: Any) -> bool:
        if fail[0]:
            fail[0] = False
            raise Stop
        return original(*args)

    monkeypatch.setattr(kusari.tape, "updated", updated)
    w = World()
    with kusari.using_config("join_loops", True):
        interrupted(w, fail)
    assert w.joined and w.trace == [3] and w.opt.t == STEPS  # the interrupt came behind the update


def expression(model: Any, opt: Any, x: Any) -> None:
    loss = model.loss(x, x if x is None else 1)
    loss.backward()
    opt.update()


def twice(model: Any, opt: Any, x: Any) -> None:
    loss = model.loss(x)(x)
    loss.backward()
    opt.update()


def deeper(model: Any, opt: Any, x: Any) -> None:
    loss = model.loss.static(x)
    loss.backward()
    opt.update()


def other_loss(model: Any, opt: Any, x: Any, loss2: Any) -> None:
    loss = model.loss(x)
    loss2.backward()
    opt.update()
    print(loss.array)


@pytest.mark.parametrize("function", [expression, twice, deeper, other_loss])
def test_code_that_is_no_such_place(function: Any) -> None:
    assert sites(function.__code__) == ()
