"""Every algorithm that can compute a convolution or a product, timed beside its count: is the one taken the fastest?

  python benchmarks/choices.py                     all shapes, forward and both gradients
  python benchmarks/choices.py "stride 2" --directions forward
  python benchmarks/choices.py products            those of kernels.py gemm, in place of convolutions
  python benchmarks/choices.py --shape 16,4,16,84,84,8,4,0,1,1     pictures, channels, maps, height, width, window,
                                                                   stride, padding, dilation, groups

One thread, processor time, the best of several calls; the second-level cache is flushed before each, as other layers
would. *loss* is the time of what is taken over that of the fastest. Cycles are counted for large work: of a few
microseconds much is what no count knows.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, cast, get_args

import numpy as np
from gemm import SHAPES as SHAPES_OF_PRODUCTS

from kusari.codegen.contractions import ConvSpec, Direction, GemmSpec
from kusari.codegen.llvm.contraction.conv.choose import Algorithm
from kusari.codegen.llvm.contraction.conv.kernel import conv_kernel
from kusari.codegen.llvm.contraction.cycles import Candidate
from kusari.codegen.llvm.contraction.gemm.choose import Algorithm as Product
from kusari.codegen.llvm.contraction.gemm.choose import candidates as products
from kusari.codegen.llvm.contraction.gemm.choose import matrices
from kusari.codegen.llvm.contraction.gemm.kernel import gemm_kernel
from kusari.codegen.llvm.contraction.winograd.choose import Transformed, candidates
from kusari.codegen.llvm.contraction.winograd.kernel import winograd_kernel
from kusari.codegen.llvm.contraction.winograd.launches import launches
from kusari.codegen.llvm.text.types import F32
from kusari.codegen.target import Target
from kusari.commands.bench import aligned, figure, machine, positive
from kusari.ir import Kernel
from kusari.runtime.loader import default_loader
from kusari.static.compile.target import host_target

# name: pictures, channels, maps, height, width, window, stride, padding, dilation, groups
SHAPES: dict[str, tuple[int, ...]] = {
    "3x3 64 at 56": (1, 64, 64, 56, 56, 3, 1, 1, 1, 1), "3x3 128 at 28": (1, 128, 128, 28, 28, 3, 1, 1, 1, 1),
    "3x3 256 at 14": (1, 256, 256, 14, 14, 3, 1, 1, 1, 1), "3x3 512 at 7": (1, 512, 512, 7, 7, 3, 1, 1, 1, 1),
    "3x3 512 at 2": (8, 512, 512, 2, 2, 3, 1, 1, 1, 1), "3x3 3 to 64 at 32": (32, 3, 64, 32, 32, 3, 1, 1, 1, 1),
    "3x3 16 at 32": (8, 16, 16, 32, 32, 3, 1, 1, 1, 1), "3x3 4 at 64": (2, 4, 4, 64, 64, 3, 1, 1, 1, 1),
    "3x3 17 to 33 at 9x21": (3, 17, 33, 9, 21, 3, 1, 1, 1, 1), "3x3 96 at 5": (16, 96, 96, 5, 5, 3, 1, 0, 1, 1),
    "3x3 40 to 12 at 30": (1, 40, 12, 30, 30, 3, 1, 1, 1, 1), "3x3 48 at 7": (64, 48, 48, 7, 7, 3, 1, 1, 1, 1),
    "3x3 192 at 1": (32, 192, 192, 1, 1, 3, 1, 1, 1, 1), "3x3 32 to 1 at 28": (8, 32, 1, 28, 28, 3, 1, 1, 1, 1),
    "stride 2 64 to 128 at 56": (1, 64, 128, 56, 56, 3, 2, 1, 1, 1),
    "stride 2 128 to 256 at 28": (1, 128, 256, 28, 28, 3, 2, 1, 1, 1),
    "stride 2 64 to 128 at 16": (8, 64, 128, 16, 16, 3, 2, 1, 1, 1),
    "stride 2 32 to 64 at 112": (1, 32, 64, 112, 112, 3, 2, 1, 1, 1),
    "7x7 stem at 224": (1, 3, 64, 224, 224, 7, 2, 3, 1, 1), "11x11 stem at 224": (1, 3, 64, 224, 224, 11, 4, 2, 1, 1),
    "5x5 1 to 20 at 28": (64, 1, 20, 28, 28, 5, 1, 0, 1, 1), "5x5 20 to 50 at 12": (64, 20, 50, 12, 12, 5, 1, 0, 1, 1),
    "4x4 stride 2 at 32": (16, 64, 128, 32, 32, 4, 2, 1, 1, 1), "2x2 16 to 32 at 9": (32, 16, 32, 9, 9, 2, 1, 0, 1, 1),
    "dilated 64 at 32": (4, 64, 64, 32, 32, 3, 1, 2, 2, 1), "32 groups of 4": (8, 128, 128, 32, 32, 3, 1, 1, 1, 32),
    "depthwise 144 at 28": (8, 144, 144, 28, 28, 3, 1, 1, 1, 144),
    "1x1 stride 2": (1, 64, 128, 56, 56, 1, 2, 0, 1, 1), "1x1 256 to 64 at 56": (1, 256, 64, 56, 56, 1, 1, 0, 1, 1),
    "1x1 128 at 5": (16, 128, 128, 5, 5, 1, 1, 0, 1, 1),
}
FLUSH = 3  # times the second-level cache


def spec_of(direction: Direction, shape: tuple[int, ...]) -> ConvSpec:
    """The convolution of a shape."""
    n, c, k, high, wide, window, stride, pad, dilate, groups = shape
    out = tuple((size + 2 * pad - dilate * (window - 1) - 1) // stride + 1 for size in (high, wide))
    return ConvSpec(direction, n, c, k, (high, wide), out, (window,) * 2, (stride,) * 2, (pad,) * 2, (dilate,) * 2,
                    groups, F32)


def kernels_of(spec: ConvSpec, candidate: Candidate, target: Target, operands: Any,
               result: Any) -> list[tuple[Kernel, tuple[Any, ...]]]:
    """The kernels of a candidate, one after the other, and the arrays that each is given before its scratch."""
    way = candidate.spec if isinstance(candidate, Transformed) else None
    if way is None:
        name = cast("Algorithm", candidate.name)
        assert name in get_args(Algorithm)
        return [(conv_kernel(spec, target, name), (*operands, result))]
    return [(winograd_kernel(way, target, number), (*(operands[i] for i in launch.factors), *[result] * number))
            for number, launch in enumerate(launches(way))]


def timed(spec: ConvSpec, candidate: Candidate, target: Target, seconds: float) -> tuple[float, Any]:
    """The best processor time of a candidate, and its result."""
    random = np.random.default_rng(0)
    x, w, y = (random.standard_normal(s, dtype=np.float32) for s in (
        (spec.n, spec.c, *spec.size), (spec.k, spec.channels, *spec.kernel), (spec.n, spec.k, *spec.out)))
    operands = {"forward": (x, w), "input": (y, w), "weight": (x, y)}[spec.direction]
    result = np.zeros_like({"forward": y, "input": x, "weight": w}[spec.direction])
    made = kernels_of(spec, candidate, target, operands, result)
    scratch = np.zeros(max(k.scratch + k.shared for k, _ in made) + 64, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 64:]
    calls: list[tuple[Callable[[int, int, int], None], Any]] = []
    for (_, arrays), address in zip(made, default_loader().load([k for k, _ in made]), strict=True):
        slots = (ctypes.c_size_t * (len(arrays) + 1))(*(a.ctypes.data for a in arrays), scratch.ctypes.data)
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
        calls.append((function, slots))
    flush = np.zeros(FLUSH * target.l2_bytes // 4, np.float32)
    best, end, turns = float("inf"), time.perf_counter() + seconds, 0
    while turns < 5 or time.perf_counter() < end:
        flush.sum()
        start = time.thread_time()
        for function, slots in calls:
            function(ctypes.addressof(slots), 0, 1)
        best, turns = min(best, time.thread_time() - start), turns + 1
    return best, result


def numbers(text: str) -> tuple[int, ...]:
    """An argparse type: a shape as in :data:`SHAPES`."""
    found = tuple(int(part) for part in text.split(","))
    if len(found) != 10:
        raise argparse.ArgumentTypeError(f"expected ten numbers, got {text}")
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", help="beginnings of their names (all)")
    parser.add_argument("--directions", nargs="+", choices=get_args(Direction), default=get_args(Direction))
    parser.add_argument("--seconds", type=positive(float), default=0.05, help="time per algorithm (0.05)")
    parser.add_argument("--shape", type=numbers, action="append", default=[], metavar="N,…", help="this one")
    options = parser.parse_args()
    target = host_target()
    if options.shapes == ["products"]:
        return product_table(target, options.seconds)
    shapes = {name: shape for name, shape in SHAPES.items()
              if (not options.shapes and not options.shape) or name.startswith(tuple(options.shapes))}
    shapes.update({",".join(map(str, shape)): shape for shape in options.shape})
    rows = [["convolution", "direction", "taken", "fastest", "loss", "microseconds (thousands of cycles by count)"]]
    losses: list[float] = []
    for name, shape in shapes.items():
        for direction in options.directions:
            spec = spec_of(direction, shape)
            table = candidates(spec, target, 4)
            found = [timed(spec, candidate, target, options.seconds) for candidate in table]
            for candidate, (_, result) in zip(table, found, strict=True):
                if np.abs(result - found[0][1]).max() > 1e-3 * np.abs(found[0][1]).max():
                    raise AssertionError(f"{name}, {direction}: {candidate.name} computes something else")
            times = [seconds for seconds, _ in found]
            losses.append(times[0] / min(times))
            rows.append([name, direction, *compared(table, times)])
    return shown(rows, losses)


def compared(table: Sequence[Candidate], times: Sequence[float]) -> list[str]:
    """The cells of a row: what is taken, the fastest, the loss, all times and counts."""
    all_of_them = ", ".join(f"{c.name} {figure(s, 1e-6)} ({c.cycles / 1e3:.0f})"
                            for c, s in zip(table, times, strict=True))
    fastest = table[times.index(min(times))].name
    return [table[0].name, fastest, f"{times[0] / min(times):.2f}", all_of_them]


def shown(rows: list[list[str]], losses: Sequence[float]) -> int:
    """Print a table and its losses."""
    print(f"{machine(1)}\n\n{aligned(rows)}\n\nloss: {np.mean(losses):.3f} on average, {max(losses):.2f} at most")
    return 0


def product_table(target: Target, seconds: float) -> int:
    """Measure and print the algorithms of products; no cache is flushed."""
    rows = [["product", "m×n×k", "taken", "fastest", "loss", "microseconds (thousands of cycles by count)"]]
    losses: list[float] = []
    for name, m, n, k, transa, transb in SHAPES_OF_PRODUCTS:
        spec = GemmSpec(m, n, k, transa, transb)
        table = products(matrices(spec), target)
        times = times_of_products(spec, table, target, seconds)
        losses.append(times[0] / min(times))
        rows.append([name, f"{m}×{n}×{k}", *compared(table, times)])
    return shown(rows, losses)


def times_of_products(spec: GemmSpec, table: Sequence[Candidate], target: Target, seconds: float) -> list[float]:
    """The best times of all algorithms of a product, in turns; each result is compared with the first."""
    random = np.random.default_rng(0)
    a, b = random.standard_normal(spec.m * spec.k, np.float32), random.standard_normal(spec.k * spec.n, np.float32)
    results = [np.zeros(spec.m * spec.n, np.float32) for _ in table]
    kernels = [gemm_kernel(spec, target, cast("Product", c.name)) for c in table]
    # One symbol for all algorithms: the loader knows kernels by text.
    functions = [ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(default_loader().load([k])[0])
                 for k in kernels]
    scratch = np.zeros(max(k.scratch for k in kernels) + 64, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 64:]
    slots = [(ctypes.c_size_t * 4)(a.ctypes.data, b.ctypes.data, y.ctypes.data, scratch.ctypes.data) for y in results]
    calls = max(1, round(1e-3 / (spec.m * spec.n * spec.k / 1e11 + 5e-7)))  # of about a millisecond
    best, end, turns = [float("inf")] * len(table), time.perf_counter() + seconds * len(table), 0
    while turns < 5 or time.perf_counter() < end:
        for i, (function, own) in enumerate(zip(functions, slots, strict=True)):
            address, start = ctypes.addressof(own), time.perf_counter()
            for _ in range(calls):
                function(address, 0, 1)
            best[i] = min(best[i], (time.perf_counter() - start) / calls)
        turns += 1
    if any(np.abs(y - results[0]).max() > 1e-3 * np.abs(results[0]).max() for y in results):
        raise AssertionError(f"{spec}: algorithms compute different products")
    return best


if __name__ == "__main__":
    sys.exit(main())
