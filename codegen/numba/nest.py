"""Python text of a loop nest: readable, steppable in a debugger, compiled by Numba.

The innermost loop always counts from zero over slices of equal length, which is the form LLVM turns into vectors. If
the innermost dim is reduced a row's values are local variables; if it is parallel and another one is reduced, rows run
in blocks of ``LANES`` at a time and their values are arrays in the thread's scratch memory.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kusari.ir import Call, DType, Kernel, Lit, evaluate
from kusari.ir.nest import COMBINE, Buffer, Nest, Step, identity

from .scalars import literal, spell, type_name
from .text import Lines, affine

LANES = 64


def nest_kernel(nest: Nest) -> Kernel:
    """The kernel of ``nest``: slots are its operands, its outputs and, for blocks of rows, scratch."""
    writer = _Writer(nest)
    text = writer.write()
    return Kernel("numba", "nest", text, writer.scratch, len(nest.steps) * nest.size, nest.traffic,
                  serial=writer.shared is None)


def nest_text(nest: Nest) -> str:
    """The source alone: ``def nest(slots, tid, nth)`` on an array of pointers."""
    return _Writer(nest).write()


class _Writer:
    """Writes one nest. Step ``k`` is the variable ``v<k>``, operand ``k`` the array ``x<k>``, output ``k`` ``y<k>``."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.out = Lines("def nest(slots, tid, nth):")
        self.parallel = [i for i, d in enumerate(nest.dims) if not d.reduced]
        self.reduced = [i for i, d in enumerate(nest.dims) if d.reduced]
        self.last = len(nest.dims) - 1
        self.blocked = bool(self.reduced) and not nest.dims[-1].reduced
        self.pointwise = not self.reduced
        outer = [d for d in self.parallel if d != self.last]
        self.loops = outer + self.reduced if not nest.dims[-1].reduced else self.parallel + self.reduced[:-1]
        self.rows = len(outer) if not nest.dims[-1].reduced else len(self.parallel)
        self.shared = self._shared()
        self.start = ""      # the first index of the innermost slices, "" for 0
        self.kept: dict[int, str] = {}   # row values and accumulators of blocks: step → array
        self.fresh: set[int] = set()     # steps that the current innermost loop has in variables
        self.scratch = self._plan() if self.blocked else 0

    def _shared(self) -> int | None:
        best = max(self.parallel, key=lambda d: (min(self.nest.dims[d].extent, 64), -d), default=None)
        return best if best is not None and self.nest.dims[best].extent > 1 else None

    def _row_level(self, step: Step) -> bool:
        return all(d in self.parallel for d in step.dims)

    def _plan(self) -> int:
        size = 0
        self.places: list[tuple[str, int, DType]] = []
        for k, s in enumerate(self.nest.steps):
            if s.kind == "reduce" or (s.stage > 0 and self._row_level(s)):
                self.kept[k] = f"r{k}"
                self.places.append((f"r{k}", size, s.dtype))
                size += LANES * 8
        return size

    # Text

    def write(self) -> str:
        """The whole function."""
        nest, out = self.nest, self.out
        for kind, buffers, shift in (("x", nest.operands, 0), ("y", nest.outputs, len(nest.operands))):
            for k, b in enumerate(buffers):
                whole = f"carray(slots[{k + shift}], {b.offset + self._length(b)}, {type_name(b.dtype)})"
                out(f"{kind}{k} = {whole}" + (f"[{b.offset}:]" if b.offset else ""))
        if self.scratch:
            slot = len(nest.operands) + len(nest.outputs)
            out(f"scratch = carray(slots[{slot}], {self.scratch} * nth, uint8)"
                f"[{self.scratch} * tid:{self.scratch} * (tid + 1)]")
            for name, at, dtype in self.places:
                out(f"{name} = scratch[{at}:{at + LANES * dtype.itemsize}].view({type_name(dtype)})")
        if self.shared is None:
            with out.block("if tid != 0:"):
                out("return")
        else:
            n = nest.dims[self.shared].extent
            out(f"lo, hi = {n} * tid // nth, {n} * (tid + 1) // nth")
        self._steps(0, 0, [True] * len(nest.steps))
        self._open(0)
        return out.text()

    def _length(self, b: Buffer) -> int:
        return 1 + sum(max(d.extent - 1, 0) * s for d, s in zip(self.nest.dims, b.strides, strict=True))

    def _open(self, level: int) -> None:
        """The loops outside a row, from ``level`` on."""
        if level == self.rows:
            self._row()
            return
        dim = self.loops[level]
        bounds = "lo, hi" if dim == self.shared else str(self.nest.dims[dim].extent)
        with self.out.block(f"for i{dim} in range({bounds}):"):
            self._steps(level + 1, 0, [True] * len(self.nest.steps))
            self._open(level + 1)

    def _row(self) -> None:
        n = self.nest.dims[self.last].extent
        if self.nest.dims[-1].reduced:
            self._sweeps(str(n))
        elif self.shared == self.last and self.pointwise:
            self.start = "lo"
            self._sweeps("hi - lo")
        elif self.blocked:
            bounds = "lo, hi" if self.shared == self.last else f"0, {n}"
            end = "hi" if self.shared == self.last else str(n)
            with self.out.block(f"for c in range({bounds}, {LANES}):"):
                self.start = "c"
                self.out(f"n = min({LANES}, {end} - c)")
                self._sweeps("n")
        else:
            self._sweeps(str(n))

    def _sweeps(self, count: str) -> None:
        """Stage after stage of one row, or of one block of rows."""
        nest = self.nest
        for stage in range(nest.stages):
            reductions = [k for k, s in enumerate(nest.steps)
                          if s.kind == "reduce" and nest.steps[s.sources[0]].stage == stage]
            stores = [o for o in range(len(nest.outputs)) if nest.is_full(o) and nest.store_stage(o) == stage]
            if reductions or stores:
                self._sweep(stage, reductions, stores, count)
            self._finish(stage + 1, count)
        rows = [o for o in range(len(nest.outputs)) if self.reduced and not nest.is_full(o)]
        if rows and self.blocked:
            self._inner([nest.results[o] for o in rows], rows, [], count, nest.stages, row=True)
        elif rows:
            for o in rows:
                self.out(f"y{o}[{self._offset(nest.outputs[o].strides, inner=False)}] = {self._value(nest.results[o])}")

    def _sweep(self, stage: int, reductions: list[int], stores: list[int], count: str) -> None:
        nest, out = self.nest, self.out
        for k in reductions:
            first = literal(identity(nest.steps[k].fn, nest.steps[k].dtype), nest.steps[k].dtype)
            if self.blocked:
                with out.block(f"for j in range({count}):"):
                    out(f"{self.kept[k]}[j] = {first}")
            else:
                out(f"v{k} = {first}")
        marks = nest.needed(stage)

        def loops(level: int) -> None:
            if level == len(self.loops):
                targets = [nest.steps[k].sources[0] for k in reductions] + [nest.results[o] for o in stores]
                self._inner(targets, stores, reductions, count, stage)
                return
            dim = self.loops[level]
            with out.block(f"for i{dim} in range({nest.dims[dim].extent}):"):
                self._steps(level + 1, stage, marks)
                loops(level + 1)
        loops(self.rows)

    def _finish(self, stage: int, count: str) -> None:
        """Values that follow from the reductions of a sweep, once per row."""
        rows = [k for k, s in enumerate(self.nest.steps)
                if s.stage == stage and s.kind == "call" and self._row_level(s)]
        if not rows:
            return
        if not self.blocked:
            for k in rows:
                self._assign(k)
            return
        self._inner(rows, [], [], count, stage, row=True)

    def _inner(self, targets: Sequence[int], stores: Sequence[int], reductions: Sequence[int], count: str, stage: int,
               row: bool = False) -> None:
        """The innermost loop: slices before it, then steps, accumulation and stores.

        With ``row`` it runs once per row of a block, and keeps the values of stage ``stage``.
        """
        nest, out = self.nest, self.out
        marks = [False] * len(nest.steps)
        stack = list(targets)
        while stack:
            k = stack.pop()
            step = nest.steps[k]
            known = k in self.kept and not (row and step.stage == stage and step.kind == "call")
            if marks[k] or known or self.last not in step.dims:
                continue
            marks[k] = True
            stack.extend(step.sources)
        reads = [(f"x{s.operand}", nest.operands[s.operand].strides)
                 for k, s in enumerate(nest.steps) if marks[k] and s.kind == "load"]
        writes = [(f"y{o}", nest.outputs[o].strides) for o in stores]
        for name, strides in reads + writes:
            if strides[self.last]:
                out(f"{name}_ = {name}[{self._range(strides, count)}]")
        with out.block(f"for j in range({count}):"):
            for k, s in enumerate(nest.steps):
                if marks[k]:
                    self._assign(k, inner=True)
                    self.fresh.add(k)
                    if row and k in self.kept and s.stage == stage:
                        out(f"{self.kept[k]}[j] = v{k}")
            for k in reductions:
                source = nest.steps[k].sources[0]
                target = f"{self.kept[k]}[j]" if self.blocked else f"v{k}"
                out(f"{target} = {_fold(nest.steps[k], target, self._value(source))}")
            for o, (name, strides) in zip(stores, writes, strict=True):
                place = f"{name}_[j]" if strides[self.last] else f"{name}[{self._offset(strides, inner=False)}]"
                out(f"{place} = {self._value(nest.results[o])}")
        self.fresh.clear()

    def _range(self, strides: Sequence[int], count: str) -> str:
        """The slice of an array that the innermost loop runs over."""
        base = self._offset(strides, inner=False)
        if (step := strides[self.last]) != 1:  # a strided slice of an array
            first = f"{base} + {step} * {self.start or 0}"
            return f"{first}:{first} + {step} * ({count}):{step}"
        if self.start == "lo":
            return "lo:hi" if base == "0" else f"{base} + lo:{base} + hi"
        first = " + ".join(t for t in (base, self.start) if t and t != "0")
        return f"{first}:{first} + {count}" if first else f":{count}"

    def _steps(self, level: int, stage: int, marks: Sequence[bool]) -> None:
        """Steps that are computed in loop ``level``, outside of the innermost one."""
        for k, s in enumerate(self.nest.steps):
            if s.kind == "reduce" or not marks[k] or self.last in s.dims or self._level(s) != level:
                continue
            if s.stage > stage or (s.stage > 0 and self._row_level(s)):
                continue
            self._assign(k)

    def _level(self, step: Step) -> int:
        return max((self.loops.index(d) + 1 for d in step.dims if d in self.loops), default=0)

    def _assign(self, k: int, inner: bool = False) -> None:
        s = self.nest.steps[k]
        if s.kind == "load":
            strides = self.nest.operands[s.operand].strides
            place = f"x{s.operand}_[j]" if inner and strides[self.last] else \
                f"x{s.operand}[{self._offset(strides, inner=False)}]"
            self.out(f"v{k} = {place}")
        elif s.kind == "index":
            self.out(f"v{k} = {type_name(s.dtype)}({self._offset(s.strides, inner=inner)})")
        elif s.kind == "call":
            args = [a if isinstance(a, Lit) else self._value(a) for a in s.args]
            kinds = [type(a.value) if isinstance(a, Lit) else self.nest.steps[a].dtype for a in s.args]
            if all(isinstance(a, Lit) for a in args):
                self.out(f"v{k} = {_constant(s)}")
            else:
                self.out(f"v{k} = {spell(s.fn, args, kinds)}")

    def _value(self, k: int) -> str:
        return f"{self.kept[k]}[j]" if k in self.kept and k not in self.fresh else f"v{k}"

    def _offset(self, strides: Sequence[int], inner: bool) -> str:
        terms = [(f"i{d}", s) for d, s in enumerate(strides) if d != self.last]
        if inner:
            name = f"({self.start} + j)" if self.start else "j"
            terms.append((name, strides[self.last]))
        return affine(terms)


def _fold(s: Step, total: str, x: str) -> str:
    return spell(COMBINE[s.fn], [total, x], [s.dtype, s.dtype])


def _constant(s: Step) -> str:
    """A function of literals only."""
    args = tuple(a for a in s.args if isinstance(a, Lit))
    with np.errstate(all="ignore"):
        return literal(np.asarray(evaluate(Call(s.fn, args), ())).item(), s.dtype)
