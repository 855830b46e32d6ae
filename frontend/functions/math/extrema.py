"""Greatest and least elements, and where they are."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir.symbol import cast, isnan, logical_or, where

from ... import backend
from ...structured import Structured
from ...utils import type_check
from ...variable import Variable
from .reduction import Axis, Reduction, checked_axis


class Max(Reduction):
    """Greatest element over axes."""

    reduce_name, onnx_name = "max", "ReduceMax"


class Min(Reduction):
    """Least element over axes."""

    reduce_name, onnx_name = "min", "ReduceMin"


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """Greatest element over axes; the gradient goes to every element that equals it.

    Args:
        x: Floating-point input.
        axis: Axis or axes; None for all.
        keepdims: Whether the reduced axes stay, with extent 1.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    return Max(checked_axis(axis), keepdims).apply((x,))[0]


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """Least element over axes; the gradient goes to every element that equals it.

    Args:
        x: Floating-point input.
        axis: Axis or axes; None for all.
        keepdims: Whether the reduced axes stay, with extent 1.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    return Min(checked_axis(axis), keepdims).apply((x,))[0]


class _Position(Structured):
    """Index of the first extremum along an axis, int32; no gradient."""

    reduce_name = ""

    def __init__(self, axis: int | None) -> None:
        super().__init__()
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        type_check.expect(x_type.dtype.kind == "f")
        if self.axis is not None:
            if self.axis >= 0:
                type_check.expect(x_type.ndim > self.axis)
            else:
                type_check.expect(x_type.ndim >= -self.axis)

    def evaluate(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        xp = backend.get_array_module(x)
        return xp.asarray(getattr(xp, f"arg{self.reduce_name}")(x, axis=self.axis)).astype(np.int32),

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        shape, axis = x.shape, self.axis
        if axis is None:
            x, axis = b.reshape(x, (int(np.prod(shape)),)), 0
            out: tuple[int, ...] = ()
        else:
            axis %= len(shape)
            out = (*shape[:axis], *shape[axis + 1:])
        n = x.shape[axis]
        index = b.reshape(b.arange(n), (*(1,) * axis, n, *(1,) * (len(x.shape) - axis - 1)))
        # Where there is a NaN it is the greatest and the least, and equals nothing.
        best = b.map(lambda x, best, i: cast(where(logical_or(x == best, isnan(x)), i, cast(n, np.int32)), np.int32),
                     x, b.reduce(self.reduce_name, x, axis), index)
        return b.reshape(b.reduce("min", best, axis), out),

    def onnx(self, g: Any, x: str) -> Any:
        axis = self.axis
        if axis is None:
            x, axis = g.Reshape(x, g.const(np.array([-1], np.int64))), 0
        op = g.ArgMax if self.reduce_name == "max" else g.ArgMin
        return g.Cast(op(x, axis=axis, keepdims=0), to="int32")


class ArgMax(_Position):
    """Index of the greatest element."""

    reduce_name = "max"


class ArgMin(_Position):
    """Index of the least element."""

    reduce_name = "min"


def _one_axis(axis: Any) -> int | None:
    if axis is not None and not isinstance(axis, (int, np.integer)):
        raise TypeError(f"axis must be None or an int, got {axis!r}")
    return None if axis is None else int(axis)


def argmax(x: Any, axis: int | None = None) -> Variable:
    """Index of the (first) greatest element along an axis, as int32; no gradient flows through it.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    return ArgMax(_one_axis(axis)).apply((x,))[0]


def argmin(x: Any, axis: int | None = None) -> Variable:
    """Index of the (first) least element along an axis, as int32; no gradient flows through it.

    Raises:
        InvalidType: ``x`` is not floating-point, or has no such axis.
    """
    return ArgMin(_one_axis(axis)).apply((x,))[0]


