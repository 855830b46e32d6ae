"""Arrays joined and taken apart: each is the other's gradient."""
from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ... import backend
from ...configuration import config
from ...function_node import FunctionNode
from ...tape import named
from ...utils import type_check
from ...variable import Variable, as_variable
from .indexing import place
from .shape import expand_dims, reshape


def _sequence(name: str, xs: Any) -> tuple[Any, ...]:
    if type(xs) in (tuple, list):
        return tuple(xs)
    if isinstance(xs, (Variable, np.ndarray)) or not isinstance(xs, Iterable):
        raise TypeError(f"{name} takes a list or tuple of inputs, or another iterable, got {type(xs).__name__}")
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
        gxs = separate(grad_outputs[0], self.axis)
        return tuple([gxs[i] for i in indexes])

    def lower(self, b: Any, *xs: Any) -> tuple[Any, ...]:
        shape = xs[0].shape
        axis = self.axis % (len(shape) + 1)
        return b.concat([b.reshape(x, (*shape[:axis], 1, *shape[axis:])) for x in xs], axis),

    def onnx(self, g: Any, *xs: str) -> Any:
        axes = g.const(np.array([self.axis], np.int64))
        return g.Concat(*[g.Unsqueeze(x, axes) for x in xs], axis=self.axis)


def concat(xs: Iterable[Any], axis: int = 1) -> Variable:
    """Join inputs along an axis.

    Args:
        xs: Inputs of one dtype, equal in all extents but that of ``axis``.
        axis: The axis.

    Raises:
        InvalidType: There is no input, or they do not fit together.
        TypeError: ``xs`` is an array or a Variable, or ``axis`` is no integer.
    """
    return Concat(operator.index(axis)).apply(_sequence("concat", xs))[0]


def stack(xs: Iterable[Any], axis: int = 0) -> Variable:
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
def hstack(xs: Iterable[Any]) -> Variable:
    """Join inputs along axis 1 (axis 0 where they have one axis)."""
    rows = [_at_least(x, 1) for x in _sequence("hstack", xs)]
    return concat(rows, 0 if rows and rows[0].ndim == 1 else 1)


def _alike(name: str, xs: Iterable[Any]) -> tuple[Any, ...]:
    xs = _sequence(name, xs)
    if len(ndims := {x.ndim for x in xs}) > 1:
        raise type_check.InvalidType("inputs of one number of axes", " and ".join(map(str, sorted(ndims))),
                                     f"\nInvalid operation is performed in: {name.capitalize()} (Forward)")
    return xs


@named("Vstack")
def vstack(xs: Iterable[Any]) -> Variable:
    """Join inputs along axis 0; vectors count as rows.

    Raises:
        InvalidType: The inputs do not fit together.
    """
    return concat([_at_least(x, 2) for x in _alike("vstack", xs)], 0)


@named("Dstack")
def dstack(xs: Iterable[Any]) -> Variable:
    """Join inputs along axis 2, which is added where it is missing.

    Raises:
        InvalidType: The inputs do not fit together.
    """
    return concat([_at_least(x, 3) for x in _alike("dstack", xs)], 2)


def _sections(extent: int, indices: tuple[int, ...] | None, sections: int) -> list[tuple[int, int]]:
    """Return start and stop of every part."""
    if indices is None:
        step = extent // sections
        return [(i * step, (i + 1) * step) for i in range(sections)]
    bounds = [min(i, extent) if i >= 0 else max(i + extent, 0) for i in indices]
    return [(a, max(a, z)) for a, z in zip([0, *bounds], [*bounds, extent], strict=True)]


def _expect_axis(x_type: Any, axis: int) -> None:
    if axis >= 0:
        type_check.expect(x_type.ndim > axis)
    else:
        type_check.expect(x_type.ndim >= -axis)


class SplitAxis(FunctionNode):
    """Parts of an axis, at indices or in equal sections."""

    def __init__(self, indices: tuple[int, ...] | None, sections: int, axis: int) -> None:
        super().__init__()
        self.indices = indices
        self.sections = sections
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        x_type, = in_types
        _expect_axis(x_type, self.axis)
        plain = isinstance(x_type.ndim, int)
        if self.indices is None:
            n = self.sections if plain else type_check.make_variable(self.sections, "sections")
            type_check.expect(x_type.shape[self.axis] % n == 0)
        elif self.indices:
            top: Any = max(self.indices)
            type_check.expect(x_type.shape[self.axis] >= (top if plain else type_check.make_variable(top, "max_index")))

    def _parts(self, shape: tuple[int, ...]) -> list[tuple[int, int]]:
        return _sections(shape[self.axis], self.indices, self.sections)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        lead = (slice(None),) * (self.axis % x.ndim)
        return tuple([x[(*lead, slice(a, z))] for a, z in self._parts(x.shape)])

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        node = self.inputs[0]
        if all(g is not None for g in grad_outputs) and self.indices == (
                None if self.indices is None else tuple(sorted(self.indices))):
            return concat(grad_outputs, self.axis),
        total = None
        for g, (a, z) in zip(grad_outputs, self._parts(node.shape), strict=True):
            if g is not None:
                g = place(g, self.axis, a, z, node.shape)
                total = g if total is None else total + g
        return total,

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        shape, axis = x.shape, self.axis % len(x.shape)
        zeros, ones = (0,) * len(shape), (1,) * len(shape)
        return tuple([b.slice(x, (*zeros[:axis], a, *zeros[axis + 1:]), (*shape[:axis], z, *shape[axis + 1:]), ones)
                      for a, z in self._parts(shape)])

    def onnx(self, g: Any, x: str) -> Any:
        sizes = [z - a for a, z in self._parts(g.type(x).shape)]
        if self.indices is None and self.sections > 1:  # whatever the extent is
            return g.Split(x, axis=self.axis, outputs=self.sections, **(
                {"num_outputs": self.sections} if g.opset >= 18 else {}))
        return g.Split(x, g.const(np.array(sizes, np.int64)), axis=self.axis, outputs=len(sizes))


class Separate(FunctionNode):
    """The parts of extent 1 of an axis, without that axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        x_type, = in_types
        _expect_axis(x_type, self.axis)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        lead = (slice(None),) * (self.axis % x.ndim)
        return tuple([x[(*lead, i, ...)] for i in range(x.shape[self.axis])])

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        node = self.inputs[0]
        if all(g is not None for g in grad_outputs):
            return stack(grad_outputs, self.axis % len(node.shape)),
        total, axis = None, self.axis % len(node.shape)
        for i, g in enumerate(grad_outputs):
            if g is not None:
                g = place(expand_dims(g, axis), axis, i, i + 1, node.shape)
                total = g if total is None else total + g
        return total,

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        shape, axis = x.shape, self.axis % len(x.shape)
        zeros, ones = (0,) * len(shape), (1,) * len(shape)
        rest = (*shape[:axis], *shape[axis + 1:])
        parts = [b.slice(x, (*zeros[:axis], i, *zeros[axis + 1:]), (*shape[:axis], i + 1, *shape[axis + 1:]), ones)
                 for i in range(shape[axis])]
        return tuple([b.reshape(part, rest) for part in parts])

    def onnx(self, g: Any, x: str) -> Any:
        n, axis = g.type(x).shape[self.axis], g.const(np.array([self.axis % len(g.type(x).shape)], np.int64))
        parts = SplitAxis(None, n, self.axis).onnx(g, x) if n > 1 else (x,) * n
        return tuple([g.Squeeze(part, axis) for part in parts])


def split_axis(x: Any, indices_or_sections: int | Sequence[int], axis: int,
               force_tuple: bool = True) -> tuple[Variable, ...] | Variable:
    """Cut an input along an axis.

    Args:
        x: Input.
        indices_or_sections: Number of equal parts, or the indices at which to cut.
        axis: The axis.
        force_tuple: Whether a single part comes as a tuple too.

    Raises:
        InvalidType: The axis does not exist, is not divisible, or an index is too great.
        TypeError: ``indices_or_sections`` is neither an int nor a sequence.
        ValueError: In debug mode, where indices fall.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> [y.shape for y in F.split_axis(np.zeros((2, 6), "f"), [1, 3], axis=1)]
    [(2, 1), (2, 2), (2, 3)]
    """
    if isinstance(indices_or_sections, (int, np.integer)):
        node = SplitAxis(None, int(indices_or_sections), int(axis))
    else:
        try:
            indices = tuple([int(i) for i in indices_or_sections])
        except TypeError:
            raise TypeError("indices_or_sections must be an int or a sequence of ints, "
                            f"got {type(indices_or_sections).__name__}") from None
        if config.debug and list(indices) != sorted(indices):
            raise ValueError(f"indices at which an axis is cut must rise, got {indices}")
        node = SplitAxis(indices, len(indices) + 1, int(axis))
    ys: tuple[Variable, ...] = node.apply((x,))
    return ys[0] if len(ys) == 1 and not force_tuple else ys


def separate(x: Any, axis: int = 0) -> tuple[Variable, ...]:
    """Take an axis apart: one output per index, without that axis.

    Raises:
        InvalidType: The axis does not exist.
    """
    return Separate(int(axis)).apply((x,))
