"""Gradients of inputs (transposed convolutions) without multiplying padding: products, then sums of windows.

Filters times the gradient of y gives, for each channel and tap, a row of numbers that belong to x; they are added up in
staged images, where the numbers of neighbouring windows are neighbours for any stride. Then the planes of the images
are interleaved, with the epilogue.
"""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kusari.ir.costs import ADD_CYCLES, COPY_CYCLES

from ....target import Target
from ...text.emitter import Emitter, Index
from ...text.tiles import each_tile, full_tiles
from ...text.types import vector
from ..cycles import MOST_TILE_ROWS, step_cycles, tile_rows
from ..epilogue import Epilogue
from ..tile import Factors
from .geometry import even_samples, whole_image
from .spec import ConvSpec
from .stage import PIECE_WORDS, Pieces, each_row, together
from .writer import ConvWriter


@dataclass(frozen=True)
class ColumnShape:
    """Tiles are ``rows`` (of channels and all axes of taps but the last) x ``vectors``.

    A panel holds positions of ``samples`` samples.
    """

    rows: int
    vectors: int
    width: int
    samples: int
    cycles: float


def choose(spec: ConvSpec, target: Target) -> ColumnShape:
    """Return the tile of the fewest cycles by count: those of register tiles, plus the addition of pieces."""
    size = spec.dtype.itemsize
    width = target.lanes(size)
    last = spec.kernel[-1]
    rows = spec.channels * spec.taps // last
    piece = piece_width(spec, width)
    runs = -(-spec.out[-1] // piece) * prod(spec.out[:-1])
    add = 2.0 + piece if spec.out[-1] % piece else ADD_CYCLES  # with a mask two more than lanes
    copied = spec.n * spec.features * -(-spec.positions // width)
    best: ColumnShape | None = None
    for vectors in range(1, 9):
        columns = vectors * width
        samples = 1 if spec.positions > columns else even_samples(spec.n, columns // spec.positions)
        blocks = -(-spec.n // samples)
        panels = [(t.count * blocks, -(-t.size // width)) for t in full_tiles(samples * spec.positions, columns)]
        most = min(tile_rows(target, vectors), MOST_TILE_ROWS, rows)
        if most < 1:
            continue
        for height in range(max(1, most - 4), most + 1):
            tiles = -(-rows // height) * last
            cost = add * rows * last * runs * samples * blocks
            for number, v in panels:
                cost += tiles * number * (step_cycles(height, v) * spec.features + height * v)
            # Panels are copied; images are cleared, and read again for the epilogue.
            cost += COPY_CYCLES * copied + 3.0 * spec.n * spec.channels * prod(spec.size) / width
            cost *= spec.groups * (1 + 0.01 * (len(panels) - 1))
            if best is None or cost < best.cycles:
                best = ColumnShape(height, vectors, width, samples, cost)
    assert best is not None
    return best


def piece_width(spec: ConvSpec, width: int) -> int:
    """Elements that are added at a time: as many as divide a row of windows, if those are few; else with a mask."""
    part = width
    while part // 2 >= max(spec.out[-1], 4):
        part //= 2
    width = part
    while spec.out[-1] % part:
        part //= 2
    return part if part >= min(4, width) or spec.out[-1] == part else width


class Columns(ConvWriter[ColumnShape]):
    """Writes the gradient.

    Threads share the samples or, if those are few, the channels; an element of x is summed by one of them, in the order
    of the taps along the last axis: so neighbours are added to at different times, and the processor need not wait for
    a recent store. Invariant: the scratch of a thread holds staged images of a block of samples, a panel of the
    gradient, its pieces, and a tile.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: ColumnShape) -> None:
        super().__init__(em, spec, shape, shape.width)
        self.piece = piece_width(spec, shape.width)
        # Pieces of neighbouring rows do not overlap, masked lanes included: a load would wait for a recent store.
        self.image, self.offsets = whole_image(spec.windows, -(-spec.out[-1] // self.piece) * self.piece)
        self.columns = shape.vectors * shape.width
        self.last = spec.kernel[-1]
        self.outer = spec.taps // self.last
        self.rows = spec.channels * self.outer
        self.sample = spec.channels * self.image.size
        self.blocks = -(-spec.n // shape.samples)

    def write(self) -> int:
        em, spec, shape = self.em, self.spec, self.plan
        self.own, self.panel, self.table, self.buffer = self.scratch(
            shape.samples * self.sample + 2 * shape.width, spec.features * self.columns + shape.width,
            (2 * self.columns + 2) * 8 * PIECE_WORDS // self.size, shape.rows * self.columns + shape.width)
        self.pieces = Pieces(em, self.image, self.sample, self.table, self.piece)
        taps = em.table("i64", self.offsets)
        self.add = self._add_function(taps)
        self.finish: Emitter | None = None
        tasks = self.blocks * spec.groups
        if tasks < 4 and spec.channels > 1:
            lo, hi = em.chunk(spec.channels)
            em.when(em.compare("slt", lo, hi), lambda: self._images((0, tasks), lo, hi))
        else:
            self._images(em.chunk(tasks), 0, spec.channels)
        return self.scratch_bytes

    def _images(self, tasks: tuple[Index, Index], lo: Index, hi: Index) -> None:
        """The channels ``lo`` to ``hi`` of all images that are this thread's."""
        em, spec, shape = self.em, self.spec, self.plan

        @em.each(*tasks)
        def image(i: Index) -> None:
            block, group = em.divmod(i, spec.groups)
            first = em.min(em.mul(block, shape.samples), spec.n - shape.samples)

            @em.each(0, shape.samples)
            def wipe(s: Index) -> None:
                start = em.add(em.mul(s, self.sample), em.mul(lo, self.image.size))
                self.clear(self.at(self.own, start), em.mul(em.sub(hi, lo), self.image.size))
            filters = self.filters(group)
            if shape.samples > 1:
                self._panel(first, group, 0, shape.samples * spec.positions, filters, lo, hi)
            else:
                @each_tile(em, spec.positions, self.columns)
                def panel(column: Index, breadth: int) -> None:
                    self._panel(first, group, column, breadth, filters, lo, hi)
            self._results(first, group, lo, hi)

    # Products

    def _panel(self, first: Index, group: Index, column: Index, breadth: int, filters: str, lo: Index,
               hi: Index) -> None:
        em, spec, shape = self.em, self.spec, self.plan
        count = self.pieces.find(spec.out, column, breadth)
        self._copy(first, group, column, breadth)
        vectors = -(-breadth // shape.width)
        start, end = em.mul(lo, self.outer), em.mul(hi, self.outer)

        def tile(tap: Index, row: Index) -> None:
            # The last tile begins earlier and leaves out the rows that are done, or another thread's.
            at = em.min(row, self.rows - shape.rows)
            sums = self._multiply(self.at(filters, em.add(em.mul(at, self.last), tap)), vectors)
            self.tile.store(sums, self.buffer, self.columns, vectors)
            until = em.min(em.add(at, shape.rows), end)
            em.call(self.add, self.buffer, self.own, self.table, count, tap, at, row, until)
        em.loop(0, self.last, 1, lambda tap, _: em.loop(start, end, shape.rows, lambda row, _: tile(tap, row),
                                                        unroll=False), unroll=False)

    def _copy(self, first: Index, group: Index, column: Index, breadth: int) -> None:
        """The panel: ``breadth`` columns of the gradients of all features."""
        em, spec, width = self.em, self.spec, self.plan.width
        each = breadth // self.plan.samples

        @em.each(0, self.plan.samples)
        def sample(s: Index) -> None:
            feature = em.add(em.mul(em.add(first, s), spec.k), em.mul(group, spec.features))
            source = self.at(self.slots[0], em.add(em.mul(feature, spec.positions), column))
            target = self.at(self.panel, em.mul(s, each))

            @em.each(0, spec.features)
            def line(o: Index) -> None:
                here = self.at(source, em.mul(o, spec.positions))
                there = self.at(target, em.mul(o, self.columns))
                for t in full_tiles(each, width):
                    for j in range(t.start, t.start + t.count * t.size, t.size):
                        x = em.load(self.element, width, self.at(here, j), t.size)
                        em.store(self.element, width, x, self.at(there, j), t.size)

    def _multiply(self, a: str, vectors: int) -> list[str]:
        tile, rows = self.tile, self.plan.rows
        filters = Factors(a, self.spec.channels * self.spec.taps, [i * self.last for i in range(rows)], True)
        return tile.product(filters, Factors(self.panel, self.columns, tile.neighbours(vectors)), self.spec.features,
                            tile.zeros(rows, vectors))

    def _add_function(self, taps: str) -> Emitter:
        """``add(tile, images, pieces, count, tap, first, from, until)``: add the rows of a tile to the images.

        The tile's first row is row ``first`` of all channels and taps along the axes before the last, whose tap is
        ``tap``; the rows from ``from`` until ``until`` are added.
        """
        width, element = self.piece, self.element
        em = self.em.function("add", ["ptr %tile", "ptr %images", "ptr %pieces", "i64 %count", "i64 %tap",
                                      "i64 %first", "i64 %from", "i64 %until"])
        even = self.spec.out[-1] % width == 0

        @em.each("%from", "%until")
        def row(r: Index) -> None:
            channel = em.div(r, self.outer)
            number = em.add(em.mul(em.sub(r, em.mul(channel, self.outer)), self.last), "%tap")
            tap = em.entry(taps, number)
            base = em.gep("%images", em.add(em.mul(channel, self.image.size), tap), element)
            line = em.gep("%tile", em.mul(em.sub(r, "%first"), self.columns), element)

            @em.each(0, "%count")
            def piece(i: Index) -> None:
                entry = em.gep("%pieces", em.mul(i, PIECE_WORDS), "i64")
                place = em.gep(base, em.entry(entry), element)
                start = em.entry(entry, 1)
                x = em.load(element, width, em.gep(line, start, element))
                if even:  # then so are the ends of panels
                    y = em.load(element, width, place)
                    em.store(element, width, em.binary("fadd", element, width, x, y), place)
                    return
                mask = _first_lanes(em, width, em.entry(entry, 2))
                y = em.load_lanes(element, width, place, mask)
                em.store_lanes(element, width, em.binary("fadd", element, width, x, y), place, mask)
        return em

    # Results

    def _results(self, first: Index, group: Index, lo: Index, hi: Index) -> None:
        """The epilogue of the channels ``lo`` to ``hi`` of each sample."""
        em = self.em

        @em.each(0, self.plan.samples)
        def sample(s: Index) -> None:
            epilogue = self.epilogue(em.add(first, s), group)
            if self.finish is None:
                self.finish = self._finish_function(epilogue)
            em.call(self.finish, self.at(self.own, em.mul(s, self.sample)), lo, hi, *epilogue.arguments())

    def _finish_function(self, epilogue: Epilogue) -> Emitter:
        """``finish(images, lo, hi, …)``: interleave planes, apply the epilogue, and store the outputs."""
        em = self.em.function("finish", ["ptr %images", "i64 %lo", "i64 %hi", *epilogue.parameters()])
        inner = epilogue.inside(em)
        image, width = self.image, self.plan.width

        @em.each("%lo", "%hi")
        def channel(c: Index) -> None:
            start = em.mul(c, image.size)

            def row(offset: Index, first: Index) -> None:
                last, there = image.axes[-1], em.add(start, offset)

                @each_tile(em, last.size, width)
                def part(w: Index, valid: int) -> None:
                    x = together(em, image, em.gep("%images", there, self.element), em.add(w, last.pad), valid,
                                 self.element, width)
                    inner.store(x, c, em.add(first, w), width, valid)
            each_row(em, image, row)
        return em


def _first_lanes(em: Emitter, width: int, count: str) -> str:
    """A mask of as many lanes as a number known at run time."""
    short = em.value(f"trunc i64 {count} to i32")
    lanes = ", ".join(f"i32 {i}" for i in range(width))
    return em.value(f"icmp ult {vector('i32', width)} <{lanes}>, {em.broadcast('i32', width, short)}")
