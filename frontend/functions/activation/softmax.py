"""Softmax and its logarithm."""
from __future__ import annotations

from typing import Any

from kusari.ir.symbol import exp, log

from ...structured import Structured
from ...utils import type_check
from ...variable import Variable


class _AlongAxis(Structured):
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

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        e = b.map(lambda x, m: exp(x - m), x, b.reduce("max", x, self.axis))
        return b.call("true_divide", e, b.reduce("sum", e, self.axis)),

    def gradient(self, b: Any, inputs: Any, outputs: Any, gys: Any) -> tuple[Any, ...]:
        (y,), (gy,) = outputs, gys
        s = b.reduce("sum", b.call("multiply", y, gy), self.axis)
        return b.map(lambda y, gy, s: y * (gy - s), y, gy, s),

    def onnx(self, g: Any, x: str) -> Any:
        return g.Softmax(x, axis=self.axis)


class LogSoftmax(_AlongAxis):
    """Logarithm of softmax."""

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        m = b.reduce("max", x, self.axis)
        s = b.reduce("sum", b.map(lambda x, m: exp(x - m), x, m), self.axis)
        return b.map(lambda x, m, s: x - m - log(s), x, m, s),

    def gradient(self, b: Any, inputs: Any, outputs: Any, gys: Any) -> tuple[Any, ...]:
        (y,), (gy,) = outputs, gys
        return b.map(lambda y, gy, s: gy - exp(y) * s, y, gy, b.reduce("sum", gy, self.axis)),

    def onnx(self, g: Any, x: str) -> Any:
        return g.LogSoftmax(x, axis=self.axis)


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
