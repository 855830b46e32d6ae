"""Loop nests in which threads can only share the reduced dims, and the number of instructions they become."""
from __future__ import annotations

from math import prod

from kusari.ir.nest import TRANSCENDENTAL, Nest

from ...sweeps import sweeps_of_split
from ...target import Target

SPLIT_PARTS = 16       # of the outermost reduced dim, for any number of threads: so sums are the same
LONGEST_VECTOR_REGISTERS = 4
FEW_ROWS = 4           # with fewer, threads share the elements of rows
WORTH_BYTES = 1 << 19  # of traffic: with less, a barrier takes longer than is gained
WORTH_CALLS = 1 << 16  # the same for points of transcendental functions


def launches_of(nest: Nest, target: Target) -> int:
    """Return the number of instructions of a nest: several if threads share the reduced dims, else one.

    They do if parallel dims offer too little: whole reductions, a few long rows, many rows of a few columns. An
    instruction then folds the partial results of the previous one, a barrier apart.
    """
    reduced = [d.extent for d in nest.dims if d.reduced]
    if not reduced or nest.stages == 1:
        return 1
    lanes = target.lanes(8 if all(b.dtype.itemsize == 8 for b in (*nest.operands, *nest.outputs)) else 4)
    rows = prod([d.extent for d in nest.dims if not d.reduced])
    last = nest.dims[-1]
    turns = reduced[0] // (LONGEST_VECTOR_REGISTERS * lanes) if last.reduced and len(reduced) == 1 else reduced[0]
    if turns < SPLIT_PARTS or any(b.part for b in nest.operands):
        return 1
    if last.reduced:
        if rows >= FEW_ROWS:
            return 1
    elif rows > LONGEST_VECTOR_REGISTERS * lanes:
        return 1
    calls = sum(s.kind == "call" and s.fn in TRANSCENDENTAL and len(s.dims) == len(nest.dims) for s in nest.steps)
    if nest.traffic < WORTH_BYTES and calls * nest.size < WORTH_CALLS:
        return 1
    return sweeps_of_split(nest)
