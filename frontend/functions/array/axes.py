"""Axes in another order."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ...function_node import FunctionNode
from ...tape import named
from ...utils import type_check
from ...variable import Variable, as_variable


class Transpose(FunctionNode):
    """Permute axes; None reverses them."""

    def __init__(self, axes: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.axes = axes

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        if self.axes is not None:
            type_check.expect(in_types[0].ndim == len(self.axes))

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[0].transpose(self.axes),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        axes = self.axes
        if axes is not None:
            n = len(axes)
            positive = [a % n for a in axes]
            axes = tuple([positive.index(i) for i in range(n)])
        return transpose(grad_outputs[0], axes),

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return b.transpose(x, self.axes),

    def onnx(self, g: Any, x: str) -> Any:
        n = len(g.type(x).shape)
        if not n:
            return g.Identity(x)  # ONNX does not know the type of an empty list
        return g.Transpose(x, perm=[a % n for a in self.axes] if self.axes is not None else list(range(n))[::-1])


def transpose(x: Any, axes: Sequence[int] | None = None) -> Variable:
    """Permute the axes of an input.

    Args:
        x: Input.
        axes: Which axis of ``x`` each axis of the result is; None reverses the order.

    Raises:
        InvalidType: ``axes`` does not have one entry per axis.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.transpose(np.zeros((2, 3, 4), "f"), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return Transpose(None if axes is None else tuple([int(a) for a in axes])).apply((x,))[0]


def _check_axis(name: str, axis: int, ndim: int) -> int:
    if not -ndim <= operator.index(axis) < ndim:
        raise type_check.InvalidType(f"{-ndim} <= axis < {ndim}", f"axis = {axis}",
                                     f"\nInvalid operation is performed in: {name} (Forward)")
    return axis % ndim


@named("Swapaxes")
def swapaxes(x: Any, axis1: int, axis2: int) -> Variable:
    """Exchange two axes.

    Raises:
        InvalidType: An axis is out of range.
    """
    x = as_variable(x)
    order = list(range(x.ndim))
    i, j = _check_axis("Swapaxes", axis1, x.ndim), _check_axis("Swapaxes", axis2, x.ndim)
    order[i], order[j] = j, i
    return transpose(x, order)


@named("Moveaxis")
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Variable:
    """Move axes to other positions; the others keep their order.

    Args:
        x: Input.
        source: Axis or axes to move.
        destination: Where they go; as many.

    Raises:
        ValueError: The numbers of axes differ, or an axis is named twice.
        InvalidType: An axis is out of range.
        TypeError: An axis is no integer.
    """
    x = as_variable(x)
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    if len(sources) != len(targets):
        raise ValueError(f"moveaxis: {len(sources)} source axes, but {len(targets)} destinations")
    sources = [_check_axis("Moveaxis", a, x.ndim) for a in sources]
    targets = [_check_axis("Moveaxis", a, x.ndim) for a in targets]
    if len(set(sources)) < len(sources) or len(set(targets)) < len(targets):
        raise ValueError("moveaxis: an axis is named twice")
    order = [i for i in range(x.ndim) if i not in sources]
    for target, s in sorted(zip(targets, sources, strict=True)):
        order.insert(target, s)
    return transpose(x, order)


@named("Rollaxis")
def rollaxis(x: Any, axis: int, start: int = 0) -> Variable:
    """Move ``axis`` backwards until it lies before ``start``.

    Raises:
        InvalidType: An axis is out of range.
    """
    x = as_variable(x)
    n = x.ndim
    if not -n <= axis < n:
        raise type_check.InvalidType(f"{-n} <= axis < {n}", f"axis = {axis}")
    if not -n <= start <= n:
        raise type_check.InvalidType(f"{-n} <= start <= {n}", f"start = {start}")
    axis %= n
    start = start + n if start < 0 else start
    order = [i for i in range(n) if i != axis]
    order.insert(start - (axis < start), axis)
    return transpose(x, order)
