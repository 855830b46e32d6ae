"""What a whole step has stored, cut off after it: truncated back-propagation by the states of links."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari.functions as F
import kusari.links as L
from kusari import Chain, static_graph
from kusari.optimizers import SGD
from kusari.static.replay.static_call import StaticCall

CUTS: dict[str, Callable[[Any, Any], Any]] = {
    "one": lambda h, c: h.unchain_backward(),
    "other": lambda h, c: c.unchain_backward(),
    "right behind one": lambda h, c: h.unchain(),
    "right behind both": lambda h, c: (h.unchain(), c.unchain()),
    "twice": lambda h, c: (c.unchain(), h.unchain_backward()),
    "both": lambda h, c: (h.unchain_backward(), c.unchain_backward()),
}


class Recurrent(Chain):
    def __init__(self, cell: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.cell = cell(3, 4)
            self.out = L.Linear(4, 5)

    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(F.concat([self.out(self.cell(x[:, i])) for i in range(3)], 0), t)

    def cut(self) -> None:
        for v in (self.cell.h, self.cell.c):
            v.unchain_backward()


class StaticRecurrent(Recurrent):
    loss = static_graph(Recurrent.loss, strict=True)


def batch(i: int) -> tuple[Any, Any]:
    r = np.random.RandomState(i)
    return r.randn(2, 3, 3).astype(np.float32), r.randint(0, 5, 6).astype(np.int32)


def train(kind: Any, cell: Any, cut: Any) -> list[Any]:
    np.random.seed(0)
    model = kind(cell)
    optimizer = SGD(0.1).setup(model)
    seen: list[Any] = []
    for i in range(5):
        np.random.seed(i)
        optimizer.update(model.loss, *batch(i))
        h, c = model.cell.h, model.cell.c
        cut(h, c)
        model.cleargrads()
        for v in (h, c):
            if v.creator_node is not None:
                F.sum(v * v).backward()
        seen += [[v.creator_node is not None for v in (h, c)], h.grad, c.grad, *(p.grad for p in model.params())]
        model.cut()
    return seen + [p.array for p in model.params()]


@pytest.mark.parametrize("cell", [
    pytest.param(L.LSTM, id="LSTM"), pytest.param(L.StatefulZoneoutLSTM, id="Zoneout", marks=pytest.mark.slow)])
@pytest.mark.parametrize("cut", CUTS.values(), ids=list(CUTS))
def test_a_result_that_is_cut_off_is_a_leaf(cut: Any, cell: Any) -> None:
    for y, x in zip(train(StaticRecurrent, cell, cut), train(Recurrent, cell, cut), strict=True):
        if x is None or isinstance(x, list):
            assert y == x
        else:
            np.testing.assert_allclose(y, x, rtol=2e-4, atol=2e-6)


def test_truncated_steps_do_not_apply_functions_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting one state after the other leaves nothing to look into."""
    def refuse(call: Any, twice: bool = False) -> None:
        raise AssertionError("expanded")
    monkeypatch.setattr(StaticCall, "expand", refuse)
    model = StaticRecurrent(L.LSTM)
    optimizer = SGD(0.1).setup(model)
    for i in range(4):
        optimizer.update(model.loss, *batch(i))
        model.cut()
        assert model.cell.h.creator_node is None and model.cell.c.creator_node is None
