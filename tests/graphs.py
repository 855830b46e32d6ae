"""Random graphs of primitives, for tests that compare a graph with what a pass made of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from kusari.ir import Builder, Graph, TensorType, Value, interpret, tensor_type

UNARY = ("negative", "absolute", "tanh", "square", "sign")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
LITERALS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0)


def _map(draw: Any, b: Builder, values: list[Value]) -> Value:
    kind = draw(st.sampled_from(("unary", "binary", "literal", "where", "cast", "full")))
    x = draw(st.sampled_from(values))
    if kind == "unary":
        return b.call(draw(st.sampled_from(UNARY)), x)
    if kind == "literal":
        operands: list[Any] = [x, draw(st.sampled_from(LITERALS))]
        if draw(st.booleans()):
            operands.reverse()
        return b.call(draw(st.sampled_from(BINARY)), *operands)
    if kind == "cast":
        return b.cast(b.cast(x, "float32"), x.tensor.dtype)
    if kind == "full":
        return b.full(x.shape, draw(st.sampled_from(LITERALS)), x.tensor.dtype)
    partners = [v for v in values if _broadcasts(v.shape, x.shape)]
    y = draw(st.sampled_from(partners))
    if kind == "where":
        return b.call("where", b.call("greater", x, y), x, y)
    return b.call(draw(st.sampled_from(BINARY)), x, y)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return prod(np.broadcast_shapes(a, b)) <= 512
    except ValueError:
        return False


def _shaped(draw: Any, b: Builder, values: list[Value]) -> Value | None:
    kind = draw(st.sampled_from(("reduce", "reshape", "transpose", "broadcast", "matmul", "slice", "concat", "arange")))
    x = draw(st.sampled_from(values))
    rank = len(x.shape)
    if kind == "reduce" and rank:
        axes = draw(st.sets(st.integers(0, rank - 1), min_size=1))
        return b.reduce(draw(st.sampled_from(("sum", "max", "min"))), x, sorted(axes))
    if kind == "reshape":
        shapes = [(x.tensor.size,), (1, x.tensor.size), (x.tensor.size, 1), (*x.shape, 1), tuple(reversed(x.shape))]
        return b.reshape(x, draw(st.sampled_from(shapes)))
    if kind == "transpose" and rank:
        return b.transpose(x, draw(st.permutations(range(rank))))
    if kind == "broadcast" and x.tensor.size <= 64:
        shape = tuple(draw(st.sampled_from((n, 3))) if n == 1 else n for n in x.shape)
        return b.broadcast_to(x, draw(st.sampled_from((shape, (2, *shape), (1, *shape)))))
    if kind == "matmul" and rank == 2:
        found = [(y, ta, tb) for y in values if len(y.shape) == 2 and y.tensor.dtype == x.tensor.dtype
                 for ta in (False, True) for tb in (False, True) if x.shape[1 - ta] == y.shape[tb]]
        y, ta, tb = draw(st.sampled_from(found))
        # A mean, so that long chains do not overflow.
        return b.call("multiply", b.matmul(x, y, ta, tb), 1 / max(1, x.shape[1 - ta]))
    if kind == "slice" and rank:
        stops = [draw(st.integers(1, n)) if n else 0 for n in x.shape]
        return b.slice(x, [0] * rank, stops, [1] * rank)
    if kind == "concat" and rank and x.tensor.size <= 64:
        return b.concat([x] * draw(st.integers(1, 2)), draw(st.integers(0, rank - 1)))
    if kind == "arange":
        return b.cast(b.arange(draw(st.integers(1, 5))), "float64")
    return None


@st.composite
def graphs(draw: Any, max_nodes: int = 12, params: int = 2, dtype: str = "float64") -> Graph:
    """Graphs over small tensors of ``dtype``: broadcasting maps, reductions, views, products, assignments to params."""
    b = Builder("graph.py:1")
    kinds = [tensor_type(dtype, tuple(draw(st.lists(st.integers(1, 4), min_size=draw(st.integers(0, 2)), max_size=3))))
             for _ in range(2)]
    inputs = [Value(draw(st.sampled_from(kinds)), f"x{i}") for i in range(draw(st.integers(1, 3)))]
    states = [Value(draw(st.sampled_from(kinds)), f"p{i}") for i in range(draw(st.integers(0, params)))]
    values: list[Value] = [*inputs, *states]
    consts: list[tuple[Value, Any]] = []
    if draw(st.booleans()):
        array = np.array(draw(st.sampled_from(LITERALS)), dtype)
        consts.append((Value(tensor_type(dtype, ()), "c"), array))
        values.append(consts[0][0])
    for _ in range(draw(st.integers(1, max_nodes))):
        made = (_map if draw(st.integers(0, 2)) else _shaped)(draw, b, values)
        if made is not None and made.tensor.dtype == np.dtype(dtype):
            values.append(made)
        if states and draw(st.integers(0, 5)) == 0:
            state = draw(st.sampled_from(states))
            fitting = [v for v in values if v.type == state.type and v not in states]
            if fitting:
                b.assign(state, draw(st.sampled_from(fitting)))
    made_here = values[len(inputs) + len(states):] or values
    outputs = draw(st.lists(st.sampled_from(made_here), min_size=1, max_size=3))
    return Graph("random", tuple(inputs), tuple(states), tuple(consts), tuple(b.nodes), tuple(outputs))


def arrays_for(values: Sequence[Value], seed: int = 0) -> list[Any]:
    """Arrays that fit ``values``, the same for the same seed."""
    rng = np.random.RandomState(seed)
    found: list[Any] = []
    for v in values:
        assert isinstance(v.type, TensorType)
        found.append(np.asarray(rng.uniform(-1, 1, v.type.shape)).astype(v.type.dtype))
    return found


def run(graph: Graph, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """The outputs of ``graph`` on ``arrays_for`` its inputs, and its params afterwards."""
    inputs, params = arrays_for(graph.inputs, seed), arrays_for(graph.params, seed + 1)
    outputs = [np.array(y) for y in interpret(graph, inputs, params)]
    return outputs, params


def assert_same(before: Graph, after: Graph, rtol: float = 1e-9) -> None:
    """Both graphs compute the same outputs and leave the same params behind."""
    for seed in (0, 10):
        want, got = run(before, seed), run(after, seed)
        for name, xs, ys in (("output", want[0], got[0]), ("param", want[1], got[1])):
            assert len(xs) == len(ys)
            for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
                assert x.dtype == y.dtype and x.shape == y.shape
                np.testing.assert_allclose(y, x, rtol=rtol, atol=rtol, err_msg=f"{name} {i}")
