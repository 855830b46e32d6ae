"""Products of a few rows with a large matrix that runs along n in memory: its lines pass by once, from start to end.

A tile with its sums in registers would take a few vectors of every line of the matrix, each from another page of
memory. Here the sums of a strip of columns wait in the first-level cache, and several lines are added to them at once.
"""
from __future__ import annotations

from ....target import Target
from ...text.emitter import Emitter, Index
from ...text.tiles import for_tiles, full_tiles
from ..epilogue import Epilogue, Finisher, for_batch, is_heavy
from ..operand import Matrices
from ..stage import thread_scratch
from ..tile import Tile

MOST_LINE_ROWS = 8            # more rows are arithmetic enough for tiles
LEAST_MATRIX_BYTES = 1 << 20  # from this size on the time is that of reading memory
NARROW_LINE_BYTES = 4096      # from this length on a thread's part of a line is a page


def suits_lines(work: Matrices, target: Target) -> bool:
    """Whether the matrix is so large, and the rows so few, that reading it takes all the time."""
    size = work.dtype.itemsize
    lanes = target.lanes(size)
    return (work.b_column == 1 and lanes > 1 and work.m <= MOST_LINE_ROWS and work.n * size >= NARROW_LINE_BYTES
            and work.k >= 16 and work.k * work.n * size >= LEAST_MATRIX_BYTES)


class Lines:
    """Writes one kernel. The scratch of a thread holds the sums of a strip of columns, a line for each row of A."""

    def __init__(self, em: Emitter, work: Matrices) -> None:
        self.em = em
        self.work = work
        self.width = em.target.lanes(work.dtype.itemsize)
        room = em.target.registers * 3 // 4
        self.depth = max(1, min(8, room // work.m))        # lines of B that are added at a time
        near = em.target.l1_bytes // 2 // (self.width * work.dtype.itemsize)
        self.strip_vectors = max(1, min(near // work.m, -(-work.n // self.width)))
        self.stride = self.strip_vectors * self.width
        self.finisher = Finisher(em, work, self.width, self.stride) if is_heavy(work.exprs) else None
        self.own = ""

    def write(self) -> int:
        """Write the product; returns the bytes of scratch each thread needs."""
        em, work = self.em, self.work
        sizes = [work.m * self.stride]
        (self.own,), size = thread_scratch(em, work.scratch_slot, work.element, work.dtype.itemsize, sizes)
        for_batch(em, work, self.product)
        return size

    def product(self, epilogue: Epilogue, a: str, b: str, split: bool) -> None:
        """One matrix of the batch: threads share its columns."""
        em, n, width, most = self.em, self.work.n, self.width, self.strip_vectors
        lo, hi = em.chunk(n // width) if split else (0, n // width)
        em.loop(lo, hi, most, lambda i, _: self.strip(epilogue, a, b, i, em.min(em.add(i, most), hi), width))
        if not n % width:
            return
        if split:
            em.when(em.compare("eq", "%tid", em.sub("%nth", 1)), lambda: self.strip(
                epilogue, a, b, n // width, n // width + 1, n % width))
        else:
            self.strip(epilogue, a, b, n // width, n // width + 1, n % width)

    def strip(self, epilogue: Epilogue, a: str, b: str, first: Index, end: Index, valid: int) -> None:
        """All of k for the vectors of columns from ``first`` to ``end``, each of ``valid`` lanes."""
        em, work = self.em, self.work
        start = min(self.depth, work.k)
        self.add(a, b, 0, start, first, end, valid, fresh=True)
        for t in full_tiles(work.k - start, self.depth):
            for_tiles(em, [t], None, lambda p, depth: self.add(
                a, b, em.add(p, start), depth, first, end, valid, fresh=False))
        self.finish(epilogue, first, end, valid)

    def add(self, a: str, b: str, p: Index, depth: int, first: Index, end: Index, valid: int, fresh: bool) -> None:
        """``depth`` lines of B, from line ``p`` on, times the elements of A's rows for them."""
        em, work, width, element = self.em, self.work, self.width, self.work.element
        factors = [[em.broadcast(element, width, em.load(element, 1, em.gep(
            a, em.add(i * work.a_row, em.mul(em.add(p, u), work.a_k)), element))) for u in range(depth)]
            for i in range(work.m)]
        lines = [em.gep(b, em.mul(em.add(p, u), work.b_k), element) for u in range(depth)]

        @em.each(first, end)
        def vector(j: Index) -> None:
            column = em.mul(j, width)
            place = em.gep(self.own, em.mul(em.sub(j, first), width), element)
            places = [em.gep(place, i * self.stride, element) for i in range(work.m)]
            sums = ["zeroinitializer" if fresh else em.load(element, width, at) for at in places]
            for u, line in enumerate(lines):
                x = em.load(element, width, em.gep(line, column, element), valid)
                sums = Tile(em, element, width).add([row[u] for row in factors], [x], sums)
            for at, total in zip(places, sums, strict=True):
                em.store(element, width, total, at)

    def finish(self, epilogue: Epilogue, first: Index, end: Index, valid: int) -> None:
        """The epilogue of a strip."""
        em, work, width, element = self.em, self.work, self.width, self.work.element
        if self.finisher:
            self.finisher.call(epilogue, self.own, 0, work.m, em.mul(first, width), em.sub(end, first), valid)
            return

        @em.each(first, end)
        def vector(j: Index) -> None:
            column = em.mul(j, width)
            known = epilogue.columns(column, width, valid)
            place = em.gep(self.own, em.mul(em.sub(j, first), width), element)
            for i in range(work.m):
                total = em.load(element, width, em.gep(place, i * self.stride, element))
                epilogue.store(total, i, column, width, valid, known)
