"""Specifications of products and convolutions with an epilogue, independent of machine and algorithm."""
from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from kusari.ir import Arg, DType, Expr, Windows
from kusari.ir.product import Rounding

F32 = np.dtype("float32")
Direction = Literal["forward", "input", "weight"]


@dataclass(frozen=True)
class GemmOperand:
    """A further array the epilogue reads; strides in elements for a step of row, column and batch (0 = broadcast)."""

    dtype: DType
    row: int
    column: int
    batch: int = 0


@dataclass(frozen=True)
class GemmSpec:
    """``acc = op(A) @ op(B)`` of ``batch`` matrices, then every expression of ``exprs`` becomes an output.

    In ``exprs`` ``Arg(0)`` is the product and ``Arg(i)`` is ``operands[i - 1]``. A is ``m x k`` (``k x m`` under
    ``transa``), B likewise; ``stride_a`` and ``stride_b`` lead to the next matrix of the batch (0 = the same one, None
    = contiguous). Outputs are contiguous ``batch x m x n``. Elements of A and B are ``factors`` where those are not of
    the product's ``dtype``: halves, whose products are added up in float32. Those of float32 are ``rounded`` first.
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
    stride_a: int | None = None
    stride_b: int | None = None
    factors: DType | None = None
    rounded: Rounding = ""

    def __post_init__(self) -> None:
        _require_floats(self)
        if not _adds_up(self.factor_dtype, self.dtype) and self.dtype.kind not in "iu":
            raise ValueError(f"expected a product of integers, float32 or float64, got {self.dtype}")
        if min(self.m, self.n, self.k, self.batch) < 0:
            raise ValueError(f"expected sizes that are not negative, got {self.m}, {self.n}, {self.k}, {self.batch}")

    @property
    def factor_dtype(self) -> DType:
        """The dtype of elements of A and B."""
        return self.factors or self.dtype


@dataclass(frozen=True)
class ConvSpec:
    """One convolution: ``x`` (n, c, *size), ``W`` (k, c / groups, *kernel), ``y`` (n, k, *out), C order, one dtype.

    ``forward`` computes y from x and W, ``input`` the gradient of x from that of y and W (a transposed convolution),
    ``weight`` the gradient of W from x and that of y. Output ``o`` along an axis sees the elements
    ``o * stride - pad + t * dilate``, those outside are zero; windows may end before the axis does, or after.

    Every expression of ``exprs`` becomes an output of the shape of the result: ``Arg(0)`` is the convolution,
    ``Arg(i)`` is ``operands[i - 1]``, whose strides are for a step of the channel (row), of the position in C order
    (column), and of the sample (batch). Weight gradients have no epilogue. Slots: the two arrays in the order named
    above, the operands, the outputs, and scratch if the kernel asks for it. ``factors`` and ``rounded`` are as in a
    product.
    """

    direction: Direction
    n: int
    c: int
    k: int
    size: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilate: tuple[int, ...]
    groups: int = 1
    dtype: DType = F32
    exprs: tuple[Expr, ...] = (Arg(0),)
    operands: tuple[GemmOperand, ...] = ()
    factors: DType | None = None
    rounded: Rounding = ""

    def __post_init__(self) -> None:
        _require_floats(self)
        if not _adds_up(self.factor_dtype, self.dtype):
            raise ValueError(f"expected a convolution of float32 or float64, got {self.dtype}")
        if self.c % self.groups or self.k % self.groups:
            raise ValueError(f"expected channels that {self.groups} groups divide, got {self.c} and {self.k}")
        if self.direction == "weight" and (self.operands or self.exprs != (Arg(0),)):
            raise ValueError("a gradient of weights has no epilogue")
        _ = self.windows

    @property
    def factor_dtype(self) -> DType:
        """The dtype of elements of both arrays."""
        return self.factors or self.dtype

    @property
    def windows(self) -> Windows:
        """The geometry along the sliding axes."""
        return Windows(self.size, self.out, self.kernel, self.stride, self.pad, self.dilate)

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return prod(self.kernel)

    @property
    def positions(self) -> int:
        """Windows of one sample."""
        return prod(self.out)

    @property
    def channels(self) -> int:
        """Channels of x in one group."""
        return self.c // self.groups

    @property
    def features(self) -> int:
        """Channels of y in one group."""
        return self.k // self.groups

    @property
    def is_plain(self) -> bool:
        """Whether windows are the elements themselves: each sample is one matrix product, nothing moves."""
        return (self.taps == 1 and set(self.stride) == {1} and not any(self.pad) and self.size == self.out)

    @property
    def flops(self) -> int:
        """Operations by definition, superfluous ones on padding included."""
        return 2 * self.n * self.k * self.channels * self.taps * self.positions

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, each counted once."""
        x, y = self.n * self.c * prod(self.size), self.n * self.k * self.positions
        w = self.k * self.channels * self.taps
        result = {"forward": y, "input": x, "weight": w}[self.direction]
        total = self.factor_dtype.itemsize * (x + y + w - result) + self.dtype.itemsize * result * len(self.exprs)
        rows, columns = (self.k, self.positions) if self.direction == "forward" else (self.c, prod(self.size))
        for o in self.operands:
            read = (rows if o.row else 1) * (columns if o.column else 1) * (self.n if o.batch else 1)
            total += o.dtype.itemsize * read
        return total


def _require_floats(spec: GemmSpec | ConvSpec) -> None:
    if spec.rounded and not spec.factor_dtype == spec.dtype == F32:
        raise ValueError(f"expected factors in float32 to be rounded, got {spec.factor_dtype}")


def _adds_up(factors: DType, sums: DType) -> bool:
    """Whether products of ``factors`` are added up in ``sums``: floats in their own dtype, halves in float32."""
    if factors != sums:
        return (factors.name, sums.name) == ("float16", "float32")
    return sums.name in ("float32", "float64")
