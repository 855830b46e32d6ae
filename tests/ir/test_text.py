"""Printing and parsing are inverse; faults in a text are shown with their line."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from graphs import assert_same, graphs
from hypothesis import given

from kusari.ir import (
    Arg,
    Builder,
    Call,
    Graph,
    Lit,
    ParseError,
    Value,
    parse_graph,
    print_expr,
    print_graph,
    structure,
    tensor_type,
    verify,
)
from kusari.ir.parser import parse_expr
from kusari.passes import run_pipeline


@given(graph=graphs())
def test_what_is_printed_can_be_read(graph: Graph) -> None:
    text = print_graph(graph)
    again = parse_graph(text)
    verify(again)
    assert print_graph(again) == text
    assert structure(again) == structure(graph)
    assert_same(graph, again)


@given(graph=graphs())
def test_fused_graphs_can_be_read(graph: Graph) -> None:
    fused = run_pipeline(graph)
    again = parse_graph(print_graph(fused))
    verify(again)
    assert_same(fused, again)


@pytest.mark.parametrize("expr", [
    Lit(1), Lit(1.0), Lit(True), Lit(-0.0), Lit(-3), Lit(float("inf")), Lit(-float("inf")), Lit(float("nan")),
    Lit(1e-300), Arg(12), Call("exp", (Arg(0),)), Call("negative", (Call("negative", (Arg(0),)),)),
    Call("where", (Call("less", (Arg(0), Lit(0))), Arg(1), Lit(2.5))),
    Call("add", (Call("subtract", (Arg(0), Arg(1))), Call("true_divide", (Arg(2), Lit(3))))),
    Call("subtract", (Arg(0), Call("subtract", (Arg(1), Arg(2))))), Call("bool_", (Arg(0),)),
])
def test_expressions_can_be_read(expr: Arg | Lit | Call) -> None:
    assert parse_expr(ast.parse(print_expr(expr), mode="eval").body) == expr


def test_names() -> None:
    b = Builder("net.py:4")
    x, y = Value(tensor_type("float32", (2,)), "x"), Value(tensor_type("float32", (2,)), "x")
    z = b.call("add", x, y)
    w = b.call("exp", z)
    w.hint = "a b/c"
    text = print_graph(Graph("g", (x, y), (), (), tuple(b.nodes), (w,)))
    assert text.splitlines() == [
        "graph g(%x: f32[2], %x.1: f32[2]) {",
        "  %2: f32[2] = map(%x, %x.1) {expr=(a0 + a1)}  # net.py:4",
        "  %a_b/c: f32[2] = map(%2) {expr=exp(a0)}  # net.py:4",
        "  return %a_b/c",
        "}",
    ]


@pytest.mark.parametrize(("text", "message"), [
    ("graf g() {\nreturn\n}", "expected 'graph name"),
    ("graph g(%x: f32[2]) {\n%y: f32[2] = nonsense(%x)\nreturn %y\n}", "not a node of a primitive op: %y"),
    ("graph g(%x: f32[2]) {\n%y: f32[2] = map(%z) {expr=exp(a0)}\nreturn %y\n}", "%z is not defined before"),
    ("graph g(%x: f32[2]) {\n%y: f32[2] = map(%x) {expr=[a0]}\nreturn %y\n}", "not an expression"),
    ("graph g(%x: f32[2]) {\n", "ends before the return line"),
    ("graph g(%x: f32[2]) {\nreturn %x\n", "expected '}'"),
    ("graph g(%x: f32[2]) {\nreturn %x\n}\nmore", "text after the graph: more"),
])
def test_faults(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_graph(text)


def test_large_constants_are_only_named() -> None:
    c = Value(tensor_type("float32", (100,)), "c")
    assert "const <100 elements>" in print_graph(Graph("g", (), (), ((c, np.zeros(100, "f")),), (), (c,)))
