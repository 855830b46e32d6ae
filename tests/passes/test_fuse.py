"""Fusion: what joins, what must not, and that the meaning stays."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from bodies import body, cross_entropy, normalize, softmax
from graphs import assert_same

from kusari.ir import Arg, Builder, Call, Graph, Lit, Node, Op, Trait, Value, tensor_type, verify
from kusari.passes.foreach import foreach
from kusari.passes.fuse import fuse, split_reductions
from kusari.passes.order import Partition, schedule


def outline(graph: Graph) -> list[str]:
    """One word per node; a fused one lists its body."""
    return [f"fused({' '.join(n.op.name for n in node.attrs['body'].nodes)})" if node.op.name == "fused"
            else node.op.name for node in graph.nodes]


def fused(graph: Graph, rtol: float = 1e-4) -> Graph:
    after = verify(fuse(graph))
    assert_same(graph, after, rtol)
    assert fuse(after) is after
    return after


def relu_layer(b: Builder, x: Value, w: Value, c: Value) -> Value:
    return b.call("maximum", b.call("add", b.matmul(x, w, transb=True), c), 0.0)


SOFTMAX = "fused(reduce map map reduce map)"


@pytest.mark.parametrize("build, shapes, expected", [
    (lambda b, x: b.call("exp", b.call("negative", x)), [(4, 5)], ["fused(map map)"]),
    (softmax, [(4, 5)], [SOFTMAX]),
    (lambda b, x: softmax(b, x, 0), [(4, 5)], [SOFTMAX]),
    (normalize, [(4, 5), (5,), (5,)], ["fused(" + "reduce map map map reduce" + " map" * 7 + ")"]),
    # Rows, then a sum over rows: two domains.
    (lambda b, x: b.reduce("sum", b.reduce("sum", b.call("exp", x), 1), 0), [(4, 5)], ["fused(map reduce)", "reduce"]),
    # A sum over rows and one over columns of one value.
    (lambda b, x: (b.reduce("sum", b.call("exp", x), 0), b.reduce("sum", b.call("exp", x), 1)), [(4, 5)],
     ["fused(map reduce)", "fused(map reduce)"]),
    # Siblings: nothing flows between them, but they read the same tensor.
    (lambda b, x: (b.reduce("sum", x, 1), b.reduce("max", x, 1), b.call("negative", x)), [(4, 5)],
     ["fused(reduce reduce map)"]),
    # Nothing in common.
    (lambda b, x, y: (b.call("exp", x), b.call("exp", y)), [(4, 5), (4, 5)], ["map", "map"]),
    (relu_layer, [(4, 5), (6, 5), (6,)], ["fused(matmul map map)"]),
    (lambda b, x, w, c: softmax(b, relu_layer(b, x, w, c)), [(4, 5), (6, 5), (6,)], ["fused(matmul map map)", SOFTMAX]),
    (lambda b, x, w, c: relu_layer(b, relu_layer(b, x, w, c), w, c), [(4, 5), (5, 5), (5,)],
     ["fused(matmul map map)", "fused(matmul map map)"]),
    # A product's epilogue takes two tensors of its size, not three.
    (lambda b, x, w, p, q, r: b.call("add", b.call("multiply", b.call("add", b.matmul(x, w), p), q), r),
     [(4, 5), (5, 6), (4, 6), (4, 6), (4, 6)], ["fused(matmul map map)", "map"]),
    # A reshape between two nests that only adds an axis goes inside; another one does not.
    (lambda b, x, y: b.call("add", b.reshape(b.call("exp", x), (1, 4)), y), [(4,), (3, 4)], ["map", "map"]),
    (lambda b, x, y: b.call("add", b.reshape(b.call("negative", x), (1, 4)), y), [(4,), (3, 4)],
     ["fused(map reshape map)"]),
    (lambda b, x: b.call("exp", b.reshape(b.call("exp", x), (20,))), [(4, 5)], ["map", "reshape", "map"]),
    # A broadcast of a scalar is part of what reads it.
    (lambda b, x, g: b.call("multiply", x, b.broadcast_to(g, (4, 5))), [(4, 5), ()], ["fused(broadcast_to map)"]),
])
def test_what_joins(build: Any, shapes: list[tuple[int, ...]], expected: list[str]) -> None:
    found = outline(fused(body(build, *[("f4", s) for s in shapes])))
    assert [name for name in found if not (name == "reshape" and "reshape" not in expected)] == expected


def test_labels_fuse_with_the_loss() -> None:
    graph = body(cross_entropy, ("f8", (4, 5)), ("i4", (4,)))
    assert len(fuse(graph).nodes) == 1


def test_a_cycle_between_regions_is_refused() -> None:
    def build(b: Builder, x: Value, w: Value) -> Value:
        y = b.call("exp", x)
        return b.call("add", b.matmul(b.call("negative", y), w), y)
    # y and the sum could share a kernel but for the product in between.
    assert outline(fused(body(build, ("f4", (5, 5)), ("f4", (5, 5))))) == ["fused(map map)", "fused(matmul map)"]


def test_a_cheap_mask_is_computed_where_it_is_used() -> None:
    def build(b: Builder, x: Value, w: Value) -> tuple[Value, ...]:
        mask = b.cast(b.call("greater", x, 0.5), "float64")
        y = b.call("multiply", x, mask)
        z = b.matmul(y, w)
        return y, b.reduce("sum", b.call("multiply", b.call("multiply", z, x), mask), 0)
    after = fused(body(build, ("f4", (5, 5)), ("f4", (5, 5))))
    first = after.nodes[0].attrs["body"]
    assert len(first.outputs) == 1, "the mask is not stored"


def test_an_epilogue_stores_only_what_is_worth_it() -> None:
    def cheap(b: Builder, x: Value, w: Value, y: Value) -> tuple[Value, ...]:
        z = b.matmul(x, w)
        return b.reduce("sum", z, 0), b.reduce("sum", b.call("multiply", z, y), 0)

    def costly(b: Builder, x: Value, w: Value, y: Value) -> tuple[Value, ...]:
        z = b.call("add", b.matmul(x, w), y)
        return z, b.matmul(b.call("tanh", z), w), b.call("negative", z)
    shapes = ("f4", (5, 5)), ("f4", (5, 5)), ("f4", (5, 5))
    assert outline(fused(body(cheap, *shapes))) == ["matmul", "fused(reduce map reduce)"]
    after = fused(body(costly, *shapes))
    assert outline(after) == ["fused(matmul map map)", "matmul", "map"]
    assert len(after.nodes[0].outputs) == 2


def test_an_epilogue_may_take_a_detour() -> None:
    def gelu(b: Builder, x: Value, w: Value) -> Value:
        z = b.matmul(x, w)  # while it grows, the epilogue has three values that others read
        half, cube = b.call("multiply", z, 0.5), b.call("multiply", b.call("multiply", z, z), z)
        inner = b.call("add", z, b.call("multiply", cube, 0.04))
        return b.call("multiply", half, b.call("add", b.call("tanh", inner), 1.0))

    def split(b: Builder, x: Value, w: Value) -> tuple[Value, ...]:
        z = b.matmul(x, w)
        return b.call("exp", z), b.call("tanh", z), b.call("sin", z), b.call("negative", z)
    shapes = ("f4", (5, 5)), ("f4", (5, 5))
    assert outline(fused(body(gelu, *shapes))) == ["fused(matmul map map map map map map map map)"]
    assert len(fused(body(split, *shapes)).nodes[0].outputs) <= 2


def test_expensive_values_are_not_computed_twice() -> None:
    # exp over columns, broadcast over many rows: inside the big nest it would run once per element.
    graph = body(lambda b, x, y: b.call("multiply", x, b.call("exp", y)), ("f4", (40, 5)), ("f4", (5,)))
    assert outline(fused(graph)) == ["map", "map"]


def test_large_reductions_are_split_for_threads() -> None:
    graph = body(lambda b, x: b.reduce("sum", b.call("square", x)), ("f4", (200, 30, 10)))
    after = fuse(graph)
    assert outline(after) == ["fused(map reduce)", "reduce"]
    assert [n.attrs["axes"] for n in split_reductions(graph).nodes if n.op.name == "reduce"] == [(1, 2), (0,)]
    small = body(lambda b, x: b.reduce("sum", x), ("f4", (20, 30)))
    assert split_reductions(small) is small and fuse(small) is small


def test_state_is_read_before_it_is_written() -> None:
    b = Builder()
    p, x = Value(tensor_type("f8", (6,))), Value(tensor_type("f8", (6,)))
    before = b.call("exp", p)
    b.assign(p, b.call("add", p, x))
    after = b.call("multiply", b.call("negative", before), p)
    graph = verify(Graph("g", (x,), (p,), (), tuple(b.nodes), (after,)))
    fused(graph, 1e-9)


def test_a_cheap_value_of_old_state_is_not_computed_from_new_state() -> None:
    b = Builder()
    p, x = Value(tensor_type("f4", (6, 6))), Value(tensor_type("f8", (6, 6)))
    positive = Call("float64", (Call("greater", (Arg(0), Lit(0.0))),))
    old = b.map(positive, b.reshape(b.reshape(p, (1, 6, 6)), (6, 6)))
    first = b.call("multiply", x, old)
    b.assign(p, b.call("add", p, 1.0))
    second = b.reduce("sum", b.call("multiply", b.transpose(first), old), 0)
    fused(verify(Graph("g", (x,), (p,), (), tuple(b.nodes), (first, second))), 1e-9)


def test_effects_keep_their_order() -> None:
    b = Builder()
    x = Value(tensor_type("f8", (6,)))
    opaque = Op("user", lambda attrs, a: (a + 1,), Trait.OPAQUE)
    (one,) = b.fresh(opaque, (x,), (x.tensor,))
    draw = b.random("uniform", (0.0, 1.0), (6,), "float64")
    (two,) = b.fresh(opaque, (b.call("exp", x),), (x.tensor,))
    end = b.call("add", b.call("negative", b.call("add", one, draw)), two)
    after = fuse(verify(Graph("g", (x,), (), (), tuple(b.nodes), (end,))))
    assert [n.op.name for n in verify(after).nodes if n.has_effect] == ["user", "random", "user"]


def update(shapes: list[tuple[int, ...]], own_rate: bool = False) -> Graph:
    """Momentum for parameters of several shapes, all with one learning rate or each with its own."""
    b = Builder()
    rates = [Value(tensor_type("f4", ())) for _ in shapes]
    inputs, params = rates if own_rate else rates[:1], list[Value]()
    for i, shape in enumerate(shapes):
        p, v, g = (Value(tensor_type("f4", shape)) for _ in range(3))
        new = b.call("subtract", b.call("multiply", v, 0.9), b.call("multiply", g, rates[i if own_rate else 0]))
        b.assign(v, new)
        b.assign(p, b.call("add", p, new))
        inputs, params = [*inputs, g], [*params, p, v]
    return verify(Graph("update", tuple(inputs), tuple(params), (), tuple(b.nodes), ()))


def test_updates_of_all_parameters_become_one_node() -> None:
    graph = update([(3, 4), (4,), (), (1, 2)])
    after = verify(foreach(fuse(graph)))
    assert_same(graph, after, 1e-6)
    assert [n.op.name for n in after.nodes if n.op.name != "assign"] == ["fused", "foreach"]
    (one,) = [n for n in after.nodes if n.op.name == "foreach"]
    assert one.attrs["shared"] == 1 and one.attrs["arity"] == 3
    assert foreach(after) is after


def test_updates_with_different_rates_stay_apart() -> None:
    graph = fuse(update([(3, 4), (4,)], own_rate=True))
    assert foreach(graph) is graph


def test_updates_do_not_join_the_gradients_that_they_read() -> None:
    def build(b: Builder, p: Value, x: Value, w: Value) -> None:
        b.assign(p, b.call("subtract", p, b.call("multiply", b.matmul(x, w), 0.1)))
    b = Builder()
    p, x, w = (Value(tensor_type("f4", (4, 4))) for _ in range(3))
    build(b, p, x, w)
    after = fuse(verify(Graph("g", (x, w), (p,), (), tuple(b.nodes), ())))
    assert outline(after) == ["matmul", "fused(map map)", "assign"]


def test_two_thousand_nodes_take_seconds_at_most() -> None:
    b = Builder()
    x, w = Value(tensor_type("f4", (8, 16))), Value(tensor_type("f4", (16, 16)))
    y = x
    while len(b.nodes) < 2000:
        y = softmax(b, relu_layer(b, y, w, b.reshape(b.reduce("sum", w, 0), (16,))))
    graph = Graph("deep", (x, w), (), (), tuple(b.nodes), (y,))
    start = time.process_time()  # not the clock on the wall: others may use the machine
    after = fuse(graph)
    assert time.process_time() - start < 10
    assert [n.op.name for n in after.nodes] == [n.op.name for n in fuse(graph).nodes]


def test_a_slice_of_a_slice_of_a_value_does_not_join_it() -> None:
    def build(b: Builder, x: Value) -> Value:
        y = b.call("exp", x)
        corner = b.slice(b.slice(y, (0, 0), (1, 3), (1, 1)), (0, 0), (1, 1), (1, 1))
        return b.call("minimum", y, b.call("negative", corner))

    fused(body(build, ("f4", (7, 3))))


def test_partition_refuses_detours() -> None:
    # 0 -> 1 -> 2 and 0 -> 2
    p = Partition([[], [0], [0, 1]])
    assert not p.can_join(0, 2)
    assert p.can_join(0, 1)
    group = p.join(0, 1)
    assert p.can_join(group, 2)


def test_schedule_is_stable_and_finds_circles() -> None:
    assert schedule([0, 1, 2, 3], [[3], [], [0], []]) == [1, 3, 0, 2]
    with pytest.raises(ValueError, match="circle"):
        schedule([0, 1], [[1], [0]])


def test_body_values_are_not_the_graphs() -> None:
    graph = fuse(body(softmax, ("f4", (4, 5))))
    node: Node = graph.nodes[0]
    inner = node.attrs["body"]
    assert not {*inner.inputs, *inner.outputs} & {*node.inputs, *node.outputs}
    (got,) = node.op.call(node.attrs, np.ones((4, 5), "f4"))
    np.testing.assert_allclose(got, 0.2)
