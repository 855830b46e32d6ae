"""Fourier transforms."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from kusari.ir.symbol import SCALAR

from ... import backend
from ...function_node import FunctionNode
from ...utils import type_check
from ...variable import Variable

_DENSE = 64  # up to this length a transform is compiled to products with matrices


class FFT(FunctionNode):
    """The transform over the last axis, or its inverse: real and imaginary parts, of which there are two of each."""

    def __init__(self, inverse: bool) -> None:
        super().__init__()
        self.inverse = inverse

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("real", "imag"))
        real, imag = in_types
        type_check.expect(real.dtype.kind == "f", real.dtype == imag.dtype, real.ndim > 0, real.shape == imag.shape)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        real, imag = inputs
        xp = backend.get_array_module(real)
        y = (xp.fft.ifft if self.inverse else xp.fft.fft)(real + 1j * imag)
        return y.real.astype(real.dtype), y.imag.astype(real.dtype)

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        real, imag = grad_outputs
        known: Any = imag if real is None else real
        factor = float(known.shape[-1])
        found = FFT(not self.inverse).apply(tuple([known * 0 if g is None else g for g in grad_outputs]))
        return tuple([found[i] / factor if self.inverse else found[i] * factor for i in indexes])

    def lower(self, b: Any, real: Any, imag: Any) -> tuple[Any, ...] | None:
        n, shape = real.shape[-1], real.shape
        if n > _DENSE:
            return None
        step, scale = (-2 if self.inverse else 2) * math.pi / n, 1 / n if self.inverse else 1.0
        row, column = b.reshape(b.arange(n), (n, 1)), b.reshape(b.arange(n), (1, n))
        cos, sin = (b.cast(b.map(lambda i, j, f=f: f((i * j % n).astype(np.float64) * step) * scale, row, column),
                           real.tensor.dtype) for f in (SCALAR.cos, SCALAR.sin))
        real, imag = (b.reshape(v, (math.prod(shape[:-1]), n)) for v in (real, imag))
        return (b.reshape(b.call("add", b.matmul(real, cos), b.matmul(imag, sin)), shape),
                b.reshape(b.call("subtract", b.matmul(imag, cos), b.matmul(real, sin)), shape))

    def onnx(self, g: Any, real: str, imag: str) -> Any:
        t = g.type(real)
        n = t.shape[-1]
        angle = np.outer(np.arange(n), np.arange(n)) % n * ((-2 if self.inverse else 2) * math.pi / n)
        cos, sin = (g.const((f(angle) / (n if self.inverse else 1)).astype(t.dtype)) for f in (np.cos, np.sin))
        return (g.Add(g.MatMul(real, cos), g.MatMul(imag, sin)), g.Sub(g.MatMul(imag, cos), g.MatMul(real, sin)))


def _parts(x: Any) -> tuple[Any, Any]:
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        raise ValueError("a Fourier transform takes a pair, the real and the imaginary parts")
    return x[0], x[1]


def fft(x: Any) -> tuple[Variable, Variable]:
    """Discrete Fourier transform over the last axis, as ``numpy.fft.fft``.

    Args:
        x: A pair: the real and the imaginary parts, floating-point and of one shape.

    Returns:
        tuple: The real and the imaginary parts of the transform.

    Raises:
        ValueError: ``x`` is no pair.
        InvalidType: The shapes or dtypes differ, or are not floating-point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.fft((np.array([1, 2], "f"), np.array([0, 1], "f")))[0].array
    array([ 3., -1.], dtype=float32)
    """
    real, imag = FFT(False).apply(_parts(x))
    return real, imag


def ifft(x: Any) -> tuple[Variable, Variable]:
    """Inverse discrete Fourier transform over the last axis, as ``numpy.fft.ifft``.

    Args:
        x: A pair: the real and the imaginary parts, floating-point and of one shape.

    Returns:
        tuple: The real and the imaginary parts.

    Raises:
        ValueError: ``x`` is no pair.
        InvalidType: The shapes or dtypes differ, or are not floating-point.
    """
    real, imag = FFT(True).apply(_parts(x))
    return real, imag
