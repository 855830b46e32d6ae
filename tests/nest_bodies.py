"""One fused body of every pattern, for the texts of all languages."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bodies import body, cross_entropy, normalize, softmax

from kusari.ir import Builder, Graph, Value, interpret

F = "float32"


def operands(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Random inputs of the graph's types."""
    rng = np.random.default_rng(seed)
    out: list[np.ndarray] = []
    for v in graph.inputs:
        t = v.tensor
        x = rng.normal(size=t.shape) if t.dtype.kind == "f" else rng.integers(0, 3, t.shape)
        out.append(np.ascontiguousarray(np.asarray(x).astype(t.dtype)))
    return out


def expected(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What NumPy gives."""
    with np.errstate(all="ignore"):
        return [np.asarray(y) for y in interpret(graph, arrays)]


def _gelu(b: Builder, x: Value) -> Value:
    return b.call("multiply", x, b.call("add", b.call("erf", b.call("multiply", x, 0.7071)), 1.0))


def _bias_gradient(b: Builder, gy: Value, y: Value) -> Any:
    g = b.call("where", b.call("greater", y, 0), gy, 0)
    return g, b.reduce("sum", g, 0)


def _integers(b: Builder, x: Value, y: Value) -> Any:
    q = b.call("floor_divide", x, y)
    return b.call("add", b.call("multiply", q, 2), b.call("remainder", x, y)), b.call("less", x, y)


def _broadcast(b: Builder, x: Value, r: Value, c: Value, s: Value) -> Value:
    return b.call("multiply", b.call("add", x, r), b.call("maximum", c, s))


BODIES: dict[str, Graph] = {
    "gelu": body(_gelu, (F, (5, 70))),
    "broadcast": body(_broadcast, (F, (13, 37)), (F, (37,)), (F, (13, 1)), (F, ())),
    "softmax": body(softmax, (F, (11, 37))),
    "softmax_columns": body(lambda b, x: softmax(b, x, 0), (F, (9, 70))),
    "layer_norm": body(normalize, (F, (10, 130)), (F, (130,)), (F, (130,))),
    "batch_norm": body(lambda b, *xs: normalize(b, *xs, axes=0), (F, (20, 70)), (F, (1, 70)), (F, (1, 70))),
    "batch_norm_maps": body(lambda b, *xs: normalize(b, *xs, axes=(0, 2)), (F, (4, 6, 30)), (F, (1, 6, 1)),
                            (F, (1, 6, 1))),
    "cross_entropy": body(cross_entropy, (F, (10, 7)), ("int32", (10,))),
    "bias_gradient": body(_bias_gradient, (F, (17, 150)), (F, (17, 150))),
    "total": body(lambda b, x: b.reduce("sum", b.call("square", x)), (F, (7, 33))),
    "double": body(lambda b, x: b.reduce("max", b.call("tanh", x), 1), ("float64", (6, 21))),
    "integers": body(_integers, ("int32", (40,)), ("int32", (40,))),
    "mixed": body(lambda b, x, n: b.call("multiply", b.cast(n, "float32"), b.call("power", x, 2)), (F, (30,)),
                  ("int64", (30,))),
    "any": body(lambda b, x: b.reduce("any", b.call("greater", x, 1.5), 1), (F, (8, 5))),
}
