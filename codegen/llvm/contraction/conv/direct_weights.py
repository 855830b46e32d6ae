"""Gradients of the weights of convolutions with few channels in each group: vectors run along positions.

Every weight has a vector of sums, whose lanes are added up at the end.
"""
from __future__ import annotations

from math import prod
from typing import NamedTuple

from kusari.ir.costs import LOAD_CYCLES

from ....contractions import ConvSpec
from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.tiles import each_vector
from ..writer import whole_lines
from .geometry import staged_windows
from .stage import stage_function
from .writer import ConvWriter


class DirectWeightShape(NamedTuple):
    """``taps`` weights at a time."""

    taps: int
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
    return DirectWeightShape(-(-spec.taps // blocks), cycles)


class DirectWeights(ConvWriter[DirectWeightShape]):
    """Writes the gradient.

    Threads share the groups. Invariant: the scratch of a thread holds the staged channels of one group of one sample,
    and a vector of sums for every weight of the group.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: DirectWeightShape) -> None:
        super().__init__(em, spec, shape)
        self.image, self.offsets = staged_windows(spec.windows)
        self.weights = spec.features * spec.channels * spec.taps

    def write(self) -> int:
        em, spec, width = self.em, self.spec, self.width
        staged = spec.channels * self.image.size + width
        self.read_slots()
        self.own, self.sums = self.scratch(staged, self.weights * width)
        self.stage = stage_function(em, self.image, spec.channels, self.element, width)
        self.own.clear(whole_lines(staged, self.size))
        for g in em.each(*em.chunk(spec.groups)):
            self.sums.clear(self.weights * width)
            for n in em.each(0, spec.n):
                self._sample(n, g)
            for i in em.each(0, self.weights):
                one = em.horizontal("fadd", self.element, width, self.sums.load(i * width))
                self.array(self.slots[2]).put(one, g * self.weights + i)
        return self.scratch_bytes

    def _sample(self, n: Index, group: Index) -> None:
        em, spec = self.em, self.spec
        channel = (n * spec.groups + group) * spec.channels
        em.call(self.stage, self.array(self.slots[0]).at(channel * self.image.source), self.own)
        feature = (n * spec.groups + group) * spec.features
        for i in em.each(0, spec.features * spec.channels):
            f, c = em.divmod(i, spec.channels)
            gy = self.array(self.slots[1]).at((feature + f) * spec.positions)
            image = self.own.at(c * self.image.size)
            sums = self.sums.at(i * (spec.taps * self.width))
            for first in range(0, spec.taps, self.plan.taps):
                self._taps(image, gy, sums, range(first, min(first + self.plan.taps, spec.taps)))

    def _taps(self, image: Array, gy: Array, totals: Array, taps: range) -> None:
        """Some taps of one channel and feature: all positions of the sample."""
        em, own = self.em, totals.at(taps[0] * self.width)
        sums = self.tile.carried(self.tile.load(own, self.width, len(taps), 1))
        for offset, position, valid in each_vector(em, self.spec.out, self.image.steps, self.width, sums):
            y, near = gy.load(position, valid), image.at(offset)
            # Elements behind a row must not be read: times zero they might be NaN.
            sums.values = self.tile.add([near.load(self.offsets[k], valid) for k in taps], [y], sums.values)
        self.tile.store(sums.values, own, self.width, 1)
