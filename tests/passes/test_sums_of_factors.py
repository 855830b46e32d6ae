"""Sums over the terms of a factor stand right in front of their product, where nothing between needs another order."""
from __future__ import annotations

import pytest
from graphs import assert_same, graphs
from hypothesis import given

from kusari.ir import Builder, Graph, Value, tensor_type, verify
from kusari.passes import sums_beside_products


def value(*shape: int) -> Value:
    return Value(tensor_type("float32", shape))


def order(b: Builder, inputs: tuple[Value, ...], *outputs: Value, params: tuple[Value, ...] = ()) -> list[str]:
    before = verify(Graph("g", inputs, params, (), tuple(b.nodes), outputs))
    return [n.op.name for n in verify(sums_beside_products(before)).nodes]


@pytest.mark.parametrize("first", ["product", "sum"])
@pytest.mark.parametrize("number", [0, 1])
def test_sums_are_moved_to_their_product(first: str, number: int) -> None:
    b, x, g = Builder(), value(5, 4), value(5, 3)
    factors = (g, x) if number == 0 else (x, g)
    made = {}
    for step in (first, "other", {"product": "sum", "sum": "product"}[first]):
        made[step] = {"product": lambda: b.matmul(*factors, transa=True), "sum": lambda: b.reduce("sum", g, (0,)),
                      "other": lambda: b.call("tanh", x)}[step]()
    moved = order(b, (x, g), *made.values())
    assert moved == (["reduce", "matmul", "map"] if first == "product" else ["map", "reduce", "matmul"])


def test_the_first_of_two_products_gets_the_sum_and_each_has_one() -> None:
    b, x, g = Builder(), value(5, 4), value(5, 3)
    found = b.matmul(g, x, transa=True), b.matmul(g, x, transa=True), b.reduce("sum", x, (0,)), b.reduce("sum", g, (0,))
    assert order(b, (x, g), *found) == ["reduce", "matmul", "reduce", "matmul"]


def test_sums_that_are_not_over_the_terms_stay() -> None:
    b, x, g = Builder(), value(5, 5), value(5, 5)
    found = b.matmul(x, g, transb=True), b.reduce("sum", g, (1,)), b.reduce("max", x, (0,)), b.reduce("sum", x, (0,))
    assert order(b, (x, g), *found) == ["matmul", "reduce", "reduce", "reduce"]


@pytest.mark.parametrize("needed", [False, True])
def test_what_lies_between_may_need_the_order(needed: bool) -> None:
    """The product reads what is made of the sum; a state changes in front of its sum."""
    b, x, state = Builder(), value(5, 4), value(5, 5)
    if needed:
        total = b.reduce("sum", x, (0,))
        y = b.matmul(x, b.broadcast_to(b.call("tanh", total), (5, 4)), transa=True)
        assert order(b, (x,), total, y) == ["reduce", "map", "broadcast_to", "matmul"]
        return
    y = b.matmul(state, x, transa=True)
    b.assign(state, b.call("tanh", state))
    assert order(b, (x,), y, b.reduce("sum", state, (0,)), params=(state,)) == ["matmul", "map", "assign", "reduce"]


@given(graphs())
def test_random_graphs_keep_their_meaning(graph: Graph) -> None:
    assert_same(graph, verify(sums_beside_products(graph)))
