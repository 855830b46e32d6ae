"""Products of few rows with a matrix that runs along k in memory, as a layer multiplies a batch by its weight.

Packing the weight would cost from a tenth to a half of the arithmetic. Here the batch is packed, once, and the weight
passes by unpacked: its elements are broadcast, so tiles hold the product transposed. A strip of ``width`` columns of
the product goes through a buffer, whose square blocks are transposed on their way to the epilogue. Rows that do not
fill a vector are dot products along k, taken while the strip of the weight is in the first-level cache.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from ....target import Target
from ...text.array import Array
from ...text.emitter import Index
from ...text.tiles import Tiles, count_tiles, each_tile, even_tiles, full_tiles, tiles_in
from ..epilogue import Epilogue, Finisher
from ..operand import Matrices
from ..pack import pack
from ..tile import Factors
from ..writer import ProductWriter
from .dot import dot_tile, lane_sums, room_for_sums

MOST_STREAM_ROWS = 128  # with more rows it pays to pack the weight


@dataclass(frozen=True)
class Layout:
    """``panels`` of at most three vectors of packed rows each, then ``rest`` rows for dot products."""

    width: int
    vectors: int
    panels: tuple[Tiles, ...]
    rest: int

    @property
    def stride(self) -> int:
        """Elements from one line of the strip's buffer to the next; not a multiple of a page, for the cache's sake."""
        breadth = (self.vectors + (self.rest > 0)) * self.width
        return breadth + self.width if breadth % 1024 == 0 else breadth


def layout(work: Matrices, target: Target) -> Layout:
    """Whole vectors of rows are packed; the remaining rows are for dot products if they are few."""
    width = target.lanes(work.dtype.itemsize)
    full, rest = divmod(work.m, width)
    if rest and (work.a_k != 1 or rest > width * 3 // 4):
        full, rest = full + 1, 0
    most = 3 if target.has_fma else 2
    return Layout(width, full, tuple(even_tiles(full, most)), rest)


def suits_stream(work: Matrices, target: Target) -> bool:
    """Whether the weight is better not packed: it runs along k, is larger than a cache, and the batch is small.

    Measured, on top of the arithmetic: 11 / m to pack the weight, 50 / k to transpose the strips. Every thread packs
    the whole batch, but only its part of a weight. Rows that just fill a wide vector gain with weights of any size: 14
    rows, 800 columns, k of 50: 6.8 in place of 13.7 us, k of 600 68 in place of 83 (one core, AVX-512).
    """
    size = work.dtype.itemsize
    width = target.lanes(size)
    near = work.k * (work.m + width) * size <= target.l2_bytes // 2
    if work.b_k != 1 or width < 4:
        return False
    if width >= 16 and width * 3 // 4 < work.m <= width:
        return near and work.n >= 2 * width and work.k >= width
    if not width <= work.m <= MOST_STREAM_ROWS or work.n < 6 * width or work.k < (3 if work.m <= 64 else 4) * work.m:
        return False
    if work.a_k == 1 and 3 * work.n <= 4 * work.m and not work.n % (4 * width):
        return False
    return near and work.k * work.n * size > target.l1_bytes


class Stream(ProductWriter):
    """Writes one kernel. Invariant: in the scratch of a thread packed rows come first, then the strip's buffer."""

    def prepare(self) -> None:
        self.layout = layout(self.work, self.em.target)
        self.packed = self.layout.vectors * self.width
        self.own, self.buffer = self.scratch(self.packed * self.work.k, self.width * self.layout.stride)
        self.finisher = Finisher(self.em, self.work, self.width, self.width, self.width)

    def product(self, epilogue: Epilogue, a: Array, b: Array, split: bool) -> None:
        """Threads share the columns."""
        em, work, width = self.em, self.work, self.width
        turned = replace(work, b_k=work.a_k, b_column=work.a_row)
        for t in self.layout.panels:
            padded = max(t.stop * width - work.m, 0)   # of the last panel, which may not be full
            whole = replace(t, count=t.count - (padded > 0))
            last = [replace(whole, count=1, start=whole.stop)] if padded else []
            for at, vectors in tiles_in(em, [whole, *last]):
                first, breadth = em.mul(at, width), vectors * width
                pack(turned, a.at(em.mul(first, work.a_row)), self.own.at(em.mul(first, work.k)), work.k,
                     breadth - padded if at == whole.stop else breadth, breadth)
        strips = full_tiles(work.n, width)
        for column, breadth in tiles_in(em, strips, em.chunk(count_tiles(strips)) if split else None):
            self.strip(a, b.at(em.mul(column, work.b_column)), breadth)
            self.finish(epilogue, column, breadth)

    def strip(self, a: Array, weight: Array, breadth: int) -> None:
        """The sums of ``breadth`` columns, into the buffer: a line for each column, the rows along it."""
        em, work, stride = self.em, self.work, self.layout.stride
        wide = 8 if em.target.registers >= 32 else 4
        conflict = work.b_column * self.size % 4096 == 0  # columns that far apart share the sets of a cache
        for t in self.layout.panels:
            lines = 2 * wide if t.size == 1 and not conflict else wide
            for at, vectors in tiles_in(em, [t]):
                first = em.mul(at, self.width)
                rows = self.own.at(em.mul(first, work.k))
                for line, count in each_tile(em, breadth, lines):
                    sums = self.multiply(weight.at(em.mul(line, work.b_column)), rows, count, vectors)
                    self.tile.store(sums, self.buffer.at(em.add(em.mul(line, stride), first)), stride, vectors)
        if self.layout.rest:
            self.dots(a.at(self.packed * work.a_row), weight, breadth)

    def multiply(self, weight: Array, rows: Array, count: int, vectors: int) -> list[str]:
        """The innermost loop: ``count`` columns by ``vectors`` of rows; it fetches the columns that come next."""
        em, work, tile = self.em, self.work, self.tile
        following = weight.at(count * work.b_column)

        def ahead(p: Index) -> None:
            # The columns of a tile lie behind each other: so many bytes for each of the k steps.
            if work.b_column == work.k:
                em.prefetch(f"{following.at(em.mul(p, count))}")
        return tile.product(Factors(weight, 1, [i * work.b_column for i in range(count)], True),
                            Factors(rows, vectors * self.width, tile.neighbours(vectors)), work.k,
                            tile.zeros(count, vectors), ahead)

    def dots(self, a: Array, weight: Array, breadth: int) -> None:
        """The rows that do not fill a vector, as the last elements of the buffer's lines."""
        em, work, rest = self.em, self.work, self.layout.rest
        room = room_for_sums(em.target)
        turned = replace(work, a_row=work.b_column, b_column=work.a_row)
        for line, count in each_tile(em, breadth, max(1, min(room // min(rest, room), 4))):
            source = weight.at(em.mul(line, work.b_column))
            for at in range(0, rest, room):
                some = min(room, rest - at)
                sums = dot_tile(self.tile, turned, source, a.at(at * work.a_row), count, some)
                for i in range(count):
                    x = lane_sums(self.tile, sums[i * some:(i + 1) * some])
                    place = em.add(em.mul(em.add(line, i), self.layout.stride), self.packed + at)
                    self.buffer.store(x, place, min(some, self.width))

    def finish(self, epilogue: Epilogue, column: Index, breadth: int) -> None:
        """Transpose square blocks of the buffer and apply the epilogue to their rows."""
        known = epilogue.columns(column, self.width, breadth) if not self.finisher.heavy else None
        for row, rows in each_tile(self.em, self.work.m, self.width):
            xs = self.buffer.at(row).turned([j * self.layout.stride for j in range(breadth)])[:rows]
            self.finisher.finish(epilogue, xs, row, rows, column, [breadth], known)
