"""The work of each sweep of a loop nest: analysis that the writers of all languages share."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kusari.ir import DType
from kusari.ir.nest import TRANSCENDENTAL, Nest, Step


@dataclass(frozen=True)
class Sweep:
    """The work of one stage at every point: steps computed, steps of earlier sweeps, steps kept for later ones."""

    computed: tuple[bool, ...]
    loaded: tuple[int, ...]
    saved: tuple[int, ...]
    reductions: tuple[int, ...]
    stores: tuple[int, ...]


def nothing(step: Step) -> bool:
    """No value crosses sweeps: each computes again all that it needs."""
    return False


def is_transcendental(step: Step) -> bool:
    """Whether a value takes long to compute again."""
    return step.fn in TRANSCENDENTAL


def sweeps_of(nest: Nest, depth: Sequence[int], crosses: Callable[[Step], bool]) -> list[Sweep]:
    """Return the work of each stage; values of innermost points that ``crosses`` admits are kept for later stages."""
    result: list[Sweep] = []
    known: dict[int, int] = {}  # steps computed by an earlier sweep, with its number
    saved: dict[int, list[int]] = {}
    for stage in range(nest.stages):
        reductions = tuple(i for i, s in enumerate(nest.steps)
                           if s.kind == "reduce" and nest.steps[s.sources[0]].stage == stage)
        stores = tuple(o for o in range(len(nest.outputs)) if nest.is_full(o) and nest.store_stage(o) == stage)
        marks = [False] * len(nest.steps)
        for i in reductions:
            marks[nest.steps[i].sources[0]] = True
        for o in stores:
            marks[nest.results[o]] = True
        loaded: list[int] = []
        for i in range(len(nest.steps) - 1, -1, -1):
            step = nest.steps[i]
            if not marks[i] or step.kind == "reduce":
                continue
            if i in known and depth[i] == len(nest.dims) and crosses(step):
                loaded.append(i)
                marks[i] = False
                if i not in saved.setdefault(known[i], []):
                    saved[known[i]].append(i)
                continue
            for a in step.sources:
                marks[a] = True
        for i, m in enumerate(marks):
            if m:
                known.setdefault(i, stage)
        result.append(Sweep(tuple(marks), tuple(loaded), (), reductions, stores))
    return [Sweep(s.computed, s.loaded, tuple(saved.get(k, ())), s.reductions, s.stores) for k, s in enumerate(result)]


def sweeps_of_split(nest: Nest) -> int:
    """Return the number of instructions: the sweeps, and one more for outputs with one element per row.

    Such outputs may have the buffer of an operand of the last sweep, so that sweep does not write them.
    """
    full = [nest.is_full(o) for o in range(len(nest.outputs))]
    last = any(f and nest.store_stage(o) == nest.stages - 1 for o, f in enumerate(full))
    return nest.stages - 1 + last + (not all(full))


def loops_of(nest: Nest) -> list[int]:
    """The dims in the order of the loops: reduced ones run inside the others."""
    return sorted(range(len(nest.dims)), key=lambda i: nest.dims[i].reduced)


def depths_of(nest: Nest) -> list[int]:
    """For each step the number of loops around its position in the text."""
    place = {d: k for k, d in enumerate(loops_of(nest))}
    return [max((place[d] + 1 for d in s.dims), default=0) for s in nest.steps]


def held(step: Step) -> DType:
    """The dtype of a reduction's accumulators: float16 sums are kept in float32."""
    return np.dtype("float32") if step.dtype == np.float16 and step.fn in ("sum", "prod") else step.dtype


def cost(step: Step) -> int:
    """Instructions of one step, roughly."""
    if step.kind != "call":
        return 1
    slow = step.fn in ("floor_divide", "remainder", "true_divide", "sqrt")
    return 20 if step.fn in TRANSCENDENTAL else 4 if slow else 1
