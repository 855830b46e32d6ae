"""Products over axes and along an axis, with gradients that hold where elements are zero."""
from __future__ import annotations

from math import prod as product_of
from typing import Any

import numpy as np

from ... import backend
from ...function_node import FunctionNode
from ...utils import type_check
from ...variable import Variable, as_variable
from ..array.axes import transpose
from ..array.indexing import get_item
from ..array.rearrange import flip, pad
from ..array.shape import reshape
from .reduction import Axis, Reduction, checked_axis, spread


def _delayed(x: Any, first: float) -> Any:
    """``first``, then all elements along the last axis but its last one."""
    widths = [*((0, 0),) * (x.ndim - 1), (1, 0)]
    return pad(get_item(x, (..., slice(None, -1))), widths, "constant", constant_values=first)


class Recurrence(FunctionNode):
    """``y[j] = a[j] + b[j] * y[j - 1]`` along the last axis, where ``y[-1]`` is 0."""

    pure = True

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        a, b = inputs
        self.retain_inputs((1,))
        self.retain_outputs((0,))
        y = a.copy()
        for j in range(1, y.shape[-1]):
            y[..., j] += b[..., j] * y[..., j - 1]
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        b, = self.get_retained_inputs()
        y, = self.get_retained_outputs()
        g = _from_the_end(grad_outputs[0], b)
        return g, g * _delayed(y, 0)

    def onnx(self, g: Any, a: str, b: str) -> Any:
        n = g.type(a).shape[-1]

        def at(x: str, j: int) -> str:
            return g.Slice(x, *(g.const(np.array([v], np.int64)) for v in (j, j + 1, -1)))
        found = [at(a, 0)]
        for j in range(1, n):
            found.append(g.Add(at(a, j), g.Mul(at(b, j), found[-1])))
        return g.Concat(*found, axis=-1)


def _recurrence(a: Any, b: Any) -> Any:
    return Recurrence().apply((a, b))[0] if a.size else a


def _from_the_end(g: Any, x: Any) -> Any:
    """``y[j] = g[j] + x[j + 1] * y[j + 1]`` along the last axis."""
    return flip(_recurrence(flip(g, -1), _delayed(flip(x, -1), 0)), -1) if g.size else g


class Prod(Reduction):
    """Product of elements over axes."""

    reduce_name, onnx_name = "prod", "ReduceProd"

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        self.retain_inputs((0,))
        return backend.get_array_module(x).asarray(x.prod(axis=self.axis, keepdims=self.keepdims)),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = self.get_retained_inputs()
        others = ProdOfOthers(self.axis).apply((x,))[0]
        return others * spread(grad_outputs[0], x.shape, self.axis),


class ProdOfOthers(FunctionNode):
    """For every element the product of all others over the axes; right where elements are zero, too."""

    pure = True

    def __init__(self, axis: tuple[int, ...] | None) -> None:
        super().__init__()
        self.axis = axis

    def _flat(self, x: Any) -> tuple[Any, list[int]]:
        axes = list(range(x.ndim)) if self.axis is None else sorted(a % x.ndim for a in self.axis)
        order = [i for i in range(x.ndim) if i not in axes] + axes
        turned = x.transpose(order)
        lead = turned.shape[:x.ndim - len(axes)]
        return turned.reshape((*lead, product_of([x.shape[a] for a in axes]))), order

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        xp = backend.get_array_module(x)
        self.retain_inputs((0,))
        flat, order = self._flat(x)
        ones = xp.ones_like(flat[..., :1])
        before = xp.cumprod(xp.concatenate([ones, flat[..., :-1]], -1), -1)
        after = xp.cumprod(xp.concatenate([ones, flat[..., :0:-1]], -1), -1)[..., ::-1]
        y = (before * after).reshape([x.shape[i] for i in order])
        return y.transpose([order.index(i) for i in range(x.ndim)]).astype(x.dtype),

    def onnx(self, g: Any, x: str) -> Any:
        # A matrix per group, with 1 for an element in its own row, multiplied along its rows.
        shape, dtype = g.type(x).shape, g.type(x).dtype
        flat, order = self._flat(np.empty(shape, bool))

        def i64(values: Any) -> str:
            return g.const(np.array(values, np.int64))
        n = flat.shape[-1]
        rows = g.Reshape(g.Transpose(x, perm=order), i64((*flat.shape[:-1], 1, n)))
        others = g.Where(g.const(np.eye(n, dtype=bool)), g.const(np.array(1, dtype)), rows)
        y = g.Reshape(g.ReduceProd(others, i64([flat.ndim]), keepdims=0), i64([shape[i] for i in order]))
        return g.Transpose(y, perm=[order.index(i) for i in range(len(shape))])

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        # The matrix of second derivatives is symmetric, so this is how the outputs change in the direction of `g`.
        x, = self.get_retained_inputs()
        flat, order = self._flat(x)
        g = self._flat(grad_outputs[0])[0]
        if not flat.size:
            return grad_outputs[0],
        ahead = flip(flat, -1)
        before, after = _exclusive(flat), flip(_exclusive(ahead), -1)
        y = after * _delayed(_recurrence(before * g, flat), 0) + before * flip(
            _delayed(_recurrence(flip(after * g, -1), ahead), 0), -1)
        y = reshape(y, tuple([x.shape[i] for i in order]))
        return transpose(y, [order.index(i) for i in range(x.ndim)]),


def _exclusive(x: Any) -> Any:
    """For every element the product of those before it along the last axis."""
    return cumprod(_delayed(x, 1), -1)


def prod(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """Product of elements over axes.

    Args:
        x: Floating-point input.
        axis: Axis or axes; None for all.
        keepdims: Whether the reduced axes stay, with extent 1.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    return Prod(checked_axis(axis), keepdims).apply((x,))[0]


class Cumprod(FunctionNode):
    """Cumulative product along an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        type_check.expect(in_types[0].dtype.kind == "f", -in_types[0].ndim <= self.axis, self.axis < in_types[0].ndim)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs((0,))
        return inputs[0].cumprod(self.axis),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = self.get_retained_inputs()
        if not x.size:
            return grad_outputs[0],
        axis = self.axis % x.ndim
        order = [*(i for i in range(x.ndim) if i != axis), axis]
        x, g = transpose(x, order), transpose(grad_outputs[0], order)
        return transpose(_exclusive(x) * _from_the_end(g, x), [order.index(i) for i in range(x.ndim)]),

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return b.cumprod(x, self.axis),


def cumprod(x: Any, axis: int | None = None) -> Variable:
    """Cumulative product along an axis; None flattens the input first.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    if axis is None:
        x, axis = reshape(as_variable(x), (-1,)), 0
    return Cumprod(int(axis)).apply((x,))[0]
