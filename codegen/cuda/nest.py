"""CUDA C of a loop nest: one thread per point, or one block of threads per row when dims are reduced.

The parameters are pointers, operands first. The grid may have any number of blocks: points (or rows) beyond it are
taken in further turns. A block of a reduced nest has at most 1024 threads and ``THREADS`` is a good number.
"""
from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from kusari.ir import Call, DType, Kernel, Lit, evaluate
from kusari.ir.nest import COMBINE, Nest, Step, identity

from .helpers import Helpers
from .scalars import literal, spell, type_name

THREADS = 256
OPTIONS = ("--std=c++14",)


def nest_kernel(nest: Nest) -> Kernel:
    """The kernel of ``nest``; its parameters are the operands and the outputs."""
    return Kernel("cuda", "nest", nest_text(nest), 0, len(nest.steps) * nest.size, nest.traffic)


def blocks(nest: Nest, threads: int = THREADS) -> int:
    """A number of blocks that covers the nest."""
    rows = prod(d.extent for d in nest.dims if not d.reduced)
    reduced = any(d.reduced for d in nest.dims)
    return max(1, min(rows if reduced else -(-rows // threads), 1 << 16))


def nest_text(nest: Nest) -> str:
    """The source of ``extern "C" __global__ void nest(...)``."""
    return _Writer(nest).text()


class _Writer:
    """Writes one nest: step ``k`` is variable ``v<k>``, operand ``k`` pointer ``x<k>``, output ``k`` ``y<k>``."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.helpers = Helpers()
        self.lines: list[str] = []
        self.depth = 1
        self.parallel = [i for i, d in enumerate(nest.dims) if not d.reduced]
        self.reduced = [i for i, d in enumerate(nest.dims) if d.reduced]
        # A sliced operand may be a small part of a large buffer.
        reach = max(b.offset + sum(d.extent * abs(s) for d, s in zip(nest.dims, b.strides, strict=True))
                    for b in (*nest.operands, *nest.outputs))
        self.index = "int" if max(nest.size, reach) < 1 << 30 else "long long"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def open(self, text: str) -> None:
        self.line(text + " {")
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.line("}")

    def text(self) -> str:
        """The whole source."""
        nest = self.nest
        parameters = [f"const {_storage(b.dtype)} *x{k}" for k, b in enumerate(nest.operands)]
        parameters += [f"{_storage(b.dtype)} *y{k}" for k, b in enumerate(nest.outputs)]
        for t in dict.fromkeys(type_name(s.dtype) for s in nest.steps if s.kind == "reduce"):
            self.line(f"__shared__ {t} {_shared(t)}[1024];")
        rows = prod(nest.dims[d].extent for d in self.parallel)
        first, step = ("blockIdx.x", "gridDim.x") if self.reduced else (
            f"blockIdx.x * ({self.index})blockDim.x + threadIdx.x", f"gridDim.x * ({self.index})blockDim.x")
        self.open(f"for ({self.index} row = {first}; row < {rows}; row += {step})")
        self.indices("row", self.parallel)
        self.steps([k for k, s in enumerate(nest.steps) if s.stage == 0 and self.of_row(s)])
        if self.reduced:
            for stage in range(nest.stages):
                self.sweep(stage)
                self.steps([k for k, s in enumerate(nest.steps)
                            if s.stage == stage + 1 and s.kind == "call" and self.of_row(s)])
            self.store_rows()
        else:
            for o in range(len(nest.outputs)):
                self.store(o)
        self.close()
        head = f'extern "C" __global__ void nest({", ".join(parameters)}) {{'
        return self.helpers.text() + "\n".join([head, *self.lines, "}"]) + "\n"

    def of_row(self, step: Step) -> bool:
        return not any(d in self.reduced for d in step.dims)

    def indices(self, name: str, dims: Sequence[int]) -> None:
        """The loop counters of the point with a number."""
        inner = 1
        for d in reversed(dims):
            text = name if inner == 1 else f"{name} / {inner}"
            text = text if d == dims[0] else f"{text} % {self.nest.dims[d].extent}"
            self.line(f"const {self.index} i{d} = {text};")
            inner *= self.nest.dims[d].extent

    def sweep(self, stage: int) -> None:
        """The threads of the block share the reduced points, then their partial results are folded."""
        nest = self.nest
        reductions = [k for k, s in enumerate(nest.steps)
                      if s.kind == "reduce" and nest.steps[s.sources[0]].stage == stage]
        stores = [o for o in range(len(nest.outputs)) if nest.is_full(o) and nest.store_stage(o) == stage]
        if not reductions and not stores:
            return
        for k in reductions:
            s = nest.steps[k]
            self.line(f"{type_name(s.dtype)} v{k} = {literal(identity(s.fn, s.dtype), s.dtype)};")
        points = prod(nest.dims[d].extent for d in self.reduced)
        self.open(f"for ({self.index} point = threadIdx.x; point < {points}; point += blockDim.x)")
        self.indices("point", self.reduced)
        marks = nest.needed(stage)
        self.steps([k for k, s in enumerate(nest.steps) if marks[k] and s.kind != "reduce" and not self.of_row(s)])
        for k in reductions:
            self.line(f"v{k} = {self.fold(nest.steps[k], f'v{k}', f'v{nest.steps[k].sources[0]}')};")
        for o in stores:
            self.store(o)
        self.close()
        for k in reductions:
            self.fold_block(k)

    def fold_block(self, k: int) -> None:
        """A tree over the block; every thread gets the result."""
        s = self.nest.steps[k]
        shared = _shared(type_name(s.dtype))
        self.line("__syncthreads();")
        self.line(f"{shared}[threadIdx.x] = v{k};")
        self.line("__syncthreads();")
        self.open("for (int count = blockDim.x; count > 1;)")
        self.line("const int half = (count + 1) / 2;")
        other = f"{shared}[threadIdx.x + half]"
        folded = self.fold(s, f"{shared}[threadIdx.x]", other)
        self.line(f"if (threadIdx.x + half < count) {shared}[threadIdx.x] = {folded};")
        self.line("__syncthreads();")
        self.line("count = half;")
        self.close()
        self.line(f"v{k} = {shared}[0];")

    def fold(self, s: Step, total: str, x: str) -> str:
        return spell(COMBINE[s.fn], [total, x], [s.dtype, s.dtype], self.helpers)

    def store_rows(self) -> None:
        rows = [o for o in range(len(self.nest.outputs)) if not self.nest.is_full(o)]
        if rows:
            self.open("if (threadIdx.x == 0)")
            for o in rows:
                self.store(o)
            self.close()

    def store(self, o: int) -> None:
        b = self.nest.outputs[o]
        value = f"v{self.nest.results[o]}"
        if b.dtype == np.float16:
            value = self.helpers.use("float_to_half", value)
        self.line(f"y{o}[{self.offset(b.strides)}] = {value};")

    def steps(self, numbers: Sequence[int]) -> None:
        """Assign steps in order."""
        for k in numbers:
            s = self.nest.steps[k]
            if s.kind != "reduce":
                self.line(f"const {type_name(s.dtype)} v{k} = {self.value(s)};")

    def value(self, s: Step) -> str:
        if s.kind == "load":
            operand = self.nest.operands[s.operand]
            start = f" + {operand.offset}" if operand.offset else ""
            text = f"x{s.operand}[{self.offset(operand.strides)}{start}]"
            return self.helpers.use("half_to_float", text) if s.dtype == np.float16 else text
        if s.kind == "index":
            return f"({type_name(s.dtype)})({self.offset(s.strides)})"
        if all(isinstance(a, Lit) for a in s.args):
            return constant(s.fn, [a for a in s.args if isinstance(a, Lit)])[0]
        args = [a if isinstance(a, Lit) else f"v{a}" for a in s.args]
        kinds = [type(a.value) if isinstance(a, Lit) else self.nest.steps[a].dtype for a in s.args]
        return spell(s.fn, args, kinds, self.helpers)

    def offset(self, strides: Sequence[int]) -> str:
        wide = self.index
        terms = [f"i{d}" if s == 1 else f"({wide}){s} * i{d}" if wide != "int" else f"{s} * i{d}"
                 for d, s in enumerate(strides) if s]
        return " + ".join(terms) or "0"


def constant(fn: str, args: Sequence[Lit]) -> tuple[str, DType]:
    """A function of literals only: its text and the dtype NumPy gives it."""
    with np.errstate(all="ignore"):
        value = np.asarray(evaluate(Call(fn, tuple(args)), ()))
    return literal(value.item(), value.dtype), value.dtype


def _storage(dtype: DType) -> str:
    return "unsigned short" if dtype == np.float16 else type_name(dtype)


def _shared(type_: str) -> str:
    return f"shared_{type_.replace(' ', '_')}"
