"""The rows of special functions, matrices and transforms."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
from functions.table import Row, X, Y, draw, ints

import kusari.functions as F

UNIT = draw(3, 4, low=0.03, high=0.97)
_erf, _gamma = (np.vectorize(f, otypes=[float]) for f in (math.erf, math.lgamma))


def _erfcx(x: Any) -> Any:
    """An integral: exp(-t * t - 2 x t) over positive t, times 2 / sqrt(pi), by Simpson's rule."""
    t = np.linspace(0, 12, 24001)
    weight = np.full(24001, 2.0)
    weight[1::2], weight[[0, -1]] = 4, 1
    return (np.exp(-t * t - 2 * x.astype(float)[..., None] * t) @ weight) * (t[1] / 3 * 2 / math.sqrt(math.pi))


def _solved(f: Any, y: Any, low: float, high: float) -> Any:
    """The places where a rising function is y, halving an interval."""
    low, high = np.full(y.shape, low), np.full(y.shape, high)
    for _ in range(60):
        middle = (low + high) / 2
        below = f(middle) < y
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low


def _zeta(x: Any, q: Any) -> Any:
    """Many terms, and the integral of what is left, from the middle of the last."""
    x, q = x.astype(float)[..., None], q.astype(float)[..., None]
    k = np.arange(20000)
    return ((q + k) ** -x).sum(-1) + ((q + 19999.5) ** (1 - x) / (x - 1))[..., 0]


def _digamma(x: Any) -> Any:
    """The slope of the logarithm of the gamma function."""
    x, h = x.astype(float), 3e-4
    return (8 * (_gamma(x + h) - _gamma(x - h)) - (_gamma(x + 2 * h) - _gamma(x - 2 * h))) / (12 * h)


def _polygamma(n: Any, x: Any) -> Any:
    factorial = np.vectorize(math.factorial)(n)
    return np.where(n == 0, _digamma(x), -(-1.0) ** n * factorial * _zeta(np.maximum(n + 1, 2), x))


def special() -> list[Row]:
    """Functions of one array or two, element by element."""
    both = draw(3, 4, low=-2.7, high=3.1)
    rows: list[tuple[str, Any, Any]] = [
        ("erfcx", X, _erfcx), ("log_ndtr", X * 2, lambda x: np.log((1 + _erf(x / 2 ** 0.5)) / 2)),
        ("erfinv", UNIT * 2 - 1, lambda x: _solved(_erf, x, -4, 4)),
        ("erfcinv", UNIT * 2, lambda x: _solved(_erf, 1 - x, -4, 4)),
        ("ndtri", UNIT, lambda x: _solved(lambda y: (1 + _erf(y / 2 ** 0.5)) / 2, x, -5, 5)),
        ("lgamma", both, _gamma), ("digamma", draw(3, 4, low=-1.8, high=3.1), _digamma),
    ]
    return [Row(name, getattr(F, name), (x,), formula) for name, x, formula in rows] + [
        Row("zeta", F.zeta, (UNIT[0] * 3 + 1.5, UNIT * 4), _zeta, double=False, fixed=(0,),
            tolerance=1e-4),
        Row("polygamma", F.polygamma, (ints(4, 4), UNIT * 4 + 0.3), _polygamma, double=False,
            tolerance=1e-4),
    ]


def matrices() -> list[Row]:
    """Functions of square matrices, Fourier transforms, and strides."""
    a = draw(3, 3) + np.diag([3, -3, 3]).astype("f")
    batch = np.stack([a, a.T - 1])

    def definite(x: Any) -> Any:
        return F.matmul(x, x, transb=True)
    return [
        Row("det", F.det, (a,), np.linalg.det, tolerance=1e-4),
        Row("batch_det", F.batch_det, (batch,), np.linalg.det, tolerance=1e-4),
        Row("inv", F.inv, (a,), np.linalg.inv), Row("batch_inv", F.batch_inv, (batch,), np.linalg.inv),
        Row("cholesky", lambda x: F.cholesky(definite(x)), (a,), lambda x: np.linalg.cholesky(x @ x.T)),
        Row("fft", lambda x, y: F.fft((x, y)), (X, Y),
            lambda x, y: (np.fft.fft(x + 1j * y).real, np.fft.fft(x + 1j * y).imag)),
        Row("ifft", lambda x, y: F.ifft((x, y)), (X, Y),
            lambda x, y: (np.fft.ifft(x + 1j * y).real, np.fft.ifft(x + 1j * y).imag)),
        Row("fft long", lambda x, y: F.fft((x, y))[0], (draw(65), draw(65, seed=1)),
            lambda x, y: np.fft.fft(x + 1j * y).real, tolerance=1e-4),
        Row("as_strided", lambda x: F.as_strided(x, (2, 3, 2), (4, 1, 2), 1), (X,),
            lambda x: x.ravel()[np.array([[[4 * i + j + 2 * k + 1 for k in range(2)] for j in range(3)]
                                          for i in range(2)])]),
    ]
