"""Gradients of convolution weights: elements of staged images broadcast, times vectors of output channels."""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ....target import Target
from ...text.emitter import Emitter, Index
from ...text.tiles import full_tiles
from ..cycles import step_cycles, tile_rows
from ..stage import whole_lines
from ..tile import Factors
from .geometry import staged_windows
from .spec import ConvSpec
from .stage import stage_function
from .writer import ConvWriter

_SHARED_BLOCKS = 16  # that threads can share evenly


@dataclass(frozen=True)
class WeightShape:
    """A tile: ``channels`` of x times a run along the last axis of the window in rows, ``vectors`` of output channels.

    ``samples`` are staged at a time. A long axis of the window is cut in runs; the last one begins earlier, so that all
    are of one length. Invariant: taps of all runs are at the same distances, which strides forbid: there a run is the
    whole axis or a single tap.
    """

    channels: int
    run: int
    vectors: int
    width: int
    samples: int
    cycles: float


def choose(spec: ConvSpec, target: Target) -> WeightShape:
    """Return the tile of the fewest cycles by count: those of register tiles.

    Samples are as many as half the second-level cache holds.
    """
    width = target.lanes(spec.dtype.itemsize)
    run = spec.kernel[-1]
    columns = -(-spec.features // width)
    positions = spec.n * spec.positions
    best: WeightShape | None = None
    for vectors in range(1, min(columns, 8) + 1):
        most = max(tile_rows(target, vectors), 1)
        length = min(run, most)
        length = -(-run // -(-run // length)) if spec.stride[-1] == 1 or length == run else 1
        for channels in range(1, min(spec.channels, most // length, 16) + 1):
            rows = channels * length
            tiles = -(-columns // vectors) * -(-spec.channels // channels) * (spec.taps // run) * -(-run // length)
            step = step_cycles(rows, vectors) + 0.5
            cost = spec.groups * tiles * (positions * step + 4 * rows * vectors)
            if best is None or cost < best.cycles:
                best = WeightShape(channels, length, vectors, width, 1, cost)
    assert best is not None
    image, _ = staged_windows(spec.windows)
    each = (spec.channels * image.size + spec.positions * columns * width) * spec.dtype.itemsize
    samples = max(1, min(spec.n, target.l2_bytes * 6 // 10 // max(each, 1)))
    blocks = -(-spec.n // samples)
    return WeightShape(best.channels, best.run, best.vectors, width, -(-spec.n // blocks), best.cycles)


class Weights(ConvWriter[WeightShape]):
    """Writes the gradient.

    Threads share the tiles, so every sum is made by one of them in the order of samples and positions: the result does
    not depend on their number. Invariant: the scratch of a thread holds the staged images of a block of samples, their
    gradients with channels last, and a tile of sums for each of all units where there is more than one block.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: WeightShape) -> None:
        super().__init__(em, spec, shape, shape.width)
        self.image, self.offsets = staged_windows(spec.windows)
        self.breadth = shape.vectors * shape.width
        self.column_blocks = -(-spec.features // self.breadth)
        self.padded = self.column_blocks * self.breadth
        self.channel_blocks = -(-spec.channels // shape.channels)
        self.runs = -(-spec.kernel[-1] // shape.run)
        self.outer_taps = spec.taps // spec.kernel[-1]
        self.rows = shape.channels * shape.run
        self.blocks = -(-spec.n // shape.samples)
        self.parts = self.outer_taps * self.runs                 # runs of a block of channels
        self.filter_rows = shape.channels * spec.taps
        # Threads share blocks of channels, whose filters are written in one go; or runs where blocks are too few.
        self.whole = self.channel_blocks * self.column_blocks >= _SHARED_BLOCKS
        self.units = self.channel_blocks * (1 if self.whole else self.parts)   # of one block of columns
        self.sample = spec.channels * self.image.size
        self.block_size = shape.samples * spec.positions * self.breadth   # transposed gradients of a block of columns

    def write(self) -> int:
        em, spec, shape = self.em, self.spec, self.plan
        staged = shape.samples * self.sample + shape.width
        tile = (self.filter_rows if self.whole else self.rows) * self.breadth
        self.tile_size = tile
        sums = tile * self.units * self.column_blocks if self.blocks > 1 else tile
        transposed = shape.samples * spec.positions * self.padded
        self.own, self.transposed, self.sums = self.scratch(staged, transposed, sums)
        self.stage = stage_function(em, self.image, spec.channels, self.element, shape.width)
        self.turn = self._turn_function()
        self.put = self._put_whole_function() if self.whole else self._put_function()
        self.bases = em.table("i64", [self.offsets[i * spec.kernel[-1] + start] for i in range(self.outer_taps)
                                      for start in self._run_starts()])
        self.clear(self.own, whole_lines(staged, self.size))
        lo, hi = em.chunk(self.units * self.column_blocks)

        def group(g: Index, _: list[str]) -> None:
            if self.blocks > 1:
                self.clear(self.at(self.sums, em.mul(lo, tile)), em.mul(em.sub(hi, lo), tile))

            @em.each(0, self.blocks)
            def block(b: Index) -> None:
                first = em.mul(b, shape.samples)
                count = em.min(em.sub(spec.n, first), shape.samples)
                self._gather(g, first, count, lo, hi)
                em.loop(lo, hi, 1, lambda u, _: self._unit(g, u, count), unroll=False)
            if self.blocks > 1:
                em.loop(lo, hi, 1, lambda u, _: self._put(g, u, self.at(self.sums, em.mul(u, tile))), unroll=False)
        em.when(em.compare("slt", lo, hi), lambda: em.loop(0, spec.groups, 1, group, unroll=False))
        return self.scratch_bytes

    def _run_starts(self) -> list[int]:
        last = self.spec.kernel[-1] - self.plan.run
        return [min(i * self.plan.run, last) for i in range(self.runs)]

    # Operands

    def _gather(self, group: Index, first: Index, count: Index, lo: Index, hi: Index) -> None:
        """Stage the images of ``count`` samples, and transpose the channels of their gradients that the units need."""
        em, spec = self.em, self.spec
        start = em.mul(em.div(lo, self.units), self.breadth)
        end = em.min(em.mul(em.div(em.add(hi, self.units - 1), self.units), self.breadth), spec.features)

        @em.each(0, count)
        def sample(s: Index) -> None:
            n = em.add(first, s)
            channel = em.add(em.mul(n, spec.c), em.mul(group, spec.channels))
            x = self.at(self.slots[0], em.mul(channel, self.image.source))
            em.call(self.stage, x, self.at(self.own, em.mul(s, self.sample)))
            feature = em.add(em.mul(n, spec.k), em.mul(group, spec.features))
            gy = self.at(self.slots[1], em.mul(feature, spec.positions))
            place = self.at(self.transposed, em.mul(s, spec.positions * self.breadth))
            em.call(self.turn, gy, place, start, end)

    def _turn_function(self) -> Emitter:
        """``turn(from, to, start, end)``: channels last, block of columns by block of columns, in square pieces.

        The last piece along positions overlaps the one before. Channels past the end become zero.
        """
        spec, width, element = self.spec, self.plan.width, self.element
        em = self.em.function("turn", ["ptr %from", "ptr %to", "i64 %start", "i64 %end"])
        positions = spec.positions
        lines = min(positions, width)

        def spot(c: Index, p: Index) -> str:
            number, inside = em.divmod(c, self.breadth)
            at = em.add(em.mul(number, self.block_size), em.add(em.mul(p, self.breadth), inside))
            return em.gep("%to", at, element)

        def block(c: Index, p: Index, channels: int) -> None:
            start = em.gep("%from", em.add(em.mul(c, positions), p), element)
            rows = [em.load(element, width, em.gep(start, r * positions, element), lines) for r in range(channels)]
            rows += ["zeroinitializer"] * (width - channels)
            place = spot(c, p)
            transposed = em.transpose(element, rows) if width > 1 else rows
            for r, x in enumerate(transposed[:lines]):
                em.store(element, width, x, em.gep(place, r * self.breadth, element))
        for t in full_tiles(spec.features, width):
            @em.each(em.max("%start", t.start), em.min("%end", t.start + t.count * t.size), width)
            def strip(c: Index, channels: int = t.size) -> None:
                em.loop(0, positions, width, lambda p, _: block(c, em.min(p, positions - lines), channels),
                        unroll=False)
        if self.padded > -(-spec.features // width) * width:
            rest = -(-spec.features // width) * width

            @em.each(0, positions)
            def zero(p: Index) -> None:
                for c in range(rest, self.padded, width):
                    em.store(element, width, "zeroinitializer", spot(c, p))
        return em

    # Products

    def _position(self, unit: Index) -> tuple[Index, Index, Index]:
        """Block of columns, first channel and number of the run of taps (0 for a whole block) of a unit."""
        em = self.em
        columns, rest = em.divmod(unit, self.units)
        parts = 1 if self.whole else self.parts
        channels = em.div(rest, parts)
        first = em.min(em.mul(channels, self.plan.channels), self.spec.channels - self.plan.channels)
        return columns, first, em.sub(rest, em.mul(channels, parts))

    def _unit(self, group: Index, unit: Index, count: Index) -> None:
        em = self.em
        columns, channel, run = self._position(unit)
        place = self.at(self.sums, em.mul(unit, self.tile_size)) if self.blocks > 1 else self.sums
        if self.whole:
            em.loop(0, self.parts, 1, lambda run, _: self._run(columns, channel, run, count, place), unroll=False)
        else:
            self._run(columns, channel, run, count, place)
        if self.blocks == 1:
            self._put(group, unit, place)

    def _tap(self, run: Index) -> Index:
        """The first tap of a run."""
        em, last = self.em, self.spec.kernel[-1]
        line, number = em.divmod(run, self.runs)
        return em.add(em.mul(line, last), em.min(em.mul(number, self.plan.run), last - self.plan.run))

    def _run(self, columns: Index, channel: Index, run: Index, count: Index, place: str) -> None:
        """Add the sums of a run of taps of a block of channels over ``count`` samples to those at ``place``."""
        em, shape, width, element = self.em, self.plan, self.plan.width, self.element
        base = em.entry(self.bases, run)
        x = self.at(self.own, em.add(em.mul(channel, self.image.size), base))
        gy = self.at(self.transposed, em.mul(columns, self.block_size))
        # The taps of a run lie at the same distances from its first one, whichever planes they are in.
        near = self._distances()
        first, step_of_channel = (self._tap(run), self.spec.taps) if self.whole else (0, shape.run)
        place = self.at(place, em.mul(first, self.breadth))
        spots = [self.at(place, (c * step_of_channel + t) * self.breadth + j * width)
                 for c in range(shape.channels) for t in range(shape.run) for j in range(shape.vectors)]
        initial = [em.load(element, width, p) for p in spots] if self.blocks > 1 else self.tile.zeros(len(spots))
        *outer, breadth = self.spec.out

        def step(a: str, b: str, sums: list[str]) -> list[str]:
            elements = [i * self.image.size + offset for i in range(shape.channels) for offset in near]
            return self.tile.add_step(Factors(a, 0, elements, True),
                                      Factors(b, 0, self.tile.neighbours(shape.vectors)), 0, sums)

        def axes(depth: int, a: str, b: str, sums: list[str]) -> list[str]:
            if depth == len(outer):
                return self.tile.sum(breadth, lambda q, v: step(
                    self.at(a, q), self.at(b, em.mul(q, self.breadth)), v), sums)
            rest = prod(self.spec.out[depth + 1:]) * self.breadth
            return self.tile.sum(outer[depth], lambda q, v: axes(
                depth + 1, self.at(a, em.mul(q, self.image.steps[depth])),
                self.at(b, em.mul(q, rest)), v), sums)

        def sample(s: Index, sums: list[str]) -> list[str]:
            return axes(0, self.at(x, em.mul(s, self.sample)),
                        self.at(gy, em.mul(s, self.spec.positions * self.breadth)), sums)
        sums = self.tile.sum(count, sample, initial)
        for p, v in zip(spots, sums, strict=True):
            em.store(element, width, v, p)

    def _distances(self) -> list[int]:
        """From the first tap of a run to the others."""
        return [self.offsets[i] - self.offsets[0] for i in range(self.plan.run)]

    # Results

    def _put_function(self) -> Emitter:
        """``put(tile, to, count)``: a tile's ``count`` output channels to their filters."""
        spec, shape, element = self.spec, self.plan, self.element
        em = self.em.function("put", ["ptr %tile", "ptr %to", "i64 %count"])
        filter_size = spec.channels * spec.taps

        @em.each(0, "%count")
        def feature(o: Index) -> None:
            source = em.gep("%tile", o, element)
            target = em.gep("%to", em.mul(o, filter_size), element)
            for i in range(shape.channels):
                for t in range(shape.run):
                    x = em.load(element, 1, em.gep(source, (i * shape.run + t) * self.breadth, element))
                    em.store(element, 1, x, em.gep(target, i * spec.taps + t, element))
        return em

    def _put_whole_function(self) -> Emitter:
        """``put(tile, to, count)``: the same of all taps of a block of channels, which are neighbours in a filter.

        Square blocks are transposed in registers; the last one along the filter overlaps the one before.
        """
        spec, width, element = self.spec, self.plan.width, self.element
        em = self.em.function("put", ["ptr %tile", "ptr %to", "i64 %count"])
        filter_size, rows = spec.channels * spec.taps, self.filter_rows
        lines = min(rows, width)

        def block(o: Index, i: Index) -> None:
            source = em.gep("%tile", em.add(em.mul(i, self.breadth), o), element)
            values = [em.load(element, width, em.gep(source, r * self.breadth, element)) for r in range(lines)]
            values += ["zeroinitializer"] * (width - lines)
            target = em.gep("%to", em.add(em.mul(o, filter_size), i), element)
            for k, x in enumerate(em.transpose(element, values)):
                em.store(element, width, x, em.gep(target, k * filter_size, element), lines)
        full = em.mul(em.div("%count", width), width)

        @em.each(0, full, width)
        def strip(o: Index) -> None:
            em.loop(0, rows, width, lambda i, _: block(o, em.min(i, rows - lines)), unroll=False)

        @em.each(full, "%count")
        def single(o: Index) -> None:
            @em.each(0, rows)
            def one(i: Index) -> None:
                x = em.load(element, 1, em.gep("%tile", em.add(em.mul(i, self.breadth), o), element))
                em.store(element, 1, x, em.gep("%to", em.add(em.mul(o, filter_size), i), element))
        return em

    def _put(self, group: Index, unit: Index, tile: str) -> None:
        em, spec = self.em, self.spec
        columns, channel, run = self._position(unit)
        tap = 0 if self.whole else self._tap(run)
        feature = em.mul(columns, self.breadth)
        count = em.min(em.sub(spec.features, feature), self.breadth)
        row = em.add(em.mul(group, spec.features), feature)
        at = em.add(em.mul(em.add(em.mul(row, spec.channels), channel), spec.taps), tap)
        em.call(self.put, tile, self.at(self.slots[2], at), count)
