"""Operands of contractions in strides."""
from __future__ import annotations

from collections.abc import Sequence
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
class Results:
    """The results of a contraction, as its epilogue sees them: ``batch`` times ``m`` rows of ``n``.

    ``operand_strides`` are for a step of row, column and batch.
    """

    m: int
    n: int
    batch: int
    dtype: DType
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


def results_of(m: int, n: int, batch: int, dtype: DType, exprs: tuple[Expr, ...],
               operands: Sequence[GemmOperand]) -> Results:
    """Results whose epilogue reads ``operands``."""
    return Results(m, n, batch, dtype, exprs, tuple(o.dtype for o in operands),
                   tuple((o.row, o.column, o.batch) for o in operands))
