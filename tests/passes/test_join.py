"""What every step of a loop does is joined: the meaning stays, and no operand is copied that need not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs import assert_same
from hypothesis import given
from hypothesis import strategies as st

from kusari.ir import PRIMITIVES, Arena, Builder, Graph, Value, tensor_type, verify
from kusari.passes import check_plan, plan, run_pipeline
from kusari.passes.join import JOINED_BYTES, join_rows, join_terms, share_concats, share_transposes

PASSES = (join_terms, join_rows, share_concats, share_transposes)


def value(*shape: int, dtype: str = "float64") -> Value:
    return Value(tensor_type(dtype, shape))


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def recurrent(steps: int = 4, rows: int = 6, train: bool = True) -> Graph:
    """An unrolled cell ``h = tanh(x W + b + h V)`` and, with ``train``, sums as its gradients have them."""
    b = Builder("loop.py:1")
    xs = [value(rows, 20) for _ in range(steps)]
    w, v, bias = value(16, 20), value(16, 16), value(16)
    hs: list[Value] = []
    for x in xs:
        y = b.call("add", b.matmul(x, w, transb=True), bias)
        if hs:
            y = b.call("add", y, b.matmul(hs[-1], v, transb=True))
        hs.append(b.call("tanh", y))
    if not train:
        return Graph("loop", tuple(xs), (w, v, bias), (), tuple(b.nodes), tuple(hs))
    sums: dict[str, Value] = {}
    inputs: list[Value] = []
    carried: Value | None = None
    for t in reversed(range(steps)):
        g = hs[t] if carried is None else b.call("multiply", b.matmul(carried, v), hs[t])
        terms = {"w": b.matmul(g, xs[t], transa=True)}
        if t:
            terms["v"] = b.matmul(g, hs[t - 1], transa=True)
        for name, term in terms.items():
            sums[name] = b.call("add", sums[name], term) if name in sums else term
        inputs.append(b.matmul(g, w))
        carried = g
    b.assign(w, b.call("subtract", w, sums["w"]))
    inputs += [sums[name] for name in sums if name == "v"]
    return Graph("loop", tuple(xs), (w, v, bias), (), tuple(b.nodes), tuple(inputs))


def apply(graph: Graph) -> Graph:
    for step in PASSES:
        graph = verify(step(graph))
    return graph


@pytest.mark.parametrize("steps", (1, 2, 5))
@pytest.mark.parametrize("train", (False, True))
def test_unrolled_loops_keep_their_meaning(steps: int, train: bool) -> None:
    graph = recurrent(steps, train=train)
    assert_same(graph, apply(graph))
    after = run_pipeline(graph)
    assert_same(graph, after)
    check_plan(plan(after))


def test_an_unrolled_loop_has_one_product_per_weight_and_what_depends_on_the_step_before() -> None:
    after = apply(recurrent(5))
    # x W and g W and two gradients, and four each of h V and g V
    assert names(after).count("matmul") == 4 + 4 + 4
    assert names(after).count("add") == 0
    assert names(after).count("transpose") == 1, "V is read by four products"


def test_operands_of_joined_products_are_computed_in_place() -> None:
    after = run_pipeline(recurrent(5))
    made = check_plan(plan(after))
    copied = [v for n in after.nodes if n.op.name == "concat" for v in n.inputs
              if v not in made.in_place(n) and v not in after.inputs]
    assert not copied
    concats = [n for n in after.nodes if n.op.name == "concat"]
    assert len(concats) == 3, "inputs, states and gradients; parts of them serve where fewer steps are needed"


@pytest.mark.parametrize(("steps", "rows", "products"), (
    (3, 6, 1), (200, 20, 1), (JOINED_BYTES // (64 * 400 * 8) + 2, 64, 2), (2, 1024, 2)))
def test_joined_products_are_no_larger_than_worth_while(steps: int, rows: int, products: int) -> None:
    b = Builder("")
    xs, w = [value(rows, 400) for _ in range(steps)], value(400, 300)
    ys = [b.matmul(x, w) for x in xs]
    graph = Graph("g", tuple(xs), (w,), (), tuple(b.nodes), tuple(ys))
    assert names(join_rows(graph)).count("matmul") == products


@pytest.mark.parametrize("product", (True, False))
def test_sums_of_rows_are_joined_where_products_have_joined_their_operands(product: bool) -> None:
    b = Builder("")
    xs, gs = [[value(5, n) for _ in range(3)] for n in (4, 6)]
    w: Any = None
    bias: Any = None
    for x, g in zip(reversed(xs), reversed(gs), strict=True):
        y = b.reshape(b.reduce("sum", g, (0,)), (6,))
        bias = y if bias is None else b.call("add", bias, y)
        z = b.matmul(g, x, transa=True) if product else b.call("tanh", g)
        w = z if w is None else b.call("add", w, z)
    graph = Graph("g", (*xs, *gs), (), (), tuple(b.nodes), (w, bias))
    after = apply(graph)
    assert_same(graph, after)
    assert names(after).count("reduce") == (1 if product else 3)
    assert names(run_pipeline(graph)).count("concat") == (2 if product else 0)


def test_operands_are_shared_where_the_state_is_written_in_between() -> None:
    """A part of a joined operand is one, though what reads the part is followed by writes."""
    b = Builder("")
    xs, w, state = [value(5, 4) for _ in range(4)], value(4, 6), value(4, 4)
    hs = [b.call("tanh", x) for x in xs]
    few, many = b.concat(hs[1:], 0), b.concat(hs, 0)
    b.assign(state, b.matmul(few, few, transa=True))
    graph = Graph("g", tuple(xs), (w, state), (), tuple(b.nodes), (b.matmul(many, w),))
    graph = Graph("g", tuple(xs), (w, state), (), tuple(b.nodes), graph.outputs)
    assert names(share_concats(graph)).count("concat") == 1
    assert_same(graph, run_pipeline(graph))


def test_maps_that_follow_all_products_are_joined_with_them() -> None:
    b = Builder("")
    xs, w, bias, mask = [value(3, 4) for _ in range(3)], value(4, 5), value(5), value(3, 5)
    for last in ("bias", "mask"):
        b.nodes.clear()
        ys = [b.call("maximum", b.call("add", b.matmul(x, w), bias), 0.0) for x in xs]
        if last == "mask":
            ys = [b.call("multiply", y, mask) for y in ys]
        graph = Graph("g", (*xs, mask), (w, bias), (), tuple(b.nodes), tuple(ys))
        after = join_rows(graph)
        assert names(after).count("map") == (2 if last == "bias" else 5)
        assert_same(graph, after)


def test_a_product_of_a_product_is_not_joined_with_it() -> None:
    b = Builder()
    x, w = Value(tensor_type("float32", (4, 6)), "x"), Value(tensor_type("float32", (6, 6)), "w")
    y = x
    for _ in range(3):
        y = b.matmul(y, w)
    other = b.matmul(b.call("tanh", x), w)
    graph = Graph("powers", (x,), (w,), (), tuple(b.nodes), (y, other))
    after = join_rows(graph)
    verify(after)
    assert_same(graph, after)
    assert [n.op.name for n in after.nodes].count("matmul") == 3  # the first of the powers and the other one are joined


def test_rows_of_a_table_are_looked_up_and_added_at_once() -> None:
    b = Builder("")
    table, numbers = value(9, 4), [value(3, dtype="int32") for _ in range(3)]
    rows = [b.call("multiply", b.take(table, i), 2.0) for i in numbers]
    total: Any = None
    for i, x in zip(numbers, rows, strict=True):
        y = b.scatter_add(i, x, (9, 4))
        total = y if total is None else b.call("add", total, y)
    graph = Graph("g", tuple(numbers), (table,), (), tuple(b.nodes), (total,))
    after = run_pipeline(graph)
    assert names(after).count("take") == names(after).count("scatter_add") == 1
    assert names(after).count("map") == names(after).count("concat") == 1
    assert_same(graph, after)


def test_a_weight_that_is_written_between_two_products_is_not_one_weight() -> None:
    b = Builder("")
    xs, w = [value(3, 4), value(3, 4)], value(4, 4)
    first = b.matmul(xs[0], w)
    b.assign(w, b.matmul(xs[1], xs[0], transa=True))
    second = b.matmul(xs[1], w)
    graph = Graph("g", tuple(xs), (w,), (), tuple(b.nodes), (first, second))
    assert names(join_rows(graph)).count("concat") == 0
    assert_same(graph, apply(graph))


def test_results_that_leave_the_graph_lie_side_by_side() -> None:
    b = Builder("")
    xs, w = [value(40, 20) for _ in range(3)], value(20, 30)
    ys = [b.matmul(x, w) for x in xs]
    made = check_plan(plan(run_pipeline(Graph("g", tuple(xs), (w,), (), tuple(b.nodes), tuple(ys)))))
    slots = [made.slots[y] for y in made.graph.outputs]
    assert not any(isinstance(s, Arena) for s in slots)
    assert [s.offset for s in slots] == [0, 40 * 30 * 8, 80 * 30 * 8]


@st.composite
def loops(draw: Any) -> Graph:
    """Steps that share weights in random ways, sums over steps, states that are written."""
    b = Builder("loop.py:1")
    n = draw(st.integers(1, 4))
    sizes = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(2, 5)))]
    xs = [value(m, n) for m in sizes]
    weights = [value(n, n) for _ in range(2)]
    bias = value(n)
    values = list(xs)
    squares = [*weights]
    written: list[Value] = []
    for _ in range(draw(st.integers(3, 14))):
        kind = draw(st.sampled_from(("product", "product", "add", "tanh", "bias", "term", "concat", "assign", "sum")))
        x = draw(st.sampled_from(values))
        if kind == "product":
            w = draw(st.sampled_from(weights))
            values.append(b.call("multiply", b.matmul(x, w, transb=draw(st.booleans())), 0.25))
            if draw(st.booleans()):
                values.append(b.matmul(x, w))
        elif kind == "add":
            partner = draw(st.sampled_from([v for v in values if v.shape == x.shape]))
            values.append(b.call("add", x, partner))
        elif kind == "tanh":
            values.append(b.call("tanh", x))
        elif kind == "bias":
            values.append(b.call("add", x, bias))
        elif kind == "term":
            y = draw(st.sampled_from([v for v in values if v.shape == x.shape]))
            squares.append(b.matmul(x, y, transa=True))
        elif kind == "sum":
            squares.append(b.call("add", draw(st.sampled_from(squares)), draw(st.sampled_from(squares))))
        elif kind == "concat":
            own = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
            if sum(v.shape[0] for v in own) <= 12:
                values.append(b.concat(own, 0))
        elif len(squares) > 2 and not written:
            state = draw(st.sampled_from(weights))
            b.assign(state, b.call("tanh", squares[-1]))
            written.append(state)
    outputs = [*draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)), b.call("tanh", squares[-1])]
    for s in squares[2:]:
        if draw(st.booleans()):
            outputs.append(b.call("add", s, squares[-1]))
    return Graph("loop", tuple(xs), (*weights, bias), (), tuple(b.nodes), tuple(outputs))


@given(graph=loops(), limit=st.sampled_from((0, 60, 10**6)))
def test_random_loops_keep_their_meaning(graph: Graph, limit: int) -> None:
    verify(graph)
    after = apply(graph)
    assert_same(graph, after)
    check_plan(plan(after, copy_in_below=limit, copy_out_below=limit, kept=after.outputs[:1]))
    final = run_pipeline(graph)
    assert_same(graph, final)
    check_plan(plan(final, copy_in_below=limit, copy_out_below=limit))


def test_plans_compute_operands_of_a_concat_where_they_belong() -> None:
    b = Builder("")
    x = value(4, 4)
    parts = [b.call("tanh", x), b.call("exp", x), x]
    y = b.concat(parts, 0)
    z = b.call("add", b.reshape(y, (4, 12)), 1.0)
    graph = Graph("g", (x,), (), (), tuple(b.nodes), (z, parts[0]))
    made = check_plan(plan(graph, copy_out_below=10**6))
    concat = next(n for n in graph.nodes if n.op.name == "concat")
    assert made.in_place(concat) == tuple(parts[:2]), "what comes from outside is copied"
    np.testing.assert_equal(made.slots[parts[1]].offset - made.slots[parts[0]].offset, 128)


def test_terms_that_show_one_of_several_outputs_stay() -> None:
    """Maxima and their places are two outputs of one node; a sum may read either behind a reshape."""
    b = Builder("model.py:3")
    x, other = value(1, 2, 6, 6, dtype="float32"), value(18, dtype="float32")
    found, places = b.emit(PRIMITIVES["pool"], x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), size=(3, 3),
                           fn="max", places=True)
    total = b.call("add", b.call("add", b.reshape(found, (18,)), other), other)
    graph = Graph("g", (x, other), (), (), tuple(b.nodes), (total, places))
    assert join_terms(graph) is graph


@pytest.mark.parametrize(("rows", "transb", "turns"), [
    (4, True, 0), (5, True, 1), (28, True, 1), (29, True, 0), (28, False, 0), (29, False, 1), (64, False, 0)])
def test_factors_are_turned_to_what_their_rows_would_have(rows: int, transb: bool, turns: int) -> None:
    b = Builder("")
    x, w = value(rows, 140), value(*((16, 140) if transb else (140, 16)))
    ys = [b.matmul(v, w, transb=transb) for v in (x, b.call("tanh", x), b.call("exp", x))]
    graph = Graph("g", (x,), (w,), (), tuple(b.nodes), tuple(ys))
    after = share_transposes(graph)
    assert names(after).count("transpose") == turns
    assert_same(graph, after)
    assert share_transposes(Graph("g", (x,), (w,), (), tuple(b.nodes[:1]), tuple(ys[:1]))).nodes == tuple(b.nodes[:1])


@pytest.mark.parametrize(("n", "k", "turns"), [
    (1300, 650, 1), (3000, 1500, 0), (1024, 512, 1), (1024, 1024, 0), (1000, 1000, 1)])
def test_factors_that_would_be_far_to_read_are_not_turned(n: int, k: int, turns: int) -> None:
    b = Builder("")
    x, w = value(20, k), value(n, k)
    ys = [b.matmul(v, w, transb=True) for v in (x, b.call("tanh", x))]
    after = share_transposes(Graph("g", (x,), (w,), (), tuple(b.nodes), tuple(ys)))
    assert names(after).count("transpose") == turns
