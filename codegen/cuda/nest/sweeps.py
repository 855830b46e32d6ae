"""Loop nests of few long rows: several blocks share a row, and each stage of reductions is a kernel of its own.

A kernel leaves its results for each part of a row in memory that the next ones read; all of them fold the parts in
order. So a result does not depend on which block comes first.
"""
from __future__ import annotations

from kusari.ir import Kernel
from kusari.ir.nest import Nest, identity

from ...sweeps import cost, held
from ..scalar.scalars import cast
from ..text.types import literal, type_name
from .layout import layout_of
from .rows import RowsWriter

_PARTIAL_BYTES = 8  # a partial result, whatever its dtype


def sweep_kernel(nest: Nest, stage: int) -> Kernel:
    """The kernel of one sweep: slots are the nest's operands, its outputs, and memory for partial results."""
    return _SweepWriter(nest, stage).kernel()


class _SweepWriter(RowsWriter):
    """Writes one sweep, or, behind the last one, the outputs with one element per row."""

    def __init__(self, nest: Nest, stage: int) -> None:
        super().__init__(nest, layout_of(nest), f"rows_sweep{stage + 1}")
        own = self.sweeps[stage] if stage < nest.stages else None
        self.own = own if own and (own.reductions or own.stores) else None
        self.stage = min(stage, nest.stages - 1)
        self.reductions = [k for k, s in enumerate(nest.steps) if s.kind == "reduce"]

    def kernel(self) -> Kernel:
        """Write everything."""
        nest, layout = self.nest, self.layout
        memory = len(self.reductions) * layout.rows * layout.parts * _PARTIAL_BYTES
        self.partial = self.text.slot("u8")
        self.begin([] if self.own is None else [self.own])
        for stage, sweep in enumerate(self.sweeps[:self.stage]):
            for k in sweep.reductions:
                self._folded_parts(k)
            self.row_steps(stage + 1)
        if self.own is None:
            with self.text.block("if (part == 0)"):
                self.store_rows()
            return self.text.kernel(layout.blocks, 0, memory, memory)
        totals = self._folded(self.own.reductions, self.sweep(self.own))
        if totals:
            with self.text.block("if (live && s == 0)"):
                for k, total in zip(self.own.reductions, totals, strict=True):
                    self.text.line(f"{self._place(k)}[part * {layout.rows} + row] = {total};")
        wanted = [s for s, c in zip(nest.steps, self.own.computed, strict=True) if c]
        moved = sum(s.dtype.itemsize * nest.size for s in wanted if s.kind == "load")
        moved += sum(nest.outputs[o].dtype.itemsize * nest.size for o in self.own.stores)
        return self.text.kernel(layout.blocks, sum(map(cost, wanted)) * nest.size, moved, memory)

    def _place(self, reduction: int) -> str:
        """The partial results of a reduction: those of all rows, part after part."""
        type_ = type_name(held(self.nest.steps[reduction]))
        first = self.reductions.index(reduction) * self.layout.rows * self.layout.parts * _PARTIAL_BYTES
        return f"((GLOBAL {type_} *)({self.partial} + {first}))"

    def _folded_parts(self, k: int) -> None:
        """Declare the value of a reduction of an earlier kernel."""
        step, text = self.nest.steps[k], self.text
        dtype = held(step)
        total = text.name("total")
        text.line(f"{type_name(dtype)} {total} = {literal(identity(step.fn, dtype), dtype)};")
        part = f"{self._place(k)}[other * {self.layout.rows} + row]"
        with text.block(f"for (int other = 0; other < {self.layout.parts}; ++other)"):
            text.line(f"{total} = {self.combine(step, total, part)};")
        text.line(f"const {type_name(step.dtype)} v{k} = {cast(total, dtype, step.dtype, text.helpers)};")
