"""Matrix products of Kusari against NumPy's OpenBLAS, both with the same number of threads, taking turns.

    python benchmarks/gemm.py [threads] [part of a name]

Prints the best time of each and GFLOP/s. OpenBLAS reads its number of threads when it is loaded, so it is set first.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Callable

THREADS = int(sys.argv[1]) if __name__ == "__main__" and len(sys.argv) > 1 else 1
if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = str(THREADS)
    os.environ["KUSARI_NUM_THREADS"] = str(THREADS)

import numpy as np  # noqa: E402
from roof import best  # noqa: E402

from kusari.codegen.generate import generate  # noqa: E402
from kusari.codegen.target import AVX2, AVX512, SSE, Target  # noqa: E402
from kusari.ir import Builder, Graph, Value, tensor_type  # noqa: E402
from kusari.passes import plan  # noqa: E402
from kusari.runtime import Executable  # noqa: E402
from kusari.runtime.frame import Frame  # noqa: E402
from kusari.runtime.target import host  # noqa: E402

# name, m, n, k, transa, transb: forward, gradient of the input, gradient of the weight of the layers of two networks.
SHAPES = [
    ("mushroom 1 forward", 100, 44, 22, False, True), ("mushroom 2 forward", 100, 44, 44, False, True),
    ("mushroom 3 forward", 100, 1, 44, False, True), ("mushroom 3 input", 100, 44, 1, False, False),
    ("mushroom 2 input", 100, 44, 44, False, False), ("mushroom 1 weight", 44, 22, 100, True, False),
    ("mushroom 2 weight", 44, 44, 100, True, False), ("mushroom 3 weight", 1, 44, 100, True, False),
    ("mnist 1 forward", 100, 1000, 784, False, True), ("mnist 2 forward", 100, 1000, 1000, False, True),
    ("mnist 3 forward", 100, 10, 1000, False, True), ("mnist 3 input", 100, 1000, 10, False, False),
    ("mnist 2 input", 100, 1000, 1000, False, False), ("mnist 1 weight", 1000, 784, 100, True, False),
    ("mnist 2 weight", 1000, 1000, 100, True, False), ("mnist 3 weight", 10, 1000, 100, True, False),
    ("lstm", 20, 2600, 650, False, True), ("square 512", 512, 512, 512, False, False),
    ("square 1024", 1024, 1024, 1024, False, False), ("attention", 128, 128, 64, False, True),
    ("one picture", 1, 1000, 784, False, True), ("one row", 1, 1000, 1000, False, True),
    ("one row, straight", 1, 1000, 1000, False, False), ("one column", 1000, 1, 1000, False, False),
    ("one column, turned", 1000, 1, 1000, True, False),
]


def product(m: int, n: int, k: int, transa: bool, transb: bool, target: Target, threads: int | None,
            ) -> tuple[Frame, Callable[[], object]]:
    """The same product of random matrices by Kusari and by NumPy, ready to run; the frame must outlive its runs."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(k, m) if transa else (m, k)).astype(np.float32)
    b = rng.normal(size=(n, k) if transb else (k, n)).astype(np.float32)
    build = Builder()
    x, y = (Value(tensor_type("float32", v.shape)) for v in (a, b))
    z = build.matmul(x, y, transa, transb)
    planned = plan(Graph("product", (x, y), (), (), tuple(build.nodes), (z,)))
    frame = Executable(planned, generate(planned, target), threads).acquire()
    frame.bind_all([a, b])
    frame.fresh_outputs()
    left, right, out = a.T if transa else a, b.T if transb else b, np.empty((m, n), np.float32)
    return frame, lambda: np.matmul(left, right, out=out)


def main() -> None:
    """Run the table."""
    target = {64: AVX512, 32: AVX2}.get(host().vector_bytes, SSE)
    print(f"{target.name}, {THREADS} threads; microseconds (GFLOP/s)")
    for name, m, n, k, transa, transb in SHAPES:
        if len(sys.argv) > 2 and sys.argv[2] not in name:
            continue
        frame, numpy_product = product(m, n, k, transa, transb, target, THREADS)
        own, blas = best([frame.run, numpy_product])
        work = 2e-3 * m * n * k
        print(f"{name:20} {m:5}x{n}x{k:<5} kusari {own * 1e6:9.2f} ({work / own / 1e6:5.0f})   "
              f"OpenBLAS {blas * 1e6:9.2f} ({work / blas / 1e6:5.0f})   {blas / own:4.2f}x")


if __name__ == "__main__":
    main()
