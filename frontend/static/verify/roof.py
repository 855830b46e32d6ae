"""The roof of this machine: multiply-adds of one and of all threads, and the bandwidth for a given footprint.

Both are measured on the spot with code that Kusari's own loader and generator make, so that what a kernel is compared
with ran on the same processor, under the same clock and beside the same neighbours.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from kusari.codegen import generate
from kusari.ir import Builder, Graph, Kernel, Value, tensor_type
from kusari.passes import plan, run_pipeline
from kusari.runtime import Executable
from kusari.runtime.loader import default_loader
from kusari.runtime.target import host

from ..compile.target import host_target

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
ACCUMULATOR_REGISTERS = 12  # more than latency times pipes of any processor here, fewer than it has registers
LOOP_ROUNDS = 20_000        # in one call
LEAST_FOOTPRINT_BYTES = 1 << 14  # smaller ones share a measurement


def best(functions: list[Callable[[], object]], seconds: float = 0.4) -> list[float]:
    """Seconds per call of each function, the smallest of interleaved rounds."""
    counts: list[int] = []
    for f in functions:
        f()
        start = time.perf_counter()
        f()
        counts.append(max(1, int(2e-4 / max(time.perf_counter() - start, 1e-7))))
    found = [float("inf")] * len(functions)
    end = time.perf_counter() + seconds
    first = True
    while first or time.perf_counter() < end:
        first = False
        for i, (f, n) in enumerate(zip(functions, counts, strict=True)):
            start = time.perf_counter()
            for _ in range(n):
                f()
            found[i] = min(found[i], (time.perf_counter() - start) / n)
    return found


def fma_kernel() -> Kernel:
    """A loop of independent multiply-adds on whole vectors of float32, all in registers."""
    lanes = host().vector_bytes // 4
    vector = f"<{lanes} x float>"
    each = range(ACCUMULATOR_REGISTERS)
    start = [f"  %a{i} = phi {vector} [zeroinitializer, %entry], [%b{i}, %loop]" for i in each]
    body = [f"  %b{i} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{i}, {vector} %x, {vector} %x)" for i in each]
    sums = [f"  %s{i} = fadd {vector} %s{i - 1}, %b{i}" if i > 1 else f"  %s1 = fadd {vector} %b0, %b1"
            for i in each if i]
    text = "\n".join([
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
        "define void @fma_peak(ptr %slots, i64 %tid, i64 %nth) {",
        "entry:", "  %out = load ptr, ptr %slots", f"  %x = load {vector}, ptr %out, align 4", "  br label %loop",
        "loop:", "  %i = phi i64 [0, %entry], [%j, %loop]", *start, *body, "  %j = add i64 %i, 1",
        f"  %more = icmp slt i64 %j, {LOOP_ROUNDS}", "  br i1 %more, label %loop, label %out.1",
        "out.1:", *sums, f"  %p = getelementptr {vector}, ptr %out, i64 %tid",
        f"  store {vector} %s{ACCUMULATOR_REGISTERS - 1}, ptr %p, align 4", "  ret void", "}"])
    return Kernel("llvm", "fma_peak", text)


@lru_cache
def peak(threads: int, seconds: float = 0.3) -> float:
    """Operations per second in float32, a multiply-add being two; each thread of Python runs the kernel."""
    function = SIGNATURE(default_loader().load_one(fma_kernel()))
    out = np.full(64 * (threads + 1), 0.5, np.float32)
    slots = (ctypes.c_void_p * 1)(out.ctypes.data)
    lanes = host().vector_bytes // 4
    work = 2.0 * lanes * ACCUMULATOR_REGISTERS * LOOP_ROUNDS
    rates = [0.0] * threads
    gate = threading.Barrier(threads)

    def run(tid: int) -> None:
        gate.wait()
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            function(ctypes.addressof(slots), 0, 1)
            rates[tid] = max(rates[tid], work / (time.perf_counter() - start))

    workers = [threading.Thread(target=run, args=(tid,)) for tid in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates)


@lru_cache
def _bandwidth(footprint: int, threads: int, seconds: float) -> float:
    count = footprint // 12
    build = Builder()
    x, y = (Value(tensor_type("float32", (count,)), name) for name in "xy")
    z = build.call("add", x, build.call("multiply", y, 3.0))
    graph = run_pipeline(Graph("triad", (x, y), (), (), tuple(build.nodes), (z,)))
    planned = plan(graph)
    frame = Executable(planned, generate(planned, host_target()), threads).acquire()
    frame.bind_all([np.ones(count, np.float32), np.ones(count, np.float32)])
    frame.fresh_outputs()
    return 12.0 * count / best([frame.run], seconds)[0]


def bandwidth(footprint: int, threads: int, seconds: float = 0.1) -> float:
    """Bytes per second of a triad, ``z = x + 3 y``, whose three arrays have ``footprint`` bytes together.

    The cost of calling is in it, as it is in a kernel's time. Footprints are rounded up to a power of two.
    """
    return _bandwidth(1 << max(LEAST_FOOTPRINT_BYTES, footprint).bit_length(), threads, seconds)


def forget() -> None:
    """Measure both rates again when they are next asked for: other programs kept the cores busy meanwhile."""
    peak.cache_clear()
    _bandwidth.cache_clear()


def limit(flops: float, moved: float, threads: int, footprint: int | None = None) -> float:
    """Seconds below which such work cannot be done here, the roofline; ``footprint`` if not all bytes moved differ."""
    return max(flops / peak(threads), moved / bandwidth(footprint or int(moved), threads))
