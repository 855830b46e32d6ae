"""Convolutions as products of the filters with panels gathered from staged images; also gradients of inputs.

A panel has some positions as columns; its rows are all elements of their windows. Panels take the part of B in products
of matrices: they are gathered once and all filters pass over them (``gemm.outer`` has the same tiles). Small images
share panels. In gradients windows are not strided.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from kusari.ir.costs import GATHER_CYCLES, PAGE_BYTES, READ_CYCLES

from ....contractions import ConvSpec
from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.tiles import Tiles, count_tiles, even_tiles, full_tiles, lanes_in, tiles_in
from ..cycles import MOST_TILE_ROWS, MOST_TILE_VECTORS, step_cycles, tile_heights
from ..epilogue import Finisher
from ..tile import Factors
from ..writer import LINE_BYTES, whole_lines
from .geometry import gathering, panels_of
from .padding_nan import guarded, meets_padding
from .stage import PIECE_WORDS, Pieces, pack_function, stage_cycles, stage_function
from .writer import ConvWriter


class PanelShape(NamedTuple):
    """Tiles are at most ``rows`` x ``vectors``; a panel holds positions of ``samples`` samples, ``block`` channels of
    them at a time."""

    rows: int
    vectors: int
    samples: int
    block: int
    cycles: float


def choose(spec: ConvSpec, target: Target) -> PanelShape:
    """Return the tile of the fewest cycles by count: those of register tiles, as for products.

    To those come the pieces that panels are gathered from, and filters that are too large for the cache and are read
    again for every panel.
    """
    g = gathering(spec)
    size = spec.dtype.itemsize
    width = target.lanes(size)
    filters = g.rows * g.row_step * size if spec.direction == "forward" else g.depth * g.channel_step * size
    conflict = g.row_step * size % PAGE_BYTES == 0
    once = spec.n * stage_cycles(g.image, g.depth * spec.groups, width)
    if meets_padding(spec):  # filters are looked at first
        once += READ_CYCLES * spec.groups * filters / LINE_BYTES
    found: list[PanelShape] = []
    depth = g.depth * len(g.taps)
    runs = prod(g.size[:-1])
    for vectors, heights in tile_heights(target, MOST_TILE_VECTORS, 8 if conflict else MOST_TILE_ROWS):
        samples, blocks, panels = panels_of(spec.n, g.positions, vectors * width, width)
        gather = GATHER_CYCLES * -(-g.size[-1] // width) * runs * samples * blocks * depth
        count = sum(c for c, _ in panels)
        for largest in heights:
            tiles = even_tiles(g.rows, largest)
            cost = 0.0
            for r, (number, v) in itertools.product(tiles, panels):
                cost += r.count * number * step_cycles(r.size, v, 1 / 8) * depth
            kinds = len(tiles) * len({v for _, v in panels})
            cost = cost * (1 + 0.01 * (kinds - 1)) + gather
            cost += count * 60
            if filters > target.l2_bytes // 2:
                cost += count * filters / 64
            cost = cost * spec.groups + once
            found.append(PanelShape(tiles[0].size, vectors, samples, 0, cost))
    best = min(found, key=lambda shape: shape.cycles)
    room = max(target.l2_bytes // 2 // ((best.vectors + 1) * width * size * len(g.taps)), 8)
    blocks = -(-g.depth // room)
    return best._replace(block=-(-g.depth // blocks))


class Panels(ConvWriter[PanelShape]):
    """Writes a convolution or the gradient of its input.

    Invariant: the scratch of a thread holds the staged images of a block of samples, a panel, the pieces it is made
    of, and sums: of a tile that several samples share, or over earlier blocks of channels.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: PanelShape) -> None:
        super().__init__(em, spec, shape)
        self.g = g = gathering(spec)
        self.columns = shape.vectors * self.width
        self.line = self.columns + self.width   # a piece may be longer than the rest of its panel
        self.merged = shape.samples > 1
        self.blocks = -(-spec.n // shape.samples)
        self.chunks = -(-g.depth // shape.block)
        self.row_tiles = even_tiles(g.rows, shape.rows)
        self.sample = g.depth * g.image.size     # elements of the staged image of one sample
        # Stores of whole vectors overlap and lie in two cache lines where rows are shorter; but they fill the last
        # vector of a panel, whose lanes must hold numbers of images: other contents could be slow to multiply.
        full = shape.samples * g.positions % self.width == 0
        self.piece = min(self.width, 1 << (g.size[-1] - 1).bit_length()) if full else self.width

    def write(self) -> int:
        em, shape, g, width = self.em, self.plan, self.g, self.width
        staged = shape.samples * self.sample + width
        sums = g.rows if self.chunks > 1 else shape.rows * self.merged
        self.read_slots()
        self.own, self.panel, self.table, self.sums = self.scratch(
            staged, shape.block * len(g.taps) * self.line + width,
            (2 * self.columns + 2) * 8 * PIECE_WORDS // self.size, sums * self.columns + width * self.merged)
        self.stage = stage_function(em, g.image, g.depth, self.element, width)
        self.pack = pack_function(em, g.image, g.taps, self.line, self.element, self.piece)
        self.finisher = Finisher(em, self.results, width, self.columns, shape.rows)
        self.pieces = Pieces(em, g.image, self.sample, f"{self.table}", self.piece)
        self.own.clear(whole_lines(staged, self.size))
        guarded(self, self._tasks)
        return self.scratch_bytes

    # Work of one thread

    def _tasks(self) -> None:
        """Threads share the panels of all images or, if those are few, the filters."""
        em, spec, g = self.em, self.spec, self.g
        images = self.blocks * spec.groups
        end, many = self.plan.samples * g.positions, count_tiles(self.row_tiles)
        positions = full_tiles(end, self.columns)
        panels = count_tiles(positions)
        again = self._may_begin_earlier(positions)
        if again:
            positions = [Tiles(0, panels, 0, self.columns)]
        rows: tuple[Index, Index] | None = None
        tasks: tuple[Index, Index] = (0, images * panels)
        if images * panels < 8 and many > images * panels:
            rows = em.chunk(many)
        else:
            tasks = em.chunk(images * panels)
        for i in em.each(tasks[0] // panels, (tasks[1] + (panels - 1)) // panels):
            block, group = em.divmod(i, spec.groups)
            first = em.min(block * self.plan.samples, spec.n - self.plan.samples)
            self._stage(first, group)
            filters, start = self.filters(group), i * panels
            part = None if tasks == (0, 1) else (em.max(tasks[0] - start, 0), em.min(tasks[1] - start, panels))
            for column, breadth in tiles_in(em, positions, part):
                column = em.min(column, end - breadth) if again else column
                count, valid = self.pieces.find(g.size, column, breadth), lanes_in(breadth, self.width)
                for row, size, sums in self._sums(filters, count, len(valid), rows):
                    self._finish(first, group, row, size, column, valid, sums)

    def _may_begin_earlier(self, positions: Sequence[Tiles]) -> bool:
        """Whether the last panel is one like the others that computes some results again, and takes no longer.

        Not where an operand has an element for each result, whose place that may have taken.
        """
        again = len(positions) > 1 and len(lanes_in(positions[-1].size, self.width)) == self.plan.vectors
        return again and not any(o.row and o.column for o in self.results.operands)

    def _stage(self, first: Index, group: Index) -> None:
        em, image = self.em, self.g.image
        channels = self.g.depth * self.groups
        for s in em.each(0, self.plan.samples):
            channel = (first + s) * channels + group * self.g.depth
            source = self.array(self.slots[0]).at(channel * image.source)
            em.call(self.stage, source, self.own.at(s * self.sample))

    def _sums(self, filters: Array, count: Index, vectors: int,
              rows: tuple[Index, Index] | None) -> Iterator[tuple[Index, int, list[str] | Array]]:
        """Gather a panel of ``count`` pieces and multiply: first row, number of rows, sums in registers or in memory.

        Of many channels some are gathered at a time, whose sums are added up in memory.
        """
        em, g, tile, split = self.em, self.g, self.tile, self.chunks > 1
        if split:
            self.sums.clear(g.rows * self.columns)
        for c in em.each(0, self.chunks):
            channel = c * self.plan.block
            depth = em.min(g.depth - channel, self.plan.block)
            em.call(self.pack, self.own.at(channel * g.image.size), self.panel, self.table, count, depth)
            for row, size in tiles_in(em, self.row_tiles, rows):
                place = self.sums.at(row * (self.columns * split))
                initial = tile.load(place, self.columns, size, vectors) if split else tile.zeros(size, vectors)
                sums = self._multiply(filters, row, size, channel, depth, initial)
                if split or self.merged:
                    tile.store(sums, place, self.columns, vectors)
                if not split:
                    yield row, size, place if self.merged else sums
        for row, size in tiles_in(em, self.row_tiles, rows) if split else ():
            yield row, size, self.sums.at(row * self.columns)

    def _multiply(self, filters: Array, row: Index, rows: int, channel: Index, depth: Index,
                  initial: Sequence[str]) -> list[str]:
        """The innermost loops: along channels, and along taps if those are not neighbours of channels in memory."""
        em, g, tile = self.em, self.g, self.tile
        a, taps = filters.at(row * g.row_step + channel * g.channel_step), len(g.taps)

        def factors(a: Array, b: Array, step: int) -> tuple[Factors, Factors]:
            return (Factors(a, step, [i * g.row_step for i in range(rows)], True),
                    Factors(b, self.line, tile.neighbours(len(initial) // rows)))
        if taps in (1, g.channel_step):
            step = 1 if g.channel_step == taps else g.channel_step
            return tile.product(*factors(a, self.panel, step), depth * taps, initial)

        sums = tile.carried(initial)
        for c in em.each(0, depth, carried=sums):
            place, b = a.at(c * g.channel_step), self.panel.at(c * taps * self.line)
            for t in em.each(0, taps, carried=sums):
                sums.values = tile.add_step(*factors(place.at(t), b, 0), t, sums.values)
        return sums.values

    # Use of tiles

    def _finish(self, first: Index, group: Index, row: Index, rows: int, column: Index, valid: Sequence[int],
                sums: list[str] | Array) -> None:
        em = self.em
        if not isinstance(sums, Array):
            self.finisher.finish(self.epilogue(first, group), sums, row, rows, column, valid)
            return
        if not self.merged:
            self.finisher.stored(self.epilogue(first, group), sums, row, rows, column, sum(valid))
            return
        for s in em.each(0, self.plan.samples):
            place = sums.at(s * self.g.positions)
            self.finisher.stored(self.epilogue(first + s, group), place, row, rows, 0, self.g.positions)
