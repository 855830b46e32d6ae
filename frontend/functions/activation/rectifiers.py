"""Rectifiers and their smooth relatives."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...elementwise import elementwise
from ...tape import named
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...variable import Variable, as_variable
from ..array.join import concat
from ..array.shape import reshape
from ..math.extrema import max as max_


@elementwise("ReLU", onnx="Relu", kind="f")
def relu(xp: Any, x: Any) -> Any:
    """Rectified linear unit, ``max(x, 0)``.

    Args:
        x: Floating-point input.

    Raises:
        InvalidType: ``x`` is not floating-point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.relu(np.array([-1.0, 2.0], "f")).array.tolist()
    [0.0, 2.0]
    """
    return xp.maximum(x, 0)


@relu.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return xp.where(y > 0, gy, 0),


@elementwise("LeakyReLU", onnx=lambda g, x, slope: g.LeakyRelu(x, alpha=slope), kind="f")
def leaky_relu(xp: Any, x: Any, slope: float = 0.2) -> Any:
    """Leaky rectified linear unit: ``x`` where it is positive, ``slope * x`` elsewhere.

    Args:
        x: Floating-point input.
        slope: Factor of negative inputs.
    """
    return xp.where(x >= 0, x, x * slope)


@leaky_relu.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, slope: float) -> Any:
    return xp.where(x <= 0, gy * slope, gy),


@elementwise("ELU", onnx=lambda g, x, alpha: g.Elu(x, alpha=alpha), kind="f")
def elu(xp: Any, x: Any, alpha: float = 1.0) -> Any:
    """Exponential linear unit: ``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere.

    See: Clevert et al., `Fast and Accurate Deep Network Learning by Exponential Linear Units
    <https://arxiv.org/abs/1511.07289>`_, 2015.
    """
    return xp.where(x >= 0, x, xp.expm1(xp.minimum(x, 0)) * alpha)


@elu.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, alpha: float) -> Any:
    return xp.where(x > 0, gy, gy * xp.exp(xp.minimum(x, 0)) * alpha),


@elementwise("SELU", onnx=lambda g, x, alpha, scale: g.Selu(x, alpha=alpha, gamma=scale), kind="f")
def selu(xp: Any, x: Any, alpha: float = 1.6732632423543772848170429916717,
         scale: float = 1.0507009873554804934193349852946) -> Any:
    """Scaled exponential linear unit, ``scale * elu(x, alpha)``.

    See: Klambauer et al., `Self-Normalizing Neural Networks <https://arxiv.org/abs/1706.02515>`_, 2017.
    """
    return xp.where(x >= 0, x, xp.expm1(xp.minimum(x, 0)) * alpha) * scale


@selu.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, alpha: float, scale: float) -> Any:
    return xp.where(x > 0, gy * scale, gy * xp.exp(xp.minimum(x, 0)) * (alpha * scale)),


def _clip(g: Any, x: str, z: float) -> str:
    dtype = g.type(x).dtype
    return g.Clip(x, g.const(np.array(0, dtype)), g.const(np.array(z, dtype)))


@elementwise("ClippedReLU", onnx=_clip, kind="f")
def clipped_relu(xp: Any, x: Any, z: float = 20.0) -> Any:
    """Rectified linear unit that stops at ``z``: ``min(max(x, 0), z)``."""
    return xp.minimum(xp.maximum(x, 0), z)


@clipped_relu.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, z: float) -> Any:
    # Of the result, which the next function retains as a rule: x need not be kept.
    return xp.where(xp.logical_and(y > 0, y < z), gy, 0),


def relu6(x: Any) -> Variable:
    """Rectified linear unit that stops at 6."""
    return clipped_relu(x, 6.0)


def crelu(x: Any, axis: int = 1) -> Variable:
    """Concatenate the rectified input and its rectified negative.

    Args:
        x: Floating-point input.
        axis: Axis along which the two are joined, whose extent doubles.

    See: Shang et al., `Understanding and Improving Convolutional Neural Networks via Concatenated Rectified Linear
    Units <https://arxiv.org/abs/1603.05201>`_, 2016.
    """
    x = as_variable(x)
    return concat((relu(x), relu(-x)), axis=axis)


def maxout(x: Any, pool_size: int, axis: int = 1) -> Variable:
    """Maximum over groups of ``pool_size`` neighbours along an axis.

    Args:
        x: Floating-point input.
        pool_size: Size of a group; divides the extent of the axis.
        axis: The axis to group.

    Raises:
        ValueError: ``pool_size`` is not positive.
        InvalidType: It does not divide the extent.
    """
    if pool_size <= 0:
        raise ValueError(f"pool_size must be a positive integer, got {pool_size}")
    x = as_variable(x)
    extent = x.shape[axis]
    if extent % pool_size:
        raise type_check.InvalidType(f"x.shape[axis] % {pool_size} == 0", f"{extent} % {pool_size} == "
                                     f"{extent % pool_size}")
    axis %= x.ndim
    return max_(reshape(x, (*x.shape[:axis], extent // pool_size, pool_size, *x.shape[axis + 1:])), axis=axis + 1)


@elementwise("PReLU", onnx="PRelu")
def _prelu(xp: Any, x: Any, W: Any) -> Any:
    return xp.where(x >= 0, x, x * W)


@_prelu.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, W: Any) -> Any:
    return xp.where(x >= 0, gy, gy * W), xp.where(x >= 0, 0, gy * x)


def beside(name: str, p: Any, x: Any) -> Any:
    """Reshape a parameter that runs along ``x``'s axes from 1 on so that it broadcasts, or raise ``InvalidType``."""
    n = p.ndim
    if x.ndim < n + 1 or p.shape != x.shape[1:1 + n]:
        raise type_check.InvalidType(f"{name}.shape == x.shape[1:{n + 1}]", f"{p.shape} != {x.shape[1:n + 1]}")
    if x.dtype.kind != "f" or p.dtype != x.dtype:
        raise type_check.InvalidType(f"x: floating-point, {name}: of the same dtype", f"{x.dtype}, {p.dtype}")
    return reshape(as_variable(p), (1, *p.shape, *(1,) * (x.ndim - n - 1)))


@named("PReLUFunction")
@for_arrays
def prelu(x: Any, W: Any) -> Variable:
    """Leaky rectified linear unit whose slopes are learned.

    Args:
        x: Floating-point input; axis 0 is the batch.
        W: Slopes; their axes are those of ``x`` from 1 on, as many as they have.

    Raises:
        InvalidType: The shapes do not fit.

    See: He et al., `Delving Deep into Rectifiers <https://arxiv.org/abs/1502.01852>`_, 2015.
    """
    return _prelu(x, beside("W", W, x))
