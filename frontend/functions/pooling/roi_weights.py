"""Where the parts of regions lie in images: one matrix per region for the rows, one for the columns."""
from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from kusari.ir.symbol import SCALAR

from ... import backend
from ...function_node import FunctionNode
from ...structured import Structured
from ...utils import type_check

Pair = tuple[int, int]
Ratio = tuple[int | None, int | None]


def pair(name: str, value: Any) -> Pair:
    """Return a positive integer, or a pair of them, as a pair."""
    both = value if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2 or not all(isinstance(v, (int, np.integer)) and v >= 1 for v in both):
        raise TypeError(f"{name} must be an integer of at least 1 or a pair of these, got {value!r}")
    return int(both[0]), int(both[1])


def sampling(value: Any) -> Ratio:
    """Return numbers of samples along height and width as a pair, None for as many as there are pixels."""
    both = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, value)
    counts = [None if v is None else pair("sampling_ratio", v)[0] for v in both]
    return counts[0], counts[1]


def factor(value: Any) -> float:
    """Return a positive number as a float."""
    if not isinstance(value, (int, float, np.number)) or not value > 0:
        raise TypeError(f"spatial_scale must be a positive number, got {value!r}")
    return float(value)


def ticks(xp: Any, low: Any, high: Any, part: Any, tick: Any, *, scale: float, out: int, extent: int,
          ratio: Any) -> tuple[Any, Any]:
    """Return where sample ``tick`` of a part of a region is along an axis, and whether it counts."""
    first = low * scale
    bin_ = xp.maximum(high * scale - first, 1.0) / out
    at = first + part * bin_ + (tick + 0.5) * bin_ / ratio
    inside = xp.logical_and(xp.logical_and(at >= -1.0, at <= float(extent)), tick < ratio)
    return xp.minimum(xp.maximum(at, 0.0), float(extent - 1)), inside


def hat(xp: Any, at: Any, inside: Any, k: Any) -> Any:
    """The weight of pixel ``k`` in the value at a position: 1 at its place, falling to 0 a pixel away."""
    return xp.where(inside, xp.maximum(1.0 - abs(at - k), 0.0), 0.0)


def most(rois: Any, axis: int, scale: float, out: int) -> Any:
    """Return the numbers of samples that parts of the regions' own sizes take along an axis."""
    xp = backend.get_array_module(rois)
    return xp.ceil(xp.maximum((rois[:, 2 + axis] - rois[:, axis]) * scale, 1) / out)


class OfRegions(FunctionNode):
    """A function of ``x, rois, roi_indices``, whose types it checks; no gradient flows from it."""

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "rois", "roi_indices"))
        x_type, roi_type, index_type = in_types
        type_check.expect(x_type.dtype.kind == "f", x_type.ndim == 4, x_type.dtype == roi_type.dtype,
                          roi_type.ndim == 2, roi_type.shape[1] == 4, index_type.dtype.kind == "i",
                          index_type.ndim == 1, roi_type.shape[0] == index_type.shape[0])

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (None,) * len(indexes)


class ROIWeights(OfRegions):
    """Regions (R, 4) to matrices (R, parts, extent) of rows and of columns, whose rows are averages of pixels.

    Where ``ratio`` is None there are as many samples as pixels in a part, rounded up.
    """

    @property
    def label(self) -> str:
        return "ROIAverageAlign2D"

    def __init__(self, out: Pair, scale: float, ratio: Ratio) -> None:
        super().__init__()
        self.out = out
        self.scale = scale
        self.ratio = ratio

    def _matrix(self, xp: Any, rois: Any, axis: int, extent: int) -> Any:
        out, dtype = self.out[axis], rois.dtype
        low, high = (rois[:, i].reshape(-1, 1, 1, 1) for i in (axis, axis + 2))
        ratio: Any = self.ratio[axis]
        count = ratio
        if ratio is None:
            ratio = most(rois, axis, self.scale, out).reshape(-1, 1, 1, 1)
            count = int(ratio.max()) if len(rois) else 1
        part, tick, k = (xp.arange(n, dtype=dtype) for n in (out, count, extent))
        at, inside = ticks(xp, low, high, part[:, None, None], tick[:, None], scale=self.scale, out=out, extent=extent,
                           ratio=ratio)
        return (hat(xp, at, inside, k) / ratio).sum(axis=2).astype(dtype, copy=False)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, rois, _ = inputs
        xp = backend.get_array_module(rois)
        return self._matrix(xp, rois, 0, x.shape[2]), self._matrix(xp, rois, 1, x.shape[3])

    def lower(self, b: Any, x: Any, rois: Any, indices: Any) -> tuple[Any, ...] | None:
        return None if None in self.ratio else tuple([
            self._lowered(b, rois, axis, x.shape[2 + axis], ratio) for axis, ratio in enumerate(self.ratio) if ratio])

    def _lowered(self, b: Any, rois: Any, axis: int, extent: int, ratio: int) -> Any:
        out = self.out[axis]
        low, high, part, tick = corners(b, rois, axis, out, ratio)
        k = b.reshape(b.cast(b.arange(extent), rois.tensor.dtype), (1, 1, 1, extent))

        def weight(*s: Any) -> Any:
            at, inside = ticks(SCALAR, *s[:4], scale=self.scale, out=out, extent=extent, ratio=ratio)
            return hat(SCALAR, at, inside, s[4]) * (1.0 / ratio)
        return b.reshape(b.reduce("sum", b.map(weight, low, high, part, tick, k), 2), (rois.shape[0], out, extent))


def corners(b: Any, rois: Any, axis: int, out: int, ratio: int) -> tuple[Any, ...]:
    """Lower the bounds of regions along an axis, the numbers of parts and of samples: (R, parts, samples, 1)."""
    n, dtype = rois.shape[0], rois.tensor.dtype
    low, high = (b.reshape(b.slice(rois, (0, i), (n, i + 1), (1, 1)), (n, 1, 1, 1)) for i in (axis, axis + 2))
    part = b.reshape(b.cast(b.arange(out), dtype), (1, out, 1, 1))
    return low, high, part, b.reshape(b.cast(b.arange(ratio), dtype), (1, 1, ratio, 1))


class ROIBins(OfRegions, Structured):
    """Regions (R, 4) to matrices as of `ROIWeights` of whole pixels: the pixels that each part touches, averaged."""

    @property
    def label(self) -> str:
        return "ROIAveragePooling2D"

    def __init__(self, out: Pair, scale: float) -> None:
        super().__init__()
        self.out = out
        self.scale = scale

    def _weight(self, xp: Any, low: Any, high: Any, part: Any, k: Any, axis: int, extent: float) -> Any:
        first = xp.rint(low * self.scale)
        size = xp.maximum(xp.rint(high * self.scale) - first, 1.0) / self.out[axis]
        begin = xp.minimum(xp.maximum(xp.floor(part * size) + first, 0.0), extent)
        end = xp.minimum(xp.maximum(xp.ceil((part + 1.0) * size) + first, 0.0), extent)
        return xp.where(xp.logical_and(k >= begin, k < end), 1.0 / xp.maximum(end - begin, 1.0), 0.0)

    def lower(self, b: Any, x: Any, rois: Any, indices: Any) -> tuple[Any, ...]:
        n, found = rois.shape[0], []
        for axis in (0, 1):
            out, extent = self.out[axis], x.shape[2 + axis]
            bounds = (b.cast(b.reshape(b.slice(rois, (0, i), (n, i + 1), (1, 1)), (n, 1, 1)), np.float64)
                      for i in (axis, axis + 2))
            part, k = b.reshape(b.arange(out), (1, out, 1)), b.reshape(b.arange(extent), (1, 1, extent))
            formula = partial(self._weight, SCALAR, axis=axis, extent=float(extent))
            weight = b.map(formula, *bounds, part, k)
            found.append(b.cast(weight, rois.tensor.dtype))
        return tuple(found)


_LARGEST = 1 << 26  # bytes of images, one per region, that a compiled product may take


class ROIProduct(FunctionNode):
    """``rows @ image @ columns.T`` of every region: inputs ``x, rows, columns, indices``, where x are the images."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, rows, columns, indices = inputs
        self.retain_inputs((1, 2, 3))
        xp = backend.get_array_module(x)
        y = xp.empty((len(indices), x.shape[1], rows.shape[1], columns.shape[1]), x.dtype)
        for n, (image, r, c) in enumerate(_cut(rows, columns, indices)):
            y[n] = xp.matmul(rows[n][:, r], xp.matmul(x[image][:, r, c], columns[n][:, c].T))
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        gx = ROISpread(self.inputs[0].shape).apply((grad_outputs[0], *self.get_retained_inputs()))[0]
        return tuple([gx if i == 0 else None for i in indexes])

    def lower(self, b: Any, x: Any, rows: Any, columns: Any, indices: Any) -> tuple[Any, ...] | None:
        if indices.shape[0] * math.prod(x.shape[1:]) * x.tensor.dtype.itemsize > _LARGEST:
            return None  # region by region takes less memory
        rows, columns = (b.reshape(v, (v.shape[0], 1, *v.shape[1:])) for v in (rows, columns))
        return b.matmul(rows, b.matmul(b.take(x, indices), columns, False, True)),


class ROISpread(FunctionNode):
    """The gradient of `ROIProduct`: inputs ``gy, rows, columns, indices``."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        gy, rows, columns, indices = inputs
        self.retain_inputs((1, 2, 3))
        xp = backend.get_array_module(gy)
        gx = xp.zeros(self.shape, gy.dtype)
        for n, (image, r, c) in enumerate(_cut(rows, columns, indices)):
            gx[image][:, r, c] += xp.matmul(rows[n][:, r].T, xp.matmul(gy[n], columns[n][:, c]))
        return gx,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        g = ROIProduct().apply((grad_outputs[0], *self.get_retained_inputs()))[0]
        return tuple([g if i == 0 else None for i in indexes])

    def lower(self, b: Any, gy: Any, rows: Any, columns: Any, indices: Any) -> tuple[Any, ...] | None:
        if math.prod(self.shape[1:]) * indices.shape[0] * gy.tensor.dtype.itemsize > _LARGEST:
            return None
        rows, columns = (b.reshape(v, (v.shape[0], 1, *v.shape[1:])) for v in (rows, columns))
        return b.scatter_add(indices, b.matmul(rows, b.matmul(gy, columns), True, False), self.shape),


def _cut(rows: Any, columns: Any, indices: Any) -> Any:
    """Yield the number of each region's image, and the rows and columns that the region touches."""
    to_cpu = backend.CpuDevice().send

    def bounds(weights: Any) -> list[slice]:
        touched = to_cpu((weights != 0).any(axis=1))
        first, last = touched.argmax(1), touched.shape[1] - touched[:, ::-1].argmax(1)
        return [slice(int(a), int(b)) for a, b in zip(first, last, strict=True)]
    return zip(to_cpu(indices).tolist(), bounds(rows), bounds(columns), strict=True)
