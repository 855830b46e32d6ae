"""Gathers of one element of each line become lookups or sums, with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kusari
import kusari.functions as F
from kusari.codegen import TARGETS, generate
from kusari.ir import Builder, Graph, Value, interpret, tensor_type
from kusari.ir.symbol import exp
from kusari.passes import gathers, plan, run_pipeline
from kusari.passes.gathers import expand_gathers


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


class Case:
    """``gather(x, t, axis)`` with one index at each place of ``shape`` without ``axis``."""

    def __init__(self, shape: tuple[int, ...], axis: int, dtype: str = "float32") -> None:
        self.b, self.shape, self.axis, n = Builder(), shape, axis, shape[axis]
        rest = tuple(1 if i == axis else k for i, k in enumerate(shape))
        self.x, self.t = Value(tensor_type(dtype, shape)), Value(tensor_type("int32", rest))
        self.row = Value(tensor_type(dtype, (n, *(1,) * (len(shape) - axis - 1))))

    def graph(self, x: Value) -> Graph:
        y = self.b.gather(x, self.t, self.axis)
        return Graph("g", (self.x, self.t, self.row), (), (), tuple(self.b.nodes), (y,))

    def arrays(self) -> list[np.ndarray]:
        r, n = np.random.default_rng(sum(self.shape)), self.shape[self.axis]
        return [r.standard_normal(self.shape).astype(self.x.tensor.dtype), r.integers(-n, n, self.t.shape, np.int32),
                r.standard_normal(self.row.shape).astype(self.x.tensor.dtype)]


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathers, "LARGE_ELEMENTS", 1)


SHAPES = st.lists(st.sampled_from([1, 2, 3, 5, 7, 17]), min_size=1, max_size=4).map(tuple)


@given(SHAPES, st.integers(0, 3), st.sampled_from(["float32", "float64", "float16"]), st.booleans())
def test_same_bits(shape: tuple[int, ...], axis: int, dtype: str, small: bool) -> None:
    case = Case(shape, axis % len(shape), dtype)
    wide = case.b.map(lambda x, row: exp(x * row) - row, case.x, case.row)  # read by nobody else
    before = case.graph(wide)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathers, "LARGE_ELEMENTS", 1 << 20 if small else 1)
        after = expand_gathers(before)
    assert "gather" not in ops(after)
    assert ("reduce" in ops(after)) == small
    want, got = (interpret(g, case.arrays())[0] for g in (before, after))
    np.testing.assert_array_equal(got, want)
    assert got.dtype == want.dtype


@pytest.mark.usefixtures("every_size")
def test_nothing_is_written_to_be_looked_up() -> None:
    case = Case((4, 6), 1)
    x = case.b.broadcast_to(case.b.reduce("sum", case.x, 0), (4, 6))
    assert "reduce" in ops(expand_gathers(case.graph(x)))[-1:]


@pytest.mark.usefixtures("every_size")
def test_epilogues_are_not_parted_from_their_products() -> None:
    """What is added to a product is added where it is written: the sum is looked up, not the product."""
    case = Case((6, 6), 1)
    product = case.b.matmul(case.x, case.x)
    graph = run_pipeline(case.graph(case.b.call("add", product, case.row)))
    roots = [n.attrs["body"] for n in graph.nodes if n.op.name == "fused"]
    assert any("matmul" in ops(body) and "map" in ops(body) for body in roots), graph


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_select_item(dtype: str) -> None:
    class Model(kusari.Chain):
        @kusari.static_graph
        def forward(self, x: Any, t: Any) -> Any:
            return F.select_item(x, t)

    model = Model()
    x = np.arange(-5000, 5001).reshape(73, 137).astype(dtype)
    for seed in range(4):
        t = np.random.default_rng(seed).integers(-137, 137, 73).astype("int32")
        v = kusari.Variable(x)
        y = model(v, t)
        y.grad = gy = np.arange(73).astype(dtype)
        y.backward()
        expected = np.zeros_like(x)
        expected[np.arange(73), t] = gy
        np.testing.assert_array_equal(y.array, x[np.arange(73), t])
        np.testing.assert_array_equal(v.grad, expected)
    t[3] = 137
    with pytest.raises(IndexError, match="137"):
        model(x, t)


def test_the_steps_of_a_loop_have_the_same_kernels(every_size: None) -> None:
    """What they have in common, the numbers of the rows, is made in every kernel: it is no reason to join them."""
    def kernels(steps: int) -> set[str]:
        b, inputs, found = Builder(), [], []
        for _ in range(steps):
            x, t = Value(tensor_type("float32", (5, 7))), Value(tensor_type("int32", (5, 1)))
            inputs += [x, t]
            found.append(b.gather(x, t, 1))
        graph = run_pipeline(Graph("g", tuple(inputs), (), (), tuple(b.nodes), tuple(found)))
        return {k.key for k in generate(plan(graph), TARGETS["avx2"]).kernels}
    assert kernels(2) == kernels(40)
