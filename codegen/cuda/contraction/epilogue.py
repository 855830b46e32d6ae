"""Epilogues: expressions applied to the results of contractions before they are stored."""
from __future__ import annotations

from collections.abc import Sequence

from kusari.ir import DType, Expr

from ...contractions import GemmOperand
from ..scalar.expressions import Expressions
from ..text.kernel import KernelText, affine
from ..text.types import stored


class Epilogue:
    """Stores ``exprs`` of a result and of further operands, slots from ``first`` on, then the outputs."""

    def __init__(self, text: KernelText, exprs: Sequence[Expr], operands: Sequence[GemmOperand], dtype: DType,
                 first: int) -> None:
        self.text, self.exprs, self.operands, self.dtype, self.first = text, exprs, operands, dtype, first

    def store(self, result: str, row: str, column: str, batch: str, place: str) -> None:
        """Finish the result of a row, column and batch; outputs have it at ``place``."""
        text = self.text
        args = [(result, self.dtype)]
        for k, o in enumerate(self.operands):
            at = affine([(row, o.row), (column, o.column), (batch, o.batch)], text.index)
            args.append((text.read(self.first + k, at), o.dtype))
        writer = Expressions(text.line, args, text.helpers, "e")
        for k, expr in enumerate(self.exprs):
            value, dtype = writer.write(expr)
            text.line(f"p{self.first + len(self.operands) + k}[{place}] = {stored(dtype, value)};")
