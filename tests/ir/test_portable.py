"""Programs as data: the same plan and rows come back, and what differs has another digest."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import graphs
from hypothesis import given

from kusari.codegen import TARGETS, generate
from kusari.ir import (
    PRIMITIVES,
    Arg,
    Builder,
    Call,
    Graph,
    Lit,
    Node,
    Op,
    Plan,
    Program,
    Value,
    print_graph,
    tensor_type,
)
from kusari.ir.portable import NotPortable, digest_of, read_program, write_program
from kusari.passes import plan, run_pipeline


def slots(p: Plan) -> list[Any]:
    values = [*p.graph.sources(), *(v for n in p.graph.nodes for v in n.outputs)]
    return [p.slots.get(v) for v in values] + [values.index(v) for v in p.externals] + [p.arena_size]


def program_of(p: Plan) -> Program:
    return generate(p, TARGETS["avx2"])


def instructions(p: Plan, program: Program) -> list[Any]:
    values = [*p.graph.sources(), *(v for n in p.graph.nodes for v in n.outputs)]
    return [(r.kernel and (r.kernel.language, r.kernel.key), [values.index(v) for v in r.operands], r.node.op,
             r.node.attrs.get("placed"), [values.index(v) for v in r.node.outputs], r.choice is None)
            for r in program.instructions]


def passed_on(p: Plan, origin: Graph, reader: Graph) -> tuple[Plan, Program]:
    return read_program(write_program(p, program_of(p), origin), reader, program_of)


@given(graph=graphs(max_nodes=20))
def test_a_program_comes_back(graph: Graph) -> None:
    made = plan(run_pipeline(graph), copy_in_below=100)
    read, program = passed_on(made, graph, graph)
    assert instructions(read, program) == instructions(made, program_of(made))
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
    read = passed_on(plan(run_pipeline(mine), copy_in_below=0), mine, other)[0].graph
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


def test_texts_and_choices_are_made_when_they_are_asked_for() -> None:
    shapes = (2, 3, 8, 8), (4, 3, 3, 3), (3, 4, 8, 8), (64, 5)
    x, w, z, u = (Value(tensor_type("float32", s)) for s in shapes)
    b = Builder("a.py:1")
    y = b.one("conv", x, w, stride=(1, 1), pad=(1, 1), dilate=(1, 1), groups=1, size=(8, 8))
    joined = b.reshape(b.concat([b.call("exp", y), z], 0), (20, 64))
    result = b.matmul(joined, u)
    made = plan(run_pipeline(Graph("g", (x, w, z, u), (), (), tuple(b.nodes), (result,))))
    asked: list[Plan] = []

    def write(p: Plan) -> Program:
        asked.append(p)
        return program_of(p)
    want = program_of(made)
    read, program = read_program(write_program(made, want, made.graph), made.graph, write)
    assert not asked
    assert [r.choice is None for r in program.instructions] == [r.choice is None for r in want.instructions]
    for r, expected in zip(program.instructions, want.instructions, strict=True):
        assert r.kernel is not None and expected.kernel is not None
        assert (r.kernel.text, r.kernel.facts) == (expected.kernel.text, expected.kernel.facts)
        assert r.choice is None or expected.choice is not None and r.choice() == expected.choice()
    assert asked == [read] and any(r.choice for r in program.instructions)
    assert [r.node.attrs.get("placed") for r in program.instructions] == [None, (True, False), None]
