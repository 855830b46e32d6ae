"""Gradients of convolution weights: elements of staged images broadcast, times vectors of output channels."""
from __future__ import annotations

from typing import NamedTuple

from ....contractions import ConvSpec
from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.tiles import each_index, full_tiles
from ..cycles import step_cycles, tile_rows
from ..tile import Factors
from ..writer import whole_lines
from .geometry import staged_windows
from .stage import stage_function
from .writer import ConvWriter

_SHARED_BLOCKS = 16  # that threads can share evenly


class WeightShape(NamedTuple):
    """A tile: ``channels`` of x times a run along the last axis of the window in rows, ``vectors`` of output channels.

    ``samples`` are staged at a time. A long axis of the window is cut in runs; the last one begins earlier, so that all
    are of one length. Invariant: taps of all runs are at the same distances, which strides forbid: there a run is the
    whole axis or a single tap.
    """

    channels: int
    run: int
    vectors: int
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
    found: list[WeightShape] = []
    for vectors in range(1, min(columns, 8) + 1):
        most = max(tile_rows(target, vectors), 1)
        length = min(run, most)
        length = -(-run // -(-run // length)) if spec.stride[-1] == 1 or length == run else 1
        for channels in range(1, min(spec.channels, most // length, 16) + 1):
            rows = channels * length
            tiles = -(-columns // vectors) * -(-spec.channels // channels) * (spec.taps // run) * -(-run // length)
            step = step_cycles(rows, vectors) + 0.5
            cost = spec.groups * tiles * (positions * step + 4 * rows * vectors)
            found.append(WeightShape(channels, length, vectors, 1, cost))
    image, _ = staged_windows(spec.windows)
    each = (spec.channels * image.size + spec.positions * columns * width) * spec.dtype.itemsize
    samples = max(1, min(spec.n, target.l2_bytes * 6 // 10 // max(each, 1)))
    blocks = -(-spec.n // samples)
    return min(found, key=lambda shape: shape.cycles)._replace(samples=-(-spec.n // blocks))


class Weights(ConvWriter[WeightShape]):
    """Writes the gradient.

    Threads share the tiles, so every sum is made by one of them in the order of samples and positions: the result does
    not depend on their number. Invariant: the scratch of a thread holds the staged images of a block of samples, their
    gradients with channels last, and a tile of sums for each of all units where there is more than one block.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: WeightShape) -> None:
        super().__init__(em, spec, shape)
        self.image, self.offsets = staged_windows(spec.windows)
        self.breadth = shape.vectors * self.width
        self.column_blocks = -(-spec.features // self.breadth)
        self.channel_blocks = -(-spec.channels // shape.channels)
        self.last = spec.kernel[-1]
        self.runs = -(-self.last // shape.run)
        self.outer_taps = spec.taps // self.last
        self.blocks = -(-spec.n // shape.samples)
        self.parts = self.outer_taps * self.runs                 # runs of a block of channels
        # Threads share blocks of channels, whose filters are written in one go; or runs where blocks are too few.
        self.whole = self.channel_blocks * self.column_blocks >= _SHARED_BLOCKS
        self.units = self.channel_blocks * (1 if self.whole else self.parts)   # of one block of columns
        self.tile_rows = shape.channels * (spec.taps if self.whole else shape.run)
        self.tile_size = self.tile_rows * self.breadth
        self.sample = spec.channels * self.image.size
        self.block_size = shape.samples * spec.positions * self.breadth   # transposed gradients of a block of columns

    def write(self) -> int:
        em, spec, shape, tile = self.em, self.spec, self.plan, self.tile_size
        staged = shape.samples * self.sample + self.width
        sums = tile * self.units * self.column_blocks if self.blocks > 1 else tile
        self.read_slots()
        self.own, self.transposed, self.sums = self.scratch(staged, self.block_size * self.column_blocks, sums)
        self.stage = stage_function(em, self.image, spec.channels, self.element, self.width)
        self.turn = self._turn_function()
        self.put = self._put_function()
        starts = [min(i * shape.run, self.last - shape.run) for i in range(self.runs)]
        self.bases = em.table("i64", [self.offsets[i * self.last + start] for i in range(self.outer_taps)
                                      for start in starts])
        self.own.clear(whole_lines(staged, self.size))
        lo, hi = em.chunk(self.units * self.column_blocks)
        with em.only(em.compare("slt", lo, hi)):
            for g in em.each(0, spec.groups):
                if self.blocks > 1:
                    self.sums.at(lo * tile).clear((hi - lo) * tile)
                for b in em.each(0, self.blocks):
                    first = b * shape.samples
                    count = em.min(spec.n - first, shape.samples)
                    self._gather(g, first, count, lo, hi)
                    for u in em.each(lo, hi):
                        self._unit(g, u, count)
                if self.blocks > 1:
                    for u in em.each(lo, hi):
                        self._put(g, u, self.sums.at(u * tile))
        return self.scratch_bytes

    # Operands

    def _gather(self, group: Index, first: Index, count: Index, lo: Index, hi: Index) -> None:
        """Stage the images of ``count`` samples, and transpose the channels of their gradients that the units need."""
        em, spec = self.em, self.spec
        start = lo // self.units * self.breadth
        end = em.min((hi + (self.units - 1)) // self.units * self.breadth, spec.features)
        for s in em.each(0, count):
            n = first + s
            channel = n * spec.c + group * spec.channels
            x = self.array(self.slots[0]).at(channel * self.image.source)
            em.call(self.stage, x, self.own.at(s * self.sample))
            feature = n * spec.k + group * spec.features
            gy = self.array(self.slots[1]).at(feature * spec.positions)
            em.call(self.turn, gy, self.transposed.at(s * (spec.positions * self.breadth)), start, end)

    def _turn_function(self) -> Emitter:
        """``turn(from, to, start, end)``: channels last, block of columns by block of columns, in square pieces.

        The last piece along positions overlaps the one before. Channels past the end become zero.
        """
        spec, width, positions = self.spec, self.width, self.spec.positions
        em = self.em.function("turn", ["ptr %from", "ptr %to", "i64 %start", "i64 %end"])
        source, target = (self.array(p, em) for p in ("%from", "%to"))
        first, end = em.numbers
        lines = min(positions, width)

        def spot(c: Index, p: Index) -> Array:
            number, inside = em.divmod(c, self.breadth)
            return target.at(number * self.block_size + (p * self.breadth + inside))
        for t in full_tiles(spec.features, width):
            for c in em.each(em.max(first, t.start), em.min(end, t.stop), width):
                for i in em.each(0, positions, width):
                    p = em.min(i, positions - lines)
                    start = source.at(c * positions + p)
                    turned = start.turned([r * positions for r in range(t.size)], lines)
                    place = spot(c, p)
                    for r, x in enumerate(turned[:lines]):
                        place.store(x, r * self.breadth)
        rest = -(-spec.features // width) * width
        if self.column_blocks * self.breadth > rest:
            for p in em.each(0, positions):
                for c in range(rest, self.column_blocks * self.breadth, width):
                    spot(c, p).store("zeroinitializer")
        return em

    # Products

    def _position(self, unit: Index) -> tuple[Index, Index, Index]:
        """Block of columns, first channel and number of the run of taps (0 for a whole block) of a unit."""
        em = self.em
        columns, rest = em.divmod(unit, self.units)
        channels, run = em.divmod(rest, 1 if self.whole else self.parts)
        return columns, em.min(channels * self.plan.channels, self.spec.channels - self.plan.channels), run

    def _unit(self, group: Index, unit: Index, count: Index) -> None:
        em = self.em
        columns, channel, run = self._position(unit)
        place = self.sums.at(unit * self.tile_size) if self.blocks > 1 else self.sums
        for each in em.each(0, self.parts) if self.whole else [run]:
            self._run(columns, channel, each, count, place)
        if self.blocks == 1:
            self._put(group, unit, place)

    def _tap(self, run: Index) -> Index:
        """The first tap of a run."""
        em = self.em
        line, number = em.divmod(run, self.runs)
        return line * self.last + em.min(number * self.plan.run, self.last - self.plan.run)

    def _run(self, columns: Index, channel: Index, run: Index, count: Index, place: Array) -> None:
        """Add the sums of a run of taps of a block of channels over ``count`` samples to those at ``place``."""
        em, shape, tile = self.em, self.plan, self.tile
        base = em.entry(self.bases, run)
        x = self.own.at(channel * self.image.size + base)
        gy = self.transposed.at(columns * self.block_size)
        first, step_of_channel = (self._tap(run), self.spec.taps) if self.whole else (0, shape.run)
        place = place.at(first * self.breadth)
        spots = [place.at((c * step_of_channel + t) * self.breadth + j)
                 for c in range(shape.channels) for t in range(shape.run) for j in tile.neighbours(shape.vectors)]
        initial = [spot.load() for spot in spots] if self.blocks > 1 else tile.zeros(len(spots))
        # The taps of a run lie at the same distances from its first one, whichever planes they are in.
        elements = [i * self.image.size + self.offsets[t] - self.offsets[0]
                    for i in range(shape.channels) for t in range(shape.run)]
        *outer, breadth = self.spec.out

        sums = tile.carried(initial)
        for s in em.each(0, count, carried=sums):
            image, gradient = x.at(s * self.sample), gy.at(s * (self.spec.positions * self.breadth))
            for offset, number in each_index(em, outer, self.image.steps, sums):
                a, b = image.at(offset), gradient.at(number * (breadth * self.breadth))
                sums.values = tile.product(Factors(a, 1, elements, True), Factors(
                    b, self.breadth, tile.neighbours(shape.vectors)), breadth, sums.values)
        for spot, v in zip(spots, sums.values, strict=True):
            spot.store(v)

    # Results

    def _put_function(self) -> Emitter:
        """``put(tile, to, count)``: a tile's ``count`` output channels to their filters, by runs of neighbours there.

        Such a run is a whole block of channels, or a run of each. Unless runs are short, square blocks are transposed
        in registers; the last one along a run overlaps the one before.
        """
        shape, taps, width = self.plan, self.spec.taps, self.width
        runs, length = (1, self.tile_rows) if self.whole else (shape.channels, shape.run)
        lines, filter_size = min(length, width), self.spec.channels * taps
        em = self.em.function("put", ["ptr %tile", "ptr %to", "i64 %count"])
        count, = em.numbers
        short = 2 * length < width
        full = 0 if short else count // width * width
        for c in em.each(0, runs):
            tile, to = self.array("%tile", em).at(c * (length * self.breadth)), self.array("%to", em).at(c * taps)
            for o in em.each(0, full, width):
                for at in em.each(0, length, width):
                    i = em.min(at, length - lines)
                    turned = tile.at(i * self.breadth + o).turned([r * self.breadth for r in range(lines)])
                    target = to.at(o * filter_size + i)
                    for k, x in enumerate(turned):
                        target.store(x, k * filter_size, lines)
            for o in em.each(full, count):
                for i in range(length) if short else em.each(0, length):
                    to.put(tile.one(i * self.breadth + o), o * filter_size + i)
        return em

    def _put(self, group: Index, unit: Index, tile: Array) -> None:
        em, spec = self.em, self.spec
        columns, channel, run = self._position(unit)
        tap = 0 if self.whole else self._tap(run)
        feature = columns * self.breadth
        count = em.min(spec.features - feature, self.breadth)
        row = group * spec.features + feature
        at = (row * spec.channels + channel) * spec.taps + tap
        em.call(self.put, tile, self.array(self.slots[2]).at(at), count)
