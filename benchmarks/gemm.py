"""Matrix products of Kusari and of NumPy's OpenBLAS on the same matrices: the cases of ``kernels.py gemm``."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kusari.codegen.generate import generate
from kusari.codegen.target import Target
from kusari.ir import Builder, Graph, Value, tensor_type
from kusari.passes import plan
from kusari.runtime import Executable
from kusari.runtime.frame import Frame

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
    ("few samples, weight", 4096, 1024, 16, True, False), ("many samples, weight", 8000, 256, 512, True, False),
    ("small batch, long rows", 64, 64, 4096, False, True), ("small batch, short rows", 64, 4096, 64, False, True),
    ("as wide as the batch", 128, 128, 784, False, True), ("half as wide", 128, 64, 784, False, True),
    ("few panels", 64, 64, 256, False, True), ("few panels, square", 128, 128, 128, False, False),
    ("24 rows of a loop", 24, 800, 200, False, True), ("32 rows of a loop", 32, 2048, 512, False, True),
    ("its gradient", 32, 512, 2048, False, False), ("one row of 4096, square", 1, 4096, 4096, False, False),
    ("one row of 4096", 1, 1024, 4096, False, True),
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
