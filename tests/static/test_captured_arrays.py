"""Arrays that code has from attributes, globals and closures: functions read them at each call as they are then."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Chain, static_graph
from kusari.optimizers import SGD
from kusari.static.arrays.captured import index_of

TABLE = np.arange(48, dtype=np.float32).reshape(6, 8)
MASK = np.tril(np.ones((6, 6), bool))
SPARSE = kusari.utils.to_coo(np.tril(TABLE[:, :6]))


class Model(Chain):
    def __init__(self, compute: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.compute = compute
        self.table = np.arange(96, dtype=np.float32).reshape(12, 8) / 50
        self.large = np.random.RandomState(0).rand(200, 8, 16).astype(np.float32)
        self.tables = [self.table + 1, self.table + 2]
        self.add_persistent("state", self.table + 3)
        with self.init_scope():
            self.l = L.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.compute(self, x)

    def loss(self, x: Any) -> Any:
        return F.sum(F.square(self(x)))


class Static(Model):
    forward = static_graph(Model.forward, strict=True)


class Whole(Model):
    loss = static_graph(Model.loss, strict=True)


READS: dict[str, Callable[[Any, Any], Any]] = {
    "attribute": lambda m, x: m.l(x) + m.table[:6],
    "attribute as it is": lambda m, x: F.matmul(m.l(x), m.table, transb=True),
    "column and new axis": lambda m, x: m.l(x) * m.table[3:9, None, 5],
    "steps and transposed": lambda m, x: m.l(x) + m.table[::2, 1:7].T[:, 2:3],
    "in a list": lambda m, x: m.l(x) + m.tables[1][2:8],
    "large": lambda m, x: m.l(x) + m.large[100:106, :, 3],
    "part of a persistent array": lambda m, x: m.l(x) + m.state[:len(x)],
    "both": lambda m, x: F.matmul(m.l(x), m.state, transb=True)[:, :8] + m.state[1:7],
    "globals": lambda m, x: F.where(MASK[:6], m.l(x)[:, :6], TABLE[:, 2:]),
    "sparse": lambda m, x: F.sparse_matmul(SPARSE, m.l(x)) + F.sparse_matmul(SPARSE, x, True),
    "repeated elements": lambda m, x: m.l(x) + np.broadcast_to(m.table[:1], (6, 8)),
    "closure": (lambda table: lambda m, x: m.l(x) * table[0] + table[1][None])(TABLE / 7),
}


def data(i: int) -> Any:
    return np.random.RandomState(i).rand(6, 8).astype(np.float32)


def made(kind: Any, compute: Any) -> Any:
    np.random.seed(0)
    return kind(compute)


@pytest.mark.parametrize("compute", READS.values(), ids=list(READS))
def test_reads(compute: Any) -> None:
    """Changed in place, or replaced by another: what define-by-run reads is what replays read."""
    models = [made(kind, compute) for kind in (Model, Static)]
    for i in range(7):
        for m in models:
            for array in (m.table, m.large, m.tables[1], m.state):
                array += i % 3
            if i == 5:
                m.table, m.large, m.state = m.table * 2, m.large * 2, m.state * 2
                m.tables[1] = m.tables[1] * 2
        expected, y = [m(data(i)) for m in models]
        np.testing.assert_allclose(y.array, expected.array, rtol=2e-5, err_msg=str(i))
        for m, v in zip(models, (expected, y), strict=True):
            m.cleargrads()
            F.sum(v * v).backward()
        for p, q in zip(models[0].params(), models[1].params(), strict=True):
            assert (p.grad is None) is (q.grad is None)
            if p.grad is not None:
                np.testing.assert_allclose(q.grad, p.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("compute", [READS[k] for k in ("attribute", "large", "both")])
def test_whole_steps(compute: Any) -> None:
    models = [made(kind, compute) for kind in (Model, Whole)]
    optimizers = [SGD(1e-5).setup(m) for m in models]
    for i in range(4):
        for m, optimizer in zip(models, optimizers, strict=True):
            optimizer.update(m.loss, data(i))
    for p, q in zip(models[0].params(), models[1].params(), strict=True):
        np.testing.assert_allclose(q.array, p.array, rtol=1e-5)


@pytest.mark.parametrize("compute", [
    lambda m, x: m.l(x) * m.table[0] if m.table[0, 0] > 5 else m.l(x) + m.table[0],
    lambda m, x: m.l(x) + m.table[:6] * 2, lambda m, x: m.l(x) + m.table[[0, 1, 2, 3, 4, 5]]],
    ids=["a branch", "made by NumPy", "a copy"])
def test_elements_that_python_reads_are_guarded(compute: Any) -> None:
    models = [made(kind, compute) for kind in (Model, Static)]
    for i in range(6):
        for m in models:
            m.table[0, 0] = 4 * (i // 2)
        expected, y = [m(data(i)).array for m in models]
        np.testing.assert_allclose(y, expected, rtol=1e-5)


FAULTS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "changed after its elements were read": (
        lambda m, x: (m.l(x) * float(m.rows[0]), m.rows.__iadd__(1))[0], "changes inside"),
    "a parameter's memory": (lambda m, x: m.l(x) + m.alias, "neither an argument nor made"),
}


@pytest.mark.parametrize(("compute", "reason"), FAULTS.values(), ids=list(FAULTS))
def test_what_stays_define_by_run(compute: Any, reason: str) -> None:
    model = made(type("Lenient", (Model,), {"forward": static_graph(Model.forward)}), compute)
    model.alias, model.rows = model.l.W.array[:1], np.zeros((2, 3))[0]
    other = made(Model, compute)
    other.alias, other.rows = other.l.W.array[:1], np.zeros((2, 3))[0]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for i in range(3):
            np.testing.assert_array_equal(model(data(i)).array, other(data(i)).array)
    assert len(seen) == 1 and reason in str(seen[0].message)


@given(st.data())
def test_parts_are_found(draw: Any) -> None:
    """Any part that slices, integers, new axes and transposing make is found again, or nothing is."""
    shape = draw.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    whole = np.arange(np.prod(shape)).reshape(shape)
    index: list[Any] = []
    for n in shape:
        if draw.draw(st.booleans()):
            index.append(draw.draw(st.integers(0, n - 1)))
        else:
            start = draw.draw(st.integers(0, n - 1))
            index.append(slice(start, None, draw.draw(st.integers(1, 3))))
        if draw.draw(st.booleans()):
            index.append(None)
    part = whole[tuple(index)]
    view = part.transpose(draw.draw(st.permutations(range(part.ndim))))
    if type(view) is not np.ndarray or view.base is None:
        return
    found = index_of(view, whole)
    assert found is not None
    slices, order = found
    np.testing.assert_array_equal(whole[slices].transpose(order).reshape(view.shape), view)


def test_what_is_no_part_is_none() -> None:
    whole = np.arange(24.0).reshape(4, 6)
    for view in (whole[::-1], np.broadcast_to(whole[0], (4, 6)), whole.reshape(-1)[3:9].reshape(2, 3),
                 whole.view(np.int64), np.lib.stride_tricks.as_strided(whole, (3, 3), (56, 8)), np.arange(24.0)[2:]):
        assert index_of(view, whole) is None
    assert index_of(whole.T[1:], whole.T) is None
