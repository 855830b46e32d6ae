"""Plans as data: the same plan comes back, and what differs has another digest."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import graphs
from hypothesis import given

from kusari.ir import PRIMITIVES, Arg, Builder, Call, Graph, Lit, Node, Op, Plan, Value, print_graph, tensor_type
from kusari.ir.portable import NotPortable, digest_of, read_plan, write_plan
from kusari.passes import plan, run_pipeline


def slots(p: Plan) -> list[Any]:
    values = [*p.graph.sources(), *(v for n in p.graph.nodes for v in n.outputs)]
    return [p.slots.get(v) for v in values] + [values.index(v) for v in p.externals] + [p.arena_size]


@given(graph=graphs(max_nodes=20))
def test_a_plan_comes_back(graph: Graph) -> None:
    made = plan(run_pipeline(graph), copy_in_below=100)
    read = read_plan(write_plan(made, graph), graph)
    assert print_graph(read.graph) == print_graph(made.graph) and slots(read) == slots(made)
    assert (read.graph.inputs, read.graph.params) == (graph.inputs, graph.params)
    for (v, a), (w, b) in zip(read.graph.consts, made.graph.consts, strict=True):
        assert v.type == w.type and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def graph_of(factor: Any = 2.0, const: float = 1.0, where: str = "a.py:1", shape: tuple[int, ...] = (3, 4),
             output: int = 1, op: Op = PRIMITIVES["map"], name: str = "g", hint: str = "x") -> Graph:
    x, c = Value(tensor_type("float32", shape), hint), Value(tensor_type("float32", ()), "c")
    b = Builder(where)
    y = b.map(Call("multiply", (Arg(0), Lit(factor))), x, c)
    z = b.reduce("sum", b.call("add", y, c), 0)
    nodes = [Node(op, n.inputs, n.outputs, n.attrs, n.where) if n.op.name == "map" else n for n in b.nodes]
    return Graph(name, (x,), (), ((c, np.float32(const).reshape(())),), tuple(nodes), (y, z)[output:])


def test_equal_graphs_have_one_digest_and_others_another() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"factor": 3.0}, {"factor": 2}, {"factor": float("nan")}, {"const": -0.0}, {"const": 0.0},
        {"hint": "c"}, {"shape": (4, 4)}, {"output": 0}]
    digests = [digest_of(graph_of(**change)) for change in changes]
    assert digests == [digest_of(graph_of(**change)) for change in changes]
    digests.append(digest_of(graph_of(), 1))
    assert len(set(digests)) == len(digests)


def test_names_and_lines_are_the_readers_own() -> None:
    mine, other = graph_of(), graph_of(where="b.py:7", name="forward", hint="image")
    assert digest_of(mine) == digest_of(other)
    read = read_plan(write_plan(plan(run_pipeline(mine), copy_in_below=0), mine), other).graph
    assert read.name == "forward" and {n.where for n in read.nodes} == {"b.py:7"} and read.inputs[0].hint == "image"
    assert print_graph(read) == print_graph(run_pipeline(other))


@pytest.mark.parametrize("make", [
    lambda: graph_of(op=Op("map", PRIMITIVES["map"].call, key=PRIMITIVES["map"].key)),  # not the primitive
    lambda: graph_of(op=Op("mine", PRIMITIVES["map"].call)),
    lambda: graph_of(factor=np.float64(2)),
], ids=["another op", "no primitive", "another number"])
def test_what_has_no_form_is_told(make: Callable[[], Graph]) -> None:
    with pytest.raises(NotPortable):
        digest_of(make())
