"""Stand-ins give what ordinary arrays give, and the same backward graphs, without doing the work."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.ir import print_graph
from kusari.static.function import static_functions
from kusari.static.gradients import backward_memo
from kusari.static.gradients import differentiate as module
from kusari.static.gradients.backward_memo import BackwardMemo
from kusari.static.gradients.stand_in import StandIn, stand_in

OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "broadcast": lambda x, w, i: x * w[:1] + 2,
    "dtype": lambda x, w, i: x / i[:, None],
    "in place": lambda x, w, i: x.__iadd__(w[0]),
    "in place, unequal": lambda x, w, i: x.__iadd__(np.arange(4, dtype="f")),
    "in place, narrower": lambda x, w, i: np.multiply(x, np.arange(4.0), out=x, casting="same_kind"),
    "comparison": lambda x, w, i: np.where(x > 0, x, 0),
    "dot": lambda x, w, i: x.dot(w.T),
    "matmul": lambda x, w, i: x @ w.T,
    "batched": lambda x, w, i: np.matmul(x.reshape(3, 1, 4), w[:3].reshape(3, 4, 1)),
    "sum": lambda x, w, i: x.sum(axis=1, keepdims=True),
    "sum of all": lambda x, w, i: x.sum(),
    "max": lambda x, w, i: x.max(axis=(0, 1)),
    "mean": lambda x, w, i: x.mean(axis=-1),
    "var": lambda x, w, i: x.var(axis=0, keepdims=True),
    "cast": lambda x, w, i: i.astype("f8"),
    "concatenate": lambda x, w, i: np.concatenate([x, w]),
    "take": lambda x, w, i: x[np.arange(3), i],
    "written": lambda x, w, i: np.log1p(np.exp(x), out=np.empty((3, 4), "f")),
    "two results": lambda x, w, i: np.modf(x)[1],
    "transposed": lambda x, w, i: x.transpose(1, 0).reshape(2, 6),
    "empty": lambda x, w, i: x[:0] + 1,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_results_are_those_of_ordinary_arrays(name: str) -> None:
    kinds = [((3, 4), 1, np.float32), ((5, 4), 3, np.float32), ((3,), 2, np.int32)]
    want = OPERATIONS[name](*(np.full(*k) for k in kinds))
    got = OPERATIONS[name](*(stand_in(*k) for k in kinds))
    assert np.shape(got) == np.shape(want) and got.dtype == want.dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


def test_size_does_not_matter() -> None:
    x = stand_in((1 << 20, 1 << 20), 1, np.float32)
    y = np.tanh(x.dot(x.T) + x[0])
    assert isinstance(y, StandIn) and y.shape == x.shape and y.sum(axis=0).shape == (1 << 20,)


def test_writing_is_counted() -> None:
    before = StandIn.writes
    stand_in((3,), 0, np.int32)[1] = 7
    assert StandIn.writes == before + 1


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(6, 8), L.Linear(8, 4)
            self.bn, self.ln = L.BatchNormalization(8), L.LayerNormalization(8)
            self.embed = L.EmbedID(5, 6)
            self.step, self.cell = L.Linear(6, 6), L.StatelessLSTM(6, 6)


def unrolled(m: Model, x: Any, t: Any, steps: int = 4) -> Any:
    c = h = loss = None
    for _ in range(steps):
        c, h = m.cell(c, h, F.dropout(F.tanh(m.step(x)) * x, 0.2))
        part = F.softmax_cross_entropy(m.step(h), t)
        loss = part if loss is None else loss + part
    return loss


LOSSES: dict[str, Callable[[Model, Any, Any], Any]] = {
    "softmax": lambda m, x, t: F.softmax_cross_entropy(m.l2(F.relu(m.l1(x))), t),
    "sigmoid": lambda m, x, t: F.sigmoid_cross_entropy(m.l2(F.sigmoid(m.l1(x)))[:, 0], t),
    "norms": lambda m, x, t: F.mean(F.dropout(m.ln(F.tanh(m.bn(m.l1(x)))), 0.3) ** 2),
    "loop": unrolled,
    "shapes": lambda m, x, t: F.sum(F.concat([F.transpose(m.l1(m.embed(t))), F.transpose(m.l1(x))[:, ::-1]], axis=1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_backward_graphs_do_not_depend_on_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[list[str]] = []
    def broken(*_: Any) -> Any:
        raise ValueError("output array is read-only")

    for make in (stand_in, np.full, broken):
        monkeypatch.setattr(module, "stand_in", make)
        loss = kusari.static_graph(LOSSES[name])
        model = Model()
        x, t = np.ones((3, 6), "f"), np.array([0, 1, 1], "i")
        for _ in range(2):
            loss(model, x, t).backward()
        entries = [e for f in static_functions() if f is loss.static for _, e in f.signatures(None)]
        texts.append([print_graph(c.graph) for e in entries for c in getattr(e, "compiled", ())])
    assert len(texts[0]) == 2 and texts[0] == texts[1] == texts[2]


@pytest.mark.slow
def test_equal_steps_are_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ran = [0], [0]
    backward, select = BackwardMemo.backward, backward_memo.select_gradients

    def asking(*args: Any) -> Any:
        asked[-1] += 1
        return backward(*args)

    def running(*args: Any) -> Any:
        ran[-1] += 1
        return select(*args)
    monkeypatch.setattr(BackwardMemo, "backward", asking)
    monkeypatch.setattr(backward_memo, "select_gradients", running)
    for steps in (4, 16):
        loss = kusari.static_graph(lambda m, x, t, steps=steps: unrolled(m, x, t, steps))
        model = Model()
        asked.append(0)
        ran.append(0)
        for _ in range(2):
            loss(model, np.ones((3, 6), "f"), np.array([0, 1, 1], "i")).backward()
    assert asked[2] > 3 * asked[1] and 0 < ran[1] == ran[2]
