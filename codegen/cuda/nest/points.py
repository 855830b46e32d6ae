"""The values of a nest's steps at one point, or at neighbours along its last dim, as lines of text."""
from __future__ import annotations

from collections.abc import Collection, Sequence

from kusari.ir import Lit
from kusari.ir.nest import Buffer, Nest, Step

from ..scalar.scalars import constant, spell
from ..text.kernel import KernelText, affine, int_type
from ..text.types import loaded, stored, type_name


class Points:
    """Writes steps of ``nest``: step ``k`` is variable ``v<k>``, loop counter ``d`` is ``i<d>``.

    Neighbours are ``lanes`` points along the last dim; their counter is that of the first one, plus ``lane``.
    """

    def __init__(self, text: KernelText, nest: Nest) -> None:
        self.text = text
        self.nest = nest
        self.last = len(nest.dims) - 1

    def indices(self, number: str, dims: Sequence[int], lanes: int = 1) -> None:
        """Declare the loop counters of a point, or of the first of ``lanes`` neighbours, with a number."""
        inner = 1
        for d in reversed(dims):
            extent = self.nest.dims[d].extent // (lanes if d == self.last else 1)
            text = number if inner == 1 else f"{number} / {inner}"
            text = text if d == dims[0] else f"{text} % {extent}"
            if d == self.last and lanes > 1:
                text = f"({text}) * {lanes}"
            self.text.line(f"const {self.text.index} i{d} = {text};")
            inner *= max(1, extent)

    def offset(self, strides: Sequence[int], start: int = 0) -> str:
        """The element at the present point."""
        return affine([(f"i{d}", s) for d, s in enumerate(strides)], self.text.index, start)

    def steps(self, numbers: Collection[int], lanes: int = 1) -> None:
        """Declare values of steps, in order; with ``lanes`` at one of the neighbours."""
        for k in sorted(numbers):
            step = self.nest.steps[k]
            if step.kind != "reduce":
                self.text.line(f"const {type_name(step.dtype)} v{k} = {self._value(step, lanes)};")

    def _value(self, step: Step, lanes: int) -> str:
        if step.kind == "load":
            buffer = self.nest.operands[step.operand]
            along = buffer.strides[self.last] if lanes > 1 else 0
            if along == 1:
                return loaded(buffer.dtype, f"q{step.operand}.at[lane]")
            at = self.offset(buffer.strides, buffer.offset)
            return self.text.read(step.operand, f"{at} + {along} * lane" if along else at)
        if step.kind == "index":
            along = step.strides[self.last] if lanes > 1 else 0
            at = self.offset(step.strides)
            return f"({type_name(step.dtype)})({at}{f' + {along} * lane' if along else ''})"
        if all(isinstance(a, Lit) for a in step.args):
            return constant(step.fn, [a for a in step.args if isinstance(a, Lit)])[0]
        args = [a if isinstance(a, Lit) else f"v{a}" for a in step.args]
        kinds = [type(a.value) if isinstance(a, Lit) else self.nest.steps[a].dtype for a in step.args]
        return spell(step.fn, args, kinds, self.text.helpers)

    def is_packed(self, buffer: Buffer) -> bool:
        """Whether neighbours along the last dim are neighbours in memory."""
        return buffer.strides[self.last] == 1

    def aligned(self, lanes: int) -> str:
        """The condition that packs of ``lanes`` elements may be read and written where they lie."""
        buffers = (*self.nest.operands, *self.nest.outputs)
        tests = [f"ADDRESS(p{k}) % {lanes * b.dtype.itemsize}" for k, b in enumerate(buffers)
                 if self.is_packed(b) and lanes * b.dtype.itemsize > 1]
        return f"({' | '.join(tests)}) == 0"

    def load_packs(self, numbers: Collection[int], lanes: int, aligned: str = "") -> None:
        """Declare the packs that the steps read; element by element where the condition ``aligned`` does not hold."""
        for k in sorted(numbers):
            step = self.nest.steps[k]
            if step.kind != "load" or not self.is_packed(self.nest.operands[step.operand]):
                continue
            buffer, operand = self.nest.operands[step.operand], step.operand
            pack, at = self.text.pack(buffer.dtype, lanes), self.offset(buffer.strides, buffer.offset)
            whole = f"*(GLOBAL const {pack} *)(p{operand} + ({at}))"
            if not aligned:
                self.text.line(f"const {pack} q{operand} = {whole};")
                continue
            self.text.line(f"{pack} q{operand};")
            self.text.line(f"if ({aligned}) q{operand} = {whole};")
            self.text.line(f"else for (int lane = 0; lane < {lanes}; ++lane) "
                           f"q{operand}.at[lane] = p{operand}[{at} + lane];")

    def declare_results(self, outputs: Sequence[int], lanes: int) -> None:
        """Declare the packs of results."""
        for o in outputs:
            self.text.line(f"{self.text.pack(self.nest.outputs[o].dtype, lanes)} r{o};")

    def put_results(self, outputs: Sequence[int]) -> None:
        """Put results of one of the neighbours into the packs."""
        for o in outputs:
            self.text.line(f"r{o}.at[lane] = {stored(self.nest.outputs[o].dtype, f'v{self.nest.results[o]}')};")

    def store_packs(self, outputs: Sequence[int], lanes: int, aligned: str = "") -> None:
        """Write the packs of results."""
        for o in outputs:
            buffer, k = self.nest.outputs[o], len(self.nest.operands) + o
            at = self.offset(buffer.strides)
            whole = f"*(GLOBAL {self.text.pack(buffer.dtype, lanes)} *)(p{k} + ({at})) = r{o};"
            if not aligned:
                self.text.line(whole)
                continue
            self.text.line(f"if ({aligned}) {whole}")
            self.text.line(f"else for (int lane = 0; lane < {lanes}; ++lane) p{k}[{at} + lane] = r{o}.at[lane];")

    def store(self, output: int) -> None:
        """Write one result."""
        buffer = self.nest.outputs[output]
        self.text.write(len(self.nest.operands) + output, self.offset(buffer.strides), f"v{self.nest.results[output]}")


def text_of(nest: Nest, symbol: str, threads: int) -> KernelText:
    """An empty kernel for ``nest``; its operands are those of the nest, then the outputs."""
    buffers = (*nest.operands, *nest.outputs)
    # A sliced operand may be a small part of a large buffer.
    reach = max(b.offset + sum(d.extent * abs(s) for d, s in zip(nest.dims, b.strides, strict=True)) for b in buffers)
    return KernelText(symbol, threads, [b.dtype for b in buffers], int_type(max(nest.size, reach)))
