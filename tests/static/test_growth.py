"""What a long process keeps: nothing of models, optimizers and calls that are gone, and little of shapes seen once."""
from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari import Chain, optimizers
from kusari import links as L
from kusari.runtime import Executable, default_loader, frame, memory
from kusari.runtime.frame import Frame


class Net(Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.a, self.b = L.Linear(4, 5), L.Linear(5, 3)

    @kusari.static_graph
    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.forward(x), t)

    @kusari.static_graph
    def forward(self, x: Any) -> Any:
        return self.b(F.relu(self.a(x)))


def data(n: int = 3) -> tuple[Any, Any]:
    return np.ones((n, 4), "f"), np.zeros(n, "i")


def train(net: Net, optimizer: Any, whole: bool, n: int = 3) -> None:
    x, t = data(n)
    for _ in range(3):
        if whole:
            optimizer.update(net.loss, x, t)
        else:
            net.cleargrads()
            F.softmax_cross_entropy(net.forward(x), t).backward()
            optimizer.update()


def alive() -> dict[str, int]:
    gc.collect()
    kinds = [type(o) for o in gc.get_objects()]
    return {kind.__name__: kinds.count(kind) for kind in (Executable, Frame, Net)}


@pytest.mark.parametrize("whole", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_models_leave_nothing(whole: bool) -> None:
    before = alive()
    for _ in range(3):
        net = Net()
        train(net, optimizers.Adam().setup(net), whole)
    del net
    assert alive() == before


@pytest.mark.parametrize("whole", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_optimizer_keeps_its_own_model_alone(whole: bool) -> None:
    optimizer, known = optimizers.SGD(), []
    for _ in range(3):
        net = Net()
        train(net, optimizer.setup(net), whole)
        known.append(weakref.ref(net))
    del net
    gc.collect()
    assert [r() is not None for r in known] == [False, False, True]


@pytest.mark.slow
def test_functions_leave_nothing() -> None:
    before = alive()
    for i in range(3):
        function = kusari.static_graph(lambda x, i=i: F.tanh(x) * i)
        x = kusari.Variable(np.ones(3, "f"))
        for _ in range(3):
            F.sum(function(x)).backward()
    del function
    assert alive() == before


@pytest.mark.slow
def test_calls_that_were_in_flight_once_are_forgotten() -> None:
    net = Net()
    x, _ = data()
    every = [net.forward(x) for _ in range(100)]
    del every
    before = alive()["Frame"]
    for _ in range(1000):
        net.forward(x)
    assert before >= 98 and alive()["Frame"] <= before - 80


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_idle_shapes_hold_no_more_than_the_largest(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kusari.static.room.KEPT_BYTES", 0)
    monkeypatch.setattr("kusari.runtime.frame.LARGE_BYTES", 0)
    net = Net()
    optimizer = optimizers.SGD().setup(net)
    sizes = (300, 310, 320, 330, 340)
    for n in (*sizes, *sizes):
        train(net, optimizer, whole, n)
    used = [s for _, s in optimizer._steps.by_loss.values()] if whole else [
        e for _, e in Net.forward.static.signatures(net)]
    held = [s.nbytes for s in used]
    assert len(held) == len(sizes)
    assert held[-1] > 1000 and sum(n > 1000 for n in held) <= 2, held  # what is left are constants


def test_memory_of_idle_shapes_does_not_wait_for_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kusari.static.room.KEPT_BYTES", 0)
    monkeypatch.setattr(frame, "LARGE_BYTES", 0)
    arenas: list[weakref.ref[Any]] = []

    def allocate(nbytes: int, huge: bool = True) -> Any:
        found = memory.allocate(nbytes, huge)
        if nbytes >= 1 << 16:  # mapped
            arenas.append(weakref.ref(found.base.obj))
        return found
    monkeypatch.setattr(frame, "allocate", allocate)
    net = Net()
    optimizer = optimizers.SGD().setup(net)
    gc.collect()
    gc.disable()
    try:
        for n in (2000, 2010, 2020, 2030, 2040):
            train(net, optimizer, True, n)
        assert len(arenas) == 5 and sum(a() is not None for a in arenas) == 2
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "shared"])
def test_code_for_new_shapes_does_not_pile_up(alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that each shape has for itself are released; else there are few, as shapes have them in common."""
    shapes, scale = range(2, 14), 2 + alone
    monkeypatch.setattr("kusari.static.compile.families.ALONE_SIGNATURES", len(shapes) if alone else 2)
    monkeypatch.setattr("kusari.runtime.loader.IDLE_BYTES", 1 << 14)
    monkeypatch.setattr("kusari.static.replay.schedule_cache.MAX_SCHEDULES", 2)
    loader, function = default_loader(), kusari.static_graph(lambda x: F.tanh(x) * scale + F.sum(x))
    before = set(loader._libraries)
    linked = loader._linked
    with kusari.no_backprop_mode():
        for n in shapes:
            for _ in range(2):
                function(np.ones(n, "f"))
    gc.collect()
    found = [library for library in loader._libraries if library not in before]
    count = loader._linked - linked
    assert count >= len(shapes) if alone else count < len(shapes) // 2, count
    assert sum(library.nbytes for library in found) <= (1 << 14) + 2 * max(library.nbytes for library in found)


def test_a_whole_step_counts_as_a_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kusari.static.replay.schedule_cache.MAX_SCHEDULES", 2)

    class Model(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l = L.Linear(3, 2)

        @kusari.static_graph
        def loss(self, x: Any) -> Any:
            return F.sum(self.l(x) ** 2)

    model = Model()
    optimizer = kusari.optimizers.SGD(0.01).setup(model)
    for rows, step in ((2, True), (3, False), (2, True), (4, False)):
        x = np.ones((rows, 3), "f")
        optimizer.update(model.loss, x) if step else model.loss(x)
    kept = [entry.recording.leaves[0].shape[0] for _, entry in Model.__dict__["loss"].static.signatures()]
    assert kept == [2, 4]
