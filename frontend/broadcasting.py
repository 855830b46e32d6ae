"""Broadcasting, and sums to the shape before it: each is the other's gradient."""
from __future__ import annotations

from typing import Any

import numpy as np

from . import backend
from .function_node import FunctionNode
from .utils import type_check
from .utils.arrays import for_arrays
from .variable import Variable, as_variable


class BroadcastTo(FunctionNode):
    """Repeat an input along new axes and along those of extent 1; the result is read-only and shares memory."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        ndim = type_check.make_variable(len(self.shape), "len(shape)") if not isinstance(
            x_type.ndim, int) else len(self.shape)
        type_check.expect(x_type.ndim <= ndim)
        shape = type_check.eval(x_type.shape)
        for i in range(-1, -len(shape) - 1, -1):
            if shape[i] != self.shape[i] and shape[i] != 1:
                raise type_check.InvalidType(f"x.shape[{i}] == {self.shape[i]} or x.shape[{i}] == 1",
                                             f"x.shape: {shape}")

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        return (np if type(x) is np.ndarray else backend.get_array_module(x)).broadcast_to(x, self.shape),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return sum_to(grad_outputs[0], self.inputs[0].shape),

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return b.broadcast_to(x, self.shape),

    def onnx(self, g: Any, x: str) -> Any:
        return g.Expand(x, g.const(np.array(self.shape, np.int64)))


@for_arrays
def broadcast_to(x: Any, shape: tuple[int, ...]) -> Variable:
    """Broadcast an input to ``shape``.

    Raises:
        InvalidType: ``x`` does not broadcast to it.
    """
    shape = tuple(shape)
    if x.shape == shape:
        return as_variable(x)
    return BroadcastTo(shape).apply((x,))[0]


class SumTo(FunctionNode):
    """Sum over the axes along which ``shape`` would be broadcast."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return array_sum_to(inputs[0], self.shape),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return broadcast_to(grad_outputs[0], self.inputs[0].shape),

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return b.sum_to(x, self.shape),

    def onnx(self, g: Any, x: str) -> Any:
        shape = g.type(x).shape
        lead = len(shape) - len(self.shape)
        axes = [i for i, n in enumerate(shape) if i < lead or self.shape[i - lead] == 1 != n]
        y = g.ReduceSum(x, g.const(np.array(axes, np.int64)), keepdims=1)
        return g.Reshape(y, g.const(np.array(self.shape, np.int64))) if lead else y


def array_sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`sum_to` of an array."""
    lead = x.ndim - len(shape)
    axes = tuple([i for i, n in enumerate(x.shape) if i < lead or (shape[i - lead] == 1 and n != 1)])
    return x.sum(axis=axes, keepdims=True, dtype=x.dtype).reshape(shape)


@for_arrays
def sum_to(x: Any, shape: tuple[int, ...]) -> Variable:
    """Sum an input to ``shape``: the gradient of broadcasting ``shape`` to ``x.shape``.

    Raises:
        ValueError: ``shape`` does not broadcast to ``x.shape``.
    """
    shape = tuple(shape)
    if x.shape == shape:
        return as_variable(x)
    lead = x.ndim - len(shape)
    if lead < 0 or any(n != 1 and n != m for n, m in zip(shape, x.shape[lead:], strict=True)):
        raise ValueError(f"sum_to expects a shape that broadcasts to {x.shape}, got {shape}")
    return SumTo(shape).apply((x,))[0]
