"""Operators that move elements: shapes, axes, joins and parts."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import functions as F
from ...variable import as_variable
from .program import Step
from .registry import Table, axes_of, ints, number

TABLE = Table()


@TABLE.add("Shape")
def _shape(step: Step, x: Any) -> Any:
    return np.array(x.shape[slice(step("start", 0), step("end"))], np.int64)


@TABLE.add("Size")
def _size(step: Step, x: Any) -> Any:
    return np.array(x.size, np.int64)


@TABLE.add("Reshape")
def _reshape(step: Step, x: Any, shape: Any = None) -> Any:
    given = ints(step("shape") if shape is None else shape)
    if not step("allowzero", 0):
        given = tuple([x.shape[i] if n == 0 else n for i, n in enumerate(given)])
    return F.reshape(x, given)


@TABLE.add("Flatten")
def _flatten(step: Step, x: Any) -> Any:
    axis = step("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return F.reshape(x, (int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))))


@TABLE.add("Transpose")
def _transpose(step: Step, x: Any) -> Any:
    return F.transpose(x, step("perm") and tuple(step("perm")))


@TABLE.add("Squeeze")
def _squeeze(step: Step, x: Any, axes: Any = None) -> Any:
    given = axes_of(step, x, axes)
    return F.squeeze(x, given) if given is None or given else as_variable(x)


@TABLE.add("Unsqueeze")
def _unsqueeze(step: Step, x: Any, axes: Any = None) -> Any:
    given = ints(step("axes") if axes is None else axes)
    rank = x.ndim + len(given)
    new = {a % rank for a in given}
    rest = iter(x.shape)
    return F.reshape(x, tuple([1 if i in new else next(rest) for i in range(rank)]))


@TABLE.add("Concat")
def _concat(step: Step, *xs: Any) -> Any:
    return F.concat(list(map(as_variable, xs)), step("axis", 1))


@TABLE.add("Split")
def _split(step: Step, x: Any, split: Any = None) -> Any:
    axis, count = step("axis", 0), len(step.outputs)
    sizes = step("split") if split is None else ints(split)
    if sizes is None:
        part = -(-x.shape[axis] // count)
        sizes = [min(part, x.shape[axis] - i * part) for i in range(count)]
    if len(sizes) == 1:
        return as_variable(x)
    return tuple(F.split_axis(x, [int(n) for n in np.cumsum(sizes)[:-1]], axis))


@TABLE.add("Slice")
def _slice(step: Step, x: Any, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Any:
    first = ints(step("starts") if starts is None else starts)
    last = ints(step("ends") if ends is None else ends)
    given = axes_of(step, x, axes)
    along = range(len(first)) if given is None else given
    jumps = (1,) * len(first) if steps is None else ints(steps)
    key = [slice(None)] * x.ndim
    for start, stop, axis, jump in zip(first, last, along, jumps, strict=True):
        n = x.shape[axis]
        if jump < 0:
            start, stop = min(start, n - 1), stop if stop >= -n else None
        key[axis] = slice(start, stop, jump)
    return as_variable(x)[tuple(key)]


@TABLE.add("Expand")
def _expand(step: Step, x: Any, shape: Any) -> Any:
    return F.broadcast_to(x, np.broadcast_shapes(x.shape, ints(shape)))


@TABLE.add("Tile")
def _tile(step: Step, x: Any, repeats: Any, *more: Any) -> Any:
    return NotImplemented if more else F.tile(x, ints(repeats))


@TABLE.add("Pad")
def _pad(step: Step, x: Any, pads: Any = None, value: Any = None, axes: Any = None) -> Any:
    mode = step("mode", "constant")
    amounts = ints((step("pads") or step("paddings")) if pads is None else pads)
    given = axes_of(step, x, axes)
    along = range(x.ndim) if given is None else given
    width = [(0, 0)] * x.ndim
    for k, axis in enumerate(along):
        width[axis] = amounts[k], amounts[k + len(amounts) // 2]
    if mode != "constant" or min(min(w) for w in width) < 0 or x.dtype.kind != "f":
        return NotImplemented
    fill = step("value", 0.0) if value is None else number(value)
    return F.pad(x, width, "constant", constant_values=fill)


@TABLE.add("DepthToSpace")
def _depth_to_space(step: Step, x: Any) -> Any:
    r = step("blocksize")
    n, c, h, w = x.shape
    if step("mode", "DCR") == "DCR":
        y = F.transpose(F.reshape(x, (n, r, r, c // r ** 2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = F.transpose(F.reshape(x, (n, c // r ** 2, r, r, h, w)), (0, 1, 4, 2, 5, 3))
    return F.reshape(y, (n, c // r ** 2, h * r, w * r))


@TABLE.add("SpaceToDepth")
def _space_to_depth(step: Step, x: Any) -> Any:
    r = step("blocksize")
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if step("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    y = F.transpose(F.reshape(x, (n, c, h // r, r, w // r, r)), order)
    return F.reshape(y, (n, c * r ** 2, h // r, w // r))
