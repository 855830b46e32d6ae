"""Matrix products."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ... import backend
from ...broadcasting import sum_to
from ...function_node import FunctionNode
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...utils.half import are_half, dot, in_float32
from ...variable import Variable, as_variable
from ..array.cast import cast
from ..array.shape import reshape


class MatMul(FunctionNode):
    """Matrix product over the last two axes, batched (with broadcasting) over the others.

    Invariant: both operands have at least two axes.
    """

    def __init__(self, transa: bool = False, transb: bool = False) -> None:
        super().__init__()
        self.transa = transa
        self.transb = transb

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("a", "b"))
        a_type, b_type = in_types
        type_check.expect(a_type.dtype.kind == "f", b_type.dtype.kind == "f", a_type.ndim >= 2, b_type.ndim >= 2,
                          a_type.shape[-2 if self.transa else -1] == b_type.shape[-1 if self.transb else -2])
        if type_check.eval(a_type.ndim) != 2 or type_check.eval(b_type.ndim) != 2:
            type_check.expect_broadcast_shapes("batch axes", a_type.shape[:-2], b_type.shape[:-2])

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs((0, 1))
        a, b = inputs
        if a.ndim == 2 == b.ndim:
            return dot(a.T if self.transa else a, b.T if self.transb else b),
        xp = backend.get_array_module(a)
        a, b = a.swapaxes(-1, -2) if self.transa else a, b.swapaxes(-1, -2) if self.transb else b
        return xp.matmul(a, b) if not are_half(a, b) else in_float32(np.matmul, a, b),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, b = self.get_retained_inputs()
        gy, = grad_outputs
        grads: list[Any] = []
        for i in indexes:
            if i == 0:
                g = product(b, gy, self.transb, True) if self.transa else product(gy, b, False, not self.transb)
                x = a
            else:
                g = product(gy, a, True, self.transa) if self.transb else product(a, gy, not self.transa, False)
                x = b
            if g.dtype != x.dtype:
                g = cast(g, x.dtype)
            grads.append(g if g.shape == x.shape else sum_to(g, x.shape))
        return tuple(grads)

    def lower(self, b: Any, x: Any, y: Any) -> tuple[Any, ...]:
        return b.matmul(x, y, self.transa, self.transb),

    def onnx(self, g: Any, a: str, b: str) -> Any:
        types = g.type(a), g.type(b)
        if len(types[0].shape) == 2 == len(types[1].shape) and (self.transa or self.transb):
            return g.Gemm(a, b, transA=int(self.transa), transB=int(self.transb))

        def turned(x: str, t: Any, flag: bool) -> str:
            n = len(t.shape)
            return g.Transpose(x, perm=[*range(n - 2), n - 1, n - 2]) if flag else x
        return g.MatMul(turned(a, types[0], self.transa), turned(b, types[1], self.transb))


def product(a: Any, b: Any, transa: bool = False, transb: bool = False) -> Variable:
    """Matrix product of operands of at least two axes."""
    return MatMul(transa, transb).apply((a, b))[0]


@for_arrays
def matmul(a: Any, b: Any, transa: bool = False, transb: bool = False) -> Variable:
    """Matrix product as of ``numpy.matmul``.

    Args:
        a: Floating-point input; one axis stands for a row.
        b: Floating-point input; one axis stands for a column.
        transa: Whether the last two axes of ``a`` are swapped first (no effect on one axis).
        transb: The same for ``b``.

    Raises:
        InvalidType: Not floating-point, or the shapes do not fit.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.matmul(np.ones((2, 3), "f"), np.ones((4, 3), "f"), transb=True).shape
    (2, 4)
    """
    row, column = a.ndim == 1, b.ndim == 1
    if not (row or column):
        return MatMul(bool(transa), bool(transb)).apply((a, b))[0]
    a, b = as_variable(a), as_variable(b)
    y = product(reshape(a, (1, a.shape[0])) if row else a, reshape(b, (b.shape[0], 1)) if column else b,
                not row and bool(transa), not column and bool(transb))
    shape = y.shape[:-1] if column else y.shape
    if row:
        shape = (*shape[:-1 if column else -2], *(() if column else shape[-1:]))
    return reshape(y, shape)


def batch_matmul(a: Any, b: Any, transa: bool = False, transb: bool = False) -> Variable:
    """Matrix product of each pair in two batches; two axes stand for a batch of columns (deprecated: `matmul`).

    Raises:
        InvalidType: The shapes do not fit.
    """
    warnings.warn("batch_matmul is deprecated. Use matmul instead.", DeprecationWarning, stacklevel=2)
    a, b = as_variable(a), as_variable(b)
    if a.ndim == 2:
        a = reshape(a, (*a.shape, 1))
    if b.ndim == 2:
        b = reshape(b, (*b.shape, 1))
    return product(a, b, bool(transa), bool(transb))
