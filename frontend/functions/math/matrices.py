"""Determinants, inverses and Cholesky factors."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir.symbol import where

from ... import backend
from ...broadcasting import broadcast_to
from ...function_node import FunctionNode
from ...structured import Structured
from ...utils import type_check
from ...variable import Variable, as_variable
from ..array.axes import swapaxes
from ..array.shape import reshape
from .matmul import matmul


class _OfMatrices(FunctionNode):
    """A function of square matrices ``a`` with ``ndim`` axes."""

    pure = True

    def __init__(self, ndim: int) -> None:
        super().__init__()
        self.ndim = ndim

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("a",))
        a_type, = in_types
        type_check.expect(a_type.dtype.kind == "f", a_type.ndim == self.ndim, a_type.shape[-1] == a_type.shape[-2])


def _wide(a: Any) -> Any:
    """Return the matrices in a dtype that linear algebra knows: float16 is not among them."""
    return a.astype(np.float32) if a.dtype == np.float16 else a


class Det(_OfMatrices):
    """The determinant of each matrix."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, = inputs
        self.retain_inputs((0,))
        self.retain_outputs((0,))
        xp = backend.get_array_module(a)
        return xp.asarray(xp.linalg.det(_wide(a)), a.dtype),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, = self.get_retained_inputs()
        y, = self.get_retained_outputs()
        factor = grad_outputs[0] * y
        turned = swapaxes(Inv(self.ndim).apply((a,))[0], -1, -2)
        return broadcast_to(reshape(factor, (*factor.shape, 1, 1)), a.shape) * turned,

    def onnx(self, g: Any, a: str) -> Any:
        return g.Det(a) if g.opset >= 11 else NotImplemented


class Inv(_OfMatrices):
    """The inverse of each matrix."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, = inputs
        self.retain_outputs((0,))
        if hasattr(a, "instead"):  # gradients are derived on arrays of ones, which have no inverse
            return a.instead(a.shape, a.dtype),
        xp = backend.get_array_module(a)
        try:
            y = xp.linalg.inv(_wide(a)).astype(a.dtype, copy=False)
        except np.linalg.LinAlgError:
            y = None
        if y is None or (xp is not np and not bool(xp.isfinite(y).all())):
            raise ValueError("inverse: a matrix is singular, it has no inverse (Input has singular matrices.)")
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y, = self.get_retained_outputs()
        return -matmul(matmul(y, grad_outputs[0], transa=True), y, transb=True),


class Cholesky(_OfMatrices):
    """The lower triangular factor of a matrix."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, = inputs
        self.retain_outputs((0,))
        if hasattr(a, "instead"):
            return a.instead(a.shape, a.dtype),
        return backend.get_array_module(a).linalg.cholesky(_wide(a)).astype(a.dtype, copy=False),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y, = self.get_retained_outputs()
        inverse = Inv(2).apply((y,))[0]
        inner = HalfTriangle().apply((matmul(y, grad_outputs[0], transa=True),))[0]
        g = matmul(matmul(inverse, inner, transa=True), inverse)
        return (g + swapaxes(g, 0, 1)) * 0.5,


class HalfTriangle(Structured):
    """The lower triangle of a matrix, with half the diagonal."""

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        n = x.shape[0]
        return b.map(lambda x, i, j: where(i == j, x * 0.5, where(i > j, x, 0.0)),
                     x, b.reshape(b.arange(n), (n, 1)), b.reshape(b.arange(n), (1, n))),


def det(a: Any) -> Variable:
    """Determinant of a matrix.

    Args:
        a: Floating-point matrix (N, N), perhaps with further axes of one element.

    Returns:
        Variable: Without dimensions. Its gradient needs the inverse.

    Raises:
        InvalidType: ``a`` is no square matrix of floating point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.det(np.array([[1, 2], [3, 5]], "f")).array.round(5)
    np.float32(-1.0)
    """
    a = as_variable(a)
    if a.ndim > 2 and a.shape[2:] == (1,) * (a.ndim - 2):
        a = reshape(a, a.shape[:2])
    return Det(2).apply((a,))[0]


def batch_det(a: Any) -> Variable:
    """Determinants of a batch of matrices (B, N, N): (B,).

    Raises:
        InvalidType: ``a`` holds no square matrices of floating point.
    """
    return Det(3).apply((as_variable(a),))[0]


def inv(a: Any) -> Variable:
    """Inverse of a matrix.

    Args:
        a: Floating-point matrix (N, N).

    Raises:
        ValueError: It has none.
        InvalidType: ``a`` is no square matrix of floating point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.inv(np.array([[1, 2], [3, 5]], "f")).array.round(4)
    array([[-5.,  2.],
           [ 3., -1.]], dtype=float32)
    """
    return Inv(2).apply((as_variable(a),))[0]


def batch_inv(a: Any) -> Variable:
    """Inverses of a batch of matrices (B, N, N).

    Raises:
        ValueError: A matrix has none.
        InvalidType: ``a`` holds no square matrices of floating point.
    """
    return Inv(3).apply((as_variable(a),))[0]


def cholesky(a: Any) -> Variable:
    """Lower triangular matrix whose product with its own transpose is the given one.

    Args:
        a: Symmetric, positive definite matrix (N, N); its lower triangle is read, and its gradient is symmetric.

    Raises:
        numpy.linalg.LinAlgError: The matrix is not positive definite.
        InvalidType: ``a`` is no square matrix of floating point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.cholesky(np.array([[4, 2], [2, 10]], "f")).array
    array([[2., 0.],
           [1., 3.]], dtype=float32)
    """
    return Cholesky(2).apply((as_variable(a),))[0]
