"""Reductions over axes: sum, mean, prod, max, min and their relatives."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import backend
from ...broadcasting import broadcast_to
from ...structured import Structured
from ...utils import type_check
from ...variable import Variable
from ..array.shape import reshape

Axis = int | tuple[int, ...] | None


def checked_axis(axis: Any) -> tuple[int, ...] | None:
    """Return ``axis`` as a tuple (or None for all axes); raises ``TypeError`` or ``ValueError``."""
    if axis is None:
        return None
    if type(axis) is int:
        return axis,
    if not isinstance(axis, tuple):
        axis = (axis,)
    if not all(isinstance(a, (int, np.integer)) for a in axis):
        raise TypeError(f"axis must be None, an int or a tuple of ints, got {axis}")
    if len(set(axis)) != len(axis):
        raise ValueError(f"duplicate value in axis: {axis}")
    return tuple([int(a) for a in axis])


def kept(shape: tuple[int, ...], axis: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return ``shape`` with extent 1 at the reduced axes."""
    if axis is None:
        return (1,) * len(shape)
    axes = {a % len(shape) for a in axis}
    return tuple([1 if i in axes else n for i, n in enumerate(shape)])


def spread(x: Any, shape: tuple[int, ...], axis: tuple[int, ...] | None) -> Any:
    """Broadcast the result of a reduction (with or without the reduced axes) back to ``shape``."""
    target = kept(shape, axis)
    return broadcast_to(x if x.shape == target else reshape(x, target), shape)


class Reduction(Structured):
    """The common part of all reductions: axes, keepdims and the check."""

    reduce_name = ""
    onnx_name = ""

    def __init__(self, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> None:
        super().__init__()
        self.axis = axis
        self.keepdims = keepdims

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        type_check.expect(x_type.dtype.kind == "f")
        for a in self.axis or ():
            if a >= 0:
                type_check.expect(x_type.ndim > a)
            else:
                type_check.expect(x_type.ndim >= -a)
        if self.axis is not None and len(self.axis) > 1 and (
                len({a % type_check.eval(x_type.ndim) for a in self.axis}) < len(self.axis)):
            raise ValueError(f"duplicate value in axis: {self.axis}")

    def result(self, b: Any, x: Any, y: Any) -> Any:
        """Drop the reduced axes of ``y`` where they are not to be kept."""
        if self.keepdims:
            return y
        axes = range(len(x.shape)) if self.axis is None else {a % len(x.shape) for a in self.axis}
        return b.reshape(y, [n for i, n in enumerate(x.shape) if i not in axes])

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return self.result(b, x, b.reduce(self.reduce_name, x, self.axis)),

    def onnx(self, g: Any, x: str) -> Any:
        keep = {"keepdims": int(self.keepdims)}
        if self.axis is None:
            return getattr(g, self.onnx_name)(x, **keep)
        if self.onnx_name == "ReduceSum" or g.opset >= 18:
            return getattr(g, self.onnx_name)(x, g.const(np.array(self.axis, np.int64)), **keep)
        return getattr(g, self.onnx_name)(x, axes=list(self.axis), **keep)


class Sum(Reduction):
    """Sum of elements over axes."""

    reduce_name, onnx_name = "sum", "ReduceSum"

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y = inputs[0].sum(axis=self.axis, keepdims=self.keepdims)
        return (y if isinstance(y, np.ndarray) else backend.get_array_module(inputs[0]).asarray(y)),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return spread(grad_outputs[0], self.inputs[0].shape, self.axis),


def sum(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """Sum of elements over axes.

    Args:
        x: Floating-point input.
        axis: Axis or axes to sum over; None for all.
        keepdims: Whether the reduced axes stay, with extent 1.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
        ValueError: An axis is named twice.
        TypeError: ``axis`` is no axis.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.sum(np.ones((2, 3), "f"), axis=0).array.tolist()
    [2.0, 2.0, 2.0]
    """
    return Sum(checked_axis(axis), keepdims).apply((x,))[0]
