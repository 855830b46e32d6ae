"""Nodes that only move data, as copies between strided views of two buffers."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from kusari.ir import DType, Node, view_offset


@dataclass(frozen=True)
class Axis:
    """One loop of a copy; strides in elements, those of the source may be 0 or negative."""

    extent: int
    source: int
    target: int


@dataclass(frozen=True)
class Copy:
    """``target[to + sum(i * a.target)] = source[start + sum(i * a.source)]`` for all ``i`` of all axes."""

    axes: tuple[Axis, ...]
    start: int = 0
    to: int = 0


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements."""
    return tuple(prod(shape[i + 1:]) for i in range(len(shape)))


def copies_of(node: Node) -> list[Copy]:
    """Return the copies that a node makes, one per input; ``pad_slice`` also writes zeros.

    Of a node with the trait VIEW it is the copy where planning has not made it a view.
    """
    shapes = [v.shape for v in node.inputs]
    attrs, name = node.attrs, node.op.name
    if node.op.is_view:
        first = view_offset(node) // node.output.tensor.dtype.itemsize
        return [_copy((node.output.tensor.size,), (1,), (1,), first)]
    if name == "assign":
        return [_copy(shapes[1], strides_of(shapes[1]), strides_of(shapes[1]))]
    out = strides_of(node.output.shape)
    source = strides_of(shapes[0])
    if name == "transpose":
        order: tuple[int, ...] = attrs["axes"]
        return [_copy(node.output.shape, [source[a] for a in order], out)]
    if name == "broadcast_to":
        lead = (0,) * (len(out) - len(source))
        walk = lead + tuple(0 if n == 1 else s for n, s in zip(shapes[0], source, strict=True))
        return [_copy(node.output.shape, walk, out)]
    if name in ("slice", "pad_slice"):
        starts, steps = attrs["starts"], attrs["steps"]
        if name == "slice":
            walk = [s * k for s, k in zip(source, steps, strict=True)]
            return [_copy(node.output.shape, walk, out, sum(a * s for a, s in zip(starts, source, strict=True)))]
        walk = [s * k for s, k in zip(out, steps, strict=True)]
        return [_copy(shapes[0], source, walk, 0, sum(a * s for a, s in zip(starts, out, strict=True)))]
    assert name == "concat"
    axis: int = attrs["axis"]
    at, result = 0, list[Copy]()
    for shape in shapes:
        result.append(_copy(shape, strides_of(shape), out, 0, at * out[axis]))
        at += shape[axis]
    return result


def _copy(shape: Sequence[int], source: Sequence[int], target: Sequence[int], start: int = 0, to: int = 0) -> Copy:
    return Copy(tuple(map(Axis, shape, source, target)), start, to)


def simple(copy: Copy) -> Copy:
    """The same copy with as few loops as possible."""
    axes: list[Axis] = []
    for a in copy.axes:
        if a.extent == 1:
            continue
        before = axes[-1] if axes else None
        if before and before.source == a.source * a.extent and before.target == a.target * a.extent:
            axes[-1] = Axis(before.extent * a.extent, a.source, a.target)
        else:
            axes.append(a)
    return Copy(tuple(axes) or (Axis(1, 1, 1),), copy.start, copy.to)


def carrier_of(dtype: DType) -> tuple[int, DType]:
    """Integers that carry the bits of an element, and how many of them."""
    size = dtype.itemsize
    return (1, np.dtype(f"uint{8 * size}")) if size <= 8 else (size // 8, np.dtype("uint64"))


def in_parts(copy: Copy, parts: int) -> Copy:
    """The same copy of elements that are ``parts`` carriers each."""
    if parts == 1:
        return copy
    axes = tuple(Axis(a.extent, a.source * parts, a.target * parts) for a in copy.axes)
    return Copy((*axes, Axis(parts, 1, 1)), copy.start * parts, copy.to * parts)
