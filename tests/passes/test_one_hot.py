"""Sums of rows that are zero but for one element find it by its number: the same bits, and nothing is read but it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kusari
import kusari.functions as F
from kusari.codegen import TARGETS, generate
from kusari.ir import Arg, Builder, Call, Graph, Lit, Value, interpret, tensor_type
from kusari.passes import one_hot, plan, run_pipeline
from kusari.passes.one_hot import gather_one_hot

EQUAL = Call("equal", (Arg(0), Arg(1)))


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


class Case:
    """``sum(where(arange(n) == t, …, 0), axis)`` for one label at each place of ``shape`` without ``axis``."""

    def __init__(self, shape: tuple[int, ...], axis: int, dtype: str = "float32") -> None:
        self.b, self.shape, self.axis, n = Builder(), shape, axis, shape[axis]
        rest = tuple(1 if i == axis else k for i, k in enumerate(shape))
        self.x, self.t = Value(tensor_type(dtype, shape)), Value(tensor_type("int32", rest))
        self.row = Value(tensor_type(dtype, (n, *(1,) * (len(shape) - axis - 1))))
        self.numbers = self.b.reshape(self.b.arange(n), self.row.shape)
        self.position = self.b.take(self.b.arange(n), self.t)

    def graph(self, expr: Any, *operands: Value) -> Graph:
        chosen = self.b.map(Call("where", (EQUAL, expr, Lit(0.0))), self.numbers, self.position, *operands)
        return self.done(self.b.reduce("sum", chosen, self.axis))

    def done(self, *outputs: Value) -> Graph:
        return Graph("g", (self.x, self.t, self.row), (), (), tuple(self.b.nodes), outputs)

    def arrays(self) -> list[np.ndarray]:
        r, n = np.random.default_rng(sum(self.shape)), self.shape[self.axis]
        return [r.standard_normal(self.shape).astype(self.x.tensor.dtype), r.integers(-n, n, self.t.shape, np.int32),
                r.standard_normal(self.row.shape).astype(self.x.tensor.dtype)]


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_hot, "LARGE_ELEMENTS", 1)


SHAPES = st.lists(st.sampled_from([1, 2, 3, 5, 7, 17]), min_size=1, max_size=4).map(tuple)


@given(SHAPES, st.integers(0, 3), st.sampled_from(["float32", "float64", "float16"]))
def test_same_bits(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    case = Case(shape, axis % len(shape), dtype)
    wide = case.b.map(Call("exp", (Call("multiply", (Arg(0), Arg(1))),)), case.x, case.row)  # read by nobody else
    before = case.graph(Call("subtract", (Arg(2), Arg(3))), wide, case.row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_hot, "LARGE_ELEMENTS", 1)
        after = gather_one_hot(before)
    assert ("reduce" in ops(after)) == (shape[axis % len(shape)] == 1)
    want, got = (interpret(g, case.arrays())[0] for g in (before, after))
    np.testing.assert_array_equal(got, want)
    assert got.dtype == want.dtype


@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize("change", ["labels that may point nowhere", "numbers of another axis", "all but one",
                                    "maximum", "written for it alone"])
def test_stays(change: str) -> None:
    case = Case((4, 6), 1)
    chosen = Call("where", (EQUAL, Arg(2), Lit(0.0)))
    b, fn, x = case.b, "sum", case.x
    if change == "labels that may point nowhere":
        case.position = case.t
    elif change == "numbers of another axis":
        case.numbers = b.reshape(b.arange(4), (4, 1))
    elif change == "all but one":
        chosen = Call("where", (EQUAL, Lit(0.0), Arg(2)))
    elif change == "maximum":
        fn = "max"
    else:
        x = b.broadcast_to(b.reduce("sum", x, 0), (4, 6))
    before = case.done(b.reduce(fn, b.map(chosen, case.numbers, case.position, x), 1))
    assert gather_one_hot(before) is before


def test_small_sums_stay() -> None:
    case = Case((64, 8), 1)
    before = case.graph(Arg(2), case.x)
    assert gather_one_hot(before) is before


@pytest.mark.usefixtures("every_size")
def test_epilogues_are_not_parted_from_their_products() -> None:
    """What is added to a product is added where it is written: the sum is looked up, not the product."""
    case = Case((6, 6), 1)
    product = case.b.matmul(case.x, case.x)
    graph = run_pipeline(case.graph(Arg(2), case.b.map(Call("add", (Arg(0), Arg(1))), product, case.row)))
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
        numbers = b.reshape(b.arange(7), (1, 7))
        for _ in range(steps):
            x, t = Value(tensor_type("float32", (5, 7))), Value(tensor_type("int32", (5, 1)))
            inputs += [x, t]
            chosen = b.map(Call("where", (EQUAL, Arg(2), Lit(0.0))), numbers, b.take(b.arange(7), t), x)
            found.append(b.reduce("sum", chosen, 1))
        graph = run_pipeline(Graph("g", tuple(inputs), (), (), tuple(b.nodes), tuple(found)))
        return {k.key for k in generate(plan(graph), TARGETS["avx2"]).kernels}
    assert kernels(2) == kernels(40)
