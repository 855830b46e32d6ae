"""Loop nests whose threads share the reduced dims: a kernel for each sweep, with partial results between them.

The outermost reduced dim is cut into ``SPLIT_PARTS`` parts. A sweep leaves its results for each part in memory that all
threads see; behind the barrier every thread folds them, part by part in order, and goes on. So a result does not depend
on the number of threads.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

from kusari.ir import Kernel
from kusari.ir.nest import Nest

from ...sweeps import Sweep, cost, held, nothing, sweeps_of
from ...target import Target
from ..text.emitter import Index
from ..text.types import value_type
from .points import Scope, strides_along
from .split import SPLIT_PARTS
from .writer import NestWriter

_PARTIAL_BYTES = 8  # a partial result, whatever its dtype


def sweep_kernel(nest: Nest, target: Target, stage: int) -> Kernel:
    """Return the kernel of one sweep: slots are the nest's operands, its outputs, and memory for all threads."""
    return _SweepWriter(nest, target, stage).kernel()


class _SweepWriter(NestWriter):
    """Writes one sweep. Invariant: in the shared memory values that cross sweeps come first, then partial results.

    The latter are one block for each reduction and part, with rows one behind the other.
    """

    shares_rows = True

    def __init__(self, nest: Nest, target: Target, stage: int) -> None:
        super().__init__(nest, target, f"_sweep{stage + 1}")
        own = self.sweeps[stage] if stage < nest.stages else None
        self.sweep = own if own and (own.reductions or own.stores) else None  # None: outputs of one per row
        self.stage = min(stage, nest.stages - 1)
        self.reductions = [i for i, s in enumerate(nest.steps) if s.kind == "reduce"]
        self.rows = prod([self.dims[d].extent for d in self.parallel])
        self.row_strides = strides_along(nest, self.parallel, 1)
        self.points.walk(self.row_strides)
        self.shared = self.em.slot(len(nest.operands) + len(nest.outputs))
        self.found_at = self.scratch_bytes
        self.part: Index = 0

    def _plan_scratch(self) -> dict[int, int]:
        """Values cross sweeps at the same offset for all threads; if there are several rows none do."""
        if self.parallel:
            self.sweeps = sweeps_of(self.nest, self.points.depth, nothing)
        offsets = super()._plan_scratch()
        if self.scratch_bytes:
            self.scratch_base = self.em.slot(len(self.nest.operands) + len(self.nest.outputs))
        return offsets

    def kernel(self) -> Kernel:
        """Write everything."""
        nest = self.nest
        shared = self.found_at + len(self.reductions) * SPLIT_PARTS * self.rows * _PARTIAL_BYTES
        self._open_all(None if self.sweep is None else -1)
        if self.sweep is None:
            moved = self.rows * _PARTIAL_BYTES * len(nest.outputs)
            return Kernel("llvm", self.symbol, self.em.text(), 0, 0, moved, serial=True, shared=shared)
        steps = [s for s, wanted in zip(nest.steps, self.sweep.computed, strict=True) if wanted]
        size = {s: prod([self.dims[d].extent for d in s.dims]) for s in steps}
        work = sum(cost(s) * size[s] for s in steps)
        moved = sum(s.dtype.itemsize * size[s] for s in steps if s.kind == "load")
        moved += sum(nest.outputs[o].dtype.itemsize * nest.size for o in self.sweep.stores)
        return Kernel("llvm", self.symbol, self.em.text(), 0, work, moved, shared=shared)

    def _address(self, reduction: int, part: Index) -> str:
        """The begin of the partial results of a reduction."""
        block = self.rows * _PARTIAL_BYTES
        first = self.found_at + self.reductions.index(reduction) * SPLIT_PARTS * block
        return self.em.gep(self.shared, part * block + first, "i8")

    def _row(self, scope: Scope) -> None:
        em, points = self.em, self.points
        for stage, sweep in enumerate(self.sweeps[:self.stage]):
            for i in sweep.reductions:
                scope.values[i] = self._folded(scope, i)
            points.fill(scope, points.rows, self.marks, stage + 1)
        if self.sweep is not None:
            sweep = self.sweep
            for p in em.each(*em.chunk(SPLIT_PARTS)):
                self._one(p, sweep, scope)
            return
        for o, step in enumerate(self.nest.results):
            if not self.nest.is_full(o):
                points.store(scope, o, step)

    def _one(self, part: Index, sweep: Sweep, scope: Scope) -> None:
        """One part of a row."""
        em, points, steps = self.em, self.points, self.nest.steps
        self.part = part
        totals = points.accumulators(sweep.reductions)
        self._nested(0, self.stage, sweep, scope, totals)
        offset = scope.offsets[self.row_strides]
        for i, total in zip(sweep.reductions, totals.values, strict=True):
            value, dtype, place = points.fold(steps[i], total), held(steps[i]), self._address(i, part)
            if self.lanes_reduced:
                em.write(dtype, 1, em.lane(value_type(dtype), self.width, value, 0), place, offset)
            else:
                em.write(dtype, self.width, value, place, offset, 1, scope.valid)

    def _folded(self, scope: Scope, reduction: int) -> str:
        """The value of a reduction from its partial results."""
        step, offset = self.nest.steps[reduction], scope.offsets[self.row_strides]
        stride = 0 if self.lanes_reduced else 1
        found = [self.em.read(held(step), self.width, self._address(reduction, p), offset, stride,
                              scope.valid if stride else None) for p in range(SPLIT_PARTS)]
        return self.points.rounded(step, reduce(lambda a, b: self.points.combine(step, a, b), found))

    def _range(self, level: int, whole: int, step: int) -> tuple[Index, Index]:
        if level:
            return 0, whole
        turns = whole // step
        lo = self.part * turns // SPLIT_PARTS
        hi = (self.part + 1) * turns // SPLIT_PARTS
        return lo * step, hi * step

    def _last(self, level: int, rest: Callable[[], list[str]], totals: list[str], types: Sequence[str]) -> list[str]:
        if level:
            return rest()
        return self.em.when(self.em.compare("eq", self.part, SPLIT_PARTS - 1), rest, lambda: totals, types)
