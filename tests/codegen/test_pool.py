"""Pooling in LLVM IR against the primitives' NumPy."""
from __future__ import annotations

import numpy as np
import pytest
from primitive_cases import POOLINGS

from kusari.codegen.llvm.data.pool import pool_kernel
from kusari.codegen.target import TARGETS
from kusari.ir import PRIMITIVES, Builder, Value, tensor_type

TURNS = tuple(TARGETS)



def run(jit, op: str, arrays: list[np.ndarray], target: str, **attrs) -> None:
    values = [Value(tensor_type(a.dtype, a.shape)) for a in arrays]
    b = Builder()
    b.emit(PRIMITIVES[op], *values, **attrs)
    expected = PRIMITIVES[op].call(attrs, *arrays)
    assert [(e.dtype, e.shape) for e in expected] == [(v.tensor.dtype, v.shape) for v in b.nodes[0].outputs]
    kernel = pool_kernel(b.nodes[0], TARGETS[target])
    flats = [np.full(e.size + 64, 77).astype(e.dtype) for e in expected]
    scratch = np.full(kernel.scratch * 2 + 128, 255, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 64:]
    jit.compile(kernel.text, kernel.symbol, target)(*arrays, *flats, scratch, nth=2)
    assert (scratch[kernel.scratch * 2:] == 255).all()
    for f, e in zip(flats, expected, strict=True):
        np.testing.assert_array_equal(f[:e.size].reshape(e.shape), e)
        assert (f[e.size:] == f[-1]).all(), "wrote past the end"


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pooling_equals_numpy(jit, name: str, dtype: str) -> None:
    case = dict(POOLINGS[name])
    size, out = case.pop("size"), case.pop("out")
    target = TURNS[list(POOLINGS).index(name) % len(TURNS)]
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 4, size=(2, 3, *size)).astype(dtype)   # with ties, and sums that are exact
    x[0, 1].flat[3], x[1, 2].flat[5] = np.nan, -np.inf
    run(jit, "pool", [x], target, fn="max", size=out, places=True, **case)
    run(jit, "pool", [x], target, fn="sum", size=out, places=False, **case)
    g = rng.integers(-4, 4, size=(2, 3, *out)).astype(dtype)
    places = rng.integers(0, int(np.prod(case["kernel"])), size=g.shape).astype("i")
    run(jit, "unpool", [g, places], target, size=size, **case)
    run(jit, "unpool", [g], target, size=size, **case)
