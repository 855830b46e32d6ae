"""The rows of gradients, each against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kusari.ir import PRIMITIVES, Builder, Graph, Value, interpret, tensor_type
from kusari.ir.symbol import exp, tanh
from kusari.ir.vjp import VJPS, pull_back

INDICES = np.array([[2], [0], [-1]], np.int32)
GEOMETRY: dict[str, Any] = {"kernel": (2, 3), "stride": (2, 1), "pad": (1, 1)}
CONVOLUTION: dict[str, Any] = {"stride": (2, 1), "pad": (1, 1), "dilate": (1, 2), "groups": 2}
PLACES = np.arange(24, dtype=np.int32).reshape(1, 2, 3, 4) % 6
Made = Callable[..., Value]
CASES: dict[str, tuple[str, tuple[Any, ...], Made]] = {
    "map": ("map", ((3, 4), (3, 1)), lambda b, x, y: b.map(lambda x, y: exp(x * y) / (y + 3.0), x, y)),
    "map of broadcast operands": ("map", ((3, 4), (4,), (3, 1)), lambda b, x, s, m: b.map(
        lambda x, s, m: -(x - m) * s / (m + 4.0), x, s, m)),
    "map of a sum": ("map", ((3, 4), (3, 4)), lambda b, x, y: b.map(
        lambda x, s: tanh(x) * s * s, x, b.reduce("sum", y, 1))),
    "sum over what was not spread": ("reduce", ((3, 4),), lambda b, x: b.map(
        lambda s: s * s, b.reduce("sum", b.broadcast_to(b.reduce("sum", x, 1), (3, 4))))),
    "sum": ("reduce", ((3, 4),), lambda b, x: b.map(lambda s: s * s, b.reduce("sum", x, 0))),
    "prod": ("reduce", ((3, 4),), lambda b, x: b.reduce("prod", x, 1)),
    "max": ("reduce", ((3, 4),), lambda b, x: b.reduce("max", x, (0, 1))),
    "reshape": ("reshape", ((3, 4),), lambda b, x: b.reshape(b.reduce("sum", x, 0), (2, 2))),
    "transpose": ("transpose", ((2, 3, 4),), lambda b, x: b.transpose(x, (2, 0, 1))),
    "broadcast_to": ("broadcast_to", ((3, 1),), lambda b, x: b.broadcast_to(x, (2, 3, 4))),
    "matmul": ("matmul", ((2, 3, 4), (4, 5)), lambda b, x, y: b.matmul(x, y)),
    "matmul, both turned": ("matmul", ((4, 3), (2, 5, 4)), lambda b, x, y: b.matmul(x, y, True, True)),
    "take": ("take", ((3, 4), INDICES), lambda b, x, t: b.take(x, t)),
    "gather": ("gather", ((3, 4), INDICES), lambda b, x, t: b.gather(x, t, 1)),
    "put": ("put", ((3, 1), INDICES), lambda b, x, t: b.one("put", x, t, axis=1, n=4)),
    "scatter_add": ("scatter_add", ((3, 1, 4), INDICES), lambda b, x, t: b.scatter_add(t, x, (3, 4))),
    "slice": ("slice", ((5, 6),), lambda b, x: b.slice(x, (4, 1), (0, 6), (-2, 3))),
    "slice that turns an axis": ("slice", ((5, 6),), lambda b, x: b.slice(x, (4, 0), (-1, 6), (-1, 1))),
    "pad_slice": ("pad_slice", ((2, 3),), lambda b, x: b.one(
        "pad_slice", x, shape=(4, 5), starts=(1, 0), stops=(4, 5), steps=(2, 2))),
    "part": ("part", ((5, 2),), lambda b, x: b.part(x, 1, 4)),
    "concat": ("concat", ((2, 3), (2, 1)), lambda b, x, y: b.concat([x, y, x], 1)),
    "slices that were all": ("slice", ((2, 4),), lambda b, x: b.call("multiply", b.slice(x, (0, 0), (2, 2), (1, 1)),
                                                                     b.slice(x, (0, 2), (2, 4), (1, 1)))),
    "cumsum": ("cumsum", ((3, 4),), lambda b, x: b.cumsum(x, 1, True)),
    "cumprod": ("cumprod", ((3, 4),), lambda b, x: b.cumprod(x, 1)),
    "conv": ("conv", ((1, 2, 5, 6), (4, 1, 2, 3)), lambda b, x, w: b.one("conv", x, w, size=(3, 4), **CONVOLUTION)),
    "conv_input": ("conv_input", ((1, 4, 3, 4), (4, 1, 2, 3)), lambda b, g, w: b.one(
        "conv_input", g, w, size=(5, 6), **CONVOLUTION)),
    "conv_weight": ("conv_weight", ((1, 2, 5, 6), (1, 4, 3, 4)), lambda b, x, g: b.one(
        "conv_weight", x, g, size=(2, 3), **CONVOLUTION)),
    "pool of sums": ("pool", ((1, 2, 4, 4),), lambda b, x: b.one(
        "pool", x, fn="sum", size=(3, 4), places=False, **GEOMETRY)),
    "pool of maxima": ("pool", ((1, 2, 4, 4),), lambda b, x: b.one(
        "pool", x, fn="max", size=(3, 4), places=False, **GEOMETRY)),
    "unpool": ("unpool", ((1, 2, 3, 4),), lambda b, x: b.one("unpool", x, size=(4, 4), **GEOMETRY)),
    "unpool at places": ("unpool", ((1, 2, 3, 4), PLACES), lambda b, x, t: b.one(
        "unpool", x, t, size=(4, 4), **GEOMETRY)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient(name: str) -> None:
    op, given, make = CASES[name]
    r = np.random.RandomState(0)
    arrays = [r.uniform(0.5, 1.5, x) if isinstance(x, tuple) else x for x in given]
    b = Builder()
    inputs = tuple([Value(tensor_type(a.dtype, a.shape)) for a in arrays])
    y = make(b, *inputs)
    assert op in [n.op.name for n in b.nodes]
    graph = Graph("f", inputs, (), (), tuple(b.nodes), (y,))
    gy = Value(y.type)
    floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    found = pull_back(b, list(b.nodes), {y: gy}, [inputs[i] for i in floats])
    assert [None if g is None else g.type for g in found] == [inputs[i].type for i in floats]
    weights = r.uniform(-1, 1, y.shape)
    grads = interpret(Graph("g", (*inputs, gy), (), (), tuple(b.nodes), tuple([g for g in found if g is not None])),
                      [*arrays, weights])
    for i, g in zip(floats, grads, strict=True):
        for place in np.ndindex(arrays[i].shape):
            sides: list[Any] = []
            for step in (1e-6, -1e-6):
                moved = [a.copy() for a in arrays]
                moved[i][place] += step
                sides.append((interpret(graph, moved)[0] * weights).sum())
            assert abs((sides[0] - sides[1]) / 2e-6 - g[place]) < 1e-7 * max(1, abs(g[place])) * 100, (i, place)


def test_every_primitive_has_a_row() -> None:
    made_by_passes = {"foreach", "fused"}
    assert PRIMITIVES.keys() - made_by_passes == VJPS.keys()


def test_slices_that_were_all_are_joined() -> None:
    """No zeros are added up for the gradients of the parts of one value."""
    _, ((shape),), make = CASES["slices that were all"]
    b, x = Builder(), Value(tensor_type("float32", shape))
    y = make(b, x)
    (g,) = pull_back(b, list(b.nodes), {y: Value(y.type)}, [x])
    assert g is not None and g in next(n for n in b.nodes if n.op.name == "concat").outputs
