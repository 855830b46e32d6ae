"""Which algorithm computes a convolution: the cycles of all candidates, in one table, and the fewest.

Variants of Winograd's algorithm are in the same table as the algorithms that compute the sums by definition.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from kusari.ir import Choice, costs

from ....contractions import ConvSpec
from ....target import Target
from ...text.types import F32
from ..conv.choose import defined
from ..cycles import Candidate, explanation, step_cycles
from .spec import TILES, Way, WinogradSpec, blocking, gradient_blocking, maps_blocking, round_up


@dataclass(frozen=True)
class Transformed(Candidate):
    """A variant of Winograd's algorithm."""

    spec: WinogradSpec


def candidates(spec: ConvSpec, target: Target, largest: int) -> list[Candidate]:
    """Return all algorithms that can compute ``spec``, those of the fewest cycles first.

    Winograd's tiles may have ``largest`` x ``largest`` outputs; larger ones are faster and less accurate.
    """
    return sorted([*defined(spec, target), *variants(spec, target, largest)], key=lambda c: c.cycles)


def winograd_of(spec: ConvSpec, target: Target, largest: int) -> WinogradSpec | None:
    """Return how Winograd's algorithm computes ``spec``, or None if another one takes fewer cycles.

    It is the first of ``candidates``; a variant with fewer cycles than any count of the others is found without them.
    """
    best = min(variants(spec, target, largest), key=lambda c: c.cycles, default=None)
    if best is None:
        return None
    at_least = spec.flops / (4 * target.lanes(spec.dtype.itemsize))   # two multiply-adds of vectors in each cycle
    if best.cycles >= at_least and best.cycles >= defined(spec, target)[0].cycles:
        return None
    return best.spec


def explained(spec: ConvSpec, target: Target, largest: int) -> Choice:
    """Return the choice for ``spec`` with its reasons; Winograd's tiles may have ``largest`` x ``largest`` outputs."""
    return explanation(candidates(spec, target, largest))


def variants(spec: ConvSpec, target: Target, largest: int) -> list[Transformed]:
    """Return the variants of Winograd's algorithm that can compute ``spec``, with their cycles."""
    ways: list[Transformed] = []
    for tile in (tile for tile in TILES[1] if tile <= largest):
        found = described(spec, tile)
        if found is None or (found.phases > 1 and found.channels % target.lanes(4)):
            continue   # phases follow each other in whole vectors of channels
        ways_of_direction: tuple[Way, ...] = ("gradient",) if spec.direction == "weight" else ("tiles", "maps")
        for one in (replace(found, way=way) for way in ways_of_direction):
            name = f"winograd in tiles of {tile}x{tile}" + ", threads share output channels" * (one.way == "maps")
            ways.append(Transformed(winograd_cycles(one, target), name, one))
    return [way for way in ways if way.cycles < inf]


def described(spec: ConvSpec, tile: int) -> WinogradSpec | None:
    """Return the same convolution for the writers of Winograd's algorithm; None if they cannot compute it.

    They take float32 in whole, windows of 3 x 3 one pixel apart, or two in forward direction and tiles of four, and
    operands that run with the pixels.
    """
    stride = spec.stride[0]
    if spec.dtype != F32 or not spec.windows.suits_winograd(spec.groups):
        return None
    if stride == 2 and (spec.direction != "forward" or tile != 4):
        return None
    if any(o.column not in (0, 1) for o in spec.operands) or not spec.flops:
        return None
    (high, wide), (out_high, out_wide), (top, left) = spec.size, spec.out, spec.pad
    pad = (top, stride * (out_high - 1) + 3 - high - top, left, stride * (out_wide - 1) + 3 - wide - left)
    sizes, transposed = (spec.c, spec.k, high, wide), spec.direction == "input"
    if transposed:  # the image is the gradient of y, around which are as many zeros as windows reach over its edge
        sizes, pad = (spec.k, spec.c, out_high, out_wide), (2 - top, 2 - pad[1], 2 - left, 2 - pad[3])
    if min(pad) < 0:
        return None
    return WinogradSpec(spec.n, *sizes, pad, tile, transposed, spec.exprs, spec.operands, stride=stride)


# A gradient so many times as large as the second-level cache is written to memory, in many places at a time.
_FAR_GRADIENT_RATIO = 4
_FAR_GRADIENT_CYCLES = 140
_PHASED_TILES_RATIO, _PHASED_WEIGHTS_RATIO = 4.5, 2.0  # times as many for four phases
# Threads share output channels if there are panels for several, and if transformed tiles take so many times the bytes
# of a second-level cache at most:
# with 9 MB of them it took 1.3 times as long as sharing tiles.
_FEWEST_PANELS = 4
_MOST_SHARED_RATIO = 5


def winograd_cycles(spec: WinogradSpec, target: Target) -> float:
    """Cycles of one core: the products, the transforms of tiles, those of weights.

    Register tiles that are not full add a tenth to the products. Transformed weights that leave the second-level cache
    cost for every block of tiles that reads them again; if threads share output channels, tiles do for every panel.
    """
    lanes = target.lanes(4)
    inputs, outputs = (round_up(n, lanes) // lanes for n in (spec.channels, spec.maps))
    tiles = spec.batch * spec.rows * spec.columns
    transforms = tiles * (inputs * (1 if spec.phases == 1 else _PHASED_TILES_RATIO) + outputs)
    transforms *= costs.WINOGRAD_TILE_CYCLES[spec.tile]
    if spec.way == "gradient":
        products = 1.1 * spec.points * tiles * round_up(spec.channels, 8) * outputs / 2
        block = gradient_blocking(spec, target)
        sums = 4 * spec.points * round_up(spec.channels, block.rows) * round_up(spec.maps, block.panel)
        apart = 0.0
        if not block.owned and sums > target.l2_bytes:   # cleared, then read and written for every block of tiles
            apart = sums * (1 + 2 * -(-spec.batch * spec.rows // block.tile_rows)) / 24
        each = costs.WINOGRAD_GRADIENT_CYCLES[spec.tile]
        if 36 * spec.channels * spec.maps > _FAR_GRADIENT_RATIO * target.l2_bytes:
            each += _FAR_GRADIENT_CYCLES
        return products + transforms + apart + spec.channels * outputs * each
    if spec.way == "maps":
        block = maps_blocking(spec, target)
        panels = -(-spec.maps // block.panel)
        if panels < _FEWEST_PANELS:
            return inf
        products = -(-tiles // block.rows) * step_cycles(block.rows, block.vectors) * spec.products * spec.channels
        weights = spec.channels * panels * block.vectors * costs.WINOGRAD_OWN_WEIGHT_CYCLES[spec.tile]
        shared = 4 * spec.products * tiles * spec.channels
        if spec.phases > 1:
            weights *= _PHASED_WEIGHTS_RATIO
        if shared > _MOST_SHARED_RATIO * target.l2_bytes:
            return inf
        return panels * (products + shared / 32) + 0.15 * shared + transforms + weights
    products = 1.1 * spec.products * tiles * spec.channels * outputs / 2
    weights = spec.channels * outputs * costs.WINOGRAD_SHARED_WEIGHT_CYCLES[spec.tile]
    if spec.phases > 1:
        weights *= _PHASED_WEIGHTS_RATIO
    size = spec.products * spec.channels * outputs * target.vector_bytes
    if size > target.l2_bytes:
        blocks = -(-spec.batch * spec.rows // blocking(spec, target).tile_rows)
        weights += size * (1 + blocks) / 32
    return products + transforms + weights
