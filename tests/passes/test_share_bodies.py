"""Steps at the ends of a loop run the kernels of those between: with a zero for what is not there, or a result that
nobody reads."""
from __future__ import annotations

import numpy as np
import pytest
from graphs import assert_same

from kusari.ir import Builder, Graph, Value, structure, tensor_type, verify
from kusari.passes import check_plan, plan
from kusari.passes.canonical import canonical
from kusari.passes.fuse import fuse
from kusari.passes.share_bodies import LITTLE_BYTES, share_bodies


def value(*shape: int) -> Value:
    return Value(tensor_type("float64", shape))


def loop(steps: int, size: int = 6, zeros: bool = True) -> Graph:
    """Carries ``c`` from step to step; the first one carries nothing on, and into the last one nothing is carried."""
    b = Builder("loop.py:1")
    xs = [value(3, size) for _ in range(steps)]
    outputs: list[Value] = []
    c: Value | None = None
    for i, x in enumerate(xs):
        gate = b.call("tanh", x)
        y = b.call("multiply", gate, x)
        if c is not None:
            y = b.call("add", y, c)
        outputs.append(b.call("multiply", y, b.call("exp", gate)))
        if i + 1 < steps:
            c = b.transpose(b.transpose(b.call("multiply", y, gate), (1, 0)), (1, 0))
    nothing = value(3, size)
    outputs.append(b.transpose(nothing, (1, 0)))
    return Graph("loop", tuple(xs), (), ((nothing, np.full((3, size), float(not zeros))),), tuple(b.nodes),
                 tuple(outputs))


def forms(graph: Graph) -> int:
    return len({structure(n.attrs["body"]) for n in graph.nodes if n.op.name == "fused"})


@pytest.mark.parametrize(("graph", "left"), [
    (loop(5), 1), (loop(3), 1), (loop(5, zeros=False), 2), (loop(3, LITTLE_BYTES // 24 + 1), 3)],
    ids=["a loop", "one step between", "no zeros", "too large"])
def test_ends_run_the_kernels_of_steps_between(graph: Graph, left: int) -> None:
    before = fuse(graph)
    after = verify(share_bodies(before))
    assert (forms(before), forms(after)) == (3, left)
    check_plan(plan(after))
    if left < 3:
        assert_same(graph, after)


def test_nothing_alike_is_left_alone() -> None:
    b = Builder("")
    x = value(4, 5)
    y = b.call("tanh", b.reduce("sum", b.call("exp", x), (1,)))
    graph = fuse(Graph("g", (x,), (), (), tuple(b.nodes), (y,)))
    assert share_bodies(graph) is graph


def test_the_order_of_nodes_makes_no_other_form() -> None:
    x, y = value(2, 3), value(2, 3)
    a, b = Builder(""), Builder("")
    first = a.call("add", a.call("tanh", x), a.call("exp", y))
    late = b.call("exp", y)
    second = b.call("add", b.call("tanh", x), late)
    one = canonical(Graph("body", (x, y), (), (), tuple(a.nodes), (first,)))
    two = canonical(Graph("body", (y, x), (), (), tuple(b.nodes), (second,)))
    assert structure(one) == structure(two)
    assert one.inputs == two.inputs == (x, y)
