"""Loop nests with reductions: the threads of a block share the points of its rows, once for each stage of reductions.

Every thread folds its own points, and a tree in shared memory folds those of a row, so results do not depend on the
card. Barriers are reached by all threads: those without a row go through the motions without points.
"""
from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kusari.ir import Kernel
from kusari.ir.nest import COMBINE, Nest, Step, identity

from ...sweeps import Sweep, cost, depths_of, held, nothing, sweeps_of
from ..scalar.scalars import cast, spell
from ..text.types import literal, type_name
from .layout import Layout, crosses, layout_of
from .points import Points, text_of

WARP_THREADS = 32
MOST_SHARED_BYTES = 40 << 10


def rows_kernel(nest: Nest) -> Kernel:
    """The kernel of a nest with reduced dims; its slots are the operands, then the outputs."""
    return RowsWriter(nest, layout_of(nest), "rows").kernel()


class RowsWriter:
    """Writes one nest; ``s`` is a thread's number among those of its row ``row``, which exists if it is ``live``."""

    def __init__(self, nest: Nest, layout: Layout, symbol: str) -> None:
        self.nest = nest
        self.layout = layout
        self.text = text_of(nest, symbol, layout.threads)
        self.points = Points(self.text, nest)
        self.parallel = [i for i, d in enumerate(nest.dims) if not d.reduced]
        self.reduced = [i for i, d in enumerate(nest.dims) if d.reduced]
        self.sweeps = sweeps_of(nest, depths_of(nest), crosses if layout.turns else nothing)
        self.kept = tuple(dict.fromkeys(i for s in self.sweeps for i in s.saved))
        self._shared: dict[tuple[str, int], str] = {}

    def kernel(self) -> Kernel:
        """Write everything."""
        nest, text = self.nest, self.text
        if self.layout.rows:
            self.begin(self.sweeps)
            for stage, sweep in enumerate(self.sweeps):
                if sweep.reductions or sweep.stores:
                    self.fold_rows(sweep, self.sweep(sweep))
                self.row_steps(stage + 1)
            self.store_rows()
        return text.kernel(self.layout.blocks, sum(cost(s) * prod([nest.dims[d].extent for d in s.dims])
                                                   for s in nest.steps), nest.traffic)

    def begin(self, sweeps: Sequence[Sweep]) -> None:
        """Declare shared memory, the thread's place, its row, and the values that rows have before all sweeps."""
        text, layout = self.text, self.layout
        if layout.shares > 1:
            self._declare_shared(sweeps)
        one, other = ("/", "%") if layout.by_columns else ("%", "/")
        whole = layout.group if layout.by_columns else layout.shares
        text.line(f"const int s = THREAD {one} {whole}, g = THREAD {other} {whole};")
        block = "BLOCK" if layout.parts == 1 else f"BLOCK / {layout.parts}"
        if layout.parts > 1:
            text.line(f"const int part = BLOCK % {layout.parts};")
        text.line(f"const {text.index} wanted = ({block}) * ({text.index}){layout.group} + g;")
        text.line(f"const bool live = wanted < {layout.rows};")
        text.line(f"const {text.index} row = live ? wanted : {layout.rows - 1};")
        self.points.indices("row", self.parallel)
        if layout.lanes > 1:
            text.line(f"const bool aligned = {self.points.aligned(layout.lanes)};")
        self.points.steps([k for k, s in enumerate(self.nest.steps) if s.stage == 0 and self.of_row(s)])

    def of_row(self, step: Step) -> bool:
        """Whether a value is the same at all points of a row."""
        return not any(d in self.reduced for d in step.dims)

    def row_steps(self, stage: int) -> None:
        """The values that rows have once the reductions before a stage are known."""
        self.points.steps([k for k, s in enumerate(self.nest.steps)
                           if s.stage == stage and s.kind == "call" and self.of_row(s)])

    def store_rows(self) -> None:
        """Outputs with one element per row."""
        rows = [o for o in range(len(self.nest.outputs)) if not self.nest.is_full(o)]
        if rows:
            with self.text.block("if (live && s == 0)"):
                for o in rows:
                    self.points.store(o)

    # Sweeps

    def sweep(self, sweep: Sweep) -> list[str]:
        """Run over this thread's points of the row; returns the accumulators of the reductions."""
        text, layout, nest = self.text, self.layout, self.nest
        totals = [text.name("total") for _ in sweep.reductions]
        for k, total in zip(sweep.reductions, totals, strict=True):
            step = nest.steps[k]
            text.line(f"{type_name(step.dtype)} {total} = {literal(identity(step.fn, held(step)), held(step))};")
        units = layout.points // layout.lanes
        if not units:
            return totals
        for i in sweep.saved:
            step = nest.steps[i]
            text.line(f"{type_name(step.dtype)} kept{i}[{layout.turns * layout.lanes}];")
        if layout.turns:
            with text.block(f"UNROLL for (int turn = 0; turn < {layout.turns}; ++turn)"):
                text.line(f"const {text.index} u = s + turn * {layout.shares};")
                with text.block(f"if (live && u < {units})"):
                    self._points(sweep, totals)
            return totals
        first, last = "s", str(units)
        if layout.parts > 1:
            each = -(-units // layout.parts)
            first, last = f"part * ({text.index}){each} + s", f"last_{text.name('u')}"
            end = f"(part + 1) * ({text.index}){each}"
            text.line(f"const {text.index} {last} = {end} < {units} ? {end} : {units};")
        with text.block(f"if (live) for ({text.index} u = {first}; u < {last}; u += {layout.shares})"):
            self._points(sweep, totals)
        return totals

    def _points(self, sweep: Sweep, totals: Sequence[str]) -> None:
        """The text at one point, or at the neighbours of one pack. Loads come before stores: see ``overwrites``."""
        points, nest, text, lanes = self.points, self.nest, self.text, self.layout.lanes
        points.indices("u", self.reduced, lanes)
        wanted = [k for k, c in enumerate(sweep.computed)
                  if c and nest.steps[k].kind != "reduce" and not self.of_row(nest.steps[k])]
        inside = [k for k in wanted if points.last in nest.steps[k].dims or lanes == 1]
        if lanes > 1:
            points.load_packs(inside, lanes, "aligned")
            points.steps([k for k in wanted if k not in inside])
            points.declare_results(sweep.stores, lanes)
            with text.block(f"UNROLL for (int lane = 0; lane < {lanes}; ++lane)"):
                self._one(sweep, totals, inside)
                points.put_results(sweep.stores)
            points.store_packs(sweep.stores, lanes, "aligned")
        else:
            self._one(sweep, totals, inside)
            for o in sweep.stores:
                points.store(o)

    def _one(self, sweep: Sweep, totals: Sequence[str], numbers: Sequence[int]) -> None:
        nest, text, lanes = self.nest, self.text, self.layout.lanes
        at = "turn" if lanes == 1 else f"turn * {lanes} + lane"
        for i in sweep.loaded:
            text.line(f"const {type_name(nest.steps[i].dtype)} v{i} = kept{i}[{at}];")
        self.points.steps(numbers, lanes)
        for i in sweep.saved:
            text.line(f"kept{i}[{at}] = v{i};")
        for k, total in zip(sweep.reductions, totals, strict=True):
            step, source = nest.steps[k], nest.steps[k].sources[0]
            value = cast(f"v{source}", nest.steps[source].dtype, held(step), text.helpers)
            text.line(f"{total} = {self.combine(step, total, value)};")

    def combine(self, step: Step, total: str, value: str) -> str:
        """Two parts of a reduction as one."""
        dtype = held(step)
        return spell(COMBINE[step.fn], [total, value], [dtype, dtype], self.text.helpers)

    # Folds

    def _declare_shared(self, sweeps: Sequence[Sweep]) -> None:
        """An array of a block's accumulators for each reduction that a sweep folds at once."""
        for sweep in sweeps:
            for type_, place in self._places(sweep.reductions):
                if (type_, place) not in self._shared:
                    self._shared[type_, place] = self.text.shared(type_, self.layout.threads)

    def _places(self, reductions: Sequence[int]) -> list[tuple[str, int]]:
        """For each reduction its type, and its number among those of the type that share a fold."""
        count: dict[str, int] = {}
        found: list[tuple[str, int]] = []
        for k in reductions:
            name = type_name(self.nest.steps[k].dtype)
            found.append((name, count.get(name, 0) % self._at_once))
            count[name] = count.get(name, 0) + 1
        return found

    @property
    def _at_once(self) -> int:
        """Reductions of one type that are folded at the same time."""
        return max(1, MOST_SHARED_BYTES // 2 // (8 * self.layout.threads))

    def fold_rows(self, sweep: Sweep, totals: Sequence[str]) -> None:
        """Every thread of a row gets the results of a sweep's reductions."""
        for k, total in zip(sweep.reductions, self._folded(sweep.reductions, totals), strict=True):
            step = self.nest.steps[k]
            value = cast(total, held(step), step.dtype, self.text.helpers)
            self.text.line(f"const {type_name(step.dtype)} v{k} = {value};")

    def _folded(self, reductions: Sequence[int], totals: Sequence[str]) -> list[str]:
        """The texts of the results."""
        if self.layout.shares == 1:
            return list(totals)
        result: list[str] = []
        for first in range(0, len(reductions), self._at_once):
            some = slice(first, first + self._at_once)
            result += self._fold_some(reductions[some], totals[some])
        return result

    def _fold_some(self, reductions: Sequence[int], totals: Sequence[str]) -> list[str]:
        text, layout = self.text, self.layout
        step = layout.group if layout.by_columns else 1
        in_warp = not layout.by_columns and layout.shares <= WARP_THREADS
        barrier = "BARRIER_OF_WARP;" if in_warp else "BARRIER;"
        arrays = [self._shared[p] for p in self._places(reductions)]
        text.line(barrier)
        for name, total in zip(arrays, totals, strict=True):
            text.line(f"{name}[THREAD] = {total};")
        text.line(barrier)
        with text.block(f"for (int reach = {layout.shares // 2}; reach > 0; reach /= 2)"):
            with text.block("if (s < reach)"):
                for name, k in zip(arrays, reductions, strict=True):
                    other = f"{name}[THREAD + reach * {step}]"
                    text.line(f"{name}[THREAD] = {self.combine(self.nest.steps[k], f'{name}[THREAD]', other)};")
            text.line(barrier)
        found: list[str] = []
        for name, k in zip(arrays, reductions, strict=True):
            type_ = type_name(self.nest.steps[k].dtype)
            found.append(text.const("sum", type_, f"{name}[THREAD - s * {step}]"))
        return found
