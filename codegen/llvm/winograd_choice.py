"""Which convolutions Winograd's algorithm computes, and with which tiles: a count of cycles."""
from __future__ import annotations

from dataclasses import replace
from math import inf, prod

from ..target import Target
from .conv_spec import ConvSpec
from .types import F32
from .winograd_algebra import POINTS
from .winograd_spec import WinogradSpec, blocking, maps_blocking, round_up, step_cycles


def winograd_of(spec: ConvSpec, target: Target, largest: int) -> WinogradSpec | None:
    """Return how Winograd's algorithm computes ``spec``, or None where it cannot or another way takes fewer cycles.

    Tiles have at most ``largest`` x ``largest`` outputs; larger ones are quicker and less accurate.
    """
    cycles, best = quickest(spec, target, largest)
    return best if cycles < direct_cycles(spec, target) else None


def quickest(spec: ConvSpec, target: Target, largest: int) -> tuple[float, WinogradSpec | None]:
    """The cycles that Winograd's algorithm takes at least, and the way it takes them; infinity and None without any."""
    best: tuple[float, WinogradSpec | None] = inf, None
    for tile in POINTS:
        found = described(spec, tile) if tile <= largest else None
        for by_maps in (False, True):
            if found is not None and not (by_maps and spec.direction == "weight"):
                one = replace(found, by_maps=by_maps)
                cycles = winograd_cycles(one, target, spec.direction == "weight")
                best = min(best, (cycles, one), key=lambda c: c[0])
    return best


def described(spec: ConvSpec, tile: int) -> WinogradSpec | None:
    """The same convolution for the writers of Winograd's; None where they cannot compute it.

    They take float32 in whole, windows of 3 x 3 at every position, and operands that run with the pixels.
    """
    ones = (1, 1)
    if spec.dtype != F32 or spec.groups != 1 or (spec.kernel, spec.stride, spec.dilate) != ((3, 3), ones, ones):
        return None
    if any(o.column not in (0, 1) for o in spec.operands) or not spec.flops:
        return None
    (high, wide), (out_high, out_wide), (top, left) = spec.size, spec.out, spec.pad
    pad = (top, out_high + 2 - high - top, left, out_wide + 2 - wide - left)
    if spec.direction == "input":  # the gradient of y, around which are as many zeros as windows reach over its edge
        pad = (2 - top, 2 - pad[1], 2 - left, 2 - pad[3])
        if min(pad) < 0:
            return None
        return WinogradSpec(spec.n, spec.k, spec.c, out_high, out_wide, pad, tile, True, spec.exprs, spec.operands)
    if min(pad) < 0:
        return None
    return WinogradSpec(spec.n, spec.c, spec.k, high, wide, pad, tile, False, spec.exprs, spec.operands)


def direct_cycles(spec: ConvSpec, target: Target) -> float:
    """Cycles of one core for the sums as they are defined: two multiply-adds in each, a fifth for the rest.

    Small images share vectors with others; where there are none, lanes are empty.
    """
    lanes = target.lanes(spec.dtype.itemsize)
    cycles = 1.2 * spec.flops / (4 * lanes)
    if spec.direction == "weight":
        return cycles
    columns = prod(spec.out if spec.direction == "forward" else spec.size)
    columns *= max(1, min(spec.n, 4 * lanes // columns))
    return cycles * round_up(columns, lanes) / columns


# Measured, for each size of tile: cycles to transform one vector of a tile to its points or back; one vector of weights
# to its points, in memory that threads share or in a cache; and one vector of sums to the gradient of weights.
# Weights come from memory: in a network others are used before the same ones are used again.
_TILE_CYCLES = {2: 45, 4: 170}
_SHARED_WEIGHT_CYCLES = {2: 200, 4: 400}
_OWN_WEIGHT_CYCLES = {2: 150, 4: 230}
_GRADIENT_CYCLES = {2: 70, 4: 120}
# Threads share maps if there is work for some, and if transformed tiles take no more than so many second-level caches:
# with 9 MB of them it took 1.3 times as long as sharing tiles.
_FEWEST_PANELS = 4
_MOST_SHARED = 5


def winograd_cycles(spec: WinogradSpec, target: Target, weights_gradient: bool) -> float:
    """Cycles of one core: the products, the transforms of tiles, those of weights.

    Register tiles that are not full add a tenth to the products. Transformed weights that leave the second-level
    cache cost for every block of tiles that reads them again; where threads share maps, tiles do for every panel.
    """
    lanes = target.lanes(4)
    inputs, outputs = (round_up(n, lanes) // lanes for n in (spec.channels, spec.maps))
    tiles = spec.batch * spec.rows * spec.columns
    transforms = tiles * (inputs + outputs) * _TILE_CYCLES[spec.tile]
    if weights_gradient:
        products = 1.1 * spec.points * tiles * round_up(spec.channels, 8) * outputs / 2
        return products + transforms + spec.channels * outputs * _GRADIENT_CYCLES[spec.tile]
    if spec.by_maps:
        block = maps_blocking(spec, target)
        panels = -(-spec.maps // block.panel)
        if panels < _FEWEST_PANELS:
            return inf
        products = -(-tiles // block.rows) * step_cycles(block.rows, block.vectors) * spec.points * spec.channels
        weights = spec.channels * panels * block.vectors * _OWN_WEIGHT_CYCLES[spec.tile]
        shared = 4 * spec.points * tiles * spec.channels
        if shared > _MOST_SHARED * target.l2_bytes:
            return inf
        return panels * (products + shared / 32) + 0.15 * shared + transforms + weights
    products = 1.1 * spec.points * tiles * spec.channels * outputs / 2
    weights = spec.channels * outputs * _SHARED_WEIGHT_CYCLES[spec.tile]
    size = spec.points * spec.channels * outputs * target.vector_bytes
    if size > target.l2_bytes:
        blocks = -(-spec.batch * spec.rows // blocking(spec, target).tile_rows)
        weights += size * (1 + blocks) / 32
    return products + transforms + weights
