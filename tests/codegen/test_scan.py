"""Cumulative sums and products in LLVM IR: NumPy's bits, for every place of the axis, target and number of threads."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernels import assert_untouched, call, guarded
from primitive_cases import SCANS

from kusari.codegen.llvm.data.scan import scan_kernel
from kusari.codegen.native import is_scan
from kusari.codegen.target import AVX2, AVX512, GENERIC, SSE, Target
from kusari.ir import Builder, Graph, Value, interpret, tensor_type


@pytest.mark.parametrize("shape, axis, target", [
    pytest.param(*case, target, marks=() if (i + k) % 2 == 0 else pytest.mark.slow,
                 id=f"{case} {target.name}{' any size' * target.any_size}")
    for i, case in enumerate(SCANS)
    for k, target in enumerate((AVX512, AVX2, SSE, GENERIC, *[replace(t, any_size=True) for t in (AVX512, SSE)]))])
def test_scans_are_those_of_numpy(shape: tuple[int, ...], axis: int, target: Target) -> None:
    for dtype in ("float32", "float64"):
        x = np.random.default_rng(0).normal(size=shape).astype(dtype)
        if x.size > 10:
            x.ravel()[::7] = -0.0
            x.ravel()[x.size // 2] = np.inf
            x.ravel()[-2] = np.nan
        for what in ("sum", "sum from the end", "product"):
            b = Builder()
            v = Value(tensor_type(dtype, shape))
            if what == "product":
                y, x = b.cumprod(v, axis), np.where((x == 0) | np.isinf(x), x.dtype.type(-1), x)
                expected = np.cumprod(x, axis)
            else:
                y = b.cumsum(v, axis, what != "sum")
                expected = np.cumsum(x, axis) if what == "sum" else np.flip(np.cumsum(np.flip(x, axis), axis), axis)
            (want,) = interpret(Graph("scan", (v,), (), (), tuple(b.nodes), (y,)), [x])
            np.testing.assert_array_equal(want, expected)
            kernel = scan_kernel(b.nodes[0], target)
            for threads in (1, 3):
                out, raw = guarded(shape, np.dtype(dtype))
                call(kernel, [x, out], threads)
                np.testing.assert_array_equal(out, want)
                np.testing.assert_array_equal(np.signbit(out), np.signbit(want))
                assert_untouched(raw)


def test_other_dtypes_are_left_to_python() -> None:
    b = Builder()
    b.cumsum(Value(tensor_type("float16", (3,))), 0)
    assert not is_scan(b.nodes[0])
