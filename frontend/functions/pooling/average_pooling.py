"""Average pooling and unpooling: windows added up, and numbers spread over windows."""
from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from kusari.ir.symbol import maximum, minimum

from ... import backend
from ...function_node import FunctionNode
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...utils.conv import get_conv_outsize
from ...variable import Variable
from ..connection.windows import (
    MOST_SLICES,
    Ints,
    Windows,
    expect_axes,
    interleaved,
    original_sizes,
    sizes,
    spread,
    work_dtype,
)
from .max_pooling import FEW_SLICES, onnx_ends


class _Windowed(FunctionNode):
    """Sums of windows and their gradients.

    ``size`` are the extents of the array that has the windows and ``out`` the numbers of windows. ``kind`` says what
    sums are divided by: nothing (``"sum"``), the size of the window (``"mean"``), or the number of its elements that
    are not padding (``"valid"``).
    """

    def __init__(self, ksize: Ints, stride: Ints, pad: Ints, size: Ints, out: Ints, kind: str) -> None:
        super().__init__()
        self.ksize = ksize
        self.stride = stride
        self.pad = pad
        self.size = size
        self.out = out
        self.kind = kind

    @property
    def _windows(self) -> Windows:
        return Windows(self.ksize, self.stride, self.pad, (1,) * len(self.out), self.out)

    def _other(self, kind: type[_Windowed], g: Any) -> tuple[Any, ...]:
        return kind(self.ksize, self.stride, self.pad, self.size, self.out, self.kind).apply((g,))

    def _divided(self, xp: Any, y: Any) -> Any:
        """Divide what belongs to each window."""
        if self.kind == "sum":
            return y
        if self.kind == "mean":
            return y * y.dtype.type(1 / prod(self.ksize))
        counts = np.ones((), np.int64)
        for n, k, s, p, o in zip(self.size, self.ksize, self.stride, self.pad, self.out, strict=True):
            first = np.arange(o) * s - p
            counts = counts[..., None] * (np.minimum(first + k, n) - np.maximum(first, 0)).clip(0)
        return y / xp.asarray(counts.clip(1).astype(y.dtype))  # a window of nothing but padding is 0

    def _lowered_divided(self, b: Any, y: Any) -> Any:
        if self.kind == "sum":
            return y
        if self.kind == "mean":
            return b.call("multiply", y, 1 / prod(self.ksize))
        ndim = len(self.out)
        for i, (n, k, s, p, o) in enumerate(zip(self.size, self.ksize, self.stride, self.pad, self.out, strict=True)):
            index = b.reshape(b.arange(o), (*(1,) * (2 + i), o, *(1,) * (ndim - i - 1)))
            y = b.map(partial(_divided, n=n, k=k, s=s, p=p, dtype=y.tensor.dtype), index, y)
        return y


def _divided(i: Any, y: Any, n: int, k: int, s: int, p: int, dtype: Any) -> Any:
    """The sum of window number ``i`` along an axis over the number of its elements, 1 where all of them are padding."""
    first = i * s - p
    count = maximum(minimum(first + k, n) - maximum(first, 0), 0)
    return y / maximum(count, 1).astype(dtype)


class WindowSum(_Windowed):
    """Add up (or average) each window."""

    @property
    def label(self) -> str:
        return "AveragePooling2D" if len(self.out) == 2 else "AveragePoolingND"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        type_check.expect(in_types[0].dtype.kind == "f", in_types[0].ndim == len(self.out) + 2)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        windows, work = self._windows, work_dtype(x.dtype)
        if prod(self.out) == 1:
            inside = windows.padded(xp, x)[(..., *[slice(0, k) for k in self.ksize])]
            y = inside.sum(axis=tuple(range(2, x.ndim)), dtype=work, keepdims=True)
        else:
            pieces = windows.pieces(xp, x)
            y = xp.array(pieces[0], work, order="C")
            for piece in pieces[1:]:
                y += piece
        return self._divided(xp, y).astype(x.dtype, copy=False),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._other(WindowSpread, grad_outputs[0])

    def lower(self, b: Any, x: Any) -> tuple[Any, ...] | None:
        windows, dtype, ndim = self._windows, x.tensor.dtype, len(self.out)
        x = b.cast(x, work_dtype(dtype))
        if prod(self.out) == 1:
            inside = windows.lowered_padded(b, x)
            stops = (*x.shape[:2], *self.ksize)
            if inside.shape != stops:
                inside = b.slice(inside, (0,) * (ndim + 2), stops, (1,) * (ndim + 2))
            y = b.reduce("sum", inside, range(2, ndim + 2))
        elif windows.tiles and windows.count > MOST_SLICES:
            stops = (*x.shape[:2], *windows.reach)
            if x.shape != stops:
                x = b.slice(x, (0,) * (ndim + 2), stops, (1,) * (ndim + 2))
            x = b.reshape(x, (*x.shape[:2], *interleaved(self.out, self.ksize)))
            y = b.reshape(b.reduce("sum", x, range(3, 2 * ndim + 2, 2)), (*x.shape[:2], *self.out))
        elif windows.tiles and windows.count <= FEW_SLICES:
            pieces = windows.lowered_pieces(b, x)
            y = pieces[0]
            for piece in pieces[1:]:
                y = b.call("add", y, piece)
        else:
            y = b.one("pool", x, fn="sum", kernel=self.ksize, stride=self.stride, pad=self.pad, size=self.out,
                      places=False)
        return b.cast(self._lowered_divided(b, y), dtype),

    def onnx(self, g: Any, x: str) -> Any:
        ends = onnx_ends(g, self.size, self._windows)
        if self.kind == "sum" or ends is None or ends[1] or (self.kind == "mean" and ends[0] != list(self.pad)):
            return NotImplemented
        return g.AveragePool(x, kernel_shape=list(self.ksize), strides=list(self.stride), pads=[*self.pad, *ends[0]],
                             count_include_pad=int(self.kind == "mean"))


class WindowSpread(_Windowed):
    """Give each number (or its share) to every element of its window, and add what meets."""

    @property
    def label(self) -> str:
        return "Unpooling2D" if len(self.out) == 2 else "UnpoolingND"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x_type, = in_types
        type_check.expect(x_type.dtype.kind == "f", x_type.ndim == len(self.out) + 2, x_type.shape[2:] == self.out)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        g, = inputs
        xp = np if type(g) is np.ndarray else backend.get_array_module(g)
        windows, work = self._windows, work_dtype(g.dtype)
        y = xp.zeros(g.shape[:2] + windows.padded_sizes(self.size), work)
        g = self._divided(xp, g.astype(work, copy=False))
        if prod(self.out) == 1:
            y[(..., *[slice(0, k) for k in self.ksize])] = g
        else:
            overlap = windows.overlap
            for where in windows.offsets():
                if overlap:
                    y[(..., *where)] += g
                else:
                    y[(..., *where)] = g
        return xp.ascontiguousarray(windows.cropped(y, self.size), dtype=inputs[0].dtype),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._other(WindowSum, grad_outputs[0])

    def lower(self, b: Any, g: Any) -> tuple[Any, ...] | None:
        windows, dtype, lead = self._windows, g.tensor.dtype, g.shape[:2]
        y = self._lowered_divided(b, b.cast(g, work_dtype(dtype)))
        if windows.tiles:
            y = b.broadcast_to(b.reshape(y, lead + interleaved(self.out, (1,) * len(self.out))),
                               lead + interleaved(self.out, self.ksize))
            y = windows.lowered_tiles(b, y, self.size)
        else:
            y = b.one("unpool", y, kernel=self.ksize, stride=self.stride, pad=self.pad, size=self.size)
        return b.cast(y, dtype),

    def onnx(self, g: Any, x: str) -> Any:
        covered = tuple([o * k for o, k in zip(self.out, self.ksize, strict=True)])
        if self.kind != "sum" or not self._windows.tiles or covered != self.size or g.opset < 11:
            return NotImplemented
        return g.Resize(x, None, g.const(np.array([1, 1, *self.ksize], np.float32)), mode="nearest",
                        coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@for_arrays
def average_pooling_nd(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, pad_value: int | None = 0) -> Variable:
    """Averages of windows over all axes after batch and channels.

    Args:
        x: Floating-point input of shape (N, C, d1, d2, …).
        ksize: Size of the window; one for all axes or one for each, as ``stride`` and ``pad``.
        stride: Step from one window to the next; by default ``ksize``.
        pad: Padding on either side.
        pad_value: 0 to average over the padding too, None to leave it out.

    Raises:
        InvalidType: Not floating-point, or no window fits.
        ValueError: ``pad_value`` is neither 0 nor None, or a setting has another number of axes than ``x``.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x = np.array([[[2, 4, 6]]], "f")
    >>> F.average_pooling_nd(x, 2, 1, 1).array.tolist()
    [[[1.0, 3.0, 5.0, 3.0]]]
    >>> F.average_pooling_nd(x, 2, 1, 1, pad_value=None).array.tolist()
    [[[2.0, 3.0, 5.0, 6.0]]]
    """
    if pad_value is not None and pad_value != 0:
        raise ValueError(f"pad_value must be either 0 or None, not {pad_value}.")
    ndim = x.ndim - 2
    ksize = spread(ksize, ndim, "ksize")
    stride = ksize if stride is None else spread(stride, ndim, "stride")
    pad = spread(pad, ndim, "pad")
    size = tuple(x.shape[2:])
    out = sizes(size, ksize, stride, pad, False)
    return WindowSum(ksize, stride, pad, size, out, "valid" if pad_value is None else "mean").apply((x,))[0]


@for_arrays
def average_pooling_1d(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, pad_value: int | None = 0) -> Variable:
    """Averages of windows over one axis: see :func:`average_pooling_nd`.

    Raises:
        ValueError: ``x`` has not one axis after batch and channels.
    """
    expect_axes(x, 1)
    return average_pooling_nd(x, ksize, stride, pad, pad_value)


@for_arrays
def average_pooling_2d(x: Any, ksize: Any, stride: Any = None, pad: Any = 0) -> Variable:
    """Averages of windows over height and width, padding included: see :func:`average_pooling_nd`.

    Raises:
        ValueError: ``x`` has not two axes after batch and channels.
    """
    expect_axes(x, 2)
    return average_pooling_nd(x, ksize, stride, pad)


@for_arrays
def average_pooling_3d(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, pad_value: int | None = 0) -> Variable:
    """Averages of windows over three axes: see :func:`average_pooling_nd`.

    Raises:
        ValueError: ``x`` has not three axes after batch and channels.
    """
    expect_axes(x, 3)
    return average_pooling_nd(x, ksize, stride, pad, pad_value)


@for_arrays
def unpooling_nd(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, outsize: Any = None,
                 cover_all: bool = True) -> Variable:
    """Spread every number over its window; where windows overlap the numbers are added.

    Args:
        x: Floating-point input of shape (N, C, d1, d2, …).
        ksize: Size of the window; one for all axes or one for each, as ``stride`` and ``pad``.
        stride: Step from one window to the next; by default ``ksize``.
        pad: What is cut off on either side.
        outsize: Extents of the output; by default the least on which there are such windows.
        cover_all: Whether the windows are those of a pooling that covers every element.

    Raises:
        InvalidType: Not floating-point, or there are not as many windows on ``outsize``.
        ValueError: A setting has another number of axes than ``x``.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.unpooling_nd(np.array([[[1, 2]]], "f"), 2, cover_all=False).array.tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    ndim = x.ndim - 2
    ksize = spread(ksize, ndim, "ksize")
    stride = ksize if stride is None else spread(stride, ndim, "stride")
    pad = spread(pad, ndim, "pad")
    if outsize is None:
        out = tuple(x.shape[2:])
        size = original_sizes(out, ksize, stride, pad, bool(cover_all), least=0)
    else:
        size = spread(outsize, ndim, "outsize")
        out = tuple([get_conv_outsize(n, k, s, p, bool(cover_all))
                     for n, k, s, p in zip(size, ksize, stride, pad, strict=True)])
    return WindowSpread(ksize, stride, pad, size, out, "sum").apply((x,))[0]


@for_arrays
def unpooling_1d(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, outsize: Any = None,
                 cover_all: bool = True) -> Variable:
    """Spread numbers over windows of one axis: see :func:`unpooling_nd`.

    Raises:
        ValueError: ``x`` has not one axis after batch and channels.
    """
    expect_axes(x, 1)
    return unpooling_nd(x, ksize, stride, pad, outsize, cover_all)


@for_arrays
def unpooling_2d(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, outsize: Any = None,
                 cover_all: bool = True) -> Variable:
    """Spread numbers over windows of height and width: see :func:`unpooling_nd`.

    Raises:
        ValueError: ``x`` has not two axes after batch and channels.
    """
    expect_axes(x, 2)
    return unpooling_nd(x, ksize, stride, pad, outsize, cover_all)


@for_arrays
def unpooling_3d(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, outsize: Any = None,
                 cover_all: bool = True) -> Variable:
    """Spread numbers over windows of three axes: see :func:`unpooling_nd`.

    Raises:
        ValueError: ``x`` has not three axes after batch and channels.
    """
    expect_axes(x, 3)
    return unpooling_nd(x, ksize, stride, pad, outsize, cover_all)
