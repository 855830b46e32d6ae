"""Tiles and panels of convolutions that are products of gathered windows, by counting cycles."""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ....target import Target
from ...text.tiles import even_tiles, full_tiles
from ..operand import Matrices
from .geometry import Gathering, gathering
from .spec import ConvSpec
from .stage import stage_cycles

_GATHER_CYCLES = 3.5  # a piece of a panel


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


def matrices(spec: ConvSpec, g: Gathering) -> Matrices:
    """The sizes that the epilogue needs: rows of one group, and the output's columns."""
    return Matrices(
        m=g.rows, n=g.positions, k=g.depth * spec.taps, dtype=spec.dtype, batch=spec.n, a_slot=1, b_slot=0,
        a_row=g.row_step, a_k=1, b_k=1, b_column=1, a_batch=0, b_batch=0, exprs=spec.exprs,
        operand_dtypes=tuple(o.dtype for o in spec.operands),
        operand_strides=tuple((o.row, o.column, o.batch) for o in spec.operands))


def choose_panels(spec: ConvSpec, target: Target) -> PanelShape:
    """The tile with the fewest cycles by count, as ``gemm.outer.choose_shape`` counts them.

    To those come the pieces that panels are gathered from, and filters that are too large for the cache and are read
    again for every panel.
    """
    g = gathering(spec)
    size = spec.dtype.itemsize
    width = target.lanes(size)
    spare = 2 if target.has_fma else 3
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
        gather = _GATHER_CYCLES * runs * samples * blocks * depth
        count = sum(c for c, _ in panels)
        most = min((target.registers - spare - vectors) // vectors, 14, 8 if conflict else 14)
        for largest in range(max(1, most - 4), most + 1):
            tiles = even_tiles(g.rows, largest)
            cost = 0.0
            for r in tiles:
                for number, v in panels:
                    step = max(r.size * v / 2, (r.size + v) / 2, 4) + (1 + v) / 8
                    cost += r.count * number * step * depth
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


def even_samples(n: int, most: int) -> int:
    """Samples of a block, at most ``most``: as few blocks as that allows, as even as possible."""
    blocks = -(-n // max(1, min(n, most)))
    return -(-n // blocks)
