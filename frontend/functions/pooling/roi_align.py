"""Regions of interest at fractional positions, and the averages of regions in whole pixels."""
from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kusari.ir.symbol import SCALAR, logical_and, maximum, where

from ... import backend
from ...tape import composed
from ...variable import Variable
from ..array.indexing import ScatterAdd
from ..array.sample import corner_places, corner_weight
from ..array.shape import reshape
from .roi_weights import (
    OfRegions,
    Pair,
    Ratio,
    ROIBins,
    ROIProduct,
    ROIWeights,
    corners,
    factor,
    most,
    pair,
    sampling,
    ticks,
)


class ROIMaxAlign2D(OfRegions):
    """The greatest sample of each part of each region, and where it is: (y, row, column), all (R, C, *out)."""

    def __init__(self, out: Pair, scale: float, ratio: Ratio) -> None:
        super().__init__()
        self.out = out
        self.scale = scale
        self.ratio = ratio

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, rois, indices = inputs
        self.retain_inputs((2,))
        self.retain_outputs((1, 2))
        xp = backend.get_array_module(x)
        (oh, ow), c, dtype = self.out, x.shape[1], x.dtype
        counts = [most(rois, axis, self.scale, self.out[axis]).astype(int).tolist() if ratio is None
                  else [ratio] * len(rois) for axis, ratio in enumerate(self.ratio)]
        y, row, column = (xp.zeros((len(rois), c, oh, ow), dtype) for _ in range(3))
        for n, image in enumerate(backend.CpuDevice().send(indices).tolist()):
            matrices: list[Any] = []
            places: list[Any] = []
            for axis in (0, 1):
                extent, count = x.shape[2 + axis], counts[axis][n]
                part, tick, k = (xp.arange(m, dtype=dtype) for m in (self.out[axis], count, extent))
                at, inside = ticks(xp, rois[n, axis], rois[n, axis + 2], part[:, None], tick, scale=self.scale,
                                   out=self.out[axis], extent=extent, ratio=count)
                at = at.astype(dtype)
                matrices.append(xp.where(inside.reshape(-1, 1), xp.maximum(1 - abs(at.reshape(-1, 1) - k), 0), 0)
                                .astype(dtype))
                places.append(xp.where(inside, at, -2))  # what lies outside has no gradient
            sh, sw = counts[0][n], counts[1][n]
            samples = xp.matmul(matrices[0], xp.matmul(x[image], matrices[1].T)).reshape(c, oh, sh, ow, sw)
            counted = (places[0] >= 0)[:, :, None, None] & (places[1] >= 0)
            samples = xp.where(counted, samples, -np.inf).transpose(0, 1, 3, 2, 4).reshape(c, oh, ow, sh * sw)
            best = samples.argmax(axis=3)
            y[n] = samples.max(axis=3)
            row[n] = places[0][xp.arange(oh)[:, None], best // sw]
            column[n] = places[1][xp.arange(ow), best % sw]
        y[(row < 0) | (column < 0)] = 0
        return y, row, column

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if grad_outputs[0] is None:  # positions do not change with the pixels
            return (None,) * len(indexes)
        indices, = self.get_retained_inputs()
        row, column = self.get_retained_outputs()
        n, c, h, w = shape = self.inputs[0].shape
        gx: Any = None
        for dy, dx in np.ndindex(2, 2):
            places = corner_places(row, column, indices, (c, h, w), dy, dx)
            part = grad_outputs[0] * corner_weight(row, column, h=h, w=w, dy=dy, dx=dx)
            spread = ScatterAdd(("@",), (n * c * h * w,)).apply((reshape(part, (-1,)), reshape(places, (-1,))))[0]
            gx = spread if gx is None else gx + spread
        return tuple([reshape(gx, shape) if i == 0 else None for i in indexes])

    def lower(self, b: Any, x: Any, rois: Any, indices: Any) -> tuple[Any, ...] | None:
        (oh, ow), (sh, sw), dtype = self.out, self.ratio, x.tensor.dtype
        if sh is None or sw is None:
            return None
        n, c = rois.shape[0], x.shape[1]
        matrices: list[Any] = []
        places: list[Any] = []
        for axis, (out, ratio) in enumerate(((oh, sh), (ow, sw))):
            extent = x.shape[2 + axis]
            k = b.reshape(b.cast(b.arange(extent), dtype), (1, 1, 1, extent))
            bounds = corners(b, rois, axis, out, ratio)
            sample = partial(ticks, SCALAR, scale=self.scale, out=out, extent=extent, ratio=ratio)
            matrices.append(b.reshape(b.map(partial(_weight, sample), *bounds, k), (n, 1, out * ratio, extent)))
            places.append(b.map(partial(_place, sample), *bounds))
        samples = b.matmul(matrices[0], b.matmul(b.take(x, indices), matrices[1], False, True))
        samples = b.map(lambda v, row, column: where(logical_and(row >= 0.0, column >= 0.0), v, -np.inf),
                        b.reshape(samples, (n, c, oh, sh, ow, sw)),
                        b.reshape(places[0], (n, 1, oh, sh, 1, 1)), b.reshape(places[1], (n, 1, 1, 1, ow, sw)))
        samples = b.transpose(samples, (0, 1, 2, 4, 3, 5))
        samples = b.reshape(samples, (n, c, oh, ow, sh * sw))
        best = b.reduce("max", samples, 4)
        tick = b.reshape(b.arange(sh * sw), (1, 1, 1, 1, sh * sw))
        hit = b.map(lambda v, best, tick: where(v == best, tick, sh * sw), samples, best, tick)
        hit = b.reduce("min", hit, 4)
        found = [b.reshape(b.map(lambda v: where(v == -np.inf, 0.0, v), best), (n, c, oh, ow))]
        for axis, (number, shape) in enumerate(((lambda hit: hit // sw, (n, 1, oh, 1, sh)),
                                                (lambda hit: hit % sw, (n, 1, 1, ow, sw)))):
            place = b.reshape(places[axis], shape)
            tick = b.reshape(b.arange(shape[4]), (1, 1, 1, 1, shape[4]))
            chosen = b.map(lambda hit, tick, at, number=number: where(number(hit) == tick, at, 0.0), hit, tick, place)
            found.append(b.reshape(b.reduce("sum", b.cast(chosen, dtype), 4), (n, c, oh, ow)))
        return tuple(found)


def _weight(sample: Any, *bounds_and_pixel: Any) -> Any:
    *bounds, k = bounds_and_pixel
    at, inside = sample(*bounds)
    return where(inside, maximum(1.0 - abs(at - k), 0.0), 0.0)


def _place(sample: Any, *bounds: Any) -> Any:
    at, inside = sample(*bounds)
    return where(inside, at, -2.0)


def _average_onnx(g: Any, x: str, rois: str, roi_indices: str, outsize: Any, spatial_scale: float,
                  sampling_ratio: Any) -> Any:
    out, ratio = pair("outsize", outsize), [n or 0 for n in sampling(sampling_ratio)]
    if g.opset < 10 or ratio[0] != ratio[1]:
        return NotImplemented
    more = {"coordinate_transformation_mode": "output_half_pixel"} if g.opset >= 16 else {}
    turned = g.Gather(rois, g.const(np.array([1, 0, 3, 2], np.int64)), axis=1)
    return g.RoiAlign(x, turned, g.Cast(roi_indices, to="int64"), mode="avg", output_height=out[0],
                      output_width=out[1], sampling_ratio=ratio[0], spatial_scale=float(spatial_scale), **more)


@composed(onnx=_average_onnx)
def roi_average_align_2d(x: Any, rois: Any, roi_indices: Any, outsize: Any, spatial_scale: float,
                         sampling_ratio: Any = None) -> Variable:
    """Divide regions of images into parts and take the average of samples in each, at fractional positions.

    Args:
        x: Floating-point images (N, C, H, W).
        rois: Regions (R, 4): top, left, bottom and right, of the dtype of ``x``.
        roi_indices: The number of the image of each region, int32, (R,).
        outsize: Number of parts along height and width, or one number for both.
        spatial_scale: Factor from the regions' coordinates to pixels of ``x``.
        sampling_ratio: Number of samples along the height and the width of a part, or one number for both; None for
            either: as many as there are pixels, rounded up.

    Returns:
        Variable: ``(R, C, *outsize)``. Samples more than a pixel outside of the image are 0. No gradient flows to the
        regions.

    Raises:
        TypeError: ``outsize``, ``spatial_scale`` or ``sampling_ratio`` is not positive.
        InvalidType: The shapes or dtypes do not fit.

    See: He et al., `Mask R-CNN <https://arxiv.org/abs/1703.06870>`_, 2017.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x = np.arange(16, dtype="f").reshape(1, 1, 4, 4)
    >>> F.roi_average_align_2d(x, np.array([[0, 1, 2, 3]], "f"), np.zeros(1, "i"), (1, 2), 1.0, 1).array.ravel()
    array([5.5, 6.5], dtype=float32)
    """
    settings = pair("outsize", outsize), factor(spatial_scale), sampling(sampling_ratio)
    return ROIProduct().apply((x, *ROIWeights(*settings).apply((x, rois, roi_indices)), roi_indices))[0]


def roi_max_align_2d(x: Any, rois: Any, roi_indices: Any, outsize: Any, spatial_scale: float,
                     sampling_ratio: Any = None) -> Variable:
    """Divide regions of images into parts and take the greatest of samples in each, at fractional positions.

    Args:
        x: Floating-point images (N, C, H, W).
        rois: Regions (R, 4): top, left, bottom and right, of the dtype of ``x``.
        roi_indices: The number of the image of each region, int32, (R,).
        outsize: Number of parts along height and width, or one number for both.
        spatial_scale: Factor from the regions' coordinates to pixels of ``x``.
        sampling_ratio: Number of samples as of `roi_average_align_2d`.

    Returns:
        Variable: ``(R, C, *outsize)``. Samples more than a pixel outside of the image do not count; a part that has no
        other is 0. The gradient goes to the pixels around the first greatest sample.

    Raises:
        TypeError: ``outsize``, ``spatial_scale`` or ``sampling_ratio`` is not positive.
        InvalidType: The shapes or dtypes do not fit.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x = np.arange(16, dtype="f").reshape(1, 1, 4, 4)
    >>> F.roi_max_align_2d(x, np.array([[0, 0, 2, 2]], "f"), np.zeros(1, "i"), 1, 1.0, 2).array.ravel()
    array([7.5], dtype=float32)
    """
    node = ROIMaxAlign2D(pair("outsize", outsize), factor(spatial_scale), sampling(sampling_ratio))
    return node.apply((x, rois, roi_indices))[0]


def roi_average_pooling_2d(x: Any, rois: Any, roi_indices: Any, outsize: Any, spatial_scale: float) -> Variable:
    """Divide regions of images into parts of whole pixels and take the average of each.

    Args:
        x: Floating-point images (N, C, H, W).
        rois: Regions (R, 4): top, left, bottom and right, the last two excluded, of the dtype of ``x``.
        roi_indices: The number of the image of each region, int32, (R,).
        outsize: Number of parts along height and width, or one number for both.
        spatial_scale: Factor from the regions' coordinates to pixels of ``x``; the results are rounded.

    Returns:
        Variable: ``(R, C, *outsize)``; parts that lie outside of the image are 0.

    Raises:
        TypeError: ``outsize`` or ``spatial_scale`` is not positive.
        InvalidType: The shapes or dtypes do not fit.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x = np.arange(16, dtype="f").reshape(1, 1, 4, 4)
    >>> F.roi_average_pooling_2d(x, np.array([[0, 1, 3, 3]], "f"), np.zeros(1, "i"), (1, 2), 1.0).array.ravel()
    array([5., 6.], dtype=float32)
    """
    matrices = ROIBins(pair("outsize", outsize), factor(spatial_scale)).apply((x, rois, roi_indices))
    return ROIProduct().apply((x, *matrices, roi_indices))[0]
