"""What loops take from an axis lies step after step: the meaning stays, and no kernel is one step's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs import assert_same
from hypothesis import given
from hypothesis import strategies as st

import kusari
import kusari.functions as F
from kusari.ir import Builder, Graph, Value, tensor_type, verify
from kusari.passes import check_plan, plan, run_pipeline
from kusari.passes.stack import FEWEST_STEPS, lead_axes, stack_pads

SHAPES = ((3, 12, 2), (12, 4), (2, 12), (2, 1, 12, 3), (1, 12, 2), (3, 12, 1))


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def place(shape: tuple[int, ...], axis: int, start: int, stop: int) -> dict[str, Any]:
    starts, stops = [0] * len(shape), list(shape)
    starts[axis], stops[axis] = start, stop
    return {"starts": tuple(starts), "stops": tuple(stops), "steps": (1,) * len(shape)}


def axis_of(shape: tuple[int, ...]) -> int:
    return shape.index(12)


def pads(shape: tuple[int, ...], places: list[tuple[int, int]], others: int = 0) -> Graph:
    """The sum of values at ``places`` and of ``others`` of the whole shape."""
    b, axis = Builder(), axis_of(shape)
    xs = [Value(tensor_type("float64", (*shape[:axis], z - a, *shape[axis + 1:]))) for a, z in places]
    rest = [Value(tensor_type("float64", shape)) for _ in range(others)]
    total: Value | None = None
    placed = [b.one("pad_slice", x, shape=shape, **place(shape, axis, *where))
              for x, where in zip(xs, places, strict=True)]
    for y in [*placed, *rest]:
        total = y if total is None else b.call("add", total, y)
    assert total is not None
    return Graph("pads", (*xs, *rest), (), (), tuple(b.nodes), (total,))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("places", "kept"), (
    ([(t, t + 1) for t in range(12)], 0), ([(t, t + 1) for t in reversed(range(12))], 0), ([(0, 5), (5, 12)], 0),
    ([(2, 5), (5, 7)], 1), ([(0, 2), (4, 6)], 2), ([(0, 2), (4, 6), (2, 4)], 1), ([(0, 6), (0, 6), (6, 12)], 0),
    ([(0, 6), (5, 12)], 2), ([(3, 6)], 1)))
@pytest.mark.parametrize("others", (0, 2))
def test_gradients_of_slices_are_stacked(shape: tuple[int, ...], places: list[tuple[int, int]], kept: int,
                                         others: int) -> None:
    graph = pads(shape, places, others)
    after = verify(stack_pads(graph))
    assert_same(graph, after)
    assert names(after).count("pad_slice") == kept


def test_what_somebody_else_reads_too_stays() -> None:
    graph = pads((3, 12), [(0, 6), (6, 12)])
    first = graph.nodes[0].output
    watched = Graph("pads", graph.inputs, (), (), graph.nodes, (*graph.outputs, first))
    assert stack_pads(watched) is watched
    assert_same(watched, run_pipeline(watched))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", (range(12), range(11, -1, -1), (0, 3, 4, 5, 6, 7, 9, 1), (1, 2)))
@pytest.mark.parametrize("kept", (False, True))
def test_steps_are_parts(shape: tuple[int, ...], order: Any, kept: bool) -> None:
    axis = axis_of(shape)
    b, x = Builder(), Value(tensor_type("float64", shape))
    rows = [b.slice(x, **place(shape, axis, t, t + 1)) for t in order]
    results = [b.call("tanh", b.reshape(y, (*shape[:axis], *shape[axis + 1:]))) for y in rows]
    graph = Graph("loop", (x,), (), (), tuple(b.nodes), (*results, *(rows if kept else ())))
    after = verify(lead_axes(graph))
    assert_same(graph, after)
    if len(order) >= FEWEST_STEPS and axis:
        assert "slice" not in names(after)
        assert "part" in names(after)
    else:
        assert after is graph
    whole = run_pipeline(graph)
    assert_same(graph, whole)
    check_plan(plan(whole))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_stacked_is_stacked_along_the_first_axis(shape: tuple[int, ...]) -> None:
    axis = axis_of(shape)
    b = Builder()
    xs = [Value(tensor_type("float32", (*shape[:axis], 1, *shape[axis + 1:]))) for _ in range(12)]
    y = b.concat([b.call("exp", x) for x in xs], axis)
    graph = Graph("stack", tuple(xs), (), (), tuple(b.nodes), (y,))
    after = verify(lead_axes(graph))
    assert_same(graph, after)
    assert {n.attrs["axis"] for n in after.nodes if n.op.name == "concat"} == {0}
    assert_same(graph, run_pipeline(graph))


def test_slices_of_a_parameter_that_is_written_are_left_alone() -> None:
    b, x = Builder(), Value(tensor_type("float64", (2, 12)))
    w = Value(tensor_type("float64", (2, 12)))
    rows: list[Value] = []
    for t in range(12):
        rows.append(b.slice(w, **place((2, 12), 1, t, t + 1)))
        b.assign(w, b.call("add", w, x))
    graph = Graph("writes", (x,), (w,), (), tuple(b.nodes), tuple(rows))
    assert lead_axes(graph) is graph
    assert_same(graph, run_pipeline(graph))


@given(st.data())
def test_a_walk_along_an_axis_and_back(data: st.DataObject) -> None:
    """``y[:, t] = f(x[:, t], y[:, t - 1])`` with its gradient, and steps left out or taken twice."""
    batch, steps, width = data.draw(st.tuples(st.integers(1, 3), st.integers(2, 14), st.integers(1, 3)))
    axis = data.draw(st.integers(0, 2))
    shape = (batch, width)[:axis] + (steps,) + (batch, width)[axis:]
    order = data.draw(st.lists(st.integers(0, steps - 1), min_size=1, max_size=2 * steps))
    b, x = Builder(), Value(tensor_type("float64", shape))
    h: Value | None = None
    gradient: Value | None = None
    made: list[Value] = []
    for t in order:
        z = b.reshape(b.slice(x, **place(shape, axis, t, t + 1)), (batch, width))
        h = b.call("tanh", z if h is None else b.call("add", z, h))
        made.append(b.reshape(h, (*shape[:axis], 1, *shape[axis + 1:])))
        piece = b.one("pad_slice", b.call("multiply", made[-1], 2.0), shape=shape, **place(shape, axis, t, t + 1))
        gradient = piece if gradient is None else b.call("add", gradient, piece)
    assert gradient is not None
    outputs = (gradient, b.concat(made, axis), *made[:data.draw(st.integers(0, 2))])
    graph = Graph("walk", (x,), (), (), tuple(b.nodes), outputs)
    assert_same(graph, verify(lead_axes(verify(stack_pads(graph)))))
    after = run_pipeline(graph)
    assert_same(graph, after)
    check_plan(plan(after))


def test_the_kernels_of_a_loop_along_an_axis_do_not_depend_on_its_length() -> None:
    def kernels(steps: int) -> int:
        @kusari.static_graph
        def loop(x: Any, w: Any) -> Any:
            h = x[:, 0]
            for t in range(1, steps):
                h = F.tanh(F.matmul(h, w) + x[:, t])
            return F.sum(h * h)

        random = np.random.RandomState(0)
        x, w = (kusari.Variable(random.rand(*shape).astype("f")) for shape in ((3, steps, 4), (4, 4)))
        for _ in range(2):
            x.cleargrad()
            loop(F.sin(x), w).backward()
        expected = x.grad
        x.cleargrad()
        h = F.sin(x)[:, 0]
        for t in range(1, steps):
            h = F.tanh(F.matmul(h, w) + F.sin(x)[:, t])
        F.sum(h * h).backward()
        np.testing.assert_allclose(expected, x.grad, rtol=1e-4, atol=1e-6)
        return str(loop.static.explain("kernels")).count("\n-- kernel ")
    assert kernels(12) == kernels(24)
