"""Dead code, common subexpressions, constants."""

from __future__ import annotations

import numpy as np
from graphs import assert_same

from kusari.ir import Builder, Graph, Op, Trait, Value, attrs_key, parse_graph, tensor_type
from kusari.passes.tidy import fold_constants, merge_common, remove_dead

F = tensor_type("float32", (4,))


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def test_dead_nodes_go_effects_stay() -> None:
    b = Builder()
    x, w = Value(F, "x"), Value(F, "w")
    y = b.call("exp", x)
    b.call("tanh", b.call("exp", y))
    b.random("uniform", (), (4,), "float32")
    b.assign(w, b.call("negative", x))
    b.fresh(Op("print", lambda attrs, v: (v,), Trait.OPAQUE), [x], [F])
    unused = (Value(F, "c"), np.zeros(4, "f"))
    graph = Graph("g", (x,), (w,), (unused,), tuple(b.nodes), (y,))
    after = remove_dead(graph)
    assert names(after) == ["map", "random", "map", "assign", "print"] and after.consts == ()
    assert remove_dead(after) is after


def test_the_same_is_computed_once() -> None:
    graph = parse_graph("""graph g(%x: f32[4], %y: f32[4]) {
      %a: f32[4] = map(%x, %y) {expr=(a0 + a1)}
      %b: f32[4] = map(%x, %y) {expr=(a0 + a1)}
      %c: f32[4] = map(%a) {expr=exp(a0)}
      %d: f32[4] = map(%b) {expr=exp(a0)}
      %e: f32[4] = map(%y, %x) {expr=(a0 + a1)}
      %f: f32[4] = map(%c, %d, %e) {expr=((a0 * a1) + a2)}
      return %f
    }""")
    after = merge_common(graph)
    assert len(after.nodes) == 4
    assert_same(graph, after)
    assert merge_common(after) is after


def test_literals_of_other_types_are_not_the_same() -> None:
    graph = parse_graph("""graph g(%x: f32[4]) {
      %a: f32[4] = map(%x) {expr=(a0 * 1.0)}
      %b: f32[4] = map(%x) {expr=(a0 * 1)}
      %c: f32[4] = map(%x) {expr=(a0 * True)}
      %d: f32[4] = map(%x) {expr=(a0 + 0.0)}
      %e: f32[4] = map(%x) {expr=(a0 + -0.0)}
      return %a, %b, %c, %d, %e
    }""")
    assert merge_common(graph) is graph


def test_numbers_that_are_equal_but_not_the_same() -> None:
    op = Op("pad", lambda attrs, x: (x + attrs["with"][0],), types=lambda attrs, t: (t,), key=attrs_key)
    b = Builder()
    x = Value(F, "x")
    (a,), (c,), (d,) = (b.emit(op, x, **{"with": (number,)}) for number in (0.0, -0.0, 0.0))
    after = merge_common(Graph("g", (x,), (), (), tuple(b.nodes), (a, c, d)))
    assert len(after.nodes) == 2 and after.outputs == (a, c, a)


def test_reads_before_and_after_a_write_differ() -> None:
    b = Builder()
    x, w = Value(F, "x"), Value(F, "w")
    first = b.call("exp", w)
    again = b.call("exp", w)
    view = b.call("tanh", b.reshape(w, (2, 2)))
    b.assign(w, x)
    later = b.call("exp", w)
    view2 = b.call("tanh", b.reshape(w, (2, 2)))
    graph = Graph("g", (x,), (w,), (), tuple(b.nodes), (first, again, later, view, view2))
    after = merge_common(graph)
    assert after.outputs[0] is after.outputs[1] and after.outputs[2] is not after.outputs[0]
    assert after.outputs[3] is not after.outputs[4]
    assert_same(graph, after)


def test_draws_are_never_merged() -> None:
    b = Builder()
    r = [b.random("uniform", (), (4,), "float32") for _ in range(2)]
    graph = Graph("g", (), (), (), tuple(b.nodes), tuple(r))
    assert merge_common(graph) is graph


def test_equal_constants_are_one() -> None:
    b = Builder()
    x = Value(F, "x")
    consts = tuple((Value(F), np.full(4, v, "f")) for v in (1, 1, 2))
    y = b.call("add", b.call("add", x, consts[0][0]), b.call("add", consts[1][0], consts[2][0]))
    graph = Graph("g", (x,), (), consts, tuple(b.nodes), (y,))
    after = remove_dead(merge_common(graph))
    assert len(after.consts) == 2
    assert_same(graph, after)


def test_constants_are_computed_now() -> None:
    b = Builder()
    x, c = Value(F, "x"), Value(F, "c")
    d = b.call("exp", b.call("multiply", c, 2.0))
    big = b.broadcast_to(d, (1000, 4))
    graph = Graph("g", (x,), (), ((c, np.ones(4, "f")),), tuple(b.nodes), (b.call("add", x, d), big))
    graph = graph.with_nodes(b.nodes)
    after = remove_dead(fold_constants(graph))
    assert names(after) == ["broadcast_to", "map"]
    np.testing.assert_allclose(dict(after.consts)[after.nodes[0].inputs[0]], np.exp(2), rtol=1e-6)
    assert_same(graph, after)
