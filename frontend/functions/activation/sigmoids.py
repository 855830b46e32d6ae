"""Sigmoids and what is made of them."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...elementwise import elementwise
from ...utils.arrays import for_arrays
from ...variable import Variable
from .rectifiers import beside


@elementwise("Sigmoid", onnx="Sigmoid", kind="f")
def sigmoid(xp: Any, x: Any) -> Any:
    """Logistic function, ``1 / (1 + exp(-x))``.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.sigmoid(np.zeros(1, "f")).array.tolist()
    [0.5]
    """
    return xp.tanh(x * 0.5) * 0.5 + 0.5  # cannot overflow


@sigmoid.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return gy * y * (1 - y),


@elementwise("Tanh", onnx="Tanh", kind="f")
def tanh(xp: Any, x: Any) -> Any:
    """Hyperbolic tangent."""
    return xp.tanh(x)


@tanh.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return gy * (1 - y * y),


@elementwise("HardSigmoid", onnx=lambda g, x: g.HardSigmoid(x, alpha=0.2, beta=0.5), kind="f")
def hard_sigmoid(xp: Any, x: Any) -> Any:
    """Piecewise linear sigmoid, ``clip(0.2 x + 0.5, 0, 1)``."""
    return xp.minimum(xp.maximum(x * 0.2 + 0.5, 0), 1)


@hard_sigmoid.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return xp.where(xp.logical_and(x > -2.5, x < 2.5), gy * 0.2, 0),


def _softplus_onnx(g: Any, x: str, beta: float) -> Any:
    dtype = g.type(x).dtype
    if dtype != np.float32:  # others are not to be had everywhere
        return NotImplemented
    if beta == 1:
        return g.Softplus(x)
    scaled = g.Softplus(g.Mul(x, g.const(np.array(beta, dtype))))
    return g.Mul(scaled, g.const(np.array(1 / beta, dtype)))


@elementwise("Softplus", onnx=_softplus_onnx, kind="f")
def softplus(xp: Any, x: Any, beta: float = 1.0) -> Any:
    """Smooth rectifier, ``log(1 + exp(beta x)) / beta``."""
    bound = xp.maximum(x, 0) if beta > 0 else xp.minimum(x, 0)
    return bound + xp.log1p(xp.exp(-abs(x * beta))) * (1 / beta)


@softplus.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, beta: float) -> Any:
    return gy * (xp.tanh(x * (0.5 * beta)) * 0.5 + 0.5),


@elementwise("Swish")
def _swish(xp: Any, x: Any, beta: Any) -> Any:
    return x * (xp.tanh(x * beta * 0.5) * 0.5 + 0.5)


@_swish.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, beta: Any) -> Any:
    s = xp.tanh(x * beta * 0.5) * 0.5 + 0.5
    slope = gy * s * (1 - s) * x
    return gy * s + slope * beta, slope * x


@for_arrays
def swish(x: Any, beta: Any) -> Variable:
    """``x * sigmoid(beta * x)``.

    Args:
        x: Floating-point input; axis 0 is the batch.
        beta: Its axes are those of ``x`` from 1 on, as many as it has.

    Raises:
        InvalidType: The shapes do not fit.

    See: Ramachandran et al., `Searching for Activation Functions <https://arxiv.org/abs/1710.05941>`_, 2017.
    """
    return _swish(x, beside("beta", beta, x))
