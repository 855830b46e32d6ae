"""What may run at the same time stands together: the meaning stays, and nobody overwrites what another one reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from graphs import assert_same, graphs
from hypothesis import given

from kusari.ir import Arg, Builder, Call, Graph, Slot, TensorType, Value, tensor_type
from kusari.ir.stages import MOST_STAGE_NODES, TINY, kind_of, stages
from kusari.passes import check_plan, plan
from kusari.passes.group_stages import group_stages


def tower(b: Builder, x: Value, weights: list[Value]) -> Value:
    for w in weights:
        x = b.map(Call("maximum", (Arg(0), Call("tanh", (Arg(0),)))), b.matmul(x, w))
    return x


def towers(n: int, count: int = 2, depth: int = 3) -> Graph:
    """``count`` chains of products, one after the other in the graph, with a sum of their ends."""
    b = Builder()
    xs = [Value(tensor_type("float32", (n, n))) for _ in range(count)]
    weights = [Value(tensor_type("float32", (n, n))) for _ in range(depth)]
    ends = [tower(b, x, weights) for x in xs]
    y = ends[0]
    for end in ends[1:]:
        y = b.call("add", y, end)
    return Graph("towers", (*xs, *weights), (), (), tuple(b.nodes), (y,))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("n", [8, 96])
def test_towers_go_in_step(n: int, count: int) -> None:
    graph = group_stages(towers(n, count))
    spans = stages(graph)
    together = [spans[i] for i, node in enumerate(graph.nodes) if node.op.name == "matmul"]
    assert together == [span for span in dict.fromkeys(together) for _ in range(count)]
    assert len(set(together)) == 3


def test_what_needs_its_neighbour_is_of_another_stage() -> None:
    graph = towers(8, 1)
    assert group_stages(graph) is graph
    assert stages(graph) == [(i, i) for i in range(len(graph.nodes))]
    assert kind_of(graph.nodes[0]) == TINY


def test_what_all_threads_share_well_runs_alone_but_in_step() -> None:
    graph = group_stages(towers(512))
    assert [n.op.name for n in graph.nodes] == ["matmul", "matmul", "map", "map"] * 3 + ["map"]
    assert all(a == z for (a, z), n in zip(stages(graph), graph.nodes, strict=True) if n.op.name == "matmul")


def test_stages_are_not_endless() -> None:
    b = Builder()
    xs = [Value(tensor_type("float32", (k + 1,))) for k in range(2 * MOST_STAGE_NODES + 3)]
    ends = [b.call("exp", x) for x in xs]
    graph = Graph("g", tuple(xs), (), (), tuple(b.nodes), tuple(ends))
    sizes = [z - a + 1 for a, z in dict.fromkeys(stages(graph))]
    assert sizes == [MOST_STAGE_NODES, MOST_STAGE_NODES, 3]


@pytest.mark.slow
@given(graphs())
def test_order_means_nothing(graph: Graph) -> None:
    after = group_stages(graph)
    assert sorted(map(id, after.nodes)) == sorted(map(id, graph.nodes))
    assert_same(graph, after)
    made = check_plan(plan(after))
    apart(after, made.slots)


def apart(graph: Graph, slots: Mapping[Value, Slot]) -> None:
    """Nothing that a node of a stage makes lies where another one of it reads or writes."""
    position = {v: (type(s).__name__, getattr(s, "index", 0), s.offset, s.offset + v.tensor.nbytes)
             for v, s in slots.items() if isinstance(v.type, TensorType)}
    spans = stages(graph)
    for i, node in enumerate(graph.nodes):
        for j in range(spans[i][0], spans[i][1] + 1):
            other = graph.nodes[j]
            if j == i or node.op.is_view or other.op.is_view:
                continue
            for v in node.outputs:
                for u in (*other.inputs, *other.outputs):
                    (kind, index, lo, hi), (kind_2, index_2, lo_2, hi_2) = position[v], position[u]
                    assert (kind, index) != (kind_2, index_2) or hi <= lo_2 or hi_2 <= lo, (node, other)


def test_random_numbers_are_drawn_in_order() -> None:
    b = Builder()
    draws = [b.random("random_sample", (), (4,), np.float32) for _ in range(3)]
    y = b.call("add", b.call("exp", draws[0]), draws[2])
    graph = Graph("g", (), (), (), tuple(b.nodes), (y, draws[1]))
    after = group_stages(graph)
    assert [n.output for n in after.nodes if n.op.name == "random"] == draws
