"""LLVM IR text of a loop nest: explicit vectors along the innermost dim, threads along a parallel one.

Two families share everything but the axis of the lanes. In *rows* the innermost dim is reduced: lanes are neighbours in
a row, several accumulators per reduction, folded across lanes at the end. In *columns* (and pointwise nests) the
innermost dim is parallel: every lane is a row of its own. Each stage sweeps over the reduced dims once. A short sweep
is unrolled, so that values stay in registers from stage to stage; a long one is a loop, and values that are expensive
to compute again wait in the thread's scratch memory.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import product
from math import prod

from kusari.ir import Kernel
from kusari.ir.nest import Nest

from ...sweeps import Sweep, cost, depths_of, is_transcendental, nothing, sweeps_of
from ...target import Target
from ..text.emitter import Carried, Emitter, Index
from .points import Points, Scope, strides_along

LIGHT_INSTRUCTIONS = 8          # per point: up to here more registers hide the latency of memory
VECTOR_REGISTERS = 4            # one vector fills at most
FEW_REGISTERS = 16              # vector registers of a target on which heavy bodies get half as many
WASTE_RATIO = 1.1               # computed lanes per lane that exists, at most
RESIDENT_REGISTERS = 16         # of an unrolled row: their values stay known
IDLE_INSTRUCTIONS = 10          # of a row in empty lanes: from here on lanes had better lie across rows
ANY_RESIDENT_REGISTERS = 8      # the same in a text for any size, as each number of them is another text
RESIDENT_INSTRUCTIONS = 700     # of an unrolled row: compile time
MOST_SCRATCH_BYTES = 512 << 10  # per thread, about half of a second-level cache
LEAST_PARTS = 16                # of a parallel dim, for threads to share it
COLUMN_LINES = 32               # from this number of lines on columns are long
COLUMN_REGISTERS = 8            # a vector of long columns fills at most
COLUMN_PARTS = 4                # long columns should have: of narrow ones, memory is fetched for two


def nest_kernel(nest: Nest, target: Target) -> Kernel:
    """Return the kernel of ``nest``: slots are its operands, its outputs and, where needed, scratch."""
    return NestWriter(nest, target).kernel()


def lanes_of(nest: Nest, target: Target) -> int:
    """Lanes of every vector of a nest: one register of its most common width."""
    wide = all(b.dtype.itemsize == 8 for b in (*nest.operands, *nest.outputs))
    return target.lanes(8 if wide else 4)


def has_short_rows(nest: Nest, lanes: int, work: int, of_row: int) -> bool:
    """Whether lanes should lie across rows, as a row along the last dim fills no more than a register.

    Reductions then need no folding of lanes, and no lane stays empty: 3 to 25 times as fast for up to 8 columns, twice
    for 10. If nothing is reduced, the gain is lanes, and an odd number of columns takes too long to deinterleave. Needs
    a parallel dim with a register's worth of rows, one behind the other in memory, and text to unroll a row. Rows of up
    to two registers count as short if lanes would compute much for nothing: ``work`` instructions of each element in
    empty lanes, ``of_row`` of each row in all but one.
    """
    if len(nest.dims) < 2 or nest.dims[-2].reduced or any(b.part for b in nest.operands):
        return False
    n, rows = nest.dims[-1].extent, nest.dims[-2].extent
    if nest.dims[-1].reduced:
        idle = of_row + work * (-n % lanes) / lanes
        most = min(lanes, 11) if n % 2 else lanes * 2 if idle >= IDLE_INSTRUCTIONS and n % 4 == 0 else lanes
    else:
        most = min(lanes // 2, 8 if n % 2 == 0 else 5)
    if not 2 <= n <= most or rows < lanes or n * work > RESIDENT_INSTRUCTIONS:
        return False
    if sum(d.reduced for d in nest.dims) != nest.dims[-1].reduced:
        return False
    # An element, a column's or a row's own, or rows one behind the other.
    return all(b.strides[-2:] in ((0, 0), (0, 1), (1, 0), (n, 1)) for b in (*nest.operands, *nest.outputs))


def waiting_in_outputs(nest: Nest, sweeps: Sequence[Sweep]) -> dict[int, int]:
    """Return the outputs in which saved values may wait until a later sweep writes the results.

    That memory has no reader meanwhile: the value is not asked for after that sweep, and an operand that may have the
    same buffer is not read after it has been saved.
    """
    found: dict[int, int] = {}
    shared = nest.overwrites()
    for stage, sweep in enumerate(sweeps):
        for i in sweep.saved:
            last = max(k for k, s in enumerate(sweeps) if i in s.loaded)
            later = {nest.steps[k].operand for s in sweeps[stage + 1:] for k, c in enumerate(s.computed)
                     if c and nest.steps[k].kind == "load"}
            fits = [o for o, b in enumerate(nest.outputs)
                    if nest.is_full(o) and b.dtype == nest.steps[i].dtype and o not in found.values()
                    and stage < last <= nest.store_stage(o)
                    and not any(o == one and other in later for one, other in shared)]
            if fits:
                found[i] = fits[0]
    return found


class NestWriter:
    """Writes one nest; loops are opened from the outermost parallel dim to the innermost reduced one.

    A vector holds several registers' lanes where the innermost dim is long: LLVM splits each instruction into several
    that do not depend on each other, which keeps the pipelines busy.
    """

    shares_rows = False  # whether threads share the reduced dims, and not parallel ones

    def __init__(self, nest: Nest, target: Target, part: str = "") -> None:
        self.nest = nest
        self.dims = nest.dims
        self.symbol = "_".join(("nest", *(f"{'s' if d.reduced else 'p'}{d.extent}" for d in nest.dims))) + part
        self.em = em = Emitter(self.symbol, target)
        depth = depths_of(nest)
        self.parallel = [i for i, d in enumerate(nest.dims) if not d.reduced]
        self.reduced = [i for i, d in enumerate(nest.dims) if d.reduced]
        loops = len(nest.dims)
        self.lanes_reduced = nest.dims[-1].reduced
        self.marks = (True,) * len(nest.steps)
        work = sum(cost(s) for s, d in zip(nest.steps, depth, strict=True) if d == loops)
        lanes = lanes_of(nest, target)
        of_row = sum(cost(s) for s, d in zip(nest.steps, depth, strict=True) if d == loops - 1 and s.kind != "reduce")
        self.short = not self.shares_rows and has_short_rows(nest, lanes, work, of_row)
        if self.short:
            self.lanes_reduced = False
            self.width, self.resident = lanes, bool(self.reduced)
        else:
            self.width, self.resident = self._shape(lanes, work)
        self.points = Points(em, nest, self.width, vector_dim=loops - 2 if self.short else -1)
        crosses = is_transcendental if self.reduced and not self.resident else nothing
        self.sweeps = sweeps_of(nest, depth, crosses)
        self.scratch = self._plan_scratch()
        self.known: dict[tuple[int, ...], Scope] = {}  # scopes of an unrolled row

    def _shape(self, lanes: int, work: int) -> tuple[int, bool]:
        """Lanes of a vector, and whether rows are unrolled."""
        n = self.dims[-1].extent
        registers = -(-n // lanes)
        light = work <= LIGHT_INSTRUCTIONS
        most = VECTOR_REGISTERS if light or self.em.target.registers > FEW_REGISTERS else VECTOR_REGISTERS // 2
        if any(b.strides[-1] > 1 for b in self.nest.operands):
            most = 2  # lanes are gathered one by one, which is a lot of text
        spread = LEAST_PARTS
        if light and not self.lanes_reduced and self.reduced and self.dims[
                self.reduced[-1]].extent >= COLUMN_LINES:
            most, spread = self._widest(most), COLUMN_PARTS
        if not self.lanes_reduced and len(self.parallel) == 1 and not self.shares_rows:
            most = min(most, max(1, registers // spread))  # enough blocks for all threads
        count = 1
        any_size = self.em.target.any_size
        while count < most and (8 * count <= registers if any_size else
                                -(-registers // (2 * count)) * 2 * count <= registers * WASTE_RATIO):
            count *= 2
        resident = ANY_RESIDENT_REGISTERS if any_size else RESIDENT_REGISTERS
        if self.shares_rows:
            return count * lanes, False
        turns = prod([self.dims[d].extent for d in self.reduced if d != len(self.dims) - 1])
        if self.lanes_reduced:
            turns *= registers
            return count * lanes, turns <= resident and turns * work <= RESIDENT_INSTRUCTIONS
        while self.reduced and count > 1 and resident // 2 < turns * count <= resident * 2:
            count //= 2
        unrolled = turns * count
        short = unrolled <= resident and unrolled * work <= RESIDENT_INSTRUCTIONS
        return count * lanes, bool(self.reduced) and short

    def _widest(self, most: int) -> int:
        """Registers that a vector of columns may fill so that the carried values stay in registers.

        The wider it is, the fewer lines of memory are fetched for two vectors, and the fewer evict each other.
        """
        steps, loops = self.nest.steps, len(self.dims)
        folded = [s.stage for s in steps if s.kind == "reduce"]
        carried = {a for s in steps if len(s.dims) == loops for a in s.sources if 0 < len(steps[a].dims) < loops}
        alive = max(map(folded.count, folded), default=0) + len(carried) + 1
        return COLUMN_REGISTERS if COLUMN_REGISTERS * alive <= self.em.target.registers else most

    # Scratch

    def _plan_scratch(self) -> dict[int, int]:
        """Byte offset of every saved step in the thread's scratch; none is kept when they would not fit."""
        lanes = 1 if self.lanes_reduced else self.width
        points = prod(self.dims[d].extent for d in self.reduced)
        # If lanes are columns, an output's lines lie far apart, and the scratch's do not.
        self.in_output = waiting_in_outputs(self.nest, self.sweeps) if self.lanes_reduced else {}
        offsets = dict.fromkeys(self.in_output, 0)
        size = 0
        for s in self.sweeps:
            for i in s.saved:
                if i not in self.in_output:
                    offsets[i] = size
                    size += -(-points * lanes * self.nest.steps[i].dtype.itemsize // 64) * 64
        if size > MOST_SCRATCH_BYTES:
            self.sweeps = sweeps_of(self.nest, self.points.depth, nothing)
            offsets, size = {}, 0
        self.scratch_bytes = size
        if size:
            self.scratch_strides = strides_along(self.nest, self.reduced, lanes)
            self.points.walk(self.scratch_strides)
            base = self.em.slot(len(self.nest.operands) + len(self.nest.outputs))
            self.scratch_base = self.em.gep(base, self.em.tid * size, "i8")
        return offsets

    def _scratch_at(self, scope: Scope, step: int) -> tuple[str, Index, int | None]:
        """Pointer, element and valid lanes of a saved value."""
        output = self.in_output.get(step)
        if output is not None:
            at = self.points.pointers[len(self.nest.operands) + output]
            return at, scope.offsets[self.nest.outputs[output].strides], scope.valid
        at = self.em.gep(self.scratch_base, self.scratch[step], "i8")
        return at, scope.offsets[self.scratch_strides], scope.valid if self.lanes_reduced else None

    # Loops over rows

    def kernel(self) -> Kernel:
        """Write everything."""
        part, nest = self._shared_dim(), self.nest
        self._open_all(part)
        work = sum(cost(s) * prod([self.dims[d].extent for d in s.dims]) for s in nest.steps)
        return Kernel("llvm", self.symbol, self.em.text(), self.scratch_bytes, work, nest.traffic, serial=part is None)

    def _open_all(self, part: int | None) -> None:
        """Open all loops; threads share the one over dim ``part``, or the first does everything for None."""
        root = self.points.root()
        if part is None:
            with self.em.only(self.em.compare("eq", self.em.tid, 0)):
                self._open(0, root, -1)
        else:
            self._open(0, root, part)

    def _shared_dim(self) -> int | None:
        """The parallel dim that threads share: the first with enough parts, or the one with most."""
        parts = {d: self.dims[d].extent // (self.width if d == self.points.vector_dim else 1) for d in self.parallel
                 if d <= self.points.vector_dim}
        for d, n in parts.items():
            if n >= LEAST_PARTS:
                return d
        return max(parts, key=lambda d: (parts[d], -d)) if parts and max(parts.values()) > 1 else None

    def _open(self, level: int, scope: Scope, part: int) -> None:
        """Open the parallel loops from ``level`` on; the last one may be the vector loop."""
        self.points.fill(scope, level, self.marks, 0)
        if level == len(self.parallel):
            self._row(scope)
            return
        dim = self.parallel[level]
        n = self.dims[dim].extent
        if dim == self.points.vector_dim:
            self._vectors(level, scope, dim, part)
            return
        if dim > self.points.vector_dim:  # short rows are unrolled
            for i in range(n):
                self._open(level + 1, self.points.enter(scope, dim, i), part)
            return
        lo, hi = self.em.chunk(n) if part == dim else (0, n)
        for i in self.em.each(lo, hi):
            self._open(level + 1, self.points.enter(scope, dim, i), part)

    def _vectors(self, level: int, scope: Scope, dim: int, part: int) -> None:
        """The innermost parallel loop: whole vectors, then the last lanes, as one more vector of the last thread."""
        em, w, n = self.em, self.width, self.dims[dim].extent
        whole = self._whole(n, w)
        lo, hi = em.chunk(-(-n // w)) if part == dim else (0, em.size(whole // w))
        if whole or em.target.any_size:
            begin, end = lo * w, hi * w
            for i in em.each(begin, em.min(end, whole) if whole < n else end, w):
                self._open(level + 1, self.points.enter(scope, dim, i), part)
        if whole < n:
            with em.only(em.compare("eq", em.tid, em.nth - 1)) if part == dim else nullcontext():
                self._open(level + 1, self.points.enter(scope, dim, whole, n - whole), part)

    def _whole(self, n: int, step: int) -> int:
        """The elements of ``n`` that are in whole vectors; in a text for any size others always come last."""
        return max(n - self.em.target.any_size * (step > 1), 0) // step * step

    # One row, or one vector of rows

    def _row(self, scope: Scope) -> None:
        self.known = {}
        for stage, sweep in enumerate(self.sweeps):
            if sweep.reductions or sweep.stores:
                self._sweep(stage, sweep, scope)
            self.points.fill(scope, self.points.rows, self.marks, stage + 1)
        for o, step in enumerate(self.nest.results):
            if self.reduced and not self.nest.is_full(o):
                self.points.store(scope, o, step)

    def _sweep(self, stage: int, sweep: Sweep, scope: Scope) -> None:
        """Run over the reduced dims; afterwards the row knows the stage's reductions."""
        steps = [self.nest.steps[i] for i in sweep.reductions]
        totals = self.points.accumulators(sweep.reductions)
        if not self.reduced:
            totals.values = self._point(stage, sweep, scope, [])
        elif self.resident:
            nothing = [""] * len(steps) if self.nest.size else totals.values
            totals.values = self._unrolled(stage, sweep, scope, nothing)
        else:
            self._nested(0, stage, sweep, scope, totals)
        for i, s, total in zip(sweep.reductions, steps, totals.values, strict=True):
            scope.values[i] = self.points.rounded(s, self.points.fold(s, total))

    def _point(self, stage: int, sweep: Sweep, scope: Scope, totals: Sequence[str]) -> list[str]:
        """The innermost text: loads and calls, then accumulation, then stores.

        Loads come before stores because an output may have the buffer of an operand.
        """
        points = self.points
        for i in sweep.loaded:
            if scope.get(i) is None:
                at, offset, valid = self._scratch_at(scope, i)
                scope.values[i] = self.em.read(self.nest.steps[i].dtype, self.width, at, offset, 1, valid)
        points.fill(scope, len(self.dims), sweep.computed, stage)
        for i in sweep.saved:
            if i in self.scratch:
                at, offset, valid = self._scratch_at(scope, i)
                self.em.write(self.nest.steps[i].dtype, self.width, points.value(scope, i), at, offset, 1, valid)
        pairs = zip(sweep.reductions, totals, strict=True)
        result = [points.accumulate(scope, self.nest.steps[i], t) for i, t in pairs]
        for o in sweep.stores:
            points.store(scope, o, self.nest.results[o])
        return result

    def _nested(self, level: int, stage: int, sweep: Sweep, scope: Scope, totals: Carried) -> None:
        """The loops over reduced dims from ``level`` on, carrying the accumulators."""
        dim = self.reduced[level]
        n, step = self.dims[dim].extent, self.width if dim == self.points.vector_dim else 1
        whole = self._whole(n, step)

        def body(i: Index, valid: int | None = None) -> list[str]:
            inner = self.points.enter(scope, dim, i, valid)
            if level + 1 == len(self.reduced):
                totals.values = self._point(stage, sweep, inner, totals.values)
            else:
                self.points.fill(inner, self.points.rows + level + 1, sweep.computed, stage)
                self._nested(level + 1, stage, sweep, inner, totals)
            return totals.values
        lo, hi = self._range(level, whole, step)
        for i in self.em.each(lo, self.em.size(hi) if isinstance(hi, int) else hi, step, totals):
            body(i)
        if whole < n:
            before = totals.values
            totals.values = self._last(level, lambda: body(whole, n - whole), before, totals.types)

    def _range(self, level: int, whole: int, step: int) -> tuple[Index, Index]:
        """The begin and the end of the loop over a reduced dim, which takes whole vectors only."""
        return 0, whole

    def _last(self, level: int, rest: Callable[[], list[str]], totals: list[str], types: Sequence[str]) -> list[str]:
        """Add the lanes behind the last whole vector."""
        return rest()

    def _unrolled(self, stage: int, sweep: Sweep, scope: Scope, totals: list[str]) -> list[str]:
        """Every point of a short row one after the other; their scopes stay known for later stages."""
        vector = self.points.vector_dim
        ranges = [range(0, self.dims[d].extent, self.width if d == vector else 1) for d in self.reduced]
        for at in product(*ranges):
            if at not in self.known:
                inner = scope
                for d, i in zip(self.reduced, at, strict=True):
                    left = self.dims[d].extent - i
                    last = left <= self.width if self.em.target.any_size else left < self.width
                    inner = self.points.enter(inner, d, i, left if d == vector and last else None)
                self.known[at] = inner
            for depth in range(self.points.rows + 1, len(self.dims)):
                self.points.fill(self.known[at], depth, sweep.computed, stage)
            totals = self._point(stage, sweep, self.known[at], totals)
        return totals
