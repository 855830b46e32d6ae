"""Products of a few rows with a large matrix that runs along n in memory: its lines pass by once, from start to end.

A tile with its sums in registers would take a few vectors of every line of the matrix, each from another page of
memory. Here the sums of a strip of columns wait in the first-level cache, and several lines are added to them at once.
"""
from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

from kusari.ir.costs import BROADCAST_CYCLES, PRODUCT_CYCLES, RESULT_CYCLES, SUMS_CYCLES

from ....target import Target
from ...text.array import Array
from ...text.emitter import Index
from ...text.tiles import full_tiles, tiles_in
from ..cycles import read_cycles
from ..epilogue import Epilogue, Finisher
from ..operand import Matrices
from ..writer import ProductWriter

_LATENCY_RATIO = 1.2  # times the cycles of products, each of which waits for the one before


class LinesShape(NamedTuple):
    """``depth`` lines of B are added at a time, to strips of ``vectors`` columns."""

    depth: int
    vectors: int
    cycles: float


def suits(work: Matrices, target: Target) -> bool:
    """Whether lines of B are vectors, a matrix of them fills a cache, and registers hold elements of A for all rows."""
    size = work.dtype.itemsize
    far = work.k * work.n * size > target.l1_bytes
    return work.b_column == 1 and target.lanes(size) > 1 and far and work.m <= target.registers // 2


def choose(work: Matrices, target: Target) -> LinesShape:
    """Return as many lines as registers hold factors for, and a strip that takes half the first-level cache."""
    size = work.dtype.itemsize
    width = target.lanes(size)
    depth = max(1, min(8, target.registers * 3 // 4 // work.m))
    columns = -(-work.n // width)
    vectors = max(1, min(target.l1_bytes // 2 // (width * size) // work.m, columns))
    products = columns * work.k * work.m * max(PRODUCT_CYCLES * _LATENCY_RATIO, SUMS_CYCLES / depth)
    cycles = max(products, read_cycles(work, target)) + columns * work.m * RESULT_CYCLES
    return LinesShape(depth, vectors, cycles + work.k * work.m * BROADCAST_CYCLES)


class Lines(ProductWriter[LinesShape]):
    """Writes one kernel. The scratch of a thread holds the sums of a strip of columns, a line for each row of A."""

    def prepare(self) -> None:
        self.stride = self.plan.vectors * self.width
        self.finisher = Finisher(self.em, self.work, self.width, self.stride)
        self.own, = self.scratch(self.work.m * self.stride)

    def product(self, epilogue: Epilogue, a: Array, b: Array, split: bool) -> None:
        """Threads share the columns."""
        em, n, width, most = self.em, self.work.n, self.width, self.plan.vectors
        lo, hi = em.chunk(n // width) if split else (0, n // width)
        for i in em.each(lo, hi, most):
            self.strip(epilogue, a, b, i, em.min(i + most, hi), width)
        if n % width:
            with em.only(em.compare("eq", em.tid, em.nth - 1)) if split else nullcontext():
                self.strip(epilogue, a, b, n // width, n // width + 1, n % width)

    def strip(self, epilogue: Epilogue, a: Array, b: Array, first: Index, end: Index, valid: int) -> None:
        """All of k for the vectors of columns from ``first`` to ``end``, each of ``valid`` lanes."""
        em, work = self.em, self.work
        start = min(self.plan.depth, work.k)
        self.add(a, b, 0, start, first, end, valid, fresh=True)
        for p, depth in tiles_in(em, full_tiles(work.k - start, self.plan.depth)):
            self.add(a, b, p + start, depth, first, end, valid, fresh=False)
        column, count = first * self.width, end - first
        self.finisher.vectors(epilogue, self.own, 0, work.m, column, count, valid)

    def add(self, a: Array, b: Array, p: Index, depth: int, first: Index, end: Index, valid: int, fresh: bool) -> None:
        """``depth`` lines of B, from line ``p`` on, times the elements of A's rows for them."""
        em, work = self.em, self.work
        factors = [[a.spread(i * work.a_row + (p + u) * work.a_k) for u in range(depth)] for i in range(work.m)]
        lines = [b.at((p + u) * work.b_k) for u in range(depth)]
        for j in em.each(first, end):
            column = j * self.width
            place = self.own.at((j - first) * self.width)
            sums = self.tile.zeros(work.m) if fresh else self.tile.load(place, self.stride, work.m, 1)
            for u, line in enumerate(lines):
                sums = self.tile.add([row[u] for row in factors], [line.load(column, valid)], sums)
            self.tile.store(sums, place, self.stride, 1)
