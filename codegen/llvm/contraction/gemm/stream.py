"""Products of few rows with a matrix that runs along k in memory, as a layer multiplies a batch by its weight.

Packing the weight would cost from a tenth to a half of the arithmetic. Here the batch is packed, once, and the weight
passes by unpacked: its elements are broadcast, so tiles hold the product transposed. A strip of ``width`` columns of
the product goes through a buffer, whose square blocks are transposed on their way to the epilogue. Rows that do not
fill a vector are dot products along k, taken while the strip of the weight is in the first-level cache.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from ....target import Target
from ...text.emitter import Emitter, Index
from ...text.tiles import Tiles, even_tiles, for_tiles, full_tiles
from ..epilogue import Epilogue, Finisher, for_batch, is_heavy
from ..operand import Matrices
from ..pack import pack_rows, pack_transposed
from ..stage import thread_scratch
from ..tile import Factors, Tile
from .dot import dot_tile, lane_sums

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


class Stream:
    """Writes one kernel. Invariant: in the scratch of a thread the packed rows come first, then the strip's buffer."""

    def __init__(self, em: Emitter, work: Matrices) -> None:
        self.em = em
        self.work = work
        self.layout = layout(work, em.target)
        self.width = self.layout.width
        self.tile = Tile(em, work.element, self.width)
        self.packed = self.layout.vectors * self.width
        self.buffer_at = self.packed * work.k
        self.heavy = is_heavy(work.exprs)
        self.finisher = Finisher(em, work, self.width, self.width)
        self.own = self.buffer = self.block = ""

    def write(self) -> int:
        """Write the product; returns the bytes of scratch each thread needs."""
        em, work = self.em, self.work
        size = self.buffer_at + self.width * self.layout.stride
        (self.own,), size = thread_scratch(em, work.scratch_slot, work.element, work.dtype.itemsize, [size])
        self.buffer = em.gep(self.own, self.buffer_at, work.element)
        if self.heavy:
            self.block = em.value(f"alloca [{self.width * self.width} x {work.element}], align 64", "tile")
        for_batch(em, work, self.product)
        return size

    def product(self, epilogue: Epilogue, a: str, b: str, split: bool) -> None:
        """One matrix of the batch: threads share its columns."""
        em, work, width = self.em, self.work, self.width
        transposed = replace(work, b_k=work.a_k, b_column=work.a_row)
        pack = pack_rows if work.a_row == 1 else pack_transposed

        def panel(at: Index, vectors: int) -> None:
            first = em.mul(at, width)
            source = em.gep(a, em.mul(first, work.a_row), work.element)
            place = em.gep(self.own, em.mul(first, work.k), work.element)
            pack(em, transposed, source, place, work.k, vectors * width, vectors * width, width)
        panels = list(self.layout.panels)
        padded = self.packed - work.m
        if padded > 0:   # the last panel is not full
            panels, last = panels[:-1], panels[-1]
            for_tiles(em, [*panels, replace(last, count=last.count - 1)], None, panel)
            at = last.start + (last.count - 1) * last.size
            source = em.gep(a, at * width * work.a_row, work.element)
            place = em.gep(self.own, at * width * work.k, work.element)
            pack(em, transposed, source, place, work.k, last.size * width - padded, last.size * width, width)
        else:
            for_tiles(em, panels, None, panel)

        strips = full_tiles(work.n, width)
        part = em.chunk(sum(t.count for t in strips)) if split else None

        def strip(column: Index, breadth: int) -> None:
            weight = em.gep(b, em.mul(column, work.b_column), work.element)
            self.strip(a, weight, breadth)
            self.finish(epilogue, column, breadth)
        for_tiles(em, strips, part, strip)

    def strip(self, a: str, weight: str, breadth: int) -> None:
        """The sums of ``breadth`` columns, into the buffer: a line for each column, the rows along it."""
        em, work, width = self.em, self.work, self.width
        wide = 8 if em.target.registers >= 32 else 4
        conflict = work.b_column * work.dtype.itemsize % 4096 == 0  # columns that far apart share the sets of a cache
        for t in self.layout.panels:
            lines = 2 * wide if t.size == 1 and not conflict else wide

            def panel(at: Index, vectors: int, lines: int = lines) -> None:
                first = em.mul(at, width)
                rows = em.gep(self.own, em.mul(first, work.k), work.element)

                def tile(line: Index, count: int) -> None:
                    source = em.gep(weight, em.mul(line, work.b_column), work.element)
                    sums = self.multiply(source, rows, count, vectors)
                    place = em.gep(self.buffer, em.add(em.mul(line, self.layout.stride), first), work.element)
                    self.tile.store(sums, place, self.layout.stride, vectors)
                for_tiles(em, full_tiles(breadth, lines), None, tile)
            for_tiles(em, [t], None, panel)
        if self.layout.rest:
            self.dots(em.gep(a, self.packed * work.a_row, work.element), weight, breadth)

    def multiply(self, weight: str, rows: str, count: int, vectors: int) -> list[str]:
        """The innermost loop: ``count`` columns by ``vectors`` of rows; it fetches the columns that come next."""
        em, work, width, element, tile = self.em, self.work, self.width, self.work.element, self.tile
        following = em.gep(weight, count * work.b_column, element)

        def step(p: Index, sums: list[str]) -> list[str]:
            # The columns of a tile lie behind each other: so many bytes for each of the k steps.
            if work.b_column == work.k:
                em.prefetch(em.gep(following, em.mul(p, count), element))
            xs = list(tile.factors(Factors(rows, vectors * width, tile.neighbours(vectors)), p))
            ws = (em.broadcast(element, width, em.load(element, 1, em.gep(
                em.gep(weight, p, element), i * work.b_column, element))) for i in range(count))
            return tile.add(ws, xs, sums)
        return tile.sum(work.k, step, tile.zeros(count, vectors))

    def dots(self, a: str, weight: str, breadth: int) -> None:
        """The rows that do not fill a vector, as the last elements of the buffer's lines."""
        em, work, width, element = self.em, self.work, self.width, self.work.element
        rest = self.layout.rest
        room = em.target.registers * 3 // 4 if em.target.has_fma else em.target.registers * 9 // 16
        lines = max(1, min(room // min(rest, room), 4))
        transposed = replace(work, a_row=work.b_column, b_column=work.a_row)

        def tile(line: Index, count: int) -> None:
            source = em.gep(weight, em.mul(line, work.b_column), element)
            for at in range(0, rest, room):
                some = min(room, rest - at)
                sums = dot_tile(em, transposed, source, em.gep(a, at * work.a_row, element), count, some, width)
                for i in range(count):
                    x = lane_sums(em, element, sums[i * some:(i + 1) * some], width)
                    place = em.add(em.mul(em.add(line, i), self.layout.stride), self.packed + at)
                    em.store(element, width, x, em.gep(self.buffer, place, element), min(some, width))
        for_tiles(em, full_tiles(breadth, lines), None, tile)

    def finish(self, epilogue: Epilogue, column: Index, breadth: int) -> None:
        """Transpose square blocks of the buffer and apply the epilogue to their rows."""
        em, work, width, element = self.em, self.work, self.width, self.work.element
        known = None if self.heavy else epilogue.columns(column, width, breadth)

        def block(row: Index, rows: int) -> None:
            start = em.gep(self.buffer, row, element)
            xs = [em.load(element, width, em.gep(start, j * self.layout.stride, element)) for j in range(breadth)]
            xs += ["zeroinitializer"] * (width - breadth)
            for i, x in enumerate(em.transpose(element, xs)[:rows]):
                if self.heavy:
                    em.store(element, width, x, em.gep(self.block, i * width, element))
                else:
                    epilogue.store(x, em.add(row, i), column, width, breadth, known)
            if self.heavy:
                self.finisher.call(epilogue, self.block, row, rows, column, 1, breadth)
        for_tiles(em, full_tiles(work.m, width), None, block)
