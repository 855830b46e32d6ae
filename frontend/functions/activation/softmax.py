"""Softmax and its logarithm."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir.symbol import exp, log

from ... import backend
from ...function_node import FunctionNode
from ...utils import type_check
from ...variable import Variable
from ..array.broadcast import broadcast_to
from ..math.reduction import sum as sum_


def _shifted(x: Any, m: Any) -> Any:
    return exp(x - m)


class _AlongAxis(FunctionNode):
    """The common part of softmax and log-softmax."""

    def __init__(self, axis: int = 1) -> None:
        super().__init__()
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        type_check.expect(x_type.dtype.kind == "f", -x_type.ndim <= self.axis, self.axis < x_type.ndim)


class Softmax(_AlongAxis):
    """Exponentials divided by their sum along an axis."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        self.retain_outputs((0,))
        if not x.size:
            return x.copy(),
        y = x - x.max(axis=self.axis, keepdims=True)
        xp.exp(y, out=y)
        y /= y.sum(axis=self.axis, keepdims=True)
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y, = self.get_retained_outputs()
        return SoftmaxGrad(self.axis).apply((y, grad_outputs[0]))

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        e = b.map(_shifted, x, b.reduce("max", x, self.axis))
        return b.call("true_divide", e, b.reduce("sum", e, self.axis)),

    def onnx(self, g: Any, x: str) -> Any:
        return g.Softmax(x, axis=self.axis)


class SoftmaxGrad(FunctionNode):
    """``y (gy - sum(y gy))`` of softmax's output and its gradient."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y, gy = inputs
        self.retain_inputs((0, 1))
        gx = y * gy
        gx -= y * gx.sum(axis=self.axis, keepdims=True)
        return gx,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y, gy = self.get_retained_inputs()
        ggx, = grad_outputs
        inner = broadcast_to(sum_(y * gy, axis=self.axis, keepdims=True), y.shape)
        outer = broadcast_to(sum_(y * ggx, axis=self.axis, keepdims=True), y.shape)
        return tuple((gy - inner) * ggx - outer * gy if i == 0 else y * (ggx - outer) for i in indexes)

    def lower(self, b: Any, y: Any, gy: Any) -> tuple[Any, ...]:
        s = b.reduce("sum", b.call("multiply", y, gy), self.axis)
        return b.map(lambda y, gy, s: y * (gy - s), y, gy, s),


class LogSoftmax(_AlongAxis):
    """Logarithm of softmax."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        self.retain_outputs((0,))
        if not x.size:
            return x.copy(),
        y = x - x.max(axis=self.axis, keepdims=True)
        y -= xp.log(xp.exp(y).sum(axis=self.axis, keepdims=True))
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y, = self.get_retained_outputs()
        return LogSoftmaxGrad(self.axis).apply((y, grad_outputs[0]))

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        m = b.reduce("max", x, self.axis)
        s = b.reduce("sum", b.map(_shifted, x, m), self.axis)
        return b.map(lambda x, m, s: x - m - log(s), x, m, s),

    def onnx(self, g: Any, x: str) -> Any:
        return g.LogSoftmax(x, axis=self.axis)


class LogSoftmaxGrad(FunctionNode):
    """``gy - exp(y) sum(gy)`` of log-softmax's output and its gradient."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y, gy = inputs
        xp = np if type(y) is np.ndarray else backend.get_array_module(y)
        self.retain_inputs((0, 1))
        return gy - xp.exp(y) * gy.sum(axis=self.axis, keepdims=True),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        from ..math.exponential import exp
        y, gy = self.get_retained_inputs()
        ggx, = grad_outputs
        along = sum_(ggx * exp(y), axis=self.axis, keepdims=True)
        total = sum_(gy, axis=self.axis, keepdims=True)
        return tuple(-ggx * exp(y) * broadcast_to(total, y.shape) if i == 0
                     else ggx - broadcast_to(along, y.shape) for i in indexes)

    def lower(self, b: Any, y: Any, gy: Any) -> tuple[Any, ...]:
        s = b.reduce("sum", gy, self.axis)
        return b.map(lambda y, gy, s: gy - exp(y) * s, y, gy, s),


def softmax(x: Any, axis: int = 1) -> Variable:
    """Exponentials of an input, divided by their sum along an axis.

    Args:
        x: Floating-point input.
        axis: The axis that runs over the classes.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    return Softmax(axis).apply((x,))[0]


def log_softmax(x: Any, axis: int = 1) -> Variable:
    """Logarithm of the softmax, computed so that it neither overflows nor loses small probabilities.

    Args:
        x: Floating-point input.
        axis: The axis that runs over the classes.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    return LogSoftmax(axis).apply((x,))[0]
