"""Gradients of the weights of convolutions with few channels in each group: vectors run along positions.

Every weight has a vector of sums, whose lanes are added up at the end.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from kusari.ir.costs import LOAD_CYCLES

from ....target import Target
from ...text.emitter import Emitter, Index
from ...text.tiles import full_tiles
from ..stage import whole_lines
from .geometry import staged_windows
from .spec import ConvSpec
from .stage import stage_function
from .writer import ConvWriter


@dataclass(frozen=True)
class DirectWeightShape:
    """``taps`` weights at a time."""

    taps: int
    width: int
    cycles: float


def choose(spec: ConvSpec, target: Target) -> DirectWeightShape:
    """Return the number of sums in registers, with cycles by count: a load of x, mostly from two lines, per product."""
    width = target.lanes(spec.dtype.itemsize)
    taps = min(spec.taps, target.registers - 6)
    blocks = -(-spec.taps // taps)
    image, _ = staged_windows(spec.windows)
    runs = prod(spec.out[:-1]) * -(-spec.out[-1] // width)
    pairs = spec.groups * spec.features * spec.channels
    cycles = spec.n * pairs * (runs * (spec.taps * LOAD_CYCLES + blocks) + 4.0 * spec.taps)
    cycles += 16.0 * pairs * spec.taps + 2.0 * spec.n * spec.c * image.size / width
    return DirectWeightShape(-(-spec.taps // blocks), width, cycles)


class DirectWeights(ConvWriter[DirectWeightShape]):
    """Writes the gradient.

    Threads share the groups. Invariant: the scratch of a thread holds the staged channels of one group of one sample,
    and a vector of sums for every weight of the group.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: DirectWeightShape) -> None:
        super().__init__(em, spec, shape, shape.width)
        self.image, self.offsets = staged_windows(spec.windows)
        self.weights = spec.features * spec.channels * spec.taps

    def write(self) -> int:
        em, spec, width = self.em, self.spec, self.plan.width
        staged = spec.channels * self.image.size + width
        self.own, self.sums = self.scratch(staged, self.weights * width)
        self.stage = stage_function(em, self.image, spec.channels, self.element, width)
        self.clear(self.own, whole_lines(staged, self.size))

        @em.each(*em.chunk(spec.groups))
        def group(g: Index) -> None:
            self.clear(self.sums, self.weights * width)
            em.loop(0, spec.n, 1, lambda n, _: self._sample(n, g), unroll=False)

            @em.each(0, self.weights)
            def total(i: Index) -> None:
                x = em.load(self.element, width, self.at(self.sums, em.mul(i, width)))
                one = em.horizontal("fadd", self.element, width, x)
                place = em.add(em.mul(g, self.weights), i)
                em.store(self.element, 1, one, self.at(self.slots[2], place))
        return self.scratch_bytes

    def _sample(self, n: Index, group: Index) -> None:
        em, spec = self.em, self.spec
        channel = em.mul(em.add(em.mul(n, spec.groups), group), spec.channels)
        x = self.at(self.slots[0], em.mul(channel, self.image.source))
        em.call(self.stage, x, self.own)
        feature = em.mul(em.add(em.mul(n, spec.groups), group), spec.features)

        @em.each(0, spec.features * spec.channels)
        def pair(i: Index) -> None:
            f, c = em.divmod(i, spec.channels)
            gy = self.at(self.slots[1], em.mul(em.add(feature, f), spec.positions))
            image = self.at(self.own, em.mul(c, self.image.size))
            sums = self.at(self.sums, em.mul(i, spec.taps * self.plan.width))
            for first in range(0, spec.taps, self.plan.taps):
                self._taps(image, gy, sums, range(first, min(first + self.plan.taps, spec.taps)))

    def _taps(self, image: str, gy: str, sums: str, taps: range) -> None:
        """Some taps of one channel and feature: all positions of the sample."""
        em, spec, width, element = self.em, self.spec, self.plan.width, self.element
        spots = [self.at(sums, t * width) for t in taps]
        values = [em.load(element, width, p) for p in spots]

        def row(base: Index, column: Index, values: list[str]) -> list[str]:
            for t in full_tiles(spec.out[-1], width):
                def part(q: Index, values: list[str], valid: int = t.size) -> list[str]:
                    y = em.load(element, width, self.at(gy, em.add(column, q)), valid)
                    near = self.at(image, em.add(base, q))
                    # Elements behind a row must not be read: times zero they might be NaN.
                    images = [em.load(element, width, self.at(near, self.offsets[k]), valid) for k in taps]
                    return self.tile.add(images, [y], values)
                values = self.tile.sum(t.stop, part, values, t.size, t.start)
            return values
        values = self._rows(0, 0, 0, values, row)
        for p, x in zip(spots, values, strict=True):
            em.store(element, width, x, p)

    def _rows(self, depth: int, base: Index, column: Index, values: list[str],
              row: Callable[[Index, Index, list[str]], list[str]]) -> list[str]:
        """Loops over the axes but the last: the begin of a row in the image and in the gradient."""
        em, out = self.em, self.spec.out
        if depth == len(out) - 1:
            return row(base, em.mul(column, out[-1]), values)

        def turn(q: Index, values: list[str]) -> list[str]:
            return self._rows(depth + 1, em.add(base, em.mul(q, self.image.steps[depth])),
                              em.add(em.mul(column, out[depth]), q), values, row)
        return self.tile.sum(out[depth], turn, values)
