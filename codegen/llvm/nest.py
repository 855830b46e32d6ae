"""LLVM IR text of a loop nest: explicit vectors along the innermost dim, threads along a parallel one.

Two families share everything but where the lanes lie. In *rows* the innermost dim is reduced: lanes are neighbours in
a row, several accumulators per reduction, folded across lanes at the end. In *columns* (and pointwise nests) the
innermost dim is parallel: every lane is a row of its own. Each stage sweeps over the reduced dims once. A short sweep
is written out in full, so that values stay in registers from stage to stage; a long one is a loop, and what is
expensive to compute again waits in the thread's scratch memory.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from kusari.ir import Kernel
from kusari.ir.nest import TRANSCENDENTAL, Nest

from ..target import Target
from .emitter import Emitter, Index
from .points import Points, Scope, cost

RESIDENT_POINTS = 16   # vectors of a row that are written out one by one
RESIDENT_COST = 700    # instructions of a row written out: compile time
SCRATCH_LIMIT = 512 << 10  # bytes per thread, about half of a second-level cache
SPREAD = 16            # parts that a parallel dim should have to be shared among threads


@dataclass(frozen=True)
class Sweep:
    """What one stage computes at every point: steps computed, steps read back from scratch, steps put there."""

    computed: tuple[bool, ...]
    loaded: tuple[int, ...]
    saved: tuple[int, ...]
    reductions: tuple[int, ...]
    stores: tuple[int, ...]


def nest_kernel(nest: Nest, target: Target) -> Kernel:
    """Return the kernel of ``nest``: slots are its operands, its outputs and, where needed, scratch."""
    return _NestWriter(nest, target).kernel()


def lanes_of(nest: Nest, target: Target) -> int:
    """Lanes of every vector of a nest: one register of its most common width."""
    wide = all(b.dtype.itemsize == 8 for b in (*nest.operands, *nest.outputs))
    return target.lanes(8 if wide else 4)


def sweeps_of(nest: Nest, depth: Sequence[int], rows: int, keep: bool) -> list[Sweep]:
    """Decide what each stage computes; with ``keep`` expensive values cross stages in scratch."""
    result: list[Sweep] = []
    known: dict[int, int] = {}  # steps computed by an earlier sweep, and which
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
            if keep and i in known and depth[i] > rows and step.fn in TRANSCENDENTAL:
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


class _NestWriter:
    """Writes one nest; loops are opened from the outermost parallel dim to the innermost reduced one."""

    def __init__(self, nest: Nest, target: Target) -> None:
        self.nest = nest
        self.dims = nest.dims
        self.width = lanes_of(nest, target)
        self.em = em = Emitter("nest", target)
        self.points = points = Points(em, nest, self.width)
        self.parallel = points.loops[:points.rows]
        self.reduced = points.loops[points.rows:]
        self.lanes_reduced = nest.dims[-1].reduced
        self.marks = (True,) * len(nest.steps)
        work = sum(cost(s) for s, d in zip(nest.steps, points.depth, strict=True) if d == len(points.loops))
        vectors = [-(-self.dims[d].extent // self.width) if d == points.vector_dim else self.dims[d].extent
                   for d in self.reduced]
        turns = prod(vectors)
        self.resident = bool(self.reduced) and turns <= RESIDENT_POINTS and turns * work <= RESIDENT_COST
        self.unroll = 1 if self.resident and not self.lanes_reduced else self._unrolling(work)
        self.sweeps = sweeps_of(nest, points.depth, points.rows, keep=not self.resident and bool(self.reduced))
        self.scratch = self._plan_scratch()
        self.known: dict[tuple[int, ...], Scope] = {}  # scopes of a row that is written out

    def _unrolling(self, work: int) -> int:
        """Copies of the innermost block in one turn of its loop."""
        vectors = self.dims[-1].extent // self.width
        best = 4 if work <= 8 else 2 if work <= 24 else 1
        if not self.lanes_reduced and len(self.parallel) == 1:
            best = min(best, max(1, vectors // SPREAD))  # enough blocks for all threads
        while best > max(1, vectors):
            best //= 2
        return best

    # Scratch

    def _plan_scratch(self) -> dict[int, int]:
        """Byte offset of every saved step in the thread's scratch; none is kept when they would not fit."""
        lanes = 1 if self.lanes_reduced else self.width * self.unroll
        points = prod(self.dims[d].extent for d in self.reduced)
        offsets: dict[int, int] = {}
        size = 0
        for s in self.sweeps:
            for i in s.saved:
                offsets[i] = size
                size += -(-points * lanes * max(1, self.nest.steps[i].dtype.itemsize) // 64) * 64
        if size > SCRATCH_LIMIT:
            self.sweeps = sweeps_of(self.nest, self.points.depth, self.points.rows, keep=False)
            offsets, size = {}, 0
        self.scratch_bytes = size
        if size:
            strides = [0] * len(self.dims)
            step = lanes
            for d in reversed(self.reduced):
                strides[d] = step
                step *= self.dims[d].extent
            self.scratch_strides = tuple(strides)
            self.points.walk(self.scratch_strides)
            slot = len(self.nest.operands) + len(self.nest.outputs)
            base = self.em.slot(slot)
            self.scratch_base = self.em.gep(base, self.em.mul("%tid", size), "i8")
        return offsets

    def _scratch_at(self, scope: Scope, step: int, copy: int) -> tuple[str, Index]:
        at = self.em.gep(self.scratch_base, self.scratch[step], "i8")
        shift = 0 if self.lanes_reduced else copy * self.width
        return at, self.em.add(scope.offsets[self.scratch_strides], shift)

    # Loops over rows

    def kernel(self) -> Kernel:
        """Write everything."""
        root = self.points.root()
        part = self._shared_dim()
        if part is None:
            self.em.when(self.em.compare("eq", "%tid", 0), lambda: self._open(0, root, -1))
        else:
            self._open(0, root, part)
        nest = self.nest
        work = sum(cost(s) * prod([self.dims[d].extent for d in s.dims]) for s in nest.steps)
        moved = sum(b.dtype.itemsize * prod([d.extent for d, s in zip(self.dims, b.strides, strict=True) if s])
                    for b in (*nest.operands, *nest.outputs))
        return Kernel("llvm", "nest", self.em.text(), self.scratch_bytes, work, moved, serial=part is None)

    def _shared_dim(self) -> int | None:
        """The parallel dim that threads share: the first with enough parts, or the one with most."""
        parts = {d: self.dims[d].extent // (self.width * self.unroll) if d == self.points.vector_dim
                 else self.dims[d].extent for d in self.parallel}
        for d, n in parts.items():
            if n >= SPREAD:
                return d
        return max(parts, key=lambda d: (parts[d], -d)) if parts and max(parts.values()) > 1 else None

    def _open(self, level: int, scope: Scope, part: int) -> None:
        """Open the parallel loops from ``level`` on; the last one may be the vector loop."""
        self.points.fill(scope, level, self.marks, 0)
        if level == len(self.parallel):
            self._row([scope])
            return
        dim = self.parallel[level]
        n = self.dims[dim].extent
        if dim == self.points.vector_dim:
            self._vectors(scope, dim, part == dim)
            return
        lo, hi = self.em.chunk(n) if part == dim else (0, n)

        def body(i: Index, _: list[str]) -> None:
            self._open(level + 1, self.points.enter(scope, dim, i), part)
        self.em.loop(lo, hi, 1, body)

    def _vectors(self, scope: Scope, dim: int, shared: bool) -> None:
        """The innermost parallel loop in blocks of ``unroll`` vectors, then single vectors, then the last lanes."""
        em, w, n = self.em, self.width, self.dims[dim].extent
        block = w * self.unroll
        blocks = n // block
        whole = n // w * w

        def rows(at: Index, count: int, valid: int | None = None) -> None:
            copies = [self.points.enter(scope, dim, em.add(at, u * w), valid) for u in range(count)]
            for c in copies:
                self.points.fill(c, len(self.parallel), self.marks, 0)
            self._row(copies)

        lo, hi = em.chunk(blocks) if shared else (0, blocks)
        if blocks:
            em.loop(em.mul(lo, block), em.mul(hi, block), block, lambda i, _: rows(i, self.unroll))
        if blocks * block == n:
            return

        def rest() -> None:
            em.loop(blocks * block, whole, w, lambda i, _: rows(i, 1))
            if whole < n:
                rows(whole, 1, n - whole)
        if shared:
            em.when(em.compare("eq", "%tid", em.sub("%nth", 1)), rest)
        else:
            rest()

    # One row, or one vector of rows

    def _row(self, copies: list[Scope]) -> None:
        self.known = {}
        for stage, sweep in enumerate(self.sweeps):
            if sweep.reductions or sweep.stores:
                self._sweep(stage, sweep, copies)
            for c in copies:
                self.points.fill(c, self.points.rows, self.marks, stage + 1)
        for o, step in enumerate(self.nest.results):
            if self.reduced and not self.nest.is_full(o):
                for c in copies:
                    self.points.store(c, o, step)

    def _sweep(self, stage: int, sweep: Sweep, copies: list[Scope]) -> None:
        """Run over the reduced dims; afterwards the rows know the stage's reductions."""
        steps = [self.nest.steps[i] for i in sweep.reductions]
        count = self.unroll if self.lanes_reduced else len(copies)
        if not self.reduced:
            self._block(stage, sweep, copies, [], 1)
            return
        carry = [self.points.accumulator(s) for s in steps for _ in range(count)]
        if self.resident:
            totals = self._written_out(stage, sweep, copies, [v for _, v in carry], count)
        else:
            totals = self._nested(0, stage, sweep, copies, carry)
        for k, (i, s) in enumerate(zip(sweep.reductions, steps, strict=True)):
            own = totals[k * count:(k + 1) * count]
            if self.lanes_reduced:
                copies[0].values[i] = self.points.finish(s, own)
            else:
                for c, total in zip(copies, own, strict=True):
                    c.values[i] = self.points.finish(s, [total])

    def _block(self, stage: int, sweep: Sweep, scopes: Sequence[Scope], totals: Sequence[str], count: int,
               first: int = 0) -> list[str]:
        """The innermost text: all loads and calls of all copies, then accumulation, then stores.

        Loads come before stores because an output may have the buffer of an operand.
        """
        points = self.points
        result = list(totals)
        for u, scope in enumerate(scopes):
            for i in sweep.loaded:
                if scope.get(i) is None:
                    dtype = self.nest.steps[i].dtype
                    at, offset = self._scratch_at(scope, i, u)
                    valid = scope.valid if self.lanes_reduced else None
                    scope.values[i] = self.em.read(dtype, self.width, at, offset, 1, valid)
            points.fill(scope, len(points.loops), sweep.computed, stage)
        for u, scope in enumerate(scopes):
            for i in sweep.saved:
                if i in self.scratch:
                    at, offset = self._scratch_at(scope, i, u)
                    valid = scope.valid if self.lanes_reduced else None
                    self.em.write(self.nest.steps[i].dtype, self.width, points.value(scope, i), at, offset, 1, valid)
            for k, i in enumerate(sweep.reductions):
                slot = k * count + (first + u) % count
                result[slot] = points.accumulate(scope, self.nest.steps[i], result[slot])
        for o in sweep.stores:
            for scope in scopes:
                points.store(scope, o, self.nest.results[o])
        return result

    def _nested(self, level: int, stage: int, sweep: Sweep, copies: Sequence[Scope],
                carry: list[tuple[str, str]]) -> list[str]:
        """The loops over reduced dims from ``level`` on, carrying the accumulators."""
        dim = self.reduced[level]
        types = [t for t, _ in carry]
        n = self.dims[dim].extent
        last = level + 1 == len(self.reduced)
        if last and self.lanes_reduced:
            return self._lanes(stage, sweep, copies[0], carry)

        def body(i: Index, values: list[str]) -> list[str]:
            inner = [self.points.enter(c, dim, i) for c in copies]
            if last:
                return self._block(stage, sweep, inner, values, len(copies))
            for c in inner:
                self.points.fill(c, self.points.rows + level + 1, sweep.computed, stage)
            return self._nested(level + 1, stage, sweep, inner, list(zip(types, values, strict=True)))
        return self.em.loop(0, n, 1, body, carry)

    def _lanes(self, stage: int, sweep: Sweep, scope: Scope, carry: list[tuple[str, str]]) -> list[str]:
        """The innermost loop of a row: blocks, single vectors, the last lanes."""
        em, w, dim = self.em, self.width, self.points.vector_dim
        n = self.dims[dim].extent
        types = [t for t, _ in carry]
        block = w * self.unroll
        full, whole = n // block * block, n // w * w

        def turn(count: int, valid: int | None = None) -> Callable[[Index, list[str]], list[str]]:
            def body(at: Index, values: list[str]) -> list[str]:
                copies = [self.points.enter(scope, dim, em.add(at, u * w), valid) for u in range(count)]
                return self._block(stage, sweep, copies, values, self.unroll)
            return body
        totals = em.loop(0, full, block, turn(self.unroll), carry)
        totals = em.loop(full, whole, w, turn(1), list(zip(types, totals, strict=True)))
        return turn(1, n - whole)(whole, totals) if whole < n else totals

    def _written_out(self, stage: int, sweep: Sweep, copies: Sequence[Scope], totals: list[str],
                     count: int) -> list[str]:
        """Every point of a short row one after the other; their scopes stay known for later stages."""
        extents = [self.dims[d].extent for d in self.reduced]
        ranges = [range(0, n, self.width) if d == self.points.vector_dim else range(n)
                  for d, n in zip(self.reduced, extents, strict=True)]
        turn = 0
        for at in product(*ranges):
            valid = None
            if self.lanes_reduced and at[-1] + self.width > extents[-1]:
                valid = extents[-1] - at[-1]
            inner: list[Scope] = []
            for u, c in enumerate(copies):
                key = (u, *at)
                if key not in self.known:
                    scope = c
                    for d, i in zip(self.reduced, at, strict=True):
                        scope = self.points.enter(scope, d, i, valid if d == self.points.vector_dim else None)
                    self.known[key] = scope
                inner.append(self.known[key])
            for c in inner:
                for depth in range(self.points.rows + 1, len(self.points.loops)):
                    self.points.fill(c, depth, sweep.computed, stage)
            totals = self._block(stage, sweep, inner, totals, count, first=turn if self.lanes_reduced else 0)
            turn += 1
        return totals


