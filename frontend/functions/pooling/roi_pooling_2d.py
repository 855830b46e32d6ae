"""Max pooling over regions of interest."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir import SCALAR

from ... import backend
from ...function_node import FunctionNode
from ...utils import type_check
from ...variable import Variable
from ..array.indexing import ScatterAdd
from ..array.shape import reshape
from ..connection.windows import instead_of
from .roi_weights import OfRegions, factor, pair


def _bounds(first: int, count: int, parts: int, extent: int) -> list[tuple[int, int]]:
    """Return where each of ``parts`` parts of a region begins and ends, within ``extent``."""
    size = count / parts
    return [(min(max(int(np.floor(i * size)) + first, 0), extent), min(max(int(np.ceil((i + 1) * size)) + first, 0),
             extent)) for i in range(parts)]


class ROIPooling2D(FunctionNode):
    """The maximum of each part of each region, and where in the whole input it is: ``x.size`` for an empty part."""

    pure = True

    def __init__(self, outh: int, outw: int, spatial_scale: float) -> None:
        super().__init__()
        self.outh = outh
        self.outw = outw
        self.spatial_scale = spatial_scale

    def _regions(self, inputs: tuple[Any, ...]) -> Any:
        """Yield the image of each region, and its first row and column and number of rows and columns."""
        for roi in backend.CpuDevice().send(inputs[1]):
            left, top, right, bottom = (int(np.round(v * self.spatial_scale)) for v in roi[1:])
            yield int(roi[0]), top, left, bottom - top + 1, right - left + 1

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "rois"))
        x_type, roi_type = in_types
        type_check.expect(x_type.dtype.kind == "f", x_type.ndim == 4, roi_type.dtype == x_type.dtype,
                          roi_type.ndim == 2, roi_type.shape[1] == 5)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x = inputs[0]
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        self.retain_outputs((1,))
        _, c, h, w = x.shape
        if (instead := instead_of(x)) is not None:  # of arrays of ones, and there may be no image of that number
            shape = (len(inputs[1]), c, self.outh, self.outw)
            return instead(shape, x.dtype), instead(shape, np.int64)
        y = xp.zeros((len(inputs[1]), c, self.outh, self.outw), x.dtype)
        places = xp.full(y.shape, x.size, np.int64)
        channels = xp.arange(c)
        for n, (image, top, left, rows, columns) in enumerate(self._regions(inputs)):
            parts = _bounds(left, max(columns, 1), self.outw, w)
            for i, (y0, y1) in enumerate(_bounds(top, max(rows, 1), self.outh, h)):
                for j, (x0, x1) in enumerate(parts):
                    if y0 >= y1 or x0 >= x1:
                        continue
                    part = x[image, :, y0:y1, x0:x1].reshape(c, -1)
                    best = part.argmax(1)
                    y[n, :, i, j] = part[channels, best]
                    places[n, :, i, j] = (
                        (image * c + channels) * h + y0 + best // (x1 - x0)) * w + x0 + best % (x1 - x0)
        return y, places

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        places, = self.get_retained_outputs()
        shape = self.inputs[0].shape
        size = int(np.prod(shape))
        spread = ScatterAdd(("@",), (size + 1,)).apply((reshape(grad_outputs[0], (-1,)), reshape(places, (-1,))))[0]
        return tuple([reshape(spread[:size], shape) if i == 0 else None for i in indexes])

    def onnx(self, g: Any, x: str, rois: str) -> Any:
        # MaxRoiPool takes halves away from zero, Python to even.
        t = g.type(rois).dtype
        whole = g.expression(SCALAR.rint, g.Mul(rois, g.const(np.array([1] + [self.spatial_scale] * 4, t))))
        return g.MaxRoiPool(x, whole, pooled_shape=[self.outh, self.outw], spatial_scale=1.0)


class ROIMaxPooling2D(ROIPooling2D):
    """The same of ``x, rois, roi_indices``: top, left, bottom and right, the last two excluded."""

    def check_type_forward(self, in_types: Any) -> None:
        OfRegions().check_type_forward(in_types)

    def _regions(self, inputs: tuple[Any, ...]) -> Any:
        to_cpu = backend.CpuDevice().send
        for roi, image in zip(to_cpu(inputs[1]), to_cpu(inputs[2]), strict=True):
            top, left, bottom, right = (int(np.round(v * self.spatial_scale)) for v in roi)
            yield int(image), top, left, bottom - top, right - left

    def onnx(self, g: Any, x: str, rois: str, indices: str) -> Any:
        t = g.type(rois).dtype
        turned = g.Gather(rois, g.const(np.array([1, 0, 3, 2], np.int64)), axis=1)
        whole = g.Sub(g.expression(SCALAR.rint, g.Mul(turned, g.const(np.array(self.spatial_scale, t)))),
                      g.const(np.array([0, 0, 1, 1], t)))
        image = g.Unsqueeze(g.Cast(indices, to=t), g.const(np.array([1], np.int64)))
        return g.MaxRoiPool(x, g.Concat(image, whole, axis=1), pooled_shape=[self.outh, self.outw], spatial_scale=1.0)


def roi_pooling_2d(x: Any, rois: Any, outh: int, outw: int, spatial_scale: float) -> Variable:
    """Divide regions of images into ``outh`` by ``outw`` parts and take the maximum of each.

    Args:
        x: Floating-point images (N, C, H, W).
        rois: Regions (R, 5): number of the image, then left, top, right and bottom, the last two included.
        outh: Number of parts along the height.
        outw: Number of parts along the width.
        spatial_scale: Factor from the regions' coordinates to pixels of ``x``; the results are rounded.

    Returns:
        Variable: (R, C, outh, outw); parts that lie outside of the image are 0. No gradient flows to ``rois``.

    Raises:
        InvalidType: The shapes or dtypes do not fit.

    See: Girshick, `Fast R-CNN <https://arxiv.org/abs/1504.08083>`_, 2015.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x = np.arange(16, dtype="f").reshape(1, 1, 4, 4)
    >>> F.roi_pooling_2d(x, np.array([[0, 1, 0, 3, 2]], "f"), 1, 2, 1.0).array.ravel()
    array([10., 11.], dtype=float32)
    """
    return ROIPooling2D(int(outh), int(outw), float(spatial_scale)).apply((x, rois))[0]


def roi_max_pooling_2d(x: Any, rois: Any, roi_indices: Any, outsize: Any, spatial_scale: float) -> Variable:
    """Divide regions of images into parts of whole pixels and take the maximum of each.

    Args:
        x: Floating-point images (N, C, H, W).
        rois: Regions (R, 4): top, left, bottom and right, the last two excluded, of the dtype of ``x``.
        roi_indices: The number of the image of each region, int32, (R,).
        outsize: Number of parts along height and width, or one number for both.
        spatial_scale: Factor from the regions' coordinates to pixels of ``x``; the results are rounded.

    Returns:
        Variable: ``(R, C, *outsize)``; parts that lie outside of the image are 0. No gradient flows to the regions.

    Raises:
        TypeError: ``outsize`` or ``spatial_scale`` is not positive.
        InvalidType: The shapes or dtypes do not fit.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x = np.arange(16, dtype="f").reshape(1, 1, 4, 4)
    >>> F.roi_max_pooling_2d(x, np.array([[0, 1, 3, 3]], "f"), np.zeros(1, "i"), (1, 2), 1.0).array.ravel()
    array([ 9., 10.], dtype=float32)
    """
    return ROIMaxPooling2D(*pair("outsize", outsize), factor(spatial_scale)).apply((x, rois, roi_indices))[0]
