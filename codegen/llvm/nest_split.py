"""Which loop nests have nothing to share among threads but what they reduce, and how many rows they become."""
from __future__ import annotations

from math import prod

from kusari.ir.nest import TRANSCENDENTAL, Nest

from ..target import Target

SPLIT_PARTS = 16       # of the outermost reduced dim, for any number of threads: so sums are the same
LONGEST_VECTOR_REGISTERS = 4
FEW_ROWS = 4           # with fewer, threads share the elements of rows
WORTH_BYTES = 1 << 19  # of traffic: with less, a barrier takes longer than is gained
WORTH_CALLS = 1 << 16  # the same for points of transcendental functions


def launches_of(nest: Nest, target: Target) -> int:
    """Return how many rows a nest becomes: several where threads share the reduced dims, else one.

    That is where parallel dims offer too little: whole reductions, a few long rows, many rows of a few columns. A row
    then folds what its threads found in parts, a barrier apart from what they find next.
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


def sweeps_of_split(nest: Nest) -> int:
    """Return the number of rows: the sweeps, and one more for what rows have one element of.

    What is written there may have the buffer of what the last sweep reads, so that does not write it.
    """
    full = [nest.is_full(o) for o in range(len(nest.outputs))]
    last = any(f and nest.store_stage(o) == nest.stages - 1 for o, f in enumerate(full))
    return nest.stages - 1 + last + (not all(full))
