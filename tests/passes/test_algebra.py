"""Each identity: the text before, the text after; and the cases in which it must not be applied."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np
import pytest
from graphs import assert_same

from kusari.ir import (
    CASTS,
    Arg,
    Builder,
    Call,
    Expr,
    Graph,
    Value,
    interpret,
    parse_graph,
    print_expr,
    print_graph,
    tensor_type,
    walk,
)
from kusari.ir.parser import parse_expr
from kusari.passes import run_pipeline
from kusari.passes.algebra import TENSOR_RULES, simplify_algebra
from kusari.passes.order import made_for_caller
from kusari.passes.rewrite import RewriteError, rewrite
from kusari.passes.scalars import SCALAR_RULES, simplify
from kusari.passes.tidy import remove_dead

HEAD = "graph g(%x: f32[4,3], %y: f32[4,3], %v: f32[3], %s: f32[]) {"


def sections(text: str) -> dict[str, list[str]]:
    """``== name`` begins a section, ``->`` parts what is before a rule from what is after it."""
    found = [part.partition("\n") for part in text.split("\n== ") if part.strip()]
    return {name: [side.strip() for side in body.split("->")] for name, _, body in found}


# Named by the rule they are for; the last value is the output.
CASES = sections("""
== all_of_it
%a: f32[4,3] = reshape(%x) {shape=(4, 3)}
->
%x
== twice_the_same
%a: f32[12] = reshape(%x) {shape=(12,)}
%b: f32[3,4] = reshape(%a) {shape=(3, 4)}
->
%b: f32[3,4] = reshape(%x) {shape=(3, 4)}
== reshape_of_part
%a: f32[2,3] = part(%x) {start=1, stop=3}
%b: f32[6] = reshape(%a) {shape=(6,)}
->
%a: f32[12] = reshape(%x) {shape=(12,)}
%b: f32[6] = part(%a) {start=3, stop=9}
== reshape there and back
%a: f32[12] = reshape(%x) {shape=(12,)}
%b: f32[4,3] = reshape(%a) {shape=(4, 3)}
->
%x
== transpose_as_reshape
%a: f32[1,3] = reshape(%v) {shape=(1, 3)}
%b: f32[3,1] = transpose(%a) {axes=(1, 0)}
->
%b: f32[3,1] = reshape(%v) {shape=(3, 1)}
== transpose_of_transpose
%a: f32[3,4] = transpose(%x) {axes=(1, 0)}
%b: f32[4,3] = transpose(%a) {axes=(1, 0)}
->
%x
== product_of_transpose
%a: f32[3,4] = transpose(%x) {axes=(1, 0)}
%b: f32[3,3] = matmul(%a, %y) {transa=False, transb=False}
->
%b: f32[3,3] = matmul(%x, %y) {transa=True, transb=False}
== product of two transposes
%a: f32[3,4] = transpose(%x) {axes=(1, 0)}
%c: f32[3,4] = transpose(%y) {axes=(1, 0)}
%b: f32[4,4] = matmul(%a, %c) {transa=True, transb=False}
->
%b: f32[4,4] = matmul(%x, %y) {transa=False, transb=True}
== broadcast to its own shape
%a: f32[4,3] = broadcast_to(%x) {shape=(4, 3)}
->
%x
== broadcast of a broadcast
%a: f32[4,3] = broadcast_to(%v) {shape=(4, 3)}
%b: f32[2,4,3] = broadcast_to(%a) {shape=(2, 4, 3)}
->
%b: f32[2,4,3] = broadcast_to(%v) {shape=(2, 4, 3)}
== broadcast_as_reshape
%a: f32[1,3] = broadcast_to(%v) {shape=(1, 3)}
->
%a: f32[1,3] = reshape(%v) {shape=(1, 3)}
== map_of_broadcast
%a: f32[4,3] = broadcast_to(%v) {shape=(4, 3)}
%b: f32[4,3] = map(%x, %a) {expr=(a0 + a1)}
->
%b: f32[4,3] = map(%x, %v) {expr=(a0 + a1)}
== map of broadcasts only
%a: f32[4,3] = broadcast_to(%v) {shape=(4, 3)}
%b: f32[4,3] = map(%a) {expr=exp(a0)}
->
%a: f32[3] = map(%v) {expr=exp(a0)}
%b: f32[4,3] = broadcast_to(%a) {shape=(4, 3)}
== map_of_distinct
%a: f32[4,3] = map(%x, %y, %x) {expr=((a0 * a1) + a2)}
->
%a: f32[4,3] = map(%x, %y) {expr=((a0 * a1) + a0)}
== map without an unused operand
%a: f32[4,3] = map(%x, %v, %y) {expr=(a0 + a2)}
->
%a: f32[4,3] = map(%x, %y) {expr=(a0 + a1)}
== map_identity
%a: f32[4,3] = map(%x, %v) {expr=a0}
->
%x
== map identity that broadcasts
%a: f32[4,3] = map(%x, %v) {expr=a1}
->
%a: f32[4,3] = broadcast_to(%v) {shape=(4, 3)}
== simpler_map
%a: f32[4,3] = map(%x) {expr=(a0 * 1.0)}
->
%x
== reduce_of_ones
%a: f32[1,3] = reshape(%v) {shape=(1, 3)}
%b: f32[1,1] = reduce(%a) {fn='sum', axes=(0, 1)}
->
%a: f32[1,3] = reshape(%v) {shape=(1, 3)}
%b: f32[1,1] = reduce(%a) {fn='sum', axes=(1,)}
== reduce_of_reduce
%a: f32[4,1] = reduce(%x) {fn='max', axes=(1,)}
%b: f32[1,1] = reduce(%a) {fn='max', axes=(0,)}
->
%b: f32[1,1] = reduce(%x) {fn='max', axes=(0, 1)}
== reduce_of_broadcast
%a: f32[4,3] = broadcast_to(%v) {shape=(4, 3)}
%b: f32[1,1] = reduce(%a) {fn='sum', axes=(0, 1)}
->
%a: f32[1,3] = reshape(%v) {shape=(1, 3)}
%b: f32[1,1] = reduce(%a) {fn='sum', axes=(1,)}
%c: f32[1,1] = map(%b) {expr=(a0 * 4.0)}
== max of broadcast
%a: f32[4,3] = broadcast_to(%v) {shape=(4, 3)}
%b: f32[1,3] = reduce(%a) {fn='max', axes=(0,)}
->
%a: f32[1,3] = reshape(%v) {shape=(1, 3)}
== slice of everything
%a: f32[4,3] = slice(%x) {starts=(0, 0), stops=(4, 3), steps=(1, 1)}
->
%x
== slice_of_slice
%a: f32[4,2] = slice(%x) {starts=(0, 1), stops=(4, 3), steps=(1, 1)}
%b: f32[2,1] = slice(%a) {starts=(0, 1), stops=(4, 2), steps=(2, 1)}
->
%b: f32[2,1] = slice(%x) {starts=(0, 2), stops=(4, 3), steps=(2, 1)}
== a slice of one that turns around
%a: f32[2,3] = slice(%x) {starts=(3, 0), stops=(-1, 3), steps=(-2, 1)}
%b: f32[1,3] = slice(%a) {starts=(1, 2), stops=(2, -1), steps=(2, -1)}
->
%b: f32[1,3] = slice(%x) {starts=(1, 2), stops=(-1, -1), steps=(-4, -1)}
== slice_of_rows
%a: f32[2,3] = slice(%x) {starts=(1, 0), stops=(3, 3), steps=(1, 1)}
->
%a: f32[2,3] = part(%x) {start=1, stop=3}
== concat_of_one
%a: f32[4,3] = concat(%x) {axis=0}
->
%x
== matmul_is_2d
%a: f32[1,4,3] = reshape(%x) {shape=(1, 4, 3)}
%c: f32[1,4,3] = reshape(%y) {shape=(1, 4, 3)}
%b: f32[1,4,4] = matmul(%a, %c) {transa=False, transb=True}
->
%a: f32[4,4] = matmul(%x, %y) {transa=False, transb=True}
%b: f32[1,4,4] = reshape(%a) {shape=(1, 4, 4)}
== full_of_constant
%a: f32[4,3] = full() {shape=(4, 3), value=1, dtype='float32'}
%c: f32[4,3] = map(%a) {expr=sqrt(a0)}
%b: f32[4,3] = map(%y, %c) {expr=(a0 * a1)}
->
%y
""")

KEPT = sections("""
== the last axis is not the one that is permuted
%a: f32[3,4] = transpose(%x) {axes=(1, 0)}
== a reduction that somebody else reads
%a: f32[4,1] = reduce(%x) {fn='sum', axes=(1,)}
%b: f32[1,1] = reduce(%a) {fn='sum', axes=(0,)}
%c: f32[4,1] = map(%a, %b) {expr=(a0 + a1)}
== reductions of different kinds
%a: f32[4,1] = reduce(%x) {fn='sum', axes=(1,)}
%b: f32[1,1] = reduce(%a) {fn='max', axes=(0,)}
== a product of a broadcast
%a: f32[4,3] = broadcast_to(%v) {shape=(4, 3)}
%b: f32[1,3] = reduce(%a) {fn='prod', axes=(0,)}
== a slice that turns around
%a: f32[4,3] = slice(%x) {starts=(3, 0), stops=(-1, 3), steps=(-1, 1)}
== a batched transpose of other axes
%a: f32[1,4,3] = reshape(%x) {shape=(1, 4, 3)}
%b: f32[3,4,1] = transpose(%a) {axes=(2, 1, 0)}
""")


def graph_of(lines: str) -> Graph:
    """The graph of ``lines``; a node without rules reads the last value, as a caller's results are never replaced."""
    rows = [line for line in lines.splitlines() if "=" in line]
    last = rows[-1].partition(":")[0] if rows else lines
    kind = re.findall(rf"{re.escape(last)}: (\w+\[[\d,]*\])", "\n".join([HEAD, *rows]))[0]
    sink = f"%out: {kind} = foreach({last}) {{exprs=[square(a0)], shared=0, arity=1}}"
    return parse_graph("\n".join([HEAD, *rows, sink, "return %out", "}"]))


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    before, expected = map(graph_of, CASES[name])
    after = remove_dead(simplify_algebra(before))
    assert print_graph(nameless(after)) == print_graph(nameless(expected))
    assert_same(before, after, rtol=1e-5)
    assert simplify_algebra(after) is after


@pytest.mark.parametrize("name", KEPT)
def test_rules_do_not_apply(name: str) -> None:
    graph = graph_of(KEPT[name][0])
    assert remove_dead(simplify_algebra(graph)).nodes == graph.nodes


def nameless(graph: Graph) -> Graph:
    """``graph`` without the hints of what its nodes make."""
    for node in graph.nodes:
        for v in node.outputs:
            v.hint = ""
    return graph


def test_every_rule_has_a_case() -> None:
    rules = {rule.__name__ for rules in TENSOR_RULES.values() for rule in rules}
    assert rules - set(CASES) == {"map_of_constants", "map_of_constant"}  # in "full_of_constant"
    assert all(rule.__doc__ for rules in TENSOR_RULES.values() for rule in rules)


SCALARS = {
    "(a0 * 1.0)": "a0", "(1 * a0)": "a0", "(a0 / 1)": "a0", "(a0 - 0.0)": "a0", "(a0 + -0.0)": "a0",
    "(-0.0 + a0)": "a0",
    "(a0 * -1.0)": "negative(a0)", "(-1 * a0)": "negative(a0)", "negative(negative(a0))": "a0",
    "(a0 + negative(a1))": "(a0 - a1)",
    "(a0 - negative(a1))": "(a0 + a1)", "power(a0, 1)": "a0", "power(a0, 2)": "square(a0)",
    "square(negative(a0))": "square(a0)", "absolute(negative(a0))": "absolute(a0)", "where((a0 < a1), a0, a0)": "a0",
    "where(True, a0, a1)": "a0", "where(False, a0, a1)": "a1",
    "float64(float64(a0))": "float64(a0)", "float32(a0)": "a0", "((a0 * 1.0) + negative(negative(a1)))": "(a0 + a1)",
    # what would change a zero's sign, a NaN or a dtype stays
    "(a0 + 0.0)": "(a0 + 0.0)", "(a0 - -0.0)": "(a0 - -0.0)", "(a0 * 0.0)": "(a0 * 0.0)", "(a0 - a0)": "(a0 - a0)",
    "(a0 / a0)": "(a0 / a0)", "(a2 * 1.0)": "(a2 * 1.0)", "(a2 / 1)": "(a2 / 1)", "power(a0, 0)": "power(a0, 0)",
    "(a3 * 1)": "(a3 * 1)", "(a3 * -1)": "(a3 * -1)", "float64(float32(a4))": "float64(float32(a4))",
    "where(a3, 1.0, 1.0)": "where(a3, 1.0, 1.0)", "(a0 * True)": "(a0 * True)",
}


def expr_of(text: str) -> Expr:
    return parse_expr(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize("text", SCALARS)
def test_scalar_rule(text: str) -> None:
    dtypes = tuple(np.dtype(d) for d in ("float32", "float32", "int32", "bool", "float64"))
    assert print_expr(simplify(expr_of(text), dtypes)) == SCALARS[text]


def test_every_scalar_rule_has_a_case() -> None:
    tried = [e for text in SCALARS for e in walk(expr_of(text))]
    assert not [before for before, _ in SCALAR_RULES
                if before.name not in CASTS and all(before.match(e) is None for e in tried)]


def test_small_integers_do_not_get_large_factors() -> None:
    b = Builder()
    x = Value(tensor_type("int8", (1,)))
    y = b.reduce("sum", b.broadcast_to(x, (200,)))
    graph = Graph("g", (x,), (), (), tuple(b.nodes), (y,))
    assert simplify_algebra(graph) is graph


def test_a_transpose_is_not_moved_over_a_write() -> None:
    """The product reads the transpose of the old state, not of the new one."""
    b = Builder()
    w, x = Value(tensor_type("float32", (3, 3)), "w"), Value(tensor_type("float32", (3, 3)), "x")
    t = b.transpose(w)
    b.assign(w, x)
    y = b.matmul(t, x)
    graph = Graph("g", (x,), (w,), (), tuple(b.nodes), (y,))
    after = simplify_algebra(graph)
    assert [n.op.name for n in after.nodes] == ["transpose", "assign", "matmul"]
    assert after.nodes[-1].inputs[0] is t
    assert_same(graph, after)


@pytest.mark.parametrize("copy", [
    lambda b, w: b.reduce("sum", w, 0), lambda b, w: b.map(Arg(0), w), lambda b, w: b.broadcast_to(w, (1, 1, 3)),
    lambda b, w: b.one("transpose", w, axes=(1, 0)),
], ids=["reduce", "map", "broadcast", "transpose"])
def test_a_copy_of_a_state_that_is_written_later_stays_a_copy(copy) -> None:
    b = Builder()
    w, x = Value(tensor_type("float32", (1, 3)), "w"), Value(tensor_type("float32", (1, 3)), "x")
    y = copy(b, w)
    b.assign(w, x)
    graph = Graph("g", (x,), (w,), (), tuple(b.nodes), (y,))
    assert_same(graph, remove_dead(simplify_algebra(graph)))


def copies() -> dict[str, Any]:
    return {
        "times one": lambda b, w: b.call("multiply", w, 1.0), "sum of one": lambda b, w: b.reduce("sum", w, 0),
        "concat": lambda b, w: b.concat([w], 0), "slice": lambda b, w: b.slice(w, (0, 0), (1, 3), (1, 1)),
        "view": lambda b, w: b.reshape(b.call("subtract", w, 0.0), (3,)),
        "twice": lambda b, w: b.call("negative", b.call("negative", b.call("multiply", w, 1.0))),
        "constant": lambda b, w: b.reshape(b.full((1, 3), 2.0, "float32"), (3, 1)),
        "small constant": lambda b, w: b.full((), 2.0, "float32"),
    }


@pytest.mark.parametrize("name", copies())
def test_results_are_no_buffers_of_ours(name: str) -> None:
    """The caller may change what it gets: that is never an argument, a parameter or a constant."""
    x, w = (Value(tensor_type("float32", (1, 3)), hint) for hint in "xw")
    for source in (x, w):
        b = Builder()
        y = copies()[name](b, source)
        graph = Graph("g", (x,), (w,), (), tuple(b.nodes), (y,))
        after = run_pipeline(graph)
        assert not made_for_caller(after).isdisjoint({after.roots()[v] for v in after.outputs})
        assert_same(graph, after)


@pytest.mark.parametrize("fn, kept", [("sqrt", False), ("add", True)])
def test_a_function_of_a_constant_keeps_its_precision(fn: str, kept: bool) -> None:
    """``x == sqrt(c)`` in float32: the root of a literal would be a float64 that no ``x`` equals."""
    x, c = (Value(tensor_type("float32", (3,)), "x"), Value(tensor_type("float32", ()), "c"))
    array = np.array(2, "f")
    inner = Call("sqrt", (Arg(1),)) if fn == "sqrt" else Call("add", (Arg(0), Arg(1)))
    b = Builder()
    y = b.map(Call("equal", (Arg(0), inner)), x, c)
    graph = Graph("g", (x,), (), ((c, array),), tuple(b.nodes), (y,))
    after = simplify_algebra(graph)
    assert (len(after.nodes[0].inputs) == 1) == kept
    data = np.sqrt(np.full(3, 2, "f"))
    np.testing.assert_array_equal(interpret(after, [data])[0], interpret(graph, [data])[0])


def test_rules_that_change_a_type_are_caught() -> None:
    graph = graph_of("%a: f32[4,3] = map(%x) {expr=exp(a0)}")
    with pytest.raises(RewriteError, match="wrong turns"):
        def wrong(b, node):
            return (b.reduce("sum", node.inputs[0], 0),)
        rewrite(graph, {"map": (wrong,)})


def test_rules_that_never_end_are_caught() -> None:
    graph = graph_of("%a: f32[4,3] = map(%x) {expr=exp(a0)}")
    with pytest.raises(RewriteError, match="do not come to an end"):
        rewrite(graph, {"map": (lambda b, node: (b.map(node.attrs["expr"], *node.inputs),),)})


def test_effects_are_never_rewritten() -> None:
    b = Builder()
    x = Value(tensor_type("float32", (2,)), "x")
    r = b.random("uniform", (0, 1), (2,), "float32")
    graph = Graph("g", (x,), (), (), tuple(b.nodes), (r,))
    assert rewrite(graph, {"random": (lambda b, node: (x,),)}) is graph
