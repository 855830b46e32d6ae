"""Operands of contractions in strides."""
from __future__ import annotations

from dataclasses import dataclass

from kusari.ir import DType, Expr, expr_dtype

from ...contractions import GemmOperand
from ..text.types import value_type


@dataclass(frozen=True)
class Results:
    """The results of a contraction, as its epilogue sees them: ``batch`` times ``m`` rows of ``n``."""

    m: int
    n: int
    batch: int
    dtype: DType
    exprs: tuple[Expr, ...]
    operands: tuple[GemmOperand, ...]

    @property
    def element(self) -> str:
        """LLVM type of an element of the product."""
        return value_type(self.dtype)

    @property
    def types(self) -> list[DType]:
        """The dtypes of the outputs."""
        return [expr_dtype(e, (self.dtype, *(o.dtype for o in self.operands))) for e in self.exprs]


@dataclass(frozen=True)
class Matrices(Results):
    """A product in strides: element ``(i, p)`` of A is at ``i * a_row + p * a_k``, ``(p, j)`` of B likewise."""

    k: int
    a_slot: int
    b_slot: int
    a_row: int
    a_k: int
    b_k: int
    b_column: int
    a_batch: int
    b_batch: int
