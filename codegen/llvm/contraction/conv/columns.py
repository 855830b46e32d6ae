"""Gradients of inputs (transposed convolutions) without multiplying padding: products, then sums of windows.

Filters times the gradient of y gives, for each channel and tap, a row of numbers that belong to x; they are added up in
staged images, where the numbers of neighbouring windows are neighbours for any stride. Then the planes of the images
are interleaved, with the epilogue.
"""
from __future__ import annotations

from math import prod
from typing import NamedTuple

from kusari.ir.costs import ADD_CYCLES, COPY_CYCLES

from ....contractions import ConvSpec
from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.tiles import each_tile
from ..cycles import MOST_TILE_ROWS, MOST_TILE_VECTORS, step_cycles, tile_heights
from ..epilogue import Epilogue
from ..tile import Factors
from .geometry import panels_of, whole_image
from .stage import PIECE_WORDS, Pieces, each_row, together
from .writer import ConvWriter


class ColumnShape(NamedTuple):
    """Tiles are ``rows`` (of channels and all axes of taps but the last) x ``vectors``.

    A panel holds positions of ``samples`` samples; filters that ``pack`` are copied for each tile.
    """

    rows: int
    vectors: int
    samples: int
    pack: bool
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
    # Those of a tile are apart by all filters of a feature: many pages, and lines of which a tap takes a few elements.
    filters = spec.features * spec.channels * spec.taps
    pack = 2 * filters * size > target.l2_bytes
    found: list[ColumnShape] = []
    for vectors, heights in tile_heights(target, MOST_TILE_VECTORS, min(MOST_TILE_ROWS, rows)):
        samples, blocks, panels = panels_of(spec.n, spec.positions, vectors * width, width)
        for height in heights:
            tiles = -(-rows // height) * last
            cost = add * rows * last * runs * samples * blocks
            for number, v in panels:
                cost += tiles * number * (step_cycles(height, v) * spec.features + height * v)
                cost += number * COPY_CYCLES * filters / width if pack else 0
            # Panels are copied; images are cleared, and read again for the epilogue.
            cost += COPY_CYCLES * copied + 3.0 * spec.n * spec.channels * prod(spec.size) / width
            cost *= spec.groups * (1 + 0.01 * (len(panels) - 1))
            found.append(ColumnShape(height, vectors, samples, pack, cost))
    return min(found, key=lambda shape: shape.cycles)


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

    Threads share the samples or, if those are few, the channels; an element of x is summed by one of them, a tap along
    the last axis after the other: between them is a product, so that the processor need not wait for a recent store.
    Invariant: the scratch of a thread holds staged images of a block of samples, a panel of the gradient, its pieces, a
    tile, and the filters of one.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: ColumnShape) -> None:
        super().__init__(em, spec, shape)
        self.piece = piece_width(spec, self.width)
        # Pieces of neighbouring rows do not overlap, masked lanes included: a load would wait for a recent store.
        self.image, self.offsets = whole_image(spec.windows, -(-spec.out[-1] // self.piece) * self.piece)
        self.columns = shape.vectors * self.width
        self.last = spec.kernel[-1]
        self.outer = spec.taps // self.last
        self.rows = spec.channels * self.outer
        self.sample = spec.channels * self.image.size
        self.finish: Emitter | None = None

    def write(self) -> int:
        em, spec, shape = self.em, self.spec, self.plan
        self.read_slots()
        self.own, self.panel, self.table, self.buffer, self.packed = self.scratch(
            shape.samples * self.sample + 2 * self.width, spec.features * self.columns + self.width,
            (2 * self.columns + 2) * 8 * PIECE_WORDS // self.size, shape.rows * self.columns + self.width,
            spec.features * shape.rows * self.last * shape.pack)
        self.pieces = Pieces(em, self.image, self.sample, f"{self.table}", self.piece)
        self.add = self._add_function(em.table("i64", self.offsets))
        tasks = -(-spec.n // shape.samples) * spec.groups
        if tasks < 4 and spec.channels > 1:
            lo, hi = em.chunk(spec.channels)
            with em.only(em.compare("slt", lo, hi)):
                self._images((0, tasks), lo, hi)
        else:
            self._images(em.chunk(tasks), 0, spec.channels)
        return self.scratch_bytes

    def _images(self, tasks: tuple[Index, Index], lo: Index, hi: Index) -> None:
        """The channels ``lo`` to ``hi`` of all images that are this thread's."""
        em, spec, shape = self.em, self.spec, self.plan
        for i in em.each(*tasks):
            block, group = em.divmod(i, spec.groups)
            first = em.min(block * shape.samples, spec.n - shape.samples)
            for s in em.each(0, shape.samples):
                self.own.at(s * self.sample + lo * self.image.size).clear((hi - lo) * self.image.size)
            filters = self.filters(group)
            most = shape.samples * spec.positions if shape.samples > 1 else self.columns
            for column, breadth in each_tile(em, shape.samples * spec.positions, most):
                self._panel(first, group, column, breadth, filters, lo, hi)
            self._results(first, group, lo, hi)

    # Products

    def _panel(self, first: Index, group: Index, column: Index, breadth: int, filters: Array, lo: Index,
               hi: Index) -> None:
        em, spec, rows, tile = self.em, self.spec, self.plan.rows, self.tile
        count = self.pieces.find(spec.out, column, breadth)
        self._copy(first, group, column, breadth)
        vectors = -(-breadth // self.width)
        start, end = lo * self.outer, hi * self.outer
        for row in em.each(start, end, rows):
            # The last tile begins earlier and leaves out the rows that are done, or another thread's.
            at = em.min(row, self.rows - rows)
            own, step = filters.at(at * self.last), spec.channels * spec.taps
            if self.plan.pack:
                own, step = self._pack(own), rows * self.last
            for tap in em.each(0, self.last):
                elements = Factors(own.at(tap), step, [i * self.last for i in range(rows)], True)
                columns = Factors(self.panel, self.columns, tile.neighbours(vectors))
                tile.multiply(elements, columns, spec.features, self.buffer, self.columns, False)
                until = em.min(at + rows, end)
                em.call(self.add, self.buffer, self.own, self.table, count, tap, at, row, until)

    def _pack(self, filters: Array) -> Array:
        """Copy the filters of the rows of a tile, those of one feature behind those of the other."""
        em, count = self.em, self.plan.rows * self.last
        for o in em.each(0, self.spec.features):
            here, there = filters.at(o * (self.spec.channels * self.spec.taps)), self.packed.at(o * count)
            for j in range(0, count, self.width):
                there.store(here.load(j, count - j), j, count - j)
        return self.packed

    def _copy(self, first: Index, group: Index, column: Index, breadth: int) -> None:
        """The panel: ``breadth`` columns of the gradients of all features."""
        em, spec = self.em, self.spec
        each = breadth // self.plan.samples
        for s in em.each(0, self.plan.samples):
            feature = (first + s) * spec.k + group * spec.features
            source = self.array(self.slots[0]).at(feature * spec.positions + column)
            target = self.panel.at(s * each)
            for o in em.each(0, spec.features):
                here, there = source.at(o * spec.positions), target.at(o * self.columns)
                for j in range(0, each, self.width):
                    there.store(here.load(j, each - j), j, each - j)

    def _add_function(self, taps: str) -> Emitter:
        """``add(tile, images, pieces, count, tap, first, from, until)``: add the rows of a tile to the images.

        The tile's first row is row ``first`` of all channels and taps along the axes before the last, whose tap is
        ``tap``; the rows from ``from`` until ``until`` are added.
        """
        width, element = self.piece, self.element
        em = self.em.function("add", ["ptr %tile", "ptr %images", "ptr %pieces", "i64 %count", "i64 %tap",
                                      "i64 %first", "i64 %from", "i64 %until"])
        tile, images = (Array(em, element, width, p) for p in ("%tile", "%images"))
        count, tap, first, start, until = em.numbers
        for r in em.each(start, until):
            channel, outer = em.divmod(r, self.outer)
            offset = em.entry(taps, outer * self.last + tap)
            base = images.at(channel * self.image.size + offset)
            line = tile.at((r - first) * self.columns)
            for offset, column, length in em.rows("%pieces", count, PIECE_WORDS):
                place, x = base.at(offset), line.load(column)
                if self.spec.out[-1] % width == 0:  # then so are the ends of panels
                    place.store(em.binary("fadd", element, width, x, place.load()))
                    continue
                mask = em.first_lanes(width, length)
                y = em.load_lanes(element, width, place.pointer, mask)
                em.store_lanes(element, width, em.binary("fadd", element, width, x, y), place.pointer, mask)
        return em

    # Results

    def _results(self, first: Index, group: Index, lo: Index, hi: Index) -> None:
        """The epilogue of the channels ``lo`` to ``hi`` of each sample."""
        em = self.em
        for s in em.each(0, self.plan.samples):
            epilogue = self.epilogue(first + s, group)
            if self.finish is None:
                self.finish = self._finish_function(epilogue)
            em.call(self.finish, self.own.at(s * self.sample), lo, hi, *epilogue.arguments)

    def _finish_function(self, epilogue: Epilogue) -> Emitter:
        """``finish(images, lo, hi, …)``: interleave planes, apply the epilogue, and store the outputs."""
        em, inner = epilogue.function("finish", ["ptr %images", "i64 %lo", "i64 %hi"])
        image, last = self.image, self.image.axes[-1]
        lo, hi = em.numbers
        for c in em.each(lo, hi):
            start = c * image.size
            for offset, first in each_row(em, image):
                line, near = self.array("%images", em).at(start + offset), inner.at(c, first)
                for w, valid in each_tile(em, last.size, self.width):
                    near.store(together(image, line, w, valid), 0, w, self.width, valid)
        return em
