"""Arrays taken apart: split_axis and separate."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...configuration import config
from ...function_node import FunctionNode
from ...utils import type_check
from ...variable import Variable
from .indexing import place
from .join import concat, stack
from .shape import expand_dims


def _sections(extent: int, indices: tuple[int, ...] | None, sections: int) -> list[tuple[int, int]]:
    """Return start and stop of every part."""
    if indices is None:
        step = extent // sections
        return [(i * step, (i + 1) * step) for i in range(sections)]
    bounds = [min(i, extent) if i >= 0 else max(i + extent, 0) for i in indices]
    return [(a, max(a, z)) for a, z in zip([0, *bounds], [*bounds, extent], strict=True)]


class SplitAxis(FunctionNode):
    """Parts of an axis, at indices or in equal sections."""

    def __init__(self, indices: tuple[int, ...] | None, sections: int, axis: int) -> None:
        super().__init__()
        self.indices = indices
        self.sections = sections
        self.axis = axis

    def check_type_forward(self, in_types: Any) -> None:
        x_type, = in_types
        if self.axis >= 0:
            type_check.expect(x_type.ndim > self.axis)
        else:
            type_check.expect(x_type.ndim >= -self.axis)
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
        if self.axis >= 0:
            type_check.expect(x_type.ndim > self.axis)
        else:
            type_check.expect(x_type.ndim >= -self.axis)

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
