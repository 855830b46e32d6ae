"""Products by register tiles: rows of A broadcast, vectors of B, accumulators in registers."""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from kusari.ir.costs import CLASH_RATIO, COPY_CYCLES, PAGE_BYTES, PARTS_RATIO, RESULT_CYCLES, TURN_CYCLES

from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.tiles import Tiles, count_tiles, even_tiles, full_tiles, lanes_in, tiles_in
from ..cycles import MOST_TILE_ROWS, read_cycles, step_cycles, tile_heights, turning_registers
from ..epilogue import Epilogue, Finisher
from ..operand import Matrices
from ..pack import pack
from ..tile import Factors
from ..writer import LINE_BYTES, ProductWriter
from .dot import dot_tile


class Shape(NamedTuple):
    """A tile is at most ``rows`` x ``vectors``; B is packed in panels of ``vectors``, ``block`` of k at a time.

    About ``sweep`` rows meet all panels before the next ones do. ``cycles`` are those of one core for one matrix,
    ``products`` the part of them for the tiles.
    """

    rows: int
    vectors: int
    width: int
    packed: bool
    block: int
    sweep: int
    single: int = 0  # the last columns, few enough that rows of A times columns of B are faster than a vector of them
    cycles: float = 0.0
    products: float = 0.0


NEAR_BYTES = 24 << 10  # of A's cache lines, which stay near from one tile of rows to the next
FAR_BYTES = 2 << 20    # of A, which stay near enough from one panel to the next
SWEEP_ROWS = 128       # that make up for packing a panel
KIND_CYCLES = 400      # of a matrix: a tenth of a microsecond, for which no kind of tile is compiled in 6 ms
_MOST_SINGLE_COLUMNS = 6
_JOINT_COLUMNS = 2     # that share the elements loaded of A


def choose(work: Matrices, target: Target) -> Shape:
    """Return the tile of the fewest cycles, with those of packing B, or of reading it for each tile of rows.

    Every further kind of tile (a shorter one at an edge) is text to compile, and must save ``KIND_CYCLES``: a hundredth
    of all at least, and a twentieth at most.
    For any size the number of rows does not count, nor whether the last vector of columns is full.
    """
    size = work.dtype.itemsize
    width = target.lanes(size)
    rest = work.n % width   # columns left of full vectors, taken one by one if they are few and rows of A contiguous
    few = work.a_k == 1 and work.n > width > 1 and work.k >= 4 * width and rest <= _MOST_SINGLE_COLUMNS
    single = rest if few and not target.any_size else 0
    columns = -(-work.n // width)
    conflict = work.a_row * size % PAGE_BYTES == 0
    strided = work.b_column != 1
    taken = turning_registers(target, size) if strided else 0
    best: tuple[float, int, int, int] | None = None
    for vectors, heights in tile_heights(target, columns, 8 if conflict else MOST_TILE_ROWS, taken):
        kinds = len(full_tiles(columns, vectors) if target.any_size else full_tiles(work.n, vectors * width))
        for largest in heights[-1:] if target.any_size else heights:
            row_tiles = even_tiles(largest if target.any_size else work.m, largest)
            cost = 0.0
            for r, c in itertools.product(row_tiles, full_tiles(columns, vectors)):
                cost += r.count * c.count * step_cycles(r.size, c.size)
            cost += _kind_cycles(work, cost) * (len(row_tiles) * kinds - 1)
            cost *= work.m / largest if target.any_size else 1
            if best is None or cost < best[0]:
                best = cost, row_tiles[0].size, vectors, 0
            if single and vectors == columns - 1:
                cost = sum(r.count * step_cycles(r.size, vectors) for r in row_tiles)
                cost += work.m * single * (1 / width + 16 / work.k)   # products, and the sum of the lanes
                cost += _kind_cycles(work, cost) * len(row_tiles)
                best = min(best, (cost, row_tiles[0].size, vectors, single))
    assert best is not None
    step, rows, vectors, single = best
    spread = work.k * work.n * size > target.l1_bytes and work.n > vectors * width
    packed = work.k > 0 and (strided or (spread and count_tiles(even_tiles(work.m, rows)) >= 3))
    room = max(target.l2_bytes // 2 // (vectors * width * size), 256) if packed else work.k
    if work.a_row == 1 and work.m > rows:
        room = min(room, max(NEAR_BYTES // LINE_BYTES, 1))  # neighbouring tiles read the same cache lines of A
    blocks = -(-work.k // max(room, 1))
    block = -(-work.k // blocks // width) * width if blocks > 1 else work.k
    if blocks > 1 and single:
        return choose(replace(work, a_k=0), target)   # not among sums that are stored
    sweep = max(FAR_BYTES // max(work.k * size, 1), SWEEP_ROWS)
    cycles = step * work.k
    if packed:
        cycles += (TURN_CYCLES if strided else COPY_CYCLES) * work.k * columns
    else:
        parts = work.n > vectors * width
        reading = read_cycles(work, target) * count_tiles(even_tiles(work.m, rows)) * (PARTS_RATIO if parts else 1)
        clash = parts and work.b_k * size % PAGE_BYTES == 0
        cycles = max(cycles, reading) * (CLASH_RATIO if clash else 1)
    return Shape(rows, vectors, width, packed, block, sweep, single, cycles + RESULT_CYCLES * work.m * columns,
                 step * work.k)


def _kind_cycles(work: Matrices, cost: float) -> float:
    """Cycles of a step along k that a kind of tile must save, where all tiles take ``cost``."""
    return min(max(KIND_CYCLES / max(work.k, 1), cost / 100), cost / 20)


def suits_rows_first(work: Matrices, shape: Shape, target: Target) -> bool:
    """Whether a tile of rows should meet all panels of B before the next one does.

    Panel by panel, every panel walks over all rows of A and of the outputs: memory that is in no near cache by then, a
    few cache lines from each row. The other way it is read and written once, from start to end. B, packed as a whole,
    must stay in the second-level cache, and there must be rows enough for all threads.
    """
    size = work.dtype.itemsize
    panels = -(-work.n // (shape.vectors * shape.width))
    full = len(work.exprs) + sum(o.row != 0 and o.column != 0 for o in work.operands)
    passing = (work.m * work.k + work.m * work.n * full) * size
    resident = work.k * panels * shape.vectors * shape.width * size
    enough = count_tiles(even_tiles(work.m, shape.rows)) >= 16 and panels > 1 and not shape.single
    return enough and shape.block == work.k > 0 and resident <= target.l2_bytes // 2 and passing > target.l2_bytes


class Outer(ProductWriter[Shape]):
    """Writes one kernel. Invariant: in the scratch of a thread the panel comes first, then sums over earlier blocks."""

    def __init__(self, em: Emitter, work: Matrices, shape: Shape) -> None:
        super().__init__(em, work, shape)
        self.stride = shape.vectors * self.width
        self.row_tiles = [Tiles(0, work.m, 0, 1)] if em.target.any_size else even_tiles(work.m, shape.rows)
        self.panels = full_tiles(work.n - shape.single, self.stride)
        many = count_tiles(self.panels)
        self.by_rows = many < 8 and count_tiles(even_tiles(work.m, shape.rows)) > many
        self.rows_first = suits_rows_first(work, shape, em.target)
        self.blocks = -(-work.k // shape.block) if work.k else 1
        self.column = -(-work.k // self.width) * self.width   # elements of a single column, in one piece

    def prepare(self) -> None:
        work, shape = self.work, self.plan
        panel = shape.block * self.stride * (count_tiles(self.panels) if self.rows_first else 1) * shape.packed
        sizes = panel, work.m * self.stride * (self.blocks > 1), shape.single * self.column
        self.own = self.array("null")
        if any(sizes):
            self.own, self.sums, self.columns = self.scratch(*sizes)
        self.finisher = Finisher(self.em, work, self.width, self.stride, shape.rows)
        if shape.single:
            ones = self.em.value(f"alloca [{shape.rows * shape.single} x {self.element}], align 64", "ones")
            self.ones = self.array(ones)

    def product(self, epilogue: Epilogue, a: Array, b: Array, split: bool) -> None:
        em, tiles, panels = self.em, count_tiles(self.row_tiles), count_tiles(self.panels)
        if self.rows_first:
            self.sweep_rows(epilogue, a, b, em.chunk(tiles) if split else None)
            return
        self.copy_columns(b)
        own, part = self.parts(tiles, panels) if split else (None, None)
        lo, hi = own or (0, tiles)
        each = max(1, self.plan.sweep // self.plan.rows)
        each *= self.plan.rows if em.target.any_size else 1
        sweeps = ((i, em.min(i + each, hi)) for i in em.each(lo, hi, each)) if each < tiles else [own]
        for rows in sweeps:
            for column, breadth in tiles_in(em, self.panels, part):
                self.panel(epilogue, a, b, column, breadth, rows)

    def rows_in(self, part: tuple[Index, Index] | None) -> Iterator[tuple[Index, int]]:
        """Loops over the tiles of rows in ``part``: begin and size of each.

        For any size a thread's rows are cut in tiles when the kernel runs: as many of the largest as there are, then
        one of each power of two that is left.
        """
        em, largest = self.em, self.plan.rows
        if not em.target.any_size:
            yield from tiles_in(em, self.row_tiles, part)
            return
        at, end = part or (0, em.size(self.work.m))
        for size in (largest, *(2**k for k in reversed(range(4)) if 2**k < largest)):
            stop = at + (end - at) // size * size
            yield from ((i, size) for i in em.each(at, stop, size))
            at = stop

    def parts(self, tiles: int, panels: int) -> tuple[tuple[Index, Index] | None, tuple[Index, Index] | None]:
        """This thread's tiles of rows, and its panels; None means all.

        Threads share the panels, so that each is packed once. If there are few of them they share the rows, unless the
        panels come out even and there are not so many rows that packing costs less than passing over all of A.
        """
        em = self.em
        if not self.by_rows:
            return None, em.chunk(panels)
        own = em.chunk(tiles)
        if not self.plan.packed or panels < 2 or self.work.n % self.stride or self.work.m > 2 * SWEEP_ROWS:
            return own, None
        even = em.compare("eq", panels // em.nth * em.nth, panels)
        part = em.chunk(panels)
        return ((em.choose(even, 0, own[0]), em.choose(even, tiles, own[1])),
                (em.choose(even, part[0], 0), em.choose(even, part[1], panels)))

    def sweep_rows(self, epilogue: Epilogue, a: Array, b: Array, part: tuple[Index, Index] | None) -> None:
        """A tile of rows meets all panels before the next one does."""
        em, work = self.em, self.work

        def place(column: Index) -> Array:
            return self.own.at(column * work.k) if self.plan.packed else b.at(column * work.b_column)

        if self.plan.packed:
            for column, breadth in tiles_in(em, self.panels):
                pack(work, b.at(column * work.b_column), place(column), work.k, breadth, self.stride)
        for row, rows in self.rows_in(part):
            start = a.at(row * work.a_row)
            for column, breadth in tiles_in(em, self.panels):
                valid = lanes_in(breadth, self.width)
                sums = self.multiply(start, place(column), rows, valid, work.k, self.tile.zeros(rows, len(valid)))
                self.finisher.finish(epilogue, sums, row, rows, column, valid)

    def steps(self) -> Iterator[tuple[Index, int, bool, bool]]:
        """Begin and length of each block of k, whether it is the first and the last; those between are a loop."""
        depth, last = self.plan.block, self.blocks - 1
        if last:
            yield 0, depth, True, False
        for i in self.em.each(1, last):
            yield i * depth, depth, False, False
        yield last * depth, self.work.k - last * depth, not last, True

    def panel(self, epilogue: Epilogue, a: Array, b: Array, column: Index, breadth: int,
              part: tuple[Index, Index] | None) -> None:
        """All of k for one panel of columns."""
        work = self.work
        valid = lanes_in(breadth, self.width)
        for at, depth, first, last in self.steps():
            source = origin = b.at(column * work.b_column + at * work.b_k)
            if self.plan.packed:
                pack(work, origin, self.own, depth, breadth, self.stride)
                source = self.own
            for row, rows in self.rows_in(part):
                start = a.at(row * work.a_row + at * work.a_k)
                place = self.own if first and last else self.sums.at(row * self.stride)
                initial = self.tile.load(place, self.stride, rows, len(valid)) if not first else (
                    self.tile.zeros(rows, len(valid)))
                sums = self.multiply(start, source, rows, valid, depth, initial, self.ahead(origin, row))
                if last:
                    self.finisher.finish(epilogue, sums, row, rows, column, valid)
                else:
                    self.tile.store(sums, place, self.stride, len(valid))
                if self.plan.single:
                    self.dots(epilogue, start, row, rows)

    def copy_columns(self, b: Array) -> None:
        """The columns left of full vectors, each in one piece."""
        em, work = self.em, self.work
        for j in range(self.plan.single):
            source = b.at((work.n - self.plan.single + j) * work.b_column)
            target = self.columns.at(j * self.column)
            for p in em.each(0, work.k):
                target.put(source.one(p * work.b_k), p)

    def dots(self, epilogue: Epilogue, a: Array, row: Index, rows: int) -> None:
        """Single columns of a tile: its rows of A, still in the first-level cache, times columns of B."""
        em, work, single = self.em, self.work, self.plan.single
        columns_first = replace(work, a_row=self.column, b_column=work.a_row)
        for first in range(0, single, _JOINT_COLUMNS):
            columns = range(first, min(first + _JOINT_COLUMNS, single))
            sums = dot_tile(self.tile, columns_first, self.columns.at(first * self.column), a, len(columns), rows)
            for x, (j, i) in zip(sums, itertools.product(columns, range(rows)), strict=True):
                self.ones.put(em.horizontal("fadd", self.element, self.width, x), i * single + j)
        for i in em.each(0, rows):
            for j in range(single):
                x = self.ones.one(i * single + j)
                epilogue.store(x, row + i, work.n - single + j, 1, None)

    def ahead(self, origin: Array, row: Index) -> Callable[[Index], None] | None:
        """Return a function that fetches, in every step of k, a part of the panel packed after the one at ``origin``.

        Packing reads each element of B once, from far away; the arithmetic on a panel leaves time to bring the next one
        closer (a tenth of the time of a product of 100 x 1000 x 1000). The tiles of a panel share its successor among
        them. Fetching behind the last panel does no harm.
        """
        em, work = self.em, self.work
        tiles = count_tiles(even_tiles(work.m, self.plan.rows))
        short = tiles * 4 < self.stride or count_tiles(self.panels) < 4  # too little time, or too few to come
        if not self.plan.packed or self.by_rows or self.blocks > 1 or work.k < self.width or short:
            return None
        following = origin.at(self.stride * work.b_column)
        if work.b_k == 1:  # a column of B is contiguous: some columns for each tile
            each = -(-self.stride // tiles)
            first = em.min(row * self.stride // work.m, self.stride - each)
            places = [following.at((first + c) * work.b_column) for c in range(each)]
        elif work.b_column == 1:  # a row of B is contiguous: one of its cache lines for each tile
            line = LINE_BYTES // self.size
            number = em.min(row * tiles // work.m, self.stride // line - 1)
            places = [following.at(number * line)]
        else:
            return None

        def fetch(p: Index) -> None:
            for place in places:
                em.prefetch(f"{place.at(p * work.b_k)}")
        return fetch

    def multiply(self, a: Array, b: Array, rows: int, valid: list[int], depth: int, initial: list[str],
                 ahead: Callable[[Index], None] | None = None) -> list[str]:
        """The innermost loop."""
        work, packed = self.work, self.plan.packed
        return self.tile.product(
            Factors(a, work.a_k, [i * work.a_row for i in range(rows)], True),
            Factors(b, self.stride if packed else work.b_k, self.tile.neighbours(len(valid)),
                    valid=None if packed else valid), depth, initial, ahead)
