"""Products stand right in front of the GELU, or its gradient, that reads them, where nothing needs another order."""
from __future__ import annotations

import pytest
from graphs import assert_same, graphs
from hypothesis import given

from kusari.ir import FUSED, Arg, Builder, Call, Expr, Graph, Lit, Node, Value, tensor_type, verify
from kusari.passes import products_beside_gelu

X = tensor_type("float32", (5, 8))


def tanh(x: Expr) -> Expr:
    cube = Call("multiply", (Lit(0.044715), Call("power", (x, Lit(3)))))
    return Call("tanh", (Call("multiply", (Lit(0.7978845608028654), Call("add", (x, cube)))),))


def gelu(x: Expr) -> Expr:
    return Call("multiply", (Call("multiply", (Lit(0.5), x)), Call("add", (Lit(1), tanh(x)))))


def gradient(g: Expr, x: Expr) -> Expr:
    u, square = tanh(x), Call("square", (x,))
    one = Call("multiply", (Lit(0.5), Call("add", (Lit(1), u))))
    slope = Call("add", (Lit(0.7978845608028654), Call("multiply", (Lit(3 * 0.7978845608028654 * 0.044715), square))))
    rest = Call("multiply", (Call("multiply", (Lit(0.5), x)), Call("subtract", (Lit(1), Call("square", (u,))))))
    return Call("multiply", (g, Call("add", (one, Call("multiply", (rest, slope))))))


def nest(expr: Expr, *inputs: Value) -> Node:
    b = Builder()
    own = tuple(Value(v.type) for v in inputs)
    y = b.map(expr, *own)
    return Node(FUSED, inputs, (Value(y.type),), {"body": Graph("body", own, (), (), tuple(b.nodes), (y,))}, "")


@pytest.mark.parametrize("kind", ["gelu", "gradient", "another"])
@pytest.mark.parametrize("needed", [False, True])
def test_products_are_moved(kind: str, needed: bool) -> None:
    b, a, W, x = Builder(), Value(tensor_type("float32", (5, 3))), Value(tensor_type("float32", (3, 8))), Value(X)
    product = b.matmul(a, W)
    between = b.call("exp", product if needed else x)
    last = nest(gradient(Arg(0), Arg(1)), product, x) if kind == "gradient" else nest(
        gelu(Arg(0)) if kind == "gelu" else tanh(Arg(0)), product)
    before = verify(Graph("g", (a, W, x), (), (), (*b.nodes, last), (between, *last.outputs)))
    moved = kind != "another" and not needed
    assert [n.op.name for n in verify(products_beside_gelu(before)).nodes] == (
        ["map", "matmul", "fused"] if moved else ["matmul", "map", "fused"])


@given(graphs())
def test_random_graphs_keep_their_meaning(graph: Graph) -> None:
    assert_same(graph, verify(products_beside_gelu(graph)))
