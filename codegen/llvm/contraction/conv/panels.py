"""Convolutions, and gradients of their inputs, as products of the filters with panels gathered from staged images.

A panel has some positions as columns; its rows are all elements of their windows. Panels take the part of B in products
of matrices: they are gathered once and all filters pass over them (``gemm.outer`` has the same tiles). Small images
share panels. With strides, a gradient has a part for every remainder (``geometry``); its results are scattered.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from kusari.ir import Arg

from ...text.emitter import Emitter, Index
from ...text.tiles import count_tiles, even_tiles, for_tiles, full_tiles
from ..epilogue import Finisher, is_heavy
from ..stage import whole_lines
from ..tile import Factors
from .geometry import gathering
from .padding_nan import FixUp, any_nan, meets_padding
from .panel_shape import PanelShape
from .spec import ConvSpec
from .stage import MOST_UNROLLED_TAPS, PIECE_WORDS, Pieces, pack_function, stage_function
from .writer import ConvWriter


@dataclass(frozen=True)
class _Taps:
    """The taps of a part: how many, and a table of pairs; no table if filters hold them one after the other."""

    number: Index
    table: str | None


class Panels(ConvWriter[PanelShape]):
    """Writes a convolution or the gradient of its input.

    Invariant: the scratch of a thread holds the staged images of a block of samples, a panel, the pieces it is made
    of, sums over earlier blocks of channels, and for gradients in parts the results before their epilogue.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: PanelShape) -> None:
        super().__init__(em, spec, shape, shape.width)
        self.g = g = gathering(spec)
        self.columns = shape.vectors * shape.width
        self.line = self.columns + shape.width   # a piece may be longer than the rest of its panel
        self.scattered = any(n != 1 for part in g.parts for n in part.step)
        self.merged = shape.samples > 1
        self.blocks = -(-spec.n // shape.samples)
        self.chunks = -(-g.depth // shape.block)
        self.row_tiles = even_tiles(g.rows, shape.rows)
        self.plain = is_copy(spec)
        self.heavy = self.merged or self.scattered or self.chunks > 1 or is_heavy(spec.exprs)
        self.sample = g.depth * g.image.size     # elements of the staged image of one sample
        self.taps = max(len(p.taps) for p in g.parts)
        # Stores of whole vectors overlap and lie in two cache lines where rows are shorter; but they fill the last
        # vector of a panel, whose lanes must hold numbers of images: other contents could be slow to multiply.
        full = all(shape.samples * prod(p.extents) % shape.width == 0 for p in g.parts)
        longest = max(p.extents[-1] for p in g.parts)
        self.piece = min(shape.width, 1 << (longest - 1).bit_length()) if full else shape.width

    def write(self) -> int:
        em, work, shape, g = self.em, self.work, self.plan, self.g
        staged = shape.samples * self.sample + shape.width
        self.own, self.panel, self.table, self.sums, self.places, self.results = self.scratch(
            staged, shape.block * self.taps * self.line + shape.width,
            (2 * self.columns + 2) * 8 * PIECE_WORDS // self.size, g.rows * self.columns * (self.chunks > 1),
            self.columns * 8 // self.size * self.scattered,
            g.rows * g.positions * shape.samples * (self.scattered and not self.plain))
        self.fix_up = None
        if self.spec.direction == "input" and meets_padding(self.g):
            self.fix_up = FixUp(em, self.g, self.element, self.columns)
        if (self.heavy or self.fix_up) and self.chunks == 1:
            self.tile_buffer = em.value(f"alloca [{shape.rows * self.columns} x {self.element}], align 64", "tile")
        single = [t for _, t in self.g.parts[0].taps] if not self.scattered else None
        self.stage = stage_function(em, self.g.image, self.g.depth, self.element, shape.width)
        self.pack = pack_function(em, self.g.image, single, self.line, self.element, self.piece)
        taps = self.g.parts[0].taps
        if not self.scattered and len(taps) > MOST_UNROLLED_TAPS:
            self.tap_table = em.table("i64", [v for pair in taps for v in pair])
        self.finisher = Finisher(em, work, shape.width, self.g.positions if self.scattered else self.columns)
        self.pieces = Pieces(em, self.g.image, self.sample, self.table, self.piece)
        self.clear(self.own, whole_lines(staged, self.size))
        self._tasks()
        return self.scratch_bytes

    # Work of one thread

    def _tasks(self) -> None:
        """Threads share the panels of all images or, if those are few, the filters."""
        em, spec, g = self.em, self.spec, self.g
        images = self.blocks * spec.groups
        positions = self.plan.samples * prod(g.parts[0].extents)
        panels = 1 if self.scattered else count_tiles(full_tiles(positions, self.columns))
        many = count_tiles(self.row_tiles)
        if images * panels < 8 and many > images * panels:
            rows = em.chunk(many)
            tasks: tuple[Index, Index] = (0, images * panels)
        else:
            rows = None
            tasks = em.chunk(images * panels)

        @em.each(em.div(tasks[0], panels), em.div(em.add(tasks[1], panels - 1), panels))
        def image(i: Index) -> None:
            block, group = em.divmod(i, spec.groups)
            first = em.min(em.mul(block, self.plan.samples), spec.n - self.plan.samples)
            self._stage(first, group)
            start = em.mul(i, panels)
            lo, hi = em.max(em.sub(tasks[0], start), 0), em.min(em.sub(tasks[1], start), panels)
            if self.scattered:
                self._parts(first, group, rows)
            else:
                self._whole(first, group, (lo, hi), rows)

    def _stage(self, first: Index, group: Index) -> None:
        em, image = self.em, self.g.image
        channels = self.g.depth * self.spec.groups

        @em.each(0, self.plan.samples)
        def sample(s: Index) -> None:
            channel = em.add(em.mul(em.add(first, s), channels), em.mul(group, self.g.depth))
            source = self.at(self.slots[0], em.mul(channel, image.source))
            em.call(self.stage, source, self.at(self.own, em.mul(s, self.sample)))

    # Results in order

    def _whole(self, first: Index, group: Index, tasks: tuple[Index, Index], rows: tuple[Index, Index] | None) -> None:
        """All panels of one image, whose columns are positions in order."""
        g = self.g
        part = g.parts[0]
        filters = self.filters(group)
        panels = full_tiles(self.plan.samples * g.positions, self.columns)
        taps = _Taps(len(part.taps), None)

        def panel(column: Index, breadth: int) -> None:
            count = self.pieces.find(part.extents, column, breadth)
            valid = [min(self.plan.width, breadth - j) for j in range(0, breadth, self.plan.width)]
            self._sum(taps, filters, count, valid, rows,
                      lambda row, size, sums: self._finish(first, group, row, size, column, valid, sums))
        for_tiles(self.em, panels, None if tasks == (0, 1) else tasks, panel)

    def _sum(self, taps: _Taps, filters: str, count: Index, valid: Sequence[int], rows: tuple[Index, Index] | None,
             finish: Callable[[Index, int, list[str] | str], None]) -> None:
        """Gather the panel and multiply; ``finish`` gets tiles as registers, or the address of a stored tile."""
        em = self.em
        if self.chunks == 1:
            self._pack(taps, count, 0, self.g.depth)

            def once(row: Index, size: int) -> None:
                sums = self._multiply(taps, filters, row, size, len(valid), 0, self.g.depth,
                                      self.tile.zeros(size, len(valid)))
                nan = self._nan(sums, size, valid)

                def fix_up() -> None:
                    if not self.heavy:
                        self.tile.store(sums, self.tile_buffer, self.columns, len(valid))
                    self._fix_up(self.tile_buffer, taps, filters, count, row, size)
                    if not self.heavy:
                        finish(row, size, self.tile_buffer)
                if self.heavy:
                    self.tile.store(sums, self.tile_buffer, self.columns, len(valid))
                    if nan:
                        em.when(nan, fix_up, rare=True)
                    finish(row, size, self.tile_buffer)
                elif nan:
                    em.when(nan, fix_up, lambda: finish(row, size, sums), rare=True)
                else:
                    finish(row, size, sums)
            for_tiles(em, self.row_tiles, rows, once)
            return
        self.clear(self.sums, self.g.rows * self.columns)

        @em.each(0, self.chunks)
        def chunk(c: Index) -> None:
            channel = em.mul(c, self.plan.block)
            depth = em.min(em.sub(self.g.depth, channel), self.plan.block)
            self._pack(taps, count, channel, depth)

            def tile(row: Index, size: int) -> None:
                place = self.at(self.sums, em.mul(row, self.columns))
                initial = self.tile.load(place, self.columns, size, len(valid))
                sums = self._multiply(taps, filters, row, size, len(valid), channel, depth, initial)
                self.tile.store(sums, place, self.columns, len(valid))
            for_tiles(em, self.row_tiles, rows, tile)

        def done(row: Index, size: int) -> None:
            place = self.at(self.sums, em.mul(row, self.columns))
            if nan := self._nan(self.tile.load(place, self.columns, size, len(valid)), size, valid):
                em.when(nan, lambda: self._fix_up(place, taps, filters, count, row, size), rare=True)
            finish(row, size, place)
        for_tiles(em, self.row_tiles, rows, done)

    def _nan(self, sums: Sequence[str], size: int, valid: Sequence[int]) -> str:
        """An i1: whether padding may have made a sum of a tile NaN; None where it cannot."""
        if self.fix_up is None:
            return ""
        rows = [sums[i * len(valid):(i + 1) * len(valid)] for i in range(size)]
        return any_nan(self.em, self.element, self.plan.width, rows, valid)

    def _fix_up(self, tile: str, taps: _Taps, filters: str, count: Index, row: Index, size: int) -> None:
        """Take products of padding and weights that are infinite or NaN out of a tile."""
        assert self.fix_up is not None
        self.fix_up.pieces(tile, self.own, self.em.gep(filters, self.em.mul(row, self.g.row_step), self.element), size,
                         self.table, count, None if taps.table is None else (taps.table, taps.number))

    def _pack(self, taps: _Taps, count: Index, channel: Index, depth: Index) -> None:
        em = self.em
        table = taps.table
        if table is None:
            table = self.tap_table if len(self.g.parts[0].taps) > MOST_UNROLLED_TAPS else "null"
        source = self.at(self.own, em.mul(channel, self.g.image.size))
        self.em.call(self.pack, source, self.panel, self.table, count, depth, table, taps.number)

    def _multiply(self, kind: _Taps, filters: str, row: Index, rows: int, vectors: int, channel: Index, depth: Index,
                  initial: Sequence[str]) -> list[str]:
        """The innermost loops: along channels, and along taps if those are not neighbours of channels in memory."""
        em, g, tile = self.em, self.g, self.tile
        a = self.at(filters, em.add(em.mul(row, g.row_step), em.mul(channel, g.channel_step)))
        taps, table = kind.number, kind.table
        offsets = [i * g.row_step for i in range(rows)]

        def factors(a: str, panel: str, step: int) -> tuple[Factors, Factors]:
            return Factors(a, step, offsets, True), Factors(panel, self.line, tile.neighbours(vectors))
        if table is None and taps in (1, g.channel_step):
            step = 1 if g.channel_step == taps else g.channel_step
            return tile.product(*factors(a, self.panel, step), em.mul(depth, taps), initial)

        def outer(c: Index, sums: list[str]) -> list[str]:
            place = self.at(a, em.mul(c, g.channel_step))
            panel = self.at(self.panel, em.mul(em.mul(c, taps), self.line))

            def inner(t: Index, sums: list[str]) -> list[str]:
                at = em.entry(table, em.mul(t, 2)) if table else t
                return tile.add_step(*factors(self.at(place, at), panel, 0), t, sums)
            return tile.sum(taps, inner, sums)
        return tile.sum(depth, outer, initial)

    # Use of tiles

    def _finish(self, first: Index, group: Index, row: Index, rows: int, column: Index, valid: Sequence[int],
                sums: list[str] | str) -> None:
        em = self.em
        if not isinstance(sums, str):
            self.epilogue(first, group).store_tile(sums, row, column, self.plan.width, valid)
            return
        if not self.merged:
            self.finisher.call_all(self.epilogue(first, group), sums, row, rows, column, sum(valid))
            return

        @em.each(0, self.plan.samples)
        def sample(s: Index) -> None:
            place = self.at(sums, em.mul(s, self.g.positions))
            self.finisher.call_all(self.epilogue(em.add(first, s), group), place, row, rows, 0, self.g.positions)

    # Results in parts

    def _parts(self, first: Index, group: Index, rows: tuple[Index, Index] | None) -> None:
        """All parts of one image; then the epilogue, unless results went straight to the output."""
        em, g = self.em, self.g
        filters = self.filters(group)
        plane = g.rows * g.positions
        if self.plain:
            at = em.mul(em.add(em.mul(first, self.spec.groups), group), plane)
            target, sample = self.at(self.slots[2], at), plane * self.spec.groups
        else:
            target, sample = self.results, plane
        if not all(part.taps for part in g.parts):
            @em.each(0, self.plan.samples)
            def zero(s: Index) -> None:
                base = self.at(target, em.mul(s, sample))
                for_tiles(em, self.row_tiles, rows, lambda row, size: self.clear(
                    self.at(base, em.mul(row, g.positions)), size * g.positions))
        self._each_part(filters, target, sample, rows)
        if self.plain:
            return

        @em.each(0, self.plan.samples)
        def finish(s: Index) -> None:
            place = self.at(self.results, em.mul(s, plane))
            epilogue = self.epilogue(em.add(first, s), group)
            for_tiles(em, self.row_tiles, rows, lambda row, size: self.finisher.call_all(
                epilogue, self.at(place, em.mul(row, g.positions)), row, size, 0, g.positions))

    def _each_part(self, filters: str, target: str, sample: int, rows: tuple[Index, Index] | None) -> None:
        """A loop over the parts that have taps; a table describes them: extents, first elements, taps."""
        em, rank = self.em, len(self.g.size)
        taps: list[int] = []
        entries: list[int] = []
        parts = [part for part in self.g.parts if part.taps]
        for part in parts:
            entries += [*part.extents, *part.first, len(part.taps), len(taps)]
            taps += [v for pair in part.taps for v in pair]
        table, all_taps = em.table("i64", entries), em.table("i64", taps)

        @em.each(0, len(parts))
        def turn(i: Index) -> None:
            found = [em.entry(table, em.add(em.mul(i, 2 * rank + 2), k))
                     for k in range(2 * rank + 2)]
            kind = _Taps(found[-2], em.gep(all_taps, found[-1], "i64"))
            self._part(found[:rank], found[rank:2 * rank], kind, filters, target, sample, rows)

    def _part(self, extents: Sequence[Index], firsts: Sequence[Index], taps: _Taps, filters: str, target: str,
              sample: int, rows: tuple[Index, Index] | None) -> None:
        em, g = self.em, self.g
        total: Index = self.plan.samples
        for n in extents:
            total = em.mul(total, n)
        valid = [self.plan.width] * self.plan.vectors
        steps = [prod(g.size[i + 1:]) for i in range(len(g.size))]

        @em.each(0, em.div(em.add(total, self.columns - 1), self.columns))
        def panel(p: Index) -> None:
            column = em.mul(p, self.columns)
            count = em.min(em.sub(total, column), self.columns)
            pieces = self.pieces.find(extents, column, count)

            @em.each(0, count)
            def place(j: Index) -> None:
                at: Index = 0
                rest = em.add(column, j)
                for extent, first, step, size in reversed(list(zip(
                        extents, firsts, self.spec.stride, steps, strict=True))):
                    above, q = em.divmod(rest, extent)
                    at = em.add(at, em.mul(em.add(em.mul(q, step), first), size))
                    rest = above
                at = em.add(at, em.mul(rest, sample))
                em.store("i64", 1, str(at), em.gep(self.places, j, "i64"))

            def scatter(row: Index, size: int, sums: list[str] | str) -> None:
                assert isinstance(sums, str)
                base = self.at(target, em.mul(row, g.positions))

                @em.each(0, size)
                def line(i: Index) -> None:
                    # Row by row: rows of the output are often at distances that share the sets of a cache.
                    here = self.at(sums, em.mul(i, self.columns))
                    there = self.at(base, em.mul(i, g.positions))

                    @em.each(0, count, unroll=True)
                    def one(j: Index) -> None:
                        at = em.entry(self.places, j)
                        x = em.load(self.element, 1, self.at(here, j))
                        em.store(self.element, 1, x, self.at(there, at))
            self._sum(taps, filters, pieces, valid, rows, scatter)


def is_copy(spec: ConvSpec) -> bool:
    """Whether the epilogue only stores the result."""
    return spec.exprs == (Arg(0),)

