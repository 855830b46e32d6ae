"""Draws that compute their masks: the same numbers in less memory."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kusari.ir import Arg, Builder, Call, Graph, Lit, interpret, parse_graph, print_graph
from kusari.passes.narrow_draws import narrow_draws

KEEP = Call("greater_equal", (Arg(0), Lit(0.3)))
MASK = Call("where", (KEEP, Call("float32", (Lit(1.5),)), Call("float32", (Lit(0.0),))))


def graph(*exprs: Any, show: bool = False, dtype: str = "float64") -> Graph:
    b = Builder()
    u = b.random("random_sample", (), (5, 3), dtype)
    ys = [b.map(e, u) for e in exprs]
    return Graph("g", (), (), (), tuple(b.nodes), (*ys, *([u] if show else [])))


def drawn(g: Graph) -> list[Any]:
    np.random.seed(3)
    return interpret(g, ())


@pytest.mark.parametrize(("expr", "dtype", "maps"), [
    (MASK, "bool", 1),
    (KEEP, "bool", 0),
    (Call("float32", (Call("subtract", (Arg(0), Lit(0.5))),)), "float32", 0),
    (Call("float32", (Call("log", (Arg(0),)),)), "float64", 1),        # too expensive for one thread
    (Call("add", (KEEP, KEEP)), "bool", 1),
    (Call("multiply", (KEEP, Call("float32", (Arg(0),)))), "float64", 1),  # two ways from the draw
    (Call("add", (Arg(0), Lit(1.0))), "float64", 1),                   # nothing becomes smaller
])
def test_the_narrowest_part(expr: Any, dtype: str, maps: int) -> None:
    before = graph(expr)
    after = narrow_draws(before)
    draw, *rest = after.nodes
    assert draw.output.tensor.dtype == dtype and len(rest) == maps
    for a, b in zip(drawn(before), drawn(after), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert print_graph(parse_graph(print_graph(after))) == print_graph(after)


def test_a_draw_that_others_read_stays() -> None:
    for before in (graph(MASK, KEEP), graph(MASK, show=True)):
        assert narrow_draws(before) is before
