"""Products by register tiles: rows of A broadcast, vectors of B, accumulators in registers."""
from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from ....target import Target
from ...text.emitter import Emitter, Index
from ...text.tiles import Tiles, count_tiles, even_tiles, for_tiles, full_tiles
from ..cycles import MOST_TILE_ROWS, step_cycles, tile_rows
from ..epilogue import Epilogue, Finisher, for_batch, is_heavy
from ..operand import Matrices
from ..pack import pack_rows, pack_transposed
from ..stage import thread_scratch
from ..tile import Factors, Tile


@dataclass(frozen=True)
class Shape:
    """A tile is at most ``rows`` x ``vectors``; B is packed in panels of ``vectors``, ``block`` of k at a time.

    About ``sweep`` rows meet all panels before the next ones do. ``cycles`` are those of one core for one matrix.
    """

    rows: int
    vectors: int
    width: int
    packed: bool
    block: int
    sweep: int
    single: int = 0  # the last columns, few enough that rows of A times columns of B are faster than a vector of them
    cycles: float = 0.0


LINE_BYTES = 64        # a cache line
NEAR_BYTES = 24 << 10  # of A's cache lines, which stay near from one tile of rows to the next
FAR_BYTES = 2 << 20    # of A, which stay near enough from one panel to the next
SWEEP_ROWS = 128       # that make up for packing a panel
_MOST_SINGLE_COLUMNS = 6
_JOINT_COLUMNS = 2     # that share the elements loaded of A


def choose(work: Matrices, target: Target) -> Shape:
    """Return the tile of the fewest cycles by count: those of register tiles.

    Every further kind of tile (a shorter one at an edge) is text to compile, and must save a hundredth of the cycles.
    """
    size = work.dtype.itemsize
    width = target.lanes(size)
    single = _single(work, width)
    columns = -(-work.n // width)
    conflict = work.a_row * size % 4096 == 0   # rows that far apart share the sets of the first-level cache
    best: tuple[float, int, int, int] | None = None
    for vectors in range(1, min(8, columns) + 1):
        most = min(tile_rows(target, vectors), 8 if conflict else MOST_TILE_ROWS)
        kinds = len(full_tiles(work.n, vectors * width))
        for largest in range(max(1, most - 4), most + 1):
            row_tiles = even_tiles(work.m, largest)
            cost = 0.0
            for r, c in itertools.product(row_tiles, full_tiles(columns, vectors)):
                cost += r.count * c.count * step_cycles(r.size, c.size)
            cost *= 1 + 0.01 * (len(row_tiles) * kinds - 1)
            if best is None or cost < best[0]:
                best = cost, row_tiles[0].size, vectors, 0
            if single and vectors == columns - 1:
                cost = sum(r.count * step_cycles(r.size, vectors) for r in row_tiles)
                cost += work.m * single * (1 / width + 16 / work.k)   # products, and the sum of the lanes
                best = min(best, (cost * (1 + 0.01 * len(row_tiles)), row_tiles[0].size, vectors, single))
    assert best is not None
    step, rows, vectors, single = best
    strided = work.b_column != 1
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
    return Shape(rows, vectors, width, packed, block, sweep, single, step * work.k)


def _single(work: Matrices, width: int) -> int:
    """The number of columns left of full vectors, if they are few and rows of A are contiguous; else 0."""
    rest = work.n % width
    fits = work.a_k == 1 and work.n > width > 1 and work.k >= 4 * width and rest <= _MOST_SINGLE_COLUMNS
    return rest if fits else 0


def suits_rows_first(work: Matrices, shape: Shape, target: Target) -> bool:
    """Whether a tile of rows should meet all panels of B before the next one does.

    Panel by panel, every panel walks over all rows of A and of the outputs: memory that is in no near cache by then, a
    few cache lines from each row. The other way it is read and written once, from start to end. B, packed as a whole,
    must stay in the second-level cache, and there must be rows enough for all threads.
    """
    size = work.dtype.itemsize
    panels = -(-work.n // (shape.vectors * shape.width))
    full = len(work.exprs) + sum(r != 0 and c != 0 for r, c, _ in work.operand_strides)
    passing = (work.m * work.k + work.m * work.n * full) * size
    resident = work.k * panels * shape.vectors * shape.width * size
    enough = count_tiles(even_tiles(work.m, shape.rows)) >= 16 and panels > 1 and not shape.single
    return enough and shape.block == work.k > 0 and resident <= target.l2_bytes // 2 and passing > target.l2_bytes


class Outer:
    """Writes one kernel. Invariant: in the scratch of a thread the panel comes first, then sums over earlier blocks."""

    def __init__(self, em: Emitter, work: Matrices, shape: Shape) -> None:
        self.em = em
        self.work = work
        self.shape = shape
        self.tile = Tile(em, work.element, shape.width)
        self.stride = shape.vectors * shape.width
        self.row_tiles = even_tiles(work.m, shape.rows)
        self.panels = full_tiles(work.n - shape.single, self.stride)
        many = count_tiles(self.panels)
        self.by_rows = many < 8 and count_tiles(self.row_tiles) > many
        self.rows_first = suits_rows_first(work, shape, em.target)
        self.blocks = full_tiles(work.k, shape.block) if work.k else [Tiles(0, 1, 0, 0)]
        panel = shape.block * self.stride * (many if self.rows_first else 1) if shape.packed else 0
        self.sums_at = panel
        self.columns_at = panel + (work.m * self.stride if count_tiles(self.blocks) > 1 else 0)
        self.column = -(-work.k // shape.width) * shape.width   # elements of a single column, in one piece
        self.scratch = self.columns_at + shape.single * self.column
        self.heavy = is_heavy(work.exprs)
        self.own = ""
        self.tile_buffer = ""
        self.finisher = Finisher(em, work, shape.width, self.stride)

    def write(self) -> int:
        """Write the product; returns the bytes of scratch each thread needs."""
        em, work = self.em, self.work
        size = 0
        if self.scratch:
            (self.own,), size = thread_scratch(em, work.scratch_slot, work.element, work.dtype.itemsize, [self.scratch])
        if self.heavy:
            count = self.shape.rows * self.stride
            self.tile_buffer = em.value(f"alloca [{count} x {work.element}], align 64", "tile")
        if self.shape.single:
            self.ones = em.value(f"alloca [{self.shape.rows * self.shape.single} x {work.element}], align 64", "ones")
        for_batch(em, work, self.product)
        return size

    def product(self, epilogue: Epilogue, a: str, b: str, split: bool) -> None:
        """One matrix of the batch."""
        em, tiles, panels = self.em, count_tiles(self.row_tiles), count_tiles(self.panels)
        if self.rows_first:
            self.sweep_rows(epilogue, a, b, em.chunk(tiles) if split else None)
            return
        self.copy_columns(b)
        own, part = self.parts(tiles, panels) if split else (None, None)

        def sweep(rows: tuple[Index, Index] | None) -> None:
            for_tiles(em, self.panels, part, lambda column, breadth: self.panel(epilogue, a, b, column, breadth, rows))
        each = max(1, self.shape.sweep // self.row_tiles[0].size)
        if each < tiles:
            lo, hi = own or (0, tiles)
            em.loop(lo, hi, each, lambda i, _: sweep((i, em.min(em.add(i, each), hi))), unroll=False)
        else:
            sweep(own)

    def parts(self, tiles: int, panels: int) -> tuple[tuple[Index, Index] | None, tuple[Index, Index] | None]:
        """This thread's tiles of rows, and its panels; None means all.

        Threads share the panels, so that each is packed once. If there are few of them they share the rows, unless the
        panels come out even and there are not so many rows that packing costs less than passing over all of A.
        """
        em = self.em
        if not self.by_rows:
            return None, em.chunk(panels)
        own = em.chunk(tiles)
        if not self.shape.packed or panels < 2 or self.work.n % self.stride or self.work.m > 2 * SWEEP_ROWS:
            return own, None
        even = em.compare("eq", em.mul(em.div(panels, "%nth"), "%nth"), panels)

        def choose(a: Index, b: Index) -> Index:
            return em.value(f"select i1 {even}, i64 {a}, i64 {b}")
        part = em.chunk(panels)
        return (choose(0, own[0]), choose(tiles, own[1])), (choose(part[0], 0), choose(part[1], panels))

    def sweep_rows(self, epilogue: Epilogue, a: str, b: str, part: tuple[Index, Index] | None) -> None:
        """A tile of rows meets all panels before the next one does."""
        em, work, shape = self.em, self.work, self.shape

        def place(column: Index) -> str:
            return em.gep(self.own, em.mul(column, work.k), work.element)

        def pack(column: Index, breadth: int) -> None:
            copy = pack_rows if work.b_column == 1 else pack_transposed
            source = em.gep(b, em.mul(column, work.b_column), work.element)
            copy(em, work, source, place(column), work.k, breadth, self.stride, shape.width)

        def tile(row: Index, rows: int) -> None:
            start = em.gep(a, em.mul(row, work.a_row), work.element)

            def panel(column: Index, breadth: int) -> None:
                source = place(column) if shape.packed else em.gep(b, em.mul(column, work.b_column), work.element)
                self.all_steps(epilogue, start, source, row, rows, column, breadth)
            for_tiles(em, self.panels, None, panel)
        if shape.packed:
            for_tiles(em, self.panels, None, pack)
        for_tiles(em, self.row_tiles, part, tile)

    def all_steps(self, epilogue: Epilogue, a: str, b: str, row: Index, rows: int, column: Index,
                  breadth: int) -> None:
        """One tile of the product, all of k."""
        work, width = self.work, self.shape.width
        valid = [min(width, breadth - j) for j in range(0, breadth, width)]
        step = self.stride if self.shape.packed else work.b_k
        sums = self.multiply(a, b, step, rows, valid, work.k, self.tile.zeros(rows, len(valid)), None)
        self.finish(epilogue, sums, row, rows, column, valid)

    def panel(self, epilogue: Epilogue, a: str, b: str, column: Index, breadth: int,
              part: tuple[Index, Index] | None) -> None:
        """All of k: the blocks between the first and the last are a loop."""
        starts = [t.start + i * t.size for t in self.blocks for i in (range(t.count))]
        depth = self.blocks[0].size

        def between(i: Index, _: list[str]) -> None:
            self.block(epilogue, a, b, column, breadth, self.em.mul(i, depth), depth, False, False, part)
        if len(starts) > 1:
            self.block(epilogue, a, b, column, breadth, 0, depth, True, False, part)
        if len(starts) > 2:
            self.em.loop(1, len(starts) - 1, 1, between, unroll=False)
        self.block(epilogue, a, b, column, breadth, starts[-1], self.work.k - starts[-1], len(starts) == 1, True, part)

    def block(self, epilogue: Epilogue, a: str, b: str, column: Index, breadth: int, at: Index, depth: int,
              first: bool, last: bool, part: tuple[Index, Index] | None) -> None:
        """``depth`` steps of k, from ``at``, for one panel of columns."""
        em, work, shape = self.em, self.work, self.shape
        offset = em.add(em.mul(column, work.b_column), em.mul(at, work.b_k))
        source = origin = em.gep(b, offset, work.element)
        step = work.b_k
        if shape.packed:
            pack = pack_rows if work.b_column == 1 else pack_transposed
            pack(em, work, source, self.own, depth, breadth, self.stride, shape.width)
            source, step = self.own, self.stride
        valid = [min(shape.width, breadth - j) for j in range(0, breadth, shape.width)]

        def tile(row: Index, rows: int) -> None:
            start = em.gep(a, em.add(em.mul(row, work.a_row), em.mul(at, work.a_k)), work.element)
            place = em.gep(self.own, em.add(em.mul(row, self.stride), self.sums_at), work.element) if self.own else ""
            initial = (self.tile.zeros(rows, len(valid)) if first
                       else self.tile.load(place, self.stride, rows, len(valid)))
            sums = self.multiply(start, source, step, rows, valid, depth, initial, self.ahead(origin, row))
            if last:
                self.finish(epilogue, sums, row, rows, column, valid)
            else:
                self.tile.store(sums, place, self.stride, len(valid))
            if shape.single:
                self.dots(epilogue, start, row, rows)
        for_tiles(em, self.row_tiles, part, tile)

    def copy_columns(self, b: str) -> None:
        """The columns left of full vectors, each in one piece."""
        em, work, element = self.em, self.work, self.work.element
        for j in range(self.shape.single):
            source = em.gep(b, (work.n - self.shape.single + j) * work.b_column, element)
            target = em.gep(self.own, self.columns_at + j * self.column, element)

            @em.each(0, work.k, unroll=True)
            def one(p: Index, source: str = source, target: str = target) -> None:
                x = em.load(element, 1, em.gep(source, em.mul(p, work.b_k), element))
                em.store(element, 1, x, em.gep(target, p, element))

    def dots(self, epilogue: Epilogue, a: str, row: Index, rows: int) -> None:
        """Single columns of a tile: its rows of A, still in the first-level cache, times columns of B."""
        em, work, width, element, single = self.em, self.work, self.shape.width, self.work.element, self.shape.single
        for first in range(0, single, _JOINT_COLUMNS):
            columns = range(first, min(first + _JOINT_COLUMNS, single))
            places = [em.gep(self.own, self.columns_at + j * self.column, element) for j in columns]
            sums = self.tile.zeros(rows, len(columns))
            for t in full_tiles(work.k, width):
                def step(p: Index, sums: list[str], valid: int = t.size, places: list[str] = places) -> list[str]:
                    ys = [em.load(element, width, em.gep(y, p, element), valid) for y in places]
                    xs = (em.load(element, width, em.gep(a, em.add(i * work.a_row, p), element), valid)
                          for i in range(rows))
                    return self.tile.add(xs, ys, sums)
                sums = self.tile.sum(t.stop, step, sums, t.size, t.start)
            for k, (i, j) in enumerate(itertools.product(range(rows), columns)):
                one = em.horizontal("fadd", element, width, sums[k])
                em.store(element, 1, one, em.gep(self.ones, i * single + j, element))

        @em.each(0, rows)
        def line(i: Index) -> None:
            for j in range(single):
                x = em.load(element, 1, em.gep(self.ones, em.add(em.mul(i, single), j), element))
                epilogue.store(x, em.add(row, i), work.n - single + j, 1, None)

    def ahead(self, origin: str, row: Index) -> Callable[[Index], None] | None:
        """Return a function that fetches, in every step of k, a part of the panel packed after the one at ``origin``.

        Packing reads each element of B once, from far away; the arithmetic on a panel leaves time to bring the next one
        closer (a tenth of the time of a product of 100 x 1000 x 1000). The tiles of a panel share its successor among
        them. Fetching behind the last panel does no harm.
        """
        em, work, element = self.em, self.work, self.work.element
        tiles = count_tiles(self.row_tiles)
        short = tiles * 4 < self.stride or count_tiles(self.panels) < 4  # too little time, or too few to come
        if not self.shape.packed or self.by_rows or count_tiles(self.blocks) > 1 or work.k < self.shape.width or short:
            return None
        following = em.gep(origin, self.stride * work.b_column, element)
        if work.b_k == 1:  # a column of B is contiguous: some columns for each tile
            each = -(-self.stride // tiles)
            first = em.min(em.div(em.mul(row, self.stride), work.m), self.stride - each)
            places = [em.gep(following, em.mul(em.add(first, c), work.b_column), element) for c in range(each)]
        elif work.b_column == 1:  # a row of B is contiguous: one of its cache lines for each tile
            line = 64 // work.dtype.itemsize
            number = em.min(em.div(em.mul(row, tiles), work.m), self.stride // line - 1)
            places = [em.gep(following, em.mul(number, line), element)]
        else:
            return None

        def fetch(p: Index) -> None:
            for place in places:
                em.prefetch(em.gep(place, em.mul(p, work.b_k), element))
        return fetch

    def multiply(self, a: str, b: str, b_step: int, rows: int, valid: list[int], depth: int,
                 initial: list[str], ahead: Callable[[Index], None] | None) -> list[str]:
        """The innermost loop."""
        tile, work = self.tile, self.work
        columns = Factors(b, b_step, tile.neighbours(len(valid)), valid=None if self.shape.packed else valid)
        return tile.product(Factors(a, work.a_k, [i * work.a_row for i in range(rows)], True), columns, depth, initial,
                            ahead)

    def finish(self, epilogue: Epilogue, sums: list[str], row: Index, rows: int, column: Index,
               valid: list[int]) -> None:
        """The epilogue of a tile: in registers, or of a stored tile if it is long."""
        if not self.heavy:
            epilogue.store_tile(sums, row, column, self.shape.width, valid)
            return
        self.tile.store(sums, self.tile_buffer, self.stride, len(valid))
        self.finisher.call_all(epilogue, self.tile_buffer, row, rows, column, sum(valid))
