"""Arrays put together: concat, stack and their relatives."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import backend
from ...function_node import FunctionNode
from ...tape import named
from ...utils import type_check
from ...variable import Variable, as_variable
from .shape import reshape


def _sequence(name: str, xs: Any) -> tuple[Any, ...]:
    if not isinstance(xs, (list, tuple)):
        raise TypeError(f"{name} takes a list or tuple of inputs, got {type(xs).__name__}")
    return tuple(xs)


def _expect_inputs(in_types: Any) -> None:
    type_check.expect(in_types.size() > 0)


class Concat(FunctionNode):
    """Inputs one after the other along an axis."""

    def __init__(self, axis: int = 1) -> None:
        super().__init__()
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        _expect_inputs(in_types)
        first = in_types[0]
        axis = type_check.make_variable(self.axis, "axis") if not isinstance(first.ndim, int) else self.axis
        type_check.expect(-first.ndim <= axis, first.ndim > axis)
        ndim = type_check.eval(first.ndim)
        for other in in_types[1:]:
            type_check.expect(first.dtype == other.dtype, first.ndim == other.ndim)
            for d in range(ndim):
                if d != self.axis % ndim:
                    type_check.expect(first.shape[d] == other.shape[d])

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return backend.get_array_module(*inputs).concatenate(inputs, self.axis),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        from .split import split_axis
        inputs = self.inputs or ()
        if len(inputs) == 1:
            return grad_outputs
        sizes = np.cumsum([x.shape[self.axis] for x in inputs[:-1]]).tolist()
        gxs = split_axis(grad_outputs[0], sizes, self.axis)
        return tuple([gxs[i] for i in indexes])

    def lower(self, b: Any, *xs: Any) -> tuple[Any, ...]:
        return b.concat(xs, self.axis),

    def onnx(self, g: Any, *xs: str) -> Any:
        return g.Concat(*xs, axis=self.axis)


class Stack(FunctionNode):
    """Inputs of one shape joined along a new axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        _expect_inputs(in_types)
        first = in_types[0]
        type_check.expect(first.ndim >= (self.axis if self.axis >= 0 else -self.axis - 1))
        for other in in_types[1:]:
            type_check.expect(first.dtype == other.dtype, first.shape == other.shape)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return backend.get_array_module(*inputs).stack(inputs, self.axis),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        from .split import separate
        gxs = separate(grad_outputs[0], self.axis)
        return tuple([gxs[i] for i in indexes])

    def lower(self, b: Any, *xs: Any) -> tuple[Any, ...]:
        shape = xs[0].shape
        axis = self.axis % (len(shape) + 1)
        return b.concat([b.reshape(x, (*shape[:axis], 1, *shape[axis:])) for x in xs], axis),

    def onnx(self, g: Any, *xs: str) -> Any:
        axes = g.const(np.array([self.axis], np.int64))
        return g.Concat(*[g.Unsqueeze(x, axes) for x in xs], axis=self.axis)


def concat(xs: Sequence[Any], axis: int = 1) -> Variable:
    """Join inputs along an axis.

    Args:
        xs: Inputs of one dtype, equal in all extents but that of ``axis``.
        axis: The axis.

    Raises:
        InvalidType: There is no input, or they do not fit together.
        TypeError: ``xs`` is not a list or tuple, or ``axis`` is no integer.
    """
    return Concat(operator.index(axis)).apply(_sequence("concat", xs))[0]


def stack(xs: Sequence[Any], axis: int = 0) -> Variable:
    """Join inputs of one shape along a new axis.

    Raises:
        InvalidType: There is no input, shapes or dtypes differ, or ``axis`` is out of range.
    """
    return Stack(int(axis)).apply(_sequence("stack", xs))[0]


def _at_least(x: Any, ndim: int) -> Any:
    x = as_variable(x)
    if x.ndim >= ndim:
        return x
    shape = {1: (1,), 2: (1, x.size), 3: (1, x.size, 1) if x.ndim < 2 else (*x.shape, 1)}[ndim]
    return reshape(x, shape)


@named("Hstack")
def hstack(xs: Sequence[Any]) -> Variable:
    """Join inputs along axis 1 (axis 0 where they have one axis)."""
    rows = [_at_least(x, 1) for x in _sequence("hstack", xs)]
    return concat(rows, 0 if rows and rows[0].ndim == 1 else 1)


def _alike(name: str, xs: Sequence[Any]) -> Sequence[Any]:
    if len(ndims := {x.ndim for x in _sequence(name, xs)}) > 1:
        raise type_check.InvalidType("inputs of one number of axes", " and ".join(map(str, sorted(ndims))),
                                     f"\nInvalid operation is performed in: {name.capitalize()} (Forward)")
    return xs


@named("Vstack")
def vstack(xs: Sequence[Any]) -> Variable:
    """Join inputs along axis 0; vectors count as rows.

    Raises:
        InvalidType: The inputs do not fit together.
    """
    return concat([_at_least(x, 2) for x in _alike("vstack", xs)], 0)


@named("Dstack")
def dstack(xs: Sequence[Any]) -> Variable:
    """Join inputs along axis 2, which is added where it is missing.

    Raises:
        InvalidType: The inputs do not fit together.
    """
    return concat([_at_least(x, 3) for x in _alike("dstack", xs)], 2)
