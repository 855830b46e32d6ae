"""Products of few rows with a matrix that runs along k in memory, as a layer multiplies a batch by its weight.

Packing the weight would cost from a tenth to a half of the arithmetic. Here the batch is packed, once, and the weight
passes by unpacked: its elements are broadcast, so tiles hold the product transposed. A strip of ``width`` columns of
the product goes through a buffer, whose square blocks are transposed on their way to the epilogue. Rows that do not
fill a vector are dot products along k, taken while the strip of the weight is in the first-level cache.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from kusari.ir.costs import CLASH_CYCLES, LANE_CYCLES, PAGE_BYTES, TURN_CYCLES

from ....target import Target
from ...text.array import Array
from ...text.emitter import Index
from ...text.squares import squares_function
from ...text.tiles import Tiles, count_tiles, each_tile, even_tiles, full_tiles, tiles_in
from ..cycles import read_cycles, step_cycles
from ..epilogue import Epilogue, Finisher
from ..operand import Matrices
from ..pack import pack
from ..tile import Factors, Tile
from ..writer import ProductWriter
from .dot import dot_cycles, dot_tile, lane_sums, room_for_sums

MOST_CLASHING_ROWS = 32  # of results, that lie pages apart, do not slow each other
LEAST_SHARED_DEPTH = 128  # that makes calls of functions cheap
LEAST_TURNED_DEPTH = 512  # that makes the way through memory cheap
_PACKING_THREADS = 2     # that are counted: each packs the whole batch, but meets only its part of a weight


@dataclass(frozen=True)
class Layout:
    """``panels`` of at most three vectors of packed rows each, then ``rest`` rows for dot products."""

    width: int
    vectors: int
    panels: tuple[Tiles, ...]
    rest: int
    cycles: float = 0.0

    @property
    def stride(self) -> int:
        """Elements from one line of the strip's buffer to the next; not a multiple of a page, for the cache's sake."""
        breadth = (self.vectors + (self.rest > 0)) * self.width
        return breadth + self.width if breadth % 1024 == 0 else breadth


def suits(work: Matrices, target: Target) -> bool:
    """Whether the weight runs along k, and the rows fill vectors that stay in the second-level cache, transposed."""
    size = work.dtype.itemsize
    width = target.lanes(size)
    near = work.k * (work.m + width) * size <= target.l2_bytes * 3 // 4
    return work.b_k == 1 and width >= 4 and work.k > 0 and near and _layout(work, width, target).vectors > 0


def choose(work: Matrices, target: Target) -> Layout:
    """Return the layout, with the cycles of arithmetic, of packing the batch and of turning the strips."""
    size = work.dtype.itemsize
    width = target.lanes(size)
    found = _layout(work, width, target)
    products = 0.0
    for strip in full_tiles(work.n, width):
        for panel in found.panels:
            lines = full_tiles(strip.size, panel_lines(work, target, panel.size))
            step = sum(t.count * step_cycles(t.size, panel.size) for t in lines)
            products += strip.count * panel.count * work.k * step
        for t in full_tiles(strip.size, rest_lines(target, found.rest)) if found.rest else ():
            step = sum(dot_cycles(t.size, len(some)) for some in rest_parts(target, found.rest))
            products += strip.count * t.count * -(-work.k // width) * step
    squares = -(-work.n // width) * -(-work.m // width)
    clash = work.n * size % PAGE_BYTES == 0 and work.m > MOST_CLASHING_ROWS
    turning = TURN_CYCLES + clash * CLASH_CYCLES
    packing = TURN_CYCLES * found.vectors * work.k * _PACKING_THREADS
    cycles = max(products, read_cycles(work, target)) + packing
    return replace(found, cycles=cycles + turning * squares * width + LANE_CYCLES * work.n * found.rest)


def _layout(work: Matrices, width: int, target: Target) -> Layout:
    """Whole vectors of rows are packed; the remaining rows are for dot products if they are few."""
    full, rest = divmod(work.m, width)
    if rest and (work.a_k != 1 or rest > width * 3 // 4):
        full, rest = full + 1, 0
    return Layout(width, full, tuple(even_tiles(full, 3 if target.has_fma else 2)), rest)


def panel_lines(work: Matrices, target: Target, vectors: int) -> int:
    """Columns of the weight that a tile of ``vectors`` of rows meets at a time."""
    wide = 8 if target.registers >= 32 else 4
    clash = work.b_column * work.dtype.itemsize % PAGE_BYTES == 0
    return 2 * wide if vectors == 1 and not clash else wide


def rest_lines(target: Target, rest: int) -> int:
    """Columns of the weight that a tile of dot products with the remaining rows has."""
    room = room_for_sums(target)
    return max(1, min(room // min(rest, room), 4))


def rest_parts(target: Target, rest: int) -> list[range]:
    """The remaining rows in parts for which registers have room."""
    room = room_for_sums(target)
    return [range(at, min(at + room, rest)) for at in range(0, rest, room)]


class Stream(ProductWriter[Layout]):
    """Writes one kernel. Invariant: in the scratch of a thread packed rows come first, then the strip's buffer."""

    def prepare(self) -> None:
        work, width = self.work, self.width
        self.packed = self.plan.vectors * width
        self.turning = work.k >= LEAST_TURNED_DEPTH  # squares by a function, from memory to memory
        self.own, self.buffer, self.turned = self.scratch(
            self.packed * work.k, width * self.plan.stride, width * width * self.turning)
        self.finisher = Finisher(self.em, work, width, width, 0 if self.turning else width)
        self.strips = full_tiles(work.n, width)
        self.alike = len(self.strips) > 1 and work.k >= LEAST_SHARED_DEPTH
        # Where masks cost nothing all strips are finished by one code, whether they are full or not.
        self.masked = self.alike and self.em.target.vector_bytes == 64 and not self.finisher.heavy and all([
            o.column in (0, 1) for o in work.operands])

    def product(self, epilogue: Epilogue, a: Array, b: Array, split: bool) -> None:
        """Threads share the columns."""
        em, work, width = self.em, self.work, self.width
        turned = replace(work, b_k=work.a_k, b_column=work.a_row)
        for t in self.plan.panels:
            padded = max(t.stop * width - work.m, 0)   # of the last panel, which may not be full
            whole = replace(t, count=t.count - (padded > 0))
            last = [replace(whole, count=1, start=whole.stop)] if padded else []
            for at, vectors in tiles_in(em, [whole, *last]):
                first, breadth = at * width, vectors * width
                pack(turned, a.at(first * work.a_row), self.own.at(first * work.k), work.k,
                     breadth - padded if at == whole.stop else breadth, breadth)
        part = em.chunk(count_tiles(self.strips)) if split else (0, count_tiles(self.strips))
        if not self.masked:
            for column, breadth in tiles_in(em, self.strips, part):
                self.strip(a, b.at(column * work.b_column), breadth)
                self.finish(epilogue, column, breadth)
            return
        whole, last = self.strips
        for i in em.each(*part):
            column = i * width
            for full in em.either(em.compare("slt", i, whole.count)):
                self.strip(a, b.at(column * work.b_column), width if full else last.size)
            self.finish(epilogue, column, width, em.first_lanes(width, work.n - column))

    def strip(self, a: Array, weight: Array, breadth: int) -> None:
        """The sums of ``breadth`` columns, into the buffer: a line for each column, the rows along it."""
        em, work, stride = self.em, self.work, self.plan.stride
        for t in self.plan.panels:
            lines = panel_lines(work, em.target, t.size)
            for at, vectors in tiles_in(em, [t]):
                first = at * self.width
                rows = self.own.at(first * work.k)
                for line, count in each_tile(em, breadth, lines):
                    self.part(f"tile{count}x{vectors}", partial(self.multiply, count, vectors),
                              weight.at(line * work.b_column), rows, self.buffer.at(line * stride + first))
        if self.plan.rest:
            self.dots(a.at(self.packed * work.a_row), weight, breadth)

    def part(self, name: str, write: Callable[..., None], *arrays: Array) -> None:
        """Parts that a strip of fewer columns may have, too, are apart, but where a call of them takes long."""
        if self.alike:
            self.apart(name, write, *arrays)
        else:
            write(*arrays)

    def multiply(self, count: int, vectors: int, weight: Array, rows: Array, place: Array) -> None:
        """The innermost loop: ``count`` columns by ``vectors`` of rows; it fetches the columns that come next."""
        work, tile = self.work, Tile(weight.em, self.element, self.width)
        following = weight.at(count * work.b_column)

        def ahead(p: Index) -> None:
            # The columns of a tile lie behind each other: so many bytes for each of the k steps.
            if work.b_column == work.k:
                weight.em.prefetch(f"{following.at(p * count)}")
        tile.multiply(Factors(weight, 1, [i * work.b_column for i in range(count)], True),
                      Factors(rows, vectors * self.width, tile.neighbours(vectors)), work.k,
                      place, self.plan.stride, False, ahead)

    def dots(self, a: Array, weight: Array, breadth: int) -> None:
        """The rows that do not fill a vector, as the last elements of the buffer's lines."""
        em, work, rest = self.em, self.work, self.plan.rest
        for line, count in each_tile(em, breadth, rest_lines(em.target, rest)):
            source = weight.at(line * work.b_column)
            for part in rest_parts(em.target, rest):
                place = self.buffer.at(line * self.plan.stride + (self.packed + part.start))
                self.part(f"dots{count}x{len(part)}", partial(self.dot, count, len(part)),
                          source, a.at(part.start * work.a_row), place)

    def dot(self, count: int, some: int, weight: Array, rows: Array, place: Array) -> None:
        """Dot products of ``count`` columns with ``some`` rows."""
        tile = Tile(weight.em, self.element, self.width)
        turned = replace(self.work, a_row=self.work.b_column, b_column=self.work.a_row)
        sums = dot_tile(tile, turned, weight, rows, count, some)
        for i, x in enumerate(lane_sums(tile, sums, some)):
            place.store(x, i * self.plan.stride, some)

    def finish(self, epilogue: Epilogue, column: Index, breadth: int, mask: str | None = None) -> None:
        """Transpose square blocks of the buffer and apply the epilogue to their rows, or to those lanes of a ``mask``.

        The last block begins earlier where it would not be full and finishing rows again does not change them: where no
        operand has a row for each, which the outputs could take the place of.
        """
        em, work, width = self.em, self.work, self.width
        known = epilogue.columns(column, width, mask or breadth) if not self.finisher.heavy else None
        again = work.m > width and not any(o.row and o.column for o in work.operands)
        for row, rows in each_tile(em, -(-work.m // width) * width if again else work.m, width):
            row = em.min(row, work.m - width) if again and work.m % width else row
            if self.turning:
                em.call(squares_function(em.target, self.element, width, width), self.buffer.at(row), self.turned,
                        width, self.plan.stride, width, 1, width)
            if self.turning and self.finisher.heavy:
                self.finisher.stored(epilogue, self.turned, row, rows, column, breadth)
                continue
            if self.turning:
                for i in em.each(0, rows):
                    epilogue.at(row + i, column).store(
                        self.turned.load(i * width), 0, 0, width, mask or breadth, known)
                continue
            xs = self.buffer.at(row).turned([j * self.plan.stride for j in range(breadth)])[:rows]
            if mask is None:
                self.finisher.finish(epilogue, xs, row, rows, column, [breadth], known)
                continue
            here = epilogue.at(row, column)
            for i, x in enumerate(xs):
                here.store(x, i, 0, width, mask, known)
