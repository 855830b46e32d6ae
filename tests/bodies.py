"""Bodies of loop nests for tests: well-known ones, and random ones over a domain with reduced axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from kusari.ir import Builder, Graph, Value, tensor_type, verify

Shape = tuple[int, ...]


def body(build: Callable[..., Any], *types: tuple[str, Shape]) -> Graph:
    """A graph of what ``build(b, *inputs)`` returns."""
    b = Builder()
    inputs = tuple(Value(tensor_type(dtype, shape)) for dtype, shape in types)
    made = build(b, *inputs)
    return verify(Graph("body", inputs, (), (), tuple(b.nodes), made if isinstance(made, tuple) else (made,)))


def softmax(b: Builder, x: Value, axes: Any = 1) -> Value:
    e = b.call("exp", b.call("subtract", x, b.reduce("max", x, axes)))
    return b.call("true_divide", e, b.reduce("sum", e, axes))


def normalize(b: Builder, x: Value, gamma: Value, beta: Value, axes: Any = 1) -> tuple[Value, ...]:
    """Layer or batch normalization, whose mean and deviation are outputs too."""
    count = int(np.prod([x.shape[a] for a in ((axes,) if isinstance(axes, int) else axes)]))
    mean = b.call("multiply", b.reduce("sum", x, axes), 1 / count)
    d = b.call("subtract", x, mean)
    var = b.call("multiply", b.reduce("sum", b.call("square", d), axes), 1 / count)
    r = b.call("true_divide", 1.0, b.call("sqrt", b.call("add", var, 1e-5)))
    y = b.call("add", b.call("multiply", b.call("multiply", d, r), gamma), beta)
    return y, mean, r


def cross_entropy(b: Builder, x: Value, t: Value) -> tuple[Value, ...]:
    """Loss per row and the gradient of their sum; labels are compared with ``arange``."""
    rows, classes = x.shape
    s = b.call("subtract", x, b.reduce("max", x, 1))
    e = b.call("exp", s)
    z = b.reduce("sum", e, 1)
    hot = b.call("equal", b.reshape(t, (rows, 1)), b.arange(classes))
    picked = b.reduce("sum", b.call("where", hot, b.call("subtract", s, b.call("log", z)), 0.0), 1)
    return b.call("negative", picked), b.call("subtract", b.call("true_divide", e, z), b.cast(hot, x.tensor.dtype))


EXTENTS = (1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 64, 67)
UNARY = ("negative", "absolute", "tanh", "square", "exp")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "true_divide")


@st.composite
def bodies(draw: Any, dtype: str = "float32") -> Graph:
    """Random nests: up to three axes, some of them reduced, up to three stages, outputs of either kind."""
    shape = tuple(draw(st.lists(st.sampled_from(EXTENTS), min_size=1, max_size=3)))
    while np.prod(shape) > 20000:
        shape = shape[1:]
    axes = tuple(i for i in range(len(shape)) if draw(st.booleans()))
    b = Builder()

    def partial() -> Shape:
        own = tuple(n if draw(st.integers(0, 2)) else 1 for n in shape)
        return own[draw(st.integers(0, len(own) - 1)):] if draw(st.booleans()) else own

    inputs = [Value(tensor_type(dtype, shape))]
    inputs += [Value(tensor_type(dtype, partial())) for _ in range(draw(st.integers(0, 3)))]
    values = list(inputs)
    made: list[Value] = []
    for _ in range(draw(st.integers(1, 8))):
        x, y = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        kind = draw(st.sampled_from(("unary", "binary", "binary", "where", "reduce", "index")))
        if kind == "unary":
            z = b.call(draw(st.sampled_from(UNARY)), b.call("tanh", x) if draw(st.booleans()) else x)
        elif kind == "binary":
            z = b.call(draw(st.sampled_from(BINARY)), x, y)
        elif kind == "where":
            z = b.call("where", b.call("greater", x, 0.1), x, y)
        elif kind == "index":
            z = b.call("add", inputs[0], b.cast(b.arange(shape[-1]), dtype))
        else:
            full = [v for v in values if v.shape == shape]
            z = b.reduce(draw(st.sampled_from(("sum", "max", "min"))), draw(st.sampled_from(full)), axes or None)
        values.append(z)
        made.append(z)
    rows = tuple(1 if i in axes else n for i, n in enumerate(shape))
    fitting = [v for v in made if v.shape in (shape, rows)] or [b.call("add", inputs[0], 1.0)]
    outputs = draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=3, unique=True))
    return verify(Graph("random", tuple(inputs), (), (), tuple(b.nodes), tuple(outputs)))


def arrays_for(values: Sequence[Value], seed: int = 0) -> list[np.ndarray]:
    """Arrays that fit ``values``; integers are small, so that they can be labels."""
    rng = np.random.RandomState(seed)
    found: list[np.ndarray] = []
    for v in values:
        dtype = v.tensor.dtype
        x = rng.randint(0, 5, v.shape) if dtype.kind in "iub" else rng.uniform(-2, 2, v.shape)
        found.append(np.asarray(x).astype(dtype))
    return found
