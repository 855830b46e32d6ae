"""Choices by cycles: candidates, and counts that they share, as of the step of a register tile."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kusari.ir import Choice
from kusari.ir.costs import READ_CYCLES

from ...target import Target
from .operand import Matrices

MOST_TILE_ROWS = 14
MOST_TILE_VECTORS = 8  # of a row of a tile
LINE_BYTES = 64    # a cache line


@dataclass(frozen=True)
class Candidate:
    """An algorithm that can compute a contraction, and the cycles of one core that it is expected to take."""

    cycles: float
    name: str


def explanation(found: Sequence[Candidate]) -> Choice:
    """Return the choice of the first of ``found``, which come cheapest first."""
    best, *others = found
    return Choice(best.name, best.cycles, "the fewest" if others else "the only way",
                  tuple((c.name, c.cycles) for c in others))


def step_cycles(rows: int, vectors: int, once: float = 0.25) -> float:
    """Cycles of a step of a register tile: two multiply-adds and two loads in each, a latency of four.

    Work done once per step (the loop, every vector from the second-level cache) counts ``once`` of a cycle.
    """
    return max(rows * vectors / 2, (rows + vectors) / 2, 4) + (1 + vectors) * once


def read_cycles(work: Matrices, target: Target) -> float:
    """Cycles in which B is read once, if the first-level cache does not hold it."""
    nbytes = work.k * work.n * work.dtype.itemsize
    return READ_CYCLES * nbytes / LINE_BYTES if nbytes > target.l1_bytes else 0.0


def tile_rows(target: Target, vectors: int, taken: int = 0) -> int:
    """Rows of ``vectors`` sums that registers hold besides factors and ``taken`` others; 0 if there are too few."""
    return (target.registers - taken - (2 if target.has_fma else 3) - vectors) // vectors


def tile_heights(target: Target, columns: int, highest: int, taken: int = 0) -> Iterator[tuple[int, range]]:
    """The register tiles that are counted: numbers of vectors, up to ``columns``, and the largest heights of each.

    No tile is higher than ``highest`` rows; ``taken`` registers hold something else.
    """
    for vectors in range(1, min(columns, MOST_TILE_VECTORS) + 1):
        most = min(tile_rows(target, vectors, taken), highest)
        yield vectors, range(max(1, most - 4), most + 1)


def turning_registers(target: Target, size: int) -> int:
    """Registers that tiles leave to a transpose before them, of elements of ``size`` bytes.

    Index vectors of shuffles stay in registers through the loops behind the packing of a panel: LLVM would rather move
    sums of a tile to memory and back in each step, which takes up to 1.7 times as long (spills in the assembly of each
    tile of 1 to 8 vectors). Squares have none as they are written now; sums of lanes have.
    """
    return {4: 3, 8: 2}[size] if target.vector_bytes == 64 else 0
