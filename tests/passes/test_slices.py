"""What is computed again because it costs hardly any time: the same bits, fewer bytes, no product or draw twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from graphs import assert_same, graphs
from hypothesis import given
from hypothesis import strategies as st

from kusari.ir import Builder, Graph, Trait, Value, tensor_type, verify
from kusari.passes import check_plan, plan, run_pipeline
from kusari.passes.fuse import fuse
from kusari.passes.recompute import LEAST_LIVE_BYTES, cheap
from kusari.passes.tidy import remove_dead

ROWS, WIDTH = 512, 32


def fixed(graph: Graph) -> list[str]:
    """What must not run more often than it did."""
    inner = [m for n in graph.nodes for m in (n.attrs["body"].nodes if n.op.name == "fused" else (n,))]
    return sorted(n.op.name for n in inner if n.op.name == "matmul" or "conv" in n.op.name
                  or n.op.traits & (Trait.WRITES | Trait.RANDOM | Trait.OPAQUE))


def read_late(graph: Graph, order: Sequence[int]) -> Graph:
    """The graph with rows behind it that read what its nodes make once more, in an order that picks from the rest."""
    b, rest = Builder(), [v for n in graph.nodes for v in n.outputs if v.tensor.size]
    results: list[Value] = []
    for k in order:
        if rest:
            v = rest.pop(k % len(rest))
            again = b.call("multiply", v, 0.5) if k % 2 else v
            results.append(b.cumsum(b.reshape(again, (v.tensor.size,)), 0))
    return graph.with_nodes([*graph.nodes, *b.nodes], [*graph.outputs, *results])


@given(graph=graphs(max_nodes=20), order=st.lists(st.integers(0, 30), max_size=20), fused=st.booleans())
def test_any_graph_keeps_its_meaning(graph: Graph, order: list[int], fused: bool) -> None:
    graph = read_late(graph, order)
    graph = remove_dead(fuse(graph) if fused else graph)
    found = cheap(graph, 100.0, 0)
    less = remove_dead(found.graph)
    verify(found.graph)
    assert_same(graph, found.graph, rtol=0)
    assert fixed(found.graph) == fixed(graph)
    check_plan(plan(less, copy_in_below=100))
    assert (found.graph is graph) == (found.clones == 0)


def network(depth: int, dtype: Any = "float32", products: bool = True) -> Graph:
    """Normalizations and rectifiers of what products make, and a backward through all of them, last first.

    Without ``products`` rows change their places behind each layer, and no product reads what the rectifiers make, as
    where pooling follows.
    """
    b = Builder()

    def turned(v: Value) -> Value:
        return v if products else b.concat([b.part(v, ROWS // 2, ROWS), b.part(v, 0, ROWS // 2)], 0)

    x = h = Value(tensor_type(dtype, (ROWS, WIDTH)), "x")
    weights = [Value(tensor_type(dtype, (WIDTH, WIDTH)), f"w{i}") for i in range(depth)]
    layers: list[tuple[Value, ...]] = []
    grads: list[Value] = []
    for w in weights:
        z = b.matmul(h, w)
        mean = b.call("multiply", b.reduce("sum", z, 0), 1 / ROWS)
        centred = b.call("subtract", z, mean)
        var = b.call("multiply", b.reduce("sum", b.call("square", centred), 0), 1 / ROWS)
        inv = b.call("true_divide", 1.0, b.call("sqrt", b.call("add", var, 1e-5)))
        y = b.call("maximum", b.call("multiply", centred, inv), 0.0)
        layers.append((h, w, z, mean, inv, y))
        h = turned(y)
    g = h
    for h, w, z, mean, inv, y in reversed(layers):
        g = b.call("where", b.call("greater", y, 0.0), turned(g), 0.0)
        normal = b.call("multiply", b.call("subtract", z, mean), inv)
        sums = b.call("multiply", b.reduce("sum", b.call("multiply", g, normal), 0), 1 / ROWS)
        g = b.call("multiply", b.call("subtract", g, b.call("multiply", normal, sums)), inv)
        if products:
            grads.append(b.matmul(h, g, transa=True))
        g = b.matmul(g, w, transb=True)
    return Graph("network", (x,), tuple(weights), (), tuple(b.nodes), (g, *grads))


def arena(graph: Graph) -> int:
    return plan(remove_dead(graph)).arena_size


@pytest.mark.parametrize(("products", "dtype", "most"), [
    (True, "float32", 0.72), (True, "float64", 0.72), (False, "float32", 0.86)])  # the last: masks only
def test_rectified_normalizations_need_not_wait(products: bool, dtype: str, most: float) -> None:
    """Of both a product and what becomes of it only the first stays: statistics are not computed anew."""
    graph = run_pipeline(network(8, dtype, products))
    found = cheap(graph, 1.0, 0)
    assert found.clones >= 6
    assert fixed(found.graph) == fixed(graph)
    assert reductions(found.graph) == reductions(graph)
    assert arena(found.graph) < most * arena(graph)
    assert_same(graph, found.graph, rtol=0)
    more = len(found.graph.nodes) - len(graph.nodes)  # those that no other kernel takes in
    assert more <= (found.clones if products else 1)


def reductions(graph: Graph) -> int:
    return sum(m.op.name == "reduce" for n in graph.nodes if n.op.name == "fused" for m in n.attrs["body"].nodes)


def test_no_more_time_than_a_share() -> None:
    graph = run_pipeline(network(8))
    few, many = cheap(graph, 0.03, 0), cheap(graph, 1.0, 0)
    assert 0 <= few.picoseconds < many.picoseconds
    assert few.clones < many.clones
    assert cheap(graph, 0.0, 0).clones <= few.clones


def test_small_graphs_stay_as_they_are() -> None:
    graph = run_pipeline(network(4))
    assert cheap(graph, 1.0, LEAST_LIVE_BYTES).graph is graph


def test_what_was_written_since_is_not_read_again() -> None:
    b = Builder()
    x, state = (Value(tensor_type("float32", (64, 64)), name) for name in ("x", "state"))
    y = b.call("multiply", x, state)
    z = b.matmul(y, y)
    b.assign(state, z)
    graph = Graph("written", (x,), (state,), (), tuple(b.nodes), ())
    last = b.matmul(b.matmul(z, z), y)
    graph = Graph("written", (x,), (state,), (), tuple(b.nodes), (last,))
    assert cheap(graph, 100.0, 0).clones == 0
