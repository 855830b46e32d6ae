"""Loop nests whose threads share what is reduced: against the interpreter, the same to the bit for any threads."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import pytest
from bodies import arrays_for, body, cross_entropy, normalize, softmax
from kernels import SIGNATURE, assert_untouched, guarded, needs, overwriting

from kusari.codegen.llvm.nest.split import launches_of
from kusari.codegen.llvm.nest.sweeps import sweep_kernel
from kusari.codegen.sweeps import sweeps_of_split
from kusari.codegen.target import AVX2, AVX512, GENERIC, NEON, SSE, Target
from kusari.ir import Builder, Graph, Value, interpret
from kusari.ir.nest import nest_of
from kusari.runtime.loader import default_loader

TARGETS = (AVX512, AVX2, SSE, NEON, GENERIC)


def run(graph: Graph, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray], target: Target = AVX512,
        threads: int = 2) -> None:
    """All rows, each by all threads, the last one first; what they share is full of NaN at the beginning."""
    nest = nest_of(graph)
    kernels = [sweep_kernel(nest, target, i) for i in range(sweeps_of_split(nest))]
    assert all(k.scratch == 0 for k in kernels)
    raw = np.full(max(k.shared for k in kernels) + 128, 255, np.uint8)
    shared = raw[-raw.ctypes.data % 64:]
    every = [*arrays, *outputs, shared]
    slots = (ctypes.c_void_p * len(every))(*[a.ctypes.data for a in every])
    for kernel in kernels:
        needs(kernel.text)
        function = SIGNATURE(default_loader().load_one(kernel))
        for tid in reversed(range(1 if kernel.serial else threads)):
            function(ctypes.addressof(slots), tid, threads)
    assert (shared[max(k.shared for k in kernels):] == 255).all()


def check(graph: Graph, target: Target = AVX512, rtol: float = 3e-5) -> None:
    arrays = arrays_for(graph.inputs)
    with np.errstate(all="ignore"):
        want = interpret(graph, arrays)
    seen: set[bytes] = set()
    for threads in (1, 2, 5):
        outputs, buffers = zip(*(guarded(v.shape, v.tensor.dtype) for v in graph.outputs), strict=True)
        run(graph, arrays, outputs, target, threads)
        for x, y in zip(outputs, want, strict=True):
            np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)
        for raw in buffers:
            assert_untouched(raw)
        seen.add(b"".join(x.tobytes() for x in outputs))
    assert len(seen) == 1
    if (found := overwriting(graph, arrays)) is not None:
        operands, reused = found
        run(graph, operands, reused, target, 3)
        assert b"".join(x.tobytes() for x in reused) in seen


def error_and_gradient(b: Builder, x: Value, t: Value) -> tuple[Value, ...]:
    """What is stored for every point while the sum is taken, and after it."""
    d = b.call("subtract", x, t)
    total = b.reduce("sum", b.call("square", d), tuple(range(len(x.shape))))
    return d, b.call("multiply", d, b.call("sqrt", total)), b.call("multiply", total, 0.5)


PATTERNS: dict[str, tuple[Callable[..., object], Callable[[int], list[tuple[str, tuple[int, ...]]]]]] = {
    "sum": (lambda b, x: b.reduce("sum", x, 0), lambda n: [("f4", (n,))]),
    "row": (lambda b, x: b.reduce("max", x, 1), lambda n: [("f4", (3, n))]),
    "columns": (lambda b, x: (b.reduce("sum", x, 0), b.reduce("min", x, 0)), lambda n: [("f4", (n, 5))]),
    "softmax": (softmax, lambda n: [("f4", (1, n))]),
    "rows": (softmax, lambda n: [("f4", (2, n))]),
    "loss": (cross_entropy, lambda n: [("f4", (1, n)), ("i4", (1,))]),
    "norm": (normalize, lambda n: [("f4", (2, n)), ("f4", (n,)), ("f4", (n,))]),
    "batch": (lambda b, x, g, c: normalize(b, x, g, c, (0, 2)),
              lambda n: [("f4", (n // 16, 3, 5)), ("f4", (1, 3, 1)), ("f4", (1, 3, 1))]),
    "gradient": (error_and_gradient, lambda n: [("f4", (n,)), ("f4", (n,))]),
    "two loops": (error_and_gradient, lambda n: [("f4", (n // 7, 7)), ("f4", (n // 7, 1))]),
}


@pytest.mark.parametrize(("name", "target"), [
    pytest.param(name, target, marks=() if (i + k) % 2 == 0 else pytest.mark.slow, id=f"{name} {target.name}")
    for i, name in enumerate(PATTERNS) for k, target in enumerate(TARGETS)])
def test_patterns(name: str, target: Target) -> None:
    build, kinds = PATTERNS[name]
    for n in (1024, 1031, 4099) if target is AVX512 else (1031,):
        check(body(build, *kinds(n)), target, 3e-4)


@pytest.mark.parametrize("dtype", ("f2", "f4", "f8", "i1", "u1", "i4", "i8", "?"))
def test_dtypes(dtype: str) -> None:
    fns = ("any", "all", "max") if dtype == "?" else ("sum", "max", "min", "prod")
    tolerance = {"f2": 1e-2, "f4": 3e-5}.get(dtype, 1e-12)
    for shape, axes in (((2111,), (0,)), ((1200, 3), (0,)))[:1 if dtype == "f2" else 2]:  # NumPy adds halves as halves
        check(body(lambda b, x, axes=axes: tuple(b.reduce(fn, x, axes) for fn in fns), (dtype, shape)), rtol=tolerance)


def test_nan_and_infinity_pass_through() -> None:
    for at in (0, 700, 2047, 2048):
        x = np.ones(2049, "f4")
        x[at], x[1] = np.nan, np.inf
        graph = body(lambda b, v: tuple(b.reduce(fn, v, 0) for fn in ("sum", "max", "min")), ("f4", x.shape))
        outputs = [np.empty(1, "f4") for _ in range(3)]
        run(graph, [x], outputs)
        assert np.isnan(outputs).all()


@pytest.mark.parametrize("shape, axes, rows", [
    ((1 << 20,), (0,), 2), ((1024, 1024), (0, 1), 2), ((3, 1 << 19), (1,), 2), ((1 << 17, 10), (0,), 2),
    ((1000,), (0,), 1),                                       # too little
    ((1024, 1024), (1,), 1), ((1024, 1024), (0,), 1),         # rows and columns enough for all
    ((8, 1 << 17), (0,), 1),                                  # hardly anything is reduced
    ((0,), (0,), 1),
])
def test_who_shares_what_is_reduced(shape: tuple[int, ...], axes: tuple[int, ...], rows: int) -> None:
    assert prod(shape) * 4 < 1 << 23
    assert launches_of(nest_of(body(lambda b, x: b.reduce("sum", x, axes), ("f4", shape))), AVX512) == rows
