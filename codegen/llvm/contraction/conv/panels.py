"""Convolutions, and gradients of their inputs, as products of the filters with panels gathered from staged images.

A panel has some positions as columns; its rows are all elements of their windows. Panels take the part of B in products
of matrices: they are gathered once and all filters pass over them (``gemm.outer`` has the same tiles). Small images
share panels. With strides, a gradient has a part for every remainder (``geometry``); its results are scattered.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from kusari.ir import Arg
from kusari.ir.costs import GATHER_CYCLES, PAGE_BYTES, READ_CYCLES

from ....contractions import ConvSpec
from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.tiles import count_tiles, even_tiles, full_tiles, lanes_in, tiles_in
from ..cycles import MOST_TILE_ROWS, MOST_TILE_VECTORS, step_cycles, tile_heights
from ..epilogue import Finisher, is_heavy
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
    depth = sum(len(p.taps) for p in g.parts) / len(g.parts) * g.depth
    positions = max(prod(p.extents) for p in g.parts)
    for vectors, heights in tile_heights(target, MOST_TILE_VECTORS, 8 if conflict else MOST_TILE_ROWS):
        samples, blocks, panels = panels_of(spec.n, positions, vectors * width, width)
        runs = sum(-(-p.extents[-1] // width) * prod(p.extents[:-1]) for p in g.parts) / len(g.parts)
        gather = GATHER_CYCLES * runs * samples * blocks * depth
        count = sum(c for c, _ in panels)
        for largest in heights:
            tiles = even_tiles(g.rows, largest)
            cost = 0.0
            for r, (number, v) in itertools.product(tiles, panels):
                cost += r.count * number * step_cycles(r.size, v, 1 / 8) * depth
            cost = cost * (1 + 0.01 * (len(tiles) * len(panels) - 1)) + gather
            if len(g.parts) > 1:
                cost += spec.n * (g.rows * positions * 3 + positions * 12)   # results are scattered
            cost += count * 60
            if filters > target.l2_bytes // 2:
                cost += count * filters / 64
            cost = cost * len(g.parts) * spec.groups + once
            found.append(PanelShape(tiles[0].size, vectors, samples, 0, cost))
    best = min(found, key=lambda shape: shape.cycles)
    taps = max(len(p.taps) for p in g.parts)
    room = max(target.l2_bytes // 2 // ((best.vectors + 1) * width * size * max(taps, 1)), 8)
    blocks = -(-g.depth // room)
    return best._replace(block=-(-g.depth // blocks))


class _Panel(NamedTuple):
    """One panel: so many ``pieces`` as columns, of which ``valid`` in each vector count, and the filters it meets.

    Its rows are ``taps`` taps of each channel, in a ``table`` of pairs; without one filters hold them one after the
    other.
    """

    filters: Array
    pieces: Index
    valid: Sequence[int]
    taps: Index
    table: str | None = None


class Panels(ConvWriter[PanelShape]):
    """Writes a convolution or the gradient of its input.

    Invariant: the scratch of a thread holds the staged images of a block of samples, a panel, the pieces it is made
    of, sums over earlier blocks of channels, and for gradients in parts the results before their epilogue.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: PanelShape) -> None:
        super().__init__(em, spec, shape)
        self.g = g = gathering(spec)
        self.columns = shape.vectors * self.width
        self.line = self.columns + self.width   # a piece may be longer than the rest of its panel
        self.scattered = any(n != 1 for part in g.parts for n in part.step)
        self.merged = shape.samples > 1
        self.blocks = -(-spec.n // shape.samples)
        self.chunks = -(-g.depth // shape.block)
        self.row_tiles = even_tiles(g.rows, shape.rows)
        self.plain = spec.exprs == (Arg(0),)
        self.heavy = self.merged or self.scattered or self.chunks > 1 or is_heavy(spec.exprs)
        self.sample = g.depth * g.image.size     # elements of the staged image of one sample
        self.taps = max(len(p.taps) for p in g.parts)
        # Stores of whole vectors overlap and lie in two cache lines where rows are shorter; but they fill the last
        # vector of a panel, whose lanes must hold numbers of images: other contents could be slow to multiply.
        full = all(shape.samples * prod(p.extents) % self.width == 0 for p in g.parts)
        longest = max(p.extents[-1] for p in g.parts)
        self.piece = min(self.width, 1 << (longest - 1).bit_length()) if full else self.width

    def write(self) -> int:
        em, shape, g, width = self.em, self.plan, self.g, self.width
        staged = shape.samples * self.sample + width
        self.read_slots()
        self.own, self.panel, self.table, self.sums, self.places, self.stored = self.scratch(
            staged, shape.block * self.taps * self.line + width,
            (2 * self.columns + 2) * 8 * PIECE_WORDS // self.size, g.rows * self.columns * (self.chunks > 1),
            self.columns * 8 // self.size * self.scattered,
            g.rows * g.positions * shape.samples * (self.scattered and not self.plain))
        if self.heavy and self.chunks == 1:
            tile = em.value(f"alloca [{shape.rows * self.columns} x {self.element}], align 64", "tile")
            self.tile_buffer = self.array(tile)
        taps = None if self.scattered else g.parts[0].taps
        self.stage = stage_function(em, g.image, g.depth, self.element, width)
        self.pack = pack_function(em, g.image, taps, self.line, self.element, self.piece)
        self.finisher = Finisher(em, self.results, width, g.positions if self.scattered else self.columns)
        self.pieces = Pieces(em, g.image, self.sample, f"{self.table}", self.piece)
        self.own.clear(whole_lines(staged, self.size))
        guarded(self, self._tasks)
        return self.scratch_bytes

    # Work of one thread

    def _tasks(self) -> None:
        """Threads share the panels of all images or, if those are few, the filters."""
        em, spec, g = self.em, self.spec, self.g
        images = self.blocks * spec.groups
        positions = self.plan.samples * prod(g.parts[0].extents)
        panels = 1 if self.scattered else count_tiles(full_tiles(positions, self.columns))
        many = count_tiles(self.row_tiles)
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
            start = i * panels
            lo, hi = em.max(tasks[0] - start, 0), em.min(tasks[1] - start, panels)
            if self.scattered:
                self._parts(first, group, rows)
            else:
                self._whole(first, group, (lo, hi), rows)

    def _stage(self, first: Index, group: Index) -> None:
        em, image = self.em, self.g.image
        channels = self.g.depth * self.groups
        for s in em.each(0, self.plan.samples):
            channel = (first + s) * channels + group * self.g.depth
            source = self.array(self.slots[0]).at(channel * image.source)
            em.call(self.stage, source, self.own.at(s * self.sample))

    # Results in order

    def _whole(self, first: Index, group: Index, tasks: tuple[Index, Index], rows: tuple[Index, Index] | None) -> None:
        """All panels of one image, whose columns are positions in order."""
        g = self.g
        part = g.parts[0]
        filters = self.filters(group)
        panels = full_tiles(self.plan.samples * g.positions, self.columns)
        for column, breadth in tiles_in(self.em, panels, None if tasks == (0, 1) else tasks):
            count = self.pieces.find(part.extents, column, breadth)
            panel = _Panel(filters, count, lanes_in(breadth, self.width), len(part.taps))
            for row, size, sums in self._sums(panel, rows):
                self._finish(first, group, row, size, column, panel.valid, sums)

    def _sums(self, panel: _Panel, rows: tuple[Index, Index] | None) -> Iterator[tuple[Index, int, list[str] | Array]]:
        """Gather the panel and multiply: first row and number of rows of tiles in registers, or of stored ones."""
        if self.chunks > 1:
            yield from self._sums_by_channels(panel, rows)
            return
        self._pack(panel, 0, self.g.depth)
        for row, size in tiles_in(self.em, self.row_tiles, rows):
            sums = self._multiply(panel, row, size, 0, self.g.depth, self.tile.zeros(size, len(panel.valid)))
            if self.heavy:
                self.tile.store(sums, self.tile_buffer, self.columns, len(panel.valid))
            yield row, size, self.tile_buffer if self.heavy else sums

    def _sums_by_channels(self, panel: _Panel,
                          rows: tuple[Index, Index] | None) -> Iterator[tuple[Index, int, list[str] | Array]]:
        """The same for some channels at a time, whose sums are added up in memory."""
        em, vectors = self.em, len(panel.valid)
        self.sums.clear(self.g.rows * self.columns)
        for c in em.each(0, self.chunks):
            channel = c * self.plan.block
            depth = em.min(self.g.depth - channel, self.plan.block)
            self._pack(panel, channel, depth)
            for row, size in tiles_in(em, self.row_tiles, rows):
                place = self.sums.at(row * self.columns)
                initial = self.tile.load(place, self.columns, size, vectors)
                sums = self._multiply(panel, row, size, channel, depth, initial)
                self.tile.store(sums, place, self.columns, vectors)
        for row, size in tiles_in(em, self.row_tiles, rows):
            yield row, size, self.sums.at(row * self.columns)

    def _pack(self, panel: _Panel, channel: Index, depth: Index) -> None:
        source = self.own.at(channel * self.g.image.size)
        self.em.call(self.pack, source, self.panel, self.table, panel.pieces, depth, panel.table or "null", panel.taps)

    def _multiply(self, panel: _Panel, row: Index, rows: int, channel: Index, depth: Index,
                  initial: Sequence[str]) -> list[str]:
        """The innermost loops: along channels, and along taps if those are not neighbours of channels in memory."""
        em, g, tile = self.em, self.g, self.tile
        a = panel.filters.at(row * g.row_step + channel * g.channel_step)
        taps, table = panel.taps, panel.table

        def factors(a: Array, b: Array, step: int) -> tuple[Factors, Factors]:
            return (Factors(a, step, [i * g.row_step for i in range(rows)], True),
                    Factors(b, self.line, tile.neighbours(len(panel.valid))))
        if table is None and taps in (1, g.channel_step):
            step = 1 if g.channel_step == taps else g.channel_step
            return tile.product(*factors(a, self.panel, step), depth * taps, initial)

        sums = tile.carried(initial)
        for c in em.each(0, depth, carried=sums):
            place, b = a.at(c * g.channel_step), self.panel.at(c * taps * self.line)
            for t in em.each(0, taps, carried=sums):
                at = em.entry(table, t * 2) if table else t
                sums.values = tile.add_step(*factors(place.at(at), b, 0), t, sums.values)
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

    # Results in parts

    def _parts(self, first: Index, group: Index, rows: tuple[Index, Index] | None) -> None:
        """All parts of one image; then the epilogue, unless results went straight to the output."""
        em, g = self.em, self.g
        filters = self.filters(group)
        plane = g.rows * g.positions
        target, sample = self.stored, plane
        if self.plain:
            at = (first * self.groups + group) * plane
            target, sample = self.array(self.slots[2]).at(at), plane * self.groups
        if not all(part.taps for part in g.parts):
            for s in em.each(0, self.plan.samples):
                base = target.at(s * sample)
                for row, size in tiles_in(em, self.row_tiles, rows):
                    base.at(row * g.positions).clear(size * g.positions)
        self._each_part(filters, target, sample, rows)
        if self.plain:
            return
        for s in em.each(0, self.plan.samples):
            place = self.stored.at(s * plane)
            epilogue = self.epilogue(first + s, group)
            for row, size in tiles_in(em, self.row_tiles, rows):
                self.finisher.stored(epilogue, place.at(row * g.positions), row, size, 0, g.positions)

    def _each_part(self, filters: Array, target: Array, sample: int, rows: tuple[Index, Index] | None) -> None:
        """A loop over the parts that have taps; a table describes them: extents, first elements, taps."""
        em, rank = self.em, len(self.g.size)
        taps: list[int] = []
        entries: list[int] = []
        parts = [part for part in self.g.parts if part.taps]
        for part in parts:
            entries += [*part.extents, *part.first, len(part.taps), len(taps)]
            taps += [v for pair in part.taps for v in pair]
        table, all_taps = em.table("i64", entries), em.table("i64", taps)
        for i in em.each(0, len(parts)):
            found = [em.entry(table, i * (2 * rank + 2) + k) for k in range(2 * rank + 2)]
            panel = _Panel(filters, 0, [self.width] * self.plan.vectors, found[-2], em.gep(all_taps, found[-1], "i64"))
            self._part(found[:rank], found[rank:2 * rank], panel, target, sample, rows)

    def _part(self, extents: Sequence[Index], firsts: Sequence[Index], panel: _Panel, target: Array, sample: int,
              rows: tuple[Index, Index] | None) -> None:
        """The panels of one part; ``panel`` has their filters and taps."""
        em = self.em
        total: Index = self.plan.samples
        for n in extents:
            total = total * n
        for p in em.each(0, (total + (self.columns - 1)) // self.columns):
            column = p * self.columns
            count = em.min(total - column, self.columns)
            pieces = self.pieces.find(extents, column, count)
            self._find_places(extents, firsts, column, count, sample)
            for row, size, sums in self._sums(panel._replace(pieces=pieces), rows):
                assert isinstance(sums, Array)
                self._scatter(sums, target.at(row * self.g.positions), size, count)

    def _find_places(self, extents: Sequence[Index], firsts: Sequence[Index], column: Index, count: Index,
                     sample: int) -> None:
        """Note the elements of the output that ``count`` columns of a part are, from ``column`` on."""
        em, size = self.em, self.g.size
        axes = list(zip(extents, firsts, self.spec.stride, [prod(size[i + 1:]) for i in range(len(size))], strict=True))
        for j in em.each(0, count):
            at: Index = 0
            rest = column + j
            for extent, first, step, between in reversed(axes):
                rest, q = em.divmod(rest, extent)
                at = at + (q * step + first) * between
            at = at + rest * sample
            em.store("i64", 1, f"{at}", em.gep(f"{self.places}", j, "i64"))

    def _scatter(self, sums: Array, base: Array, size: int, count: Index) -> None:
        """Write a tile of ``count`` columns to its places, row by row.

        Rows of the output are often at distances that share the sets of a cache.
        """
        em = self.em
        for i in em.each(0, size):
            here, there = sums.at(i * self.columns), base.at(i * self.g.positions)
            for j in em.each(0, count):
                there.put(here.one(j), em.entry(f"{self.places}", j))
