"""The values of a nest's steps at one vector of points, and their position in the text."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kusari.ir import Arg, Call, DType, Lit
from kusari.ir.nest import COMBINE, Buffer, Nest, Step, identity

from ...sweeps import depths_of, held
from ..scalar.dispatch import emit_expr
from ..text.emitter import Carried, Emitter, Index
from ..text.tiles import lanes_in
from ..text.types import F32, F64, constants, splat, value_type, vector
from .interleave import deinterleave, interleave


@dataclass
class Scope:
    """A block of the text: the loops around it, and the values computed in it.

    ``offsets`` holds, for each distinct tuple of strides, the element that the loops so far have reached; ``valid`` is
    the number of lanes that exist, None for all.
    """

    parent: Scope | None
    offsets: dict[tuple[int, ...], Index]
    index: dict[int, Index]
    valid: int | None = None
    values: dict[int, str] = field(default_factory=dict[int, str])

    def get(self, step: int) -> str | None:
        """The value of a step, computed here or around here."""
        return self.values.get(step) or (self.parent.get(step) if self.parent else None)


class Points:
    """Writes steps of ``nest`` on vectors of ``width`` lanes along its last dim, or along ``vector_dim`` before it.

    In the latter case the last dim is short and unrolled: rows of a few neighbours are deinterleaved to a vector for
    each column when the first is asked for, and written when the last is known.

    ``pointers`` are those of the operands, then of the outputs; by default the function's slots in that order.
    """

    def __init__(self, em: Emitter, nest: Nest, width: int, pointers: Sequence[str] | None = None,
                 vector_dim: int = -1) -> None:
        self.em = em
        self.nest = nest
        self.width = width
        self.vector_dim = range(len(nest.dims))[vector_dim]
        self._deinterleaved: dict[int, list[str]] = {}         # operand: its columns at this vector of short rows
        self._waiting: dict[int, dict[int, str]] = {}  # output: columns of short rows that are not written yet
        self.rows = sum(not d.reduced for d in nest.dims)  # the depth at which a row starts
        self.depth = depths_of(nest)
        count = len(nest.operands) + len(nest.outputs)
        self.pointers = [em.slot(i) for i in range(count)] if pointers is None else list(pointers)
        walked = [b.strides for b in (*nest.operands, *nest.outputs)]
        self.strides = list(dict.fromkeys(walked + [s.strides for s in nest.steps if s.kind == "index"]))

    def walk(self, strides: tuple[int, ...]) -> None:
        """Keep an offset for ``strides`` too; call it before the root scope is made."""
        if strides not in self.strides:
            self.strides.append(strides)

    def root(self) -> Scope:
        """The scope outside all loops."""
        return Scope(None, dict.fromkeys(self.strides, 0), {})

    def enter(self, scope: Scope, dim: int, at: Index, valid: int | None = None) -> Scope:
        """The scope in which loop ``dim`` is at ``at``."""
        if dim == self.vector_dim:
            self._deinterleaved, self._waiting = {}, {}
        offsets = dict(scope.offsets)
        for strides in self.strides:
            if strides[dim]:
                offsets[strides] = offsets[strides] + at * strides[dim]
        return Scope(scope, offsets, {**scope.index, dim: at}, scope.valid if valid is None else valid)

    def fill(self, scope: Scope, depth: int, marks: Sequence[bool], stage: int) -> None:
        """Write the marked steps that belong at ``depth`` and are not known yet."""
        for i, (step, wanted) in enumerate(zip(self.nest.steps, marks, strict=True)):
            due = wanted and self.depth[i] == depth and step.stage <= stage and step.kind != "reduce"
            if due and scope.get(i) is None:
                scope.values[i] = self._compute(scope, step)

    def value(self, scope: Scope, step: int) -> str:
        """The value of a step that is known here."""
        found = scope.get(step)
        if found is None:
            raise KeyError(f"step {step} of the nest is read before it is computed")
        return found

    def _compute(self, scope: Scope, step: Step) -> str:
        em, width = self.em, self.width
        if step.kind == "index":
            return self._index(scope, step)
        if step.kind == "load":
            buffer = self.nest.operands[step.operand]
            if self.is_short_row(buffer):
                return self._column(scope, step.operand)
            start, stride = scope.offsets[buffer.strides] + buffer.offset, buffer.strides[self.vector_dim]
            valid = scope.valid if stride else None
            return em.read(buffer.dtype, width, self.pointers[step.operand], start, stride, valid)
        dtypes = [self.nest.steps[a].dtype for a in step.sources]
        values = [self.value(scope, a) for a in step.sources]
        if self._divides_by_row(step, dtypes):
            # One reciprocal per row instead of a division per point; it differs by a rounding.
            return em.binary("fdiv arcp", value_type(step.dtype), width, values[0], values[1])
        count = iter(range(len(values)))
        expr = Call(step.fn, tuple(a if isinstance(a, Lit) else Arg(next(count)) for a in step.args))
        result, dtype = emit_expr(em, expr, values, dtypes, width)
        if dtype != step.dtype:
            raise TypeError(f"{step.fn} gives {dtype}, the nest expects {step.dtype}")
        return result

    def is_short_row(self, buffer: Buffer) -> bool:
        """Whether neighbours along the lanes are rows of the short last dim, one behind the other."""
        last = len(self.nest.dims) - 1
        return (self.vector_dim != last and buffer.strides[last] == 1 and not buffer.part
                and buffer.strides[self.vector_dim] == self.nest.dims[last].extent)

    def _column(self, scope: Scope, operand: int) -> str:
        """One column of the rows at this vector; all of them are read when the first one is asked for."""
        em, buffer, last = self.em, self.nest.operands[operand], len(self.nest.dims) - 1
        column = scope.index[last]
        assert isinstance(column, int)
        if operand not in self._deinterleaved:
            n = self.nest.dims[last].extent
            start = scope.offsets[buffer.strides] - column
            parts = [em.read(buffer.dtype, self.width, self.pointers[operand], start + k * self.width, 1, valid)
                     for k, valid in enumerate(self._lanes_of_rows(scope, n))]
            parts += ["zeroinitializer"] * (n - len(parts))
            self._deinterleaved[operand] = deinterleave(em, value_type(buffer.dtype), self.width, parts)
        return self._deinterleaved[operand][column]

    def _lanes_of_rows(self, scope: Scope, n: int) -> list[int]:
        """The elements in each vector of the rows of ``n`` at this vector."""
        if self.em.target.any_size and scope.valid is not None:
            return [min(max(n * scope.valid - j, 0), self.width) for j in range(0, n * self.width, self.width)]
        return lanes_in(n * (self.width if scope.valid is None else scope.valid), self.width)

    def _keep_column(self, scope: Scope, output: int, value: str) -> None:
        """Write the rows at this vector when their last column has come."""
        em, buffer, last = self.em, self.nest.outputs[output], len(self.nest.dims) - 1
        column, n = scope.index[last], self.nest.dims[last].extent
        assert isinstance(column, int)
        columns = self._waiting.setdefault(output, {})
        columns[column] = value
        if len(columns) < n:
            return
        pointer = self.pointers[len(self.nest.operands) + output]
        start = scope.offsets[buffer.strides] - column
        parts = interleave(em, value_type(buffer.dtype), self.width, [columns[j] for j in range(n)])
        for k, (x, valid) in enumerate(zip(parts, self._lanes_of_rows(scope, n), strict=False)):
            em.write(buffer.dtype, self.width, x, pointer, start + k * self.width, 1, valid)

    def _index(self, scope: Scope, step: Step) -> str:
        em, element = self.em, value_type(step.dtype)
        start = scope.offsets[step.strides]
        stride = step.strides[self.vector_dim]
        if isinstance(start, int):
            return constants(element, [start + stride * i for i in range(self.width)])
        short = f"{start}" if element == "i64" else em.value(f"trunc i64 {start} to {element}")
        base = em.broadcast(element, self.width, short)
        if not stride:
            return base
        lanes = constants(element, [stride * i for i in range(self.width)])
        return em.binary("add", element, self.width, base, lanes)

    def _divides_by_row(self, step: Step, dtypes: Sequence[DType]) -> bool:
        if step.fn != "true_divide" or len(dtypes) != 2 or step.dtype not in (F32, F64):
            return False
        above, below = step.sources
        return dtypes[0] == dtypes[1] == step.dtype and self.depth[below] < self.depth[above]

    # Outputs

    def store(self, scope: Scope, output: int, step: int) -> None:
        """Write the value of ``step`` at the points of ``scope`` to an output."""
        buffer = self.nest.outputs[output]
        pointer = self.pointers[len(self.nest.operands) + output]
        value, offset = self.value(scope, step), scope.offsets[buffer.strides]
        if self.is_short_row(buffer):
            self._keep_column(scope, output, value)
            return
        along = buffer.strides[self.vector_dim] or self.nest.dims[self.vector_dim].extent == 1
        varies = self.vector_dim in scope.index and along
        if varies:
            self.em.write(buffer.dtype, self.width, value, pointer, offset, 1, scope.valid)
        else:
            one = self.em.lane(value_type(buffer.dtype), self.width, value, 0) if self.width > 1 else value
            self.em.write(buffer.dtype, 1, one, pointer, offset)

    # Reductions

    def accumulators(self, reductions: Sequence[int]) -> Carried:
        """The accumulators of ``reduce`` steps, without a point."""
        held_as = [(self.nest.steps[i].fn, held(self.nest.steps[i])) for i in reductions]
        return Carried([vector(value_type(d), self.width) for _, d in held_as],
                       [splat(value_type(d), self.width, identity(fn, d)) for fn, d in held_as])

    def combine(self, step: Step, a: str, b: str, width: int | None = None) -> str:
        """Fold two accumulators, or parts of them that are ``width`` lanes wide."""
        dtype, fn = held(step), COMBINE[step.fn]
        if dtype.kind == "b":
            fn = "logical_or" if step.fn in ("sum", "max", "any") else "logical_and"
        call = Call(fn, (Arg(0), Arg(1)))
        return emit_expr(self.em, call, (a, b), (dtype, dtype), width or self.width)[0]

    def accumulate(self, scope: Scope, step: Step, total: str) -> str:
        """Fold the points of ``scope`` into an accumulator; empty lanes leave it as it is.

        An empty ``total`` is an accumulator without a point.
        """
        value = self.value(scope, step.sources[0])
        dtype, given = held(step), self.nest.steps[step.sources[0]].dtype
        if dtype != given:
            value = emit_expr(self.em, Call(dtype.name, (Arg(0),)), (value,), (given,), self.width)[0]
        if scope.valid is not None and self.nest.dims[self.vector_dim].reduced:
            element = value_type(dtype)
            mask = constants("i1", [i < scope.valid for i in range(self.width)])
            # Not 0.0: LLVM makes an instruction of choosing between neighbours and zeros that takes 20 ns (vexpandpd).
            none = -0.0 if step.fn == "sum" and dtype.kind == "f" else identity(step.fn, dtype)
            nothing = splat(element, self.width, none)
            value = self.em.select(element, self.width, mask, value, nothing)
        return self.combine(step, total, value) if total else value

    def fold(self, step: Step, total: str) -> str:
        """Fold the lanes of an accumulator, which are neighbours in a row; each of them has the result.

        Registers are folded to one, and its lanes with the lanes 2**k away: as many instructions as one needs.
        """
        if not self.nest.dims[self.vector_dim].reduced:
            return total
        em, dtype, width = self.em, held(step), self.width
        element, register = value_type(dtype), em.target.lanes(max(dtype.itemsize, 1))
        while width > register and width % 2 == 0:
            width //= 2
            low = em.shuffle(element, 2 * width, total, "poison", range(width))
            high = em.shuffle(element, 2 * width, total, "poison", range(width, 2 * width))
            total = self.combine(step, low, high, width)
        distance = width // 2
        while distance:
            other = em.shuffle(element, width, total, "poison", [i ^ distance for i in range(width)])
            total = self.combine(step, total, other, width)
            distance //= 2
        if width < self.width:
            total = em.shuffle(element, width, total, "poison", [i % width for i in range(self.width)])
        return total

    def rounded(self, step: Step, total: str) -> str:
        """The value of a reduction from the content of its accumulator."""
        dtype = held(step)
        if dtype != step.dtype:
            total = emit_expr(self.em, Call(step.dtype.name, (Arg(0),)), (total,), (dtype,), self.width)[0]
        return total


def strides_along(nest: Nest, dims: Sequence[int], first: int) -> tuple[int, ...]:
    """Strides of an array with some of the dims, the last of them with steps of ``first``."""
    strides = [0] * len(nest.dims)
    for d in reversed(dims):
        strides[d] = first
        first *= nest.dims[d].extent
    return tuple(strides)
