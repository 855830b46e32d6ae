"""Operands of contractions in strides."""
from __future__ import annotations

from dataclasses import dataclass

from kusari.ir import DType, Expr

from ..text.types import value_type


@dataclass(frozen=True)
class GemmOperand:
    """A further array the epilogue reads; strides in elements for a step of row, column and batch (0 = broadcast)."""

    dtype: DType
    row: int
    column: int
    batch: int = 0


@dataclass(frozen=True)
class Matrices:
    """A product in strides: element ``(i, p)`` of A is at ``i * a_row + p * a_k``, ``(p, j)`` of B likewise."""

    m: int
    n: int
    k: int
    dtype: DType
    batch: int
    a_slot: int
    b_slot: int
    a_row: int
    a_k: int
    b_k: int
    b_column: int
    a_batch: int
    b_batch: int
    exprs: tuple[Expr, ...]
    operand_dtypes: tuple[DType, ...]
    operand_strides: tuple[tuple[int, int, int], ...]

    @property
    def element(self) -> str:
        """LLVM type of an element of the product."""
        return value_type(self.dtype)

    @property
    def scratch_slot(self) -> int:
        """The slot after the outputs."""
        return 2 + len(self.operand_dtypes) + len(self.exprs)
