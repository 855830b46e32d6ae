"""The specification of a matrix product with an epilogue, independent of its algorithm."""
from __future__ import annotations

from dataclasses import dataclass

from kusari.ir import Arg, DType, Expr

from ...text.types import F32
from ..operand import GemmOperand


@dataclass(frozen=True)
class GemmSpec:
    """``acc = op(A) @ op(B)`` of ``batch`` matrices, then every expression of ``exprs`` becomes an output.

    In ``exprs`` ``Arg(0)`` is the product and ``Arg(i)`` is ``operands[i - 1]``. A is ``m x k`` (``k x m`` under
    ``transa``) with rows ``lda`` elements apart, B likewise; ``stride_a`` and ``stride_b`` lead to the next matrix of
    the batch (0 = the same one). ``None`` means contiguous. Outputs are contiguous ``batch x m x n``.
    """

    m: int
    n: int
    k: int
    transa: bool = False
    transb: bool = False
    dtype: DType = F32
    batch: int = 1
    exprs: tuple[Expr, ...] = (Arg(0),)
    operands: tuple[GemmOperand, ...] = ()
    lda: int | None = None
    ldb: int | None = None
    stride_a: int | None = None
    stride_b: int | None = None

    def __post_init__(self) -> None:
        if self.dtype.kind != "f" or self.dtype.itemsize not in (4, 8):
            raise ValueError(f"expected a product of float32 or float64, got {self.dtype}")
        if min(self.m, self.n, self.k, self.batch) < 0:
            raise ValueError(f"expected sizes that are not negative, got {self.m}, {self.n}, {self.k}, {self.batch}")
