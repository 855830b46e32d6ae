"""Tiles and panels of convolutions that are products of gathered windows, by counting cycles."""
from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from kusari.ir.costs import GATHER_CYCLES

from ....target import Target
from ...text.tiles import even_tiles, full_tiles
from ..cycles import MOST_TILE_ROWS, step_cycles, tile_rows
from .geometry import even_samples, gathering
from .spec import ConvSpec
from .stage import stage_cycles


@dataclass(frozen=True)
class PanelShape:
    """Tiles are at most ``rows`` x ``vectors``; a panel holds positions of ``samples`` samples, ``block`` channels of
    them at a time."""

    rows: int
    vectors: int
    width: int
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
    conflict = g.row_step * size % 4096 == 0
    staging = spec.n * stage_cycles(g.image, g.depth * spec.groups, width)
    best: PanelShape | None = None
    depth = sum(len(p.taps) for p in g.parts) / len(g.parts) * g.depth
    for vectors in range(1, 9):
        columns = vectors * width
        positions = max(prod(p.extents) for p in g.parts)
        samples = 1 if positions > columns else even_samples(spec.n, columns // max(positions, 1))
        blocks = -(-spec.n // samples)
        panels = [(t.count * blocks, -(-t.size // width)) for t in full_tiles(samples * positions, columns)]
        runs = sum(-(-p.extents[-1] // width) * prod(p.extents[:-1]) for p in g.parts) / len(g.parts)
        gather = GATHER_CYCLES * runs * samples * blocks * depth
        count = sum(c for c, _ in panels)
        most = min(tile_rows(target, vectors), 8 if conflict else MOST_TILE_ROWS)
        for largest in range(max(1, most - 4), most + 1):
            tiles = even_tiles(g.rows, largest)
            cost = 0.0
            for r, (number, v) in product(tiles, panels):
                cost += r.count * number * step_cycles(r.size, v, 1 / 8) * depth
            cost = cost * (1 + 0.01 * (len(tiles) * len(panels) - 1)) + gather
            if len(g.parts) > 1:
                cost += spec.n * (g.rows * positions * 3 + positions * 12)   # results are scattered
            cost += count * 60
            if filters > target.l2_bytes // 2:
                cost += count * filters / 64
            cost = cost * len(g.parts) * spec.groups + staging
            if best is None or cost < best.cycles:
                best = PanelShape(tiles[0].size, vectors, width, samples, 0, cost)
    assert best is not None
    taps = max(len(p.taps) for p in g.parts)
    room = max(target.l2_bytes // 2 // ((best.vectors + 1) * width * size * max(taps, 1)), 8)
    blocks = -(-g.depth // room)
    return PanelShape(best.rows, best.vectors, width, best.samples, -(-g.depth // blocks), best.cycles)
