"""The same elements under another shape: reshape and what is made of it."""
from __future__ import annotations

from math import prod
from typing import Any

from ...function_node import FunctionNode
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...variable import Variable, as_variable


class Reshape(FunctionNode):
    """Reshape; one extent may be -1."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        known = [n for n in self.shape if n >= 0]
        if len(known) == len(self.shape):
            type_check.expect(type_check.prod(x_type.shape) == type_check.prod(
                type_check.make_variable(self.shape, str(self.shape)) if not isinstance(x_type.shape, tuple)
                else self.shape))
        else:
            size = prod(known)
            if not size:
                raise type_check.InvalidType(f"a shape from which the extent of -1 follows, with {known} beside it",
                                             f"{self.shape} for {type_check.eval(x_type.shape)}",
                                             "\nInvalid operation is performed in: Reshape (Forward)")
            if not isinstance(x_type.shape, tuple):
                size = type_check.make_variable(size, f"known_size(={size})")  # type: ignore[assignment]
            type_check.expect(type_check.prod(x_type.shape) % size == 0)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[0].reshape(self.shape),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return reshape(grad_outputs[0], self.inputs[0].shape),

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return b.reshape(x, _complete(self.shape, x.shape)),

    def onnx(self, g: Any, x: str) -> Any:
        import numpy as np
        return g.Reshape(x, g.const(np.array(self.shape, np.int64)), **({"allowzero": 1} if 0 in self.shape else {}))


def _complete(shape: tuple[int, ...], source: tuple[int, ...]) -> tuple[int, ...]:
    if -1 not in shape:
        return shape
    known = prod(n for n in shape if n != -1)
    return tuple(prod(source) // known if n == -1 else n for n in shape)


def reshape(x: Any, shape: tuple[int, ...]) -> Variable:
    """Give an input another shape without copying its elements where that is possible.

    Args:
        x: Input of any dtype.
        shape: Tuple of ints, one of which may be -1 (it follows from the others).

    Raises:
        InvalidType: The number of elements differs.
        ValueError: More than one extent is -1.
    """
    if shape.count(-1) > 1:
        raise ValueError(f"can only specify one unknown dimension, got shape {shape}")
    if x.shape == shape:
        return as_variable(x)
    return Reshape(tuple([int(n) for n in shape])).apply((x,))[0]


@for_arrays
def flatten(x: Any) -> Variable:
    """Reshape an input to one axis."""
    return reshape(x, (-1,)) if x.ndim != 1 else as_variable(x)


@for_arrays
def ravel(x: Any) -> Variable:
    """Reshape an input to one axis, as `flatten`."""
    return flatten(x)


def expand_dims(x: Any, axis: int) -> Variable:
    """Insert an axis of extent 1 before ``axis``.

    Raises:
        InvalidType: ``axis`` is not in ``[-x.ndim - 1, x.ndim]``.
    """
    return ExpandDims(int(axis)).apply((x,))[0]


class ExpandDims(FunctionNode):
    """Insert one axis of extent 1."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        if self.axis >= 0:
            type_check.expect(x_type.ndim >= self.axis)
        else:
            type_check.expect(x_type.ndim >= -self.axis - 1)

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        axis = self.axis % (len(shape) + 1)
        return (*shape[:axis], 1, *shape[axis:])

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        return x.reshape(self._shape(x.shape)),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return reshape(grad_outputs[0], self.inputs[0].shape),

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return b.reshape(x, self._shape(x.shape)),

    def onnx(self, g: Any, x: str) -> Any:
        import numpy as np
        return g.Unsqueeze(x, g.const(np.array([self.axis], np.int64)))


class Squeeze(FunctionNode):
    """Remove axes of extent 1."""

    def __init__(self, axis: tuple[int, ...] | None) -> None:
        super().__init__()
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        for a in self.axis or ():
            if a >= 0:
                type_check.expect(a < x_type.ndim)
            else:
                type_check.expect(-x_type.ndim <= a)

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.axis is None:
            return tuple(n for n in shape if n != 1)
        axes = {a % len(shape) for a in self.axis}
        for a in axes:
            if shape[a] != 1:
                raise ValueError(f"squeeze: axis {a} has extent {shape[a]}, not 1")
        return tuple(n for i, n in enumerate(shape) if i not in axes)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        return x.reshape(self._shape(x.shape)),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return reshape(grad_outputs[0], self.inputs[0].shape),

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return b.reshape(x, self._shape(x.shape)),

    def onnx(self, g: Any, x: str) -> Any:
        import numpy as np
        shape = g.type(x).shape
        axes = [i for i, n in enumerate(shape) if n == 1] if self.axis is None else [a % len(shape) for a in self.axis]
        return g.Squeeze(x, g.const(np.array(axes, np.int64))) if axes else g.Identity(x)


def squeeze(x: Any, axis: int | tuple[int, ...] | None = None) -> Variable:
    """Remove axes of extent 1: all of them, or those given.

    Args:
        x: Input.
        axis: An axis, several, or None.

    Raises:
        InvalidType: A given axis does not exist.
        ValueError: An axis has another extent, or is named twice.
        TypeError: ``axis`` is none of these.
    """
    if isinstance(axis, int):
        axis = (axis,)
    elif axis is not None and not (isinstance(axis, tuple) and all(isinstance(a, int) for a in axis)):
        raise TypeError(f"axis must be None, an int or a tuple of ints, got {axis!r}")
    if axis is not None and len({a % max(x.ndim, 1) for a in axis}) < len(axis):
        raise ValueError(f"squeeze: an axis is named twice in {axis}")
    return Squeeze(axis).apply((x,))[0]
