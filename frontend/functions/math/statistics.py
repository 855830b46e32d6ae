"""Means, cumulative sums, log-sum-exp and norms."""
from __future__ import annotations

from math import prod as product_of
from typing import Any

import numpy as np

from kusari.ir import PRIMITIVES
from kusari.ir.symbol import exp, log

from ...broadcasting import broadcast_to
from ...elementwise import elementwise
from ...function_node import FunctionNode
from ...tape import named
from ...utils import type_check
from ...variable import Variable, as_variable
from ..array.shape import reshape
from .exponential import square
from .reduction import Axis, Reduction, checked_axis, kept
from .reduction import sum as sum_


def _count(shape: tuple[int, ...], axis: tuple[int, ...] | None) -> int:
    return product_of(shape if axis is None else [shape[a] for a in axis])


class Mean(Reduction):
    """Mean of elements over axes."""

    onnx_name = "ReduceMean"

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        wide = b.cast(x, np.float32) if x.tensor.dtype == np.float16 else x
        y = b.call("multiply", b.reduce("sum", wide, self.axis), 1.0 / max(_count(x.shape, self.axis), 1))
        return self.result(b, x, b.cast(y, x.tensor.dtype)),


def average(x: Any, axis: Axis = None, weights: Any = None, keepdims: bool = False) -> Variable:
    """Mean, or weighted mean, over axes.

    Args:
        x: Floating-point input.
        axis: Axis or axes; None for all.
        weights: Weights of the shape of ``x``, or a vector along the one axis that is given.
        keepdims: Whether the reduced axes stay, with extent 1.

    Raises:
        InvalidType: The shapes do not fit, or ``x`` is not floating-point.
        ValueError: Weights are given together with several axes.
    """
    axes = checked_axis(axis)
    if weights is None:
        return Mean(axes, keepdims).apply((x,))[0]
    x, weights = as_variable(x), as_variable(weights)
    if isinstance(axis, tuple):
        raise ValueError("a tuple of axes is not supported when weights are given")
    if weights.shape != x.shape and axes is not None:
        along = axes[0] % x.ndim
        weights = reshape(weights, tuple([n if i == along else 1 for i, n in enumerate(x.shape)]))
    if weights.shape != x.shape:
        total = sum_(weights)
        weights = broadcast_to(weights, x.shape)
        return sum_(x * weights, axes, keepdims) / total
    y = sum_(x * weights, axes, keepdims)
    return y / sum_(weights, axes, keepdims)


def mean(x: Any, axis: Axis = None, weights: Any = None, keepdims: bool = False) -> Variable:
    """Mean, or weighted mean, over axes: another name of `average`."""
    return average(x, axis, weights, keepdims)


class Cumsum(FunctionNode):
    """Cumulative sum along an axis, from its end if ``reverse``."""

    def __init__(self, axis: int, reverse: bool = False) -> None:
        super().__init__()
        self.axis = axis
        self.reverse = reverse

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        type_check.expect(x_type.dtype.kind == "f")
        if self.axis >= 0:
            type_check.expect(x_type.ndim > self.axis)
        else:
            type_check.expect(x_type.ndim >= -self.axis)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return PRIMITIVES["cumsum"].call({"axis": self.axis, "reverse": self.reverse}, inputs[0])

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return Cumsum(self.axis, not self.reverse).apply((grad_outputs[0],))

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return b.cumsum(x, self.axis, self.reverse),


def cumsum(x: Any, axis: int | None = None) -> Variable:
    """Cumulative sum along an axis; None flattens the input first.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    if axis is None:
        x, axis = reshape(as_variable(x), (-1,)), 0
    return Cumsum(int(axis)).apply((x,))[0]


class LogSumExp(Reduction):
    """Logarithm of the sum of exponentials over axes."""

    onnx_name = "ReduceLogSumExp"

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        m = b.reduce("max", x, self.axis)
        s = b.reduce("sum", b.map(lambda x, m: exp(x - m), x, m), self.axis)
        return self.result(b, x, b.map(lambda s, m: log(s) + m, s, m)),

    def gradient(self, b: Any, inputs: Any, outputs: Any, gys: Any) -> tuple[Any, ...]:
        (x,), shape = inputs, kept(inputs[0].shape, self.axis)
        y, gy = (b.reshape(v, shape) for v in (*outputs, *gys))
        return b.map(lambda x, y, g: g * exp(x - y), x, y, gy),


def logsumexp(x: Any, axis: Axis = None) -> Variable:
    """Logarithm of the sum of exponentials over axes, computed so that it does not overflow.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    return LogSumExp(checked_axis(axis)).apply((x,))[0]


def batch_l2_norm_squared(x: Any) -> Variable:
    """Squared Euclidean norm of every row (axes from 1 on are flattened).

    Raises:
        InvalidType: ``x`` has fewer than two axes.
    """
    x = as_variable(x)
    if x.ndim < 2:
        raise type_check.InvalidType("x.ndim >= 2", f"{x.ndim} < 2",
                                     "\nInvalid operation is performed in: BatchL2NormSquared (Forward)")
    return sum_(square(x), axis=tuple(range(1, x.ndim)))


@elementwise("DivideByNorm")
def _divide(xp: Any, x: Any, s: Any, eps: float = 1e-5) -> Any:
    return x / (xp.sqrt(s) + eps)


@_divide.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, s: Any, eps: float) -> Any:
    root = xp.sqrt(s)
    # At 0 the norm has no slope; the subgradient 0 is taken, as the input is 0 as well.
    return gy / (root + eps), xp.where(s > 0, -gy * y / ((root + eps) * (2 * xp.maximum(root, 1e-30))), 0)


@named("NormalizeL2")
def normalize(x: Any, eps: float = 1e-5, axis: int | tuple[int, ...] = 1) -> Variable:
    """Divide by the Euclidean norm along an axis (or axes), plus ``eps``.

    Args:
        x: Floating-point input.
        eps: Added to the norm.
        axis: Axis or axes of the norm.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    x = as_variable(x)
    return _divide(x, sum_(square(x), axis, True), eps=float(eps))


