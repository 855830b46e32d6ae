"""Products and decompositions of matrices, with gradients of any order."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import functions as F
from ..backend import get_array_module
from ..function_node import FunctionNode
from ..variable import Variable
from .apply import apply, plain
from .arrays import ndarray
from .dtypes import result_type
from .errors import ChainerxError, DimensionError, DtypeError

__all__ = ["cholesky", "eigh", "eigvalsh", "inv", "pinv", "qr", "solve", "svd"]


def _is_lapack_available() -> bool:
    return True


def dot(a: ndarray, b: ndarray) -> ndarray:
    """Return the product of matrices and vectors, the sum over the last axis of ``a`` and the first or last of ``b``.

    Raises:
        DimensionError: The shapes do not fit.
    """
    dtype = result_type(a, b)
    if not a.ndim or not b.ndim:
        return a * b
    if a.shape[-1] != b.shape[max(b.ndim - 2, 0)]:
        raise DimensionError(f"shapes {a.shape} and {b.shape} do not fit for a product")
    if dtype.kind != "f":
        return plain(np.dot, a, b, dtype=dtype)
    inner, axis = a.shape[-1], max(b.ndim - 2, 0)
    left, right = a.reshape((a.size // inner if inner else int(np.prod(a.shape[:-1])), inner)), b
    if b.ndim > 2:
        right = b.transpose([axis, *[k for k in range(b.ndim) if k != axis]])
    rest = right.shape[1:]
    right = right.reshape((inner, int(np.prod(rest))))
    y = apply(F.matmul, left, right, dtype=dtype)
    return y.reshape((*a.shape[:-1], *rest))


class _Decomposition(FunctionNode):
    """A function of a matrix with a formula for its gradient, in terms of its results.

    Args:
        value: ``value(xp, a)`` computes the results.
        formula: ``formula(a, results, gys)`` computes the gradient, of Variables.
    """

    def __init__(self, value: Callable[..., Any], formula: Callable[..., Any]) -> None:
        super().__init__()
        self._value = value
        self._formula = formula

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        xp = np if isinstance(inputs[0], np.ndarray) else get_array_module(inputs[0])
        found = tuple([xp.asarray(y) for y in self._value(xp, inputs[0])])
        self.retain_inputs((0,))
        self.retain_outputs(tuple(range(len(found))))
        return found

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, = self.get_retained_inputs()
        results = self.get_retained_outputs()
        gys = [Variable(y.xp.zeros_like(y.array), requires_grad=False) if gy is None else gy
               for y, gy in zip(results, grad_outputs, strict=True)]
        return self._formula(a, results, gys),


def _matrix(a: ndarray, square: bool = False) -> None:
    if a.ndim != 2 or square and a.shape[0] != a.shape[1]:
        raise DimensionError(f"expected a {'square ' if square else ''}matrix, got an array of shape {a.shape}")
    if a.dtype.kind != "f" or a.dtype == np.float16:
        raise DtypeError(f"expected a matrix of float32 or float64, got {a.dtype}")


def _run(function: Callable[..., Any], *xs: Any, dtype: Any = None) -> Any:
    try:
        return apply(function, *xs, dtype=dtype)
    except np.linalg.LinAlgError as error:
        raise ChainerxError(str(error)) from error


def _t(x: Variable) -> Variable:
    return F.transpose(x)


def _constant(x: Any, like: Variable) -> Variable:
    return Variable(like.xp.asarray(x, like.dtype), requires_grad=False)


def _differences(values: Variable) -> Variable:
    """Return 1 / (v_j - v_i), with zeros on the diagonal."""
    n = values.shape[0]
    eye = _constant(np.eye(n), values)
    rows, columns = F.broadcast_to(values[None, :], (n, n)), F.broadcast_to(values[:, None], (n, n))
    return (1.0 - eye) / (rows - columns + eye)


def _diagonal(values: Variable) -> Variable:
    n = values.shape[0]
    return F.broadcast_to(values[None, :], (n, n)) * _constant(np.eye(n), values)


def cholesky(a: ndarray) -> ndarray:
    """Return the lower triangular L with ``L L^T = a``.

    Raises:
        ChainerxError: The matrix is not positive definite.
    """
    _matrix(a, True)

    def formula(a: Variable, results: Any, gys: Any) -> Variable:
        lower, = results
        half = _constant(np.tril(np.ones(lower.shape)) - np.eye(len(lower)) / 2, lower)
        inverse = F.inv(lower)
        g = F.matmul(F.matmul(_t(inverse), F.matmul(_t(lower), gys[0]) * half), inverse)
        return (g + _t(g)) / 2.0

    if not a.size:
        return a.copy()
    return _run(lambda x: _Decomposition(lambda xp, x: (xp.linalg.cholesky(x),), formula).apply((x,))[0], a)


def eigh(a: ndarray, UPLO: str = "L") -> tuple[ndarray, ndarray]:
    """Return eigenvalues and eigenvectors of a symmetric matrix, of which one triangle is read."""
    _matrix(a, True)
    side = _triangle(UPLO)

    def formula(a: Variable, results: Any, gys: Any) -> Variable:
        w, v = results
        inner = _differences(w) * F.matmul(_t(v), gys[1])
        return F.matmul(F.matmul(v, inner + _diagonal(gys[0])), _t(v))

    return _run(lambda x: _Decomposition(lambda xp, x: xp.linalg.eigh(x, side), formula).apply((x,)), a)


def eigvalsh(a: ndarray, UPLO: str = "L") -> ndarray:
    """Return the eigenvalues of a symmetric matrix, of which one triangle is read."""
    return eigh(a, UPLO)[0]


def _triangle(uplo: Any) -> str:
    if not isinstance(uplo, str):
        raise TypeError(f"UPLO is 'L' or 'U', not {uplo!r}")
    if uplo.upper() not in ("L", "U"):
        raise DimensionError(f"UPLO is 'L' or 'U', not {uplo!r}")
    return uplo.upper()


def inv(a: ndarray) -> ndarray:
    """Return the inverse of a matrix."""
    _matrix(a, True)
    return a.copy() if not a.size else _run(F.inv, a)


def solve(a: ndarray, b: ndarray) -> ndarray:
    """Return the x with ``a x = b``, for a vector or the columns of a matrix."""
    _matrix(a, True)
    if b.dtype.kind != "f" or b.dtype == np.float16:
        raise DtypeError(f"expected an array of float32 or float64, got {b.dtype}")
    if b.ndim not in (1, 2) or b.shape[0] != a.shape[0]:
        raise DimensionError(f"shapes {a.shape} and {b.shape} do not fit")
    return _run(lambda a, b: _Solve().apply((a, b))[0], a, b, dtype=result_type(a, b))


class _Solve(FunctionNode):
    """The solution of linear equations."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, b = inputs
        xp = np if isinstance(a, np.ndarray) else get_array_module(a)
        self.retain_inputs((0,))
        self.retain_outputs((0,))
        columns = b[:, None] if b.ndim == 1 else b
        return xp.linalg.solve(a, columns).reshape(b.shape),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, = self.get_retained_inputs()
        x, = self.get_retained_outputs()
        gb, = _Solve().apply((_t(a), grad_outputs[0]))
        columns = [F.reshape(one, (len(one), 1)) if one.ndim == 1 else one for one in (gb, x)]
        gx = -F.matmul(columns[0], _t(columns[1]))
        return tuple([(gx, gb)[i] for i in indexes])


def pinv(a: ndarray, rcond: float = 1e-15) -> ndarray:
    """Return the pseudoinverse of a matrix.

    Args:
        a (ndarray): The matrix.
        rcond (float): Singular values up to this part of the largest one count as zero.
    """
    _matrix(a)
    if not a.size:
        return a.transpose().copy()
    u, s, vt = svd(a, False)
    large = s._elements > rcond * s._elements.max()
    factor = plain(lambda x: x.astype(s.dtype), ndarray.of(large, s.device))
    inverse = factor / (s * factor + (1.0 - factor))
    return dot(vt.transpose() * inverse, u.transpose())


def qr(a: ndarray, mode: str = "reduced") -> Any:
    """Return Q and R with ``Q R = a``, where Q is orthogonal and R upper triangular.

    Args:
        a (ndarray): The matrix.
        mode (str): ``reduced``, ``complete``, ``r`` for R alone, or ``raw`` for what LAPACK returns.
    """
    _matrix(a)
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ValueError(f"mode is 'reduced', 'complete', 'r' or 'raw', not {mode!r}")

    def formula(a: Variable, results: Any, gys: Any) -> Variable:
        if a.shape[0] < a.shape[1] or mode == "complete" and a.shape[0] > a.shape[1]:
            raise ChainerxError("the gradient of QR needs mode 'reduced', and at least as many rows as columns")
        q, r = results
        m = F.matmul(r, _t(gys[1])) - F.matmul(_t(gys[0]), q)
        lower = m * _constant(np.tril(np.ones(m.shape)), m)
        both = lower + _t(m * _constant(np.tril(np.ones(m.shape), -1), m))
        return F.matmul(gys[0] + F.matmul(q, both), _t(F.inv(r)))

    if mode in ("r", "raw"):
        return plain(lambda x: tuple(np.linalg.qr(x, "raw")) if mode == "raw" else np.linalg.qr(x, "r"), a)
    return _run(lambda x: _Decomposition(lambda xp, x: xp.linalg.qr(x, mode), formula).apply((x,)), a)


def svd(a: ndarray, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Return U, s and V^T with ``U diag(s) V^T = a``; s alone, unless ``compute_uv``.

    A gradient needs ``full_matrices=False``.
    """
    _matrix(a)

    def formula(a: Variable, results: Any, gys: Any) -> Variable:
        u, s, vt = results
        if len(vt) != len(s) or u.shape[1] != len(s):
            raise ChainerxError("the gradient of SVD needs full_matrices=False")
        v, gu, gs, gv = _t(vt), gys[0], gys[1], _t(gys[2])
        f, sigma = _differences(s * s), _diagonal(s)
        ut_gu, vt_gv = F.matmul(_t(u), gu), F.matmul(vt, gv)
        inner = F.matmul(f * (ut_gu - _t(ut_gu)), sigma) + F.matmul(sigma, f * (vt_gv - _t(vt_gv))) + _diagonal(gs)
        ga = F.matmul(F.matmul(u, inner), vt)
        inverse = _diagonal(1.0 / s)
        if u.shape[0] > len(s):
            ga += F.matmul(F.matmul(gu - F.matmul(u, ut_gu), inverse), vt)
        if v.shape[0] > len(s):
            ga += F.matmul(F.matmul(u, inverse), _t(gv - F.matmul(v, vt_gv)))
        return ga

    if not compute_uv:
        return plain(lambda x: np.linalg.svd(x, full_matrices, False), a)
    return _run(lambda x: _Decomposition(
        lambda xp, x: xp.linalg.svd(x, full_matrices), formula).apply((x,)), a)
