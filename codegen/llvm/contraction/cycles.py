"""Counts that choices share: cycles of a register tile's step, and the rows that registers have room for."""
from __future__ import annotations

from ...target import Target

MOST_TILE_ROWS = 14


def step_cycles(rows: int, vectors: int, once: float = 0.25) -> float:
    """Cycles of a step of a register tile: two multiply-adds and two loads in each, a latency of four.

    Work done once per step (the loop, every vector from the second-level cache) counts ``once`` of a cycle.
    """
    return max(rows * vectors / 2, (rows + vectors) / 2, 4) + (1 + vectors) * once


def tile_rows(target: Target, vectors: int) -> int:
    """Rows of ``vectors`` sums that registers hold besides factors; 0 if there are too few."""
    return (target.registers - (2 if target.has_fma else 3) - vectors) // vectors
