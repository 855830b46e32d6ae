"""Max pooling, its inverse, and what they leave to each other as gradients."""
from __future__ import annotations

from typing import Any

import numpy as np

from kusari.ir import PRIMITIVES, Arg
from kusari.ir.symbol import SCALAR, where

from ... import backend, tape
from ...configuration import config
from ...function_node import FunctionNode
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...utils.conv import get_conv_outsize
from ...variable import Variable, as_variable
from ..array.cast import cast
from ..connection.windows import (
    MOST_SLICES,
    Ints,
    Windows,
    expect_axes,
    instead_of,
    interleaved,
    original_sizes,
    sizes,
    spread,
)

# Adjacent windows of at most so many elements are slices of the input, which fuse with what is around them.
FEW_SLICES = 16


class MaxPoolingND(FunctionNode):
    """The maximum of every window, and which element it is: its place in the window, the first where several are equal.

    The places are a second output (int32), made only where a gradient may need them or they are asked for.
    """

    def __init__(self, ksize: Ints, stride: Ints, pad: Ints, cover_all: bool, with_indices: bool) -> None:
        super().__init__()
        self.ksize = ksize
        self.stride = stride
        self.pad = pad
        self.cover_all = cover_all
        self.with_indices = with_indices

    @property
    def label(self) -> str:
        return "MaxPooling2D" if len(self.ksize) == 2 else "MaxPoolingND"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        type_check.expect(in_types[0].dtype.kind == "f", in_types[0].ndim == len(self.ksize) + 2)

    def _windows(self, shape: Ints) -> Windows:
        out = sizes(shape[2:], self.ksize, self.stride, self.pad, self.cover_all)
        return Windows(self.ksize, self.stride, self.pad, (1,) * len(out), out)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        windows = self._windows(x.shape)
        if (instead := instead_of(x)) is not None:
            y = instead((*x.shape[:2], *windows.out), x.dtype)
            if not self.with_indices:
                return y,
            self.retain_outputs((1,))
            return y, instead(y.shape, np.int32)
        pieces = windows.pieces(xp, x, -np.inf)
        y = xp.array(pieces[0], order="C")
        for piece in pieces[1:]:
            xp.maximum(y, piece, out=y)
        if not self.with_indices:
            return y,
        self.retain_outputs((1,))
        last = len(pieces) - 1
        kind = np.dtype(np.int8 if last < 128 else np.int32).type
        places = xp.full(y.shape, last, kind)
        for i in range(last - 1, -1, -1):
            # Where equal i, else as before: several times as fast as a choice.
            places -= kind(i)
            places *= pieces[i] != y
            places += kind(i)
        return y, places.astype(np.int32, copy=False)

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        places, = self.get_retained_outputs()
        x = self.inputs[0]
        return Place(self.ksize, self.stride, self.pad, x.shape[2:]).apply((grad_outputs[0], places))

    def lower(self, b: Any, x: Any) -> tuple[Any, ...] | None:
        windows = self._windows(x.shape)
        if not (windows.tiles and windows.count <= FEW_SLICES) and x.tensor.dtype.itemsize in (4, 8):
            return b.emit(PRIMITIVES["pool"], x, fn="max", kernel=self.ksize, stride=self.stride, pad=self.pad,
                          size=windows.out, places=bool(self.with_indices))
        if windows.count > MOST_SLICES:
            return None
        pieces = windows.lowered_pieces(b, x, -np.inf)
        y = pieces[0]
        for piece in pieces[1:]:
            y = b.call("maximum", y, piece)
        if len(pieces) == 1:
            y = b.map(Arg(0), y)
        if not self.with_indices:
            return y,
        places = b.full(y.shape, len(pieces) - 1, np.int32)
        for i in range(len(pieces) - 2, -1, -1):
            places = b.map(lambda piece, y, later, i=SCALAR.int32(i): where(piece == y, i, later), pieces[i], y, places)
        return y, places

    def onnx(self, g: Any, x: str) -> Any:
        if self.with_indices:
            return NotImplemented  # ONNX counts places in the whole array
        shape = g.type(x).shape
        ends = onnx_ends(g, shape[2:], self._windows(shape), self.cover_all)
        return NotImplemented if ends is None else g.MaxPool(
            x, kernel_shape=list(self.ksize), strides=list(self.stride), pads=[*self.pad, *ends[0]], **ends[1])


def onnx_ends(g: Any, shape: Ints, windows: Windows,
              cover_all: bool = False) -> tuple[list[int], dict[str, int]] | None:
    """Return the padding after each axis and further attributes of a pooling; None where ONNX has no such windows.

    ``ceil_mode`` says the same as ``cover_all`` unless a window would start behind the input.
    """
    if any(p >= k for p, k in zip(windows.pad, windows.ksize, strict=True)):
        return None
    starts = [(o - 1) * s < n + p for o, s, n, p in zip(windows.out, windows.stride, shape, windows.pad, strict=True)]
    if cover_all and g.opset >= 10 and all(starts):
        return list(windows.pad), {"ceil_mode": 1}
    plain = tuple([get_conv_outsize(n, k, s, p) for n, k, s, p in zip(
        shape, windows.ksize, windows.stride, windows.pad, strict=True)])
    if plain == windows.out:
        return list(windows.pad), {}
    ends = [max(r - n - p, p) for r, n, p in zip(windows.reach, shape, windows.pad, strict=True)]
    return None if any(e >= k for e, k in zip(ends, windows.ksize, strict=True)) else (ends, {})


def _bits(x: Any) -> Any:
    """Return floating-point numbers as integers: these times a mask are a choice, also of NaN, and a fast one."""
    return x.view(f"i{x.dtype.itemsize}")


class _Indexed(FunctionNode):
    """The base of `Place` and `Pick`; ``size`` are the extents of the array that has the windows."""

    def __init__(self, ksize: Ints, stride: Ints, pad: Ints, size: Ints) -> None:
        super().__init__()
        self.ksize = ksize
        self.stride = stride
        self.pad = pad
        self.size = size

    def _windows(self, out: Ints) -> Windows:
        return Windows(self.ksize, self.stride, self.pad, (1,) * len(out), out)

    def _other(self, kind: type[_Indexed], g: Any, indexes: tuple[int, ...]) -> tuple[Any, ...]:
        places, = self.get_retained_inputs()
        gx = kind(self.ksize, self.stride, self.pad, self.size).apply((g, places))[0]
        return tuple([gx if i == 0 else None for i in indexes])


class Place(_Indexed):
    """Put every number at its place in its window, and add what meets: inputs ``g, places``."""

    @property
    def label(self) -> str:
        return "Upsampling2D" if len(self.ksize) == 2 else "UpsamplingND"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "indexes"))
        x_type, places = in_types
        type_check.expect(x_type.dtype.kind == "f", x_type.ndim == len(self.ksize) + 2, places.dtype.kind == "i",
                          x_type.shape == places.shape)
        for i, n in enumerate(self.size):
            k, s, p = self.ksize[i], self.stride[i], self.pad[i]
            type_check.expect(get_conv_outsize(n, k, s, p) <= x_type.shape[2 + i],
                              x_type.shape[2 + i] <= get_conv_outsize(n, k, s, p, True))

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        g, places = inputs
        self.retain_inputs((1,))
        xp = np if type(g) is np.ndarray else backend.get_array_module(g)
        if (instead := instead_of(g, places)) is not None:
            return instead((*g.shape[:2], *self.size), g.dtype),
        windows = self._windows(g.shape[2:])
        y = xp.zeros(g.shape[:2] + windows.padded_sizes(self.size), g.dtype)
        bits, overlap = _bits(g), windows.overlap
        for i, offset in enumerate(windows.offsets()):
            target = y[(..., *offset)]
            if overlap:
                target += (bits * (places == i)).view(g.dtype)
            else:
                xp.multiply(bits, places == i, out=_bits(target))
        return xp.ascontiguousarray(windows.cropped(y, self.size)),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._other(Pick, grad_outputs[0], indexes)

    def lower(self, b: Any, g: Any, places: Any) -> tuple[Any, ...] | None:
        windows = self._windows(g.shape[2:])
        if windows.tiles:
            lead, ones = g.shape[:2], (1,) * len(windows.out)
            wide = lead + interleaved(windows.out, ones)
            index = b.reshape(b.arange(windows.count), (1, 1, *interleaved(ones, windows.ksize)))
            y = b.map(lambda g, place, i: where(place == i, g, 0), b.reshape(g, wide), b.reshape(places, wide), index)
            return windows.lowered_tiles(b, b.cast(y, g.tensor.dtype), self.size),
        if g.tensor.dtype.itemsize in (4, 8):
            return b.emit(PRIMITIVES["unpool"], g, b.cast(places, np.int32), kernel=self.ksize, stride=self.stride,
                          pad=self.pad, size=self.size)
        if windows.count > MOST_SLICES:
            return None
        pieces = [b.cast(b.map(lambda g, place, i=i: where(place == i, g, 0), g, places), g.tensor.dtype)
                  for i in range(windows.count)]
        return windows.lowered_sum(b, pieces, self.size),


class Pick(_Indexed):
    """Take from every window the element at a place: inputs ``x, places``."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, places = inputs
        self.retain_inputs((1,))
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        if (instead := instead_of(x, places)) is not None:
            return instead(places.shape, x.dtype),
        y = xp.zeros(places.shape, _bits(x).dtype)
        for i, piece in enumerate(self._windows(places.shape[2:]).pieces(xp, _bits(x))):
            y += piece * (places == i)
        return y.view(x.dtype),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._other(Place, grad_outputs[0], indexes)

    def lower(self, b: Any, x: Any, places: Any) -> tuple[Any, ...] | None:
        windows = self._windows(places.shape[2:])
        if windows.count > MOST_SLICES:
            return None
        y: Any = None
        for i, piece in enumerate(windows.lowered_pieces(b, x)):
            y = b.map(lambda piece, place, other=0, i=i: where(place == i, piece, other), piece, places,
                      *() if y is None else (y,))
        return b.cast(y, x.tensor.dtype),


@for_arrays
def max_pooling_nd(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, cover_all: bool = True,
                   return_indices: bool = False) -> Any:
    """Maxima of windows over all axes after batch and channels.

    Where several elements of a window are the maximum, the gradient goes to the first of them in C order (to the last
    element of the window where the maximum is NaN).

    Args:
        x: Floating-point input of shape (N, C, d1, d2, …).
        ksize: Size of the window; one for all axes or one for each, as ``stride`` and ``pad``.
        stride: Step from one window to the next; by default ``ksize``.
        pad: Padding on either side, less than any number.
        cover_all: Whether windows go on until every element is in one.
        return_indices: Whether to return the places of the maxima too.

    Returns:
        Variable, or with ``return_indices`` a pair of it and an integer array of the same shape: for each window the
        place of its maximum, counted in C order. (While a static function is traced it is a Variable.)

    Raises:
        InvalidType: Not floating-point, or no window fits.
        ValueError: A setting has another number of axes than ``x``.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> y, places = F.max_pooling_nd(np.array([[[1, 5, 2, 3, 7]]], "f"), 2, return_indices=True)
    >>> y.array.tolist(), places.tolist()
    ([[[5.0, 3.0, 7.0]]], [[[1, 1, 0]]])
    """
    return _max_pooling(x, x.ndim - 2, ksize, stride, pad, cover_all, return_indices)


def _max_pooling(x: Any, ndim: int, ksize: Any, stride: Any, pad: Any, cover_all: bool, return_indices: bool) -> Any:
    ksize = spread(ksize, ndim, "ksize")
    stride = ksize if stride is None else spread(stride, ndim, "stride")
    x = as_variable(x)
    indexed = return_indices or (config.enable_backprop and x.requires_grad)
    ys = MaxPoolingND(ksize, stride, spread(pad, ndim, "pad"), bool(cover_all), bool(indexed)).apply((x,))
    if not return_indices:
        return ys[0]
    if tape.active() is not None:
        return ys[0], cast(ys[1], np.int64)
    return ys[0], ys[1].array.astype(np.int64)


@for_arrays
def max_pooling_1d(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, cover_all: bool = True,
                   return_indices: bool = False) -> Any:
    """Maxima of windows over one axis: see :func:`max_pooling_nd`.

    Raises:
        ValueError: ``x`` has not one axis after batch and channels.
    """
    expect_axes(x, 1)
    return max_pooling_nd(x, ksize, stride, pad, cover_all, return_indices)


@for_arrays
def max_pooling_2d(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, cover_all: bool = True,
                   return_indices: bool = False) -> Any:
    """Maxima of windows over height and width: see :func:`max_pooling_nd`.

    Raises:
        ValueError: ``x`` has not two axes after batch and channels.
    """
    expect_axes(x, 2)
    return max_pooling_nd(x, ksize, stride, pad, cover_all, return_indices)


@for_arrays
def max_pooling_3d(x: Any, ksize: Any, stride: Any = None, pad: Any = 0, cover_all: bool = True,
                   return_indices: bool = False) -> Any:
    """Maxima of windows over three axes: see :func:`max_pooling_nd`.

    Raises:
        ValueError: ``x`` has not three axes after batch and channels.
    """
    expect_axes(x, 3)
    return max_pooling_nd(x, ksize, stride, pad, cover_all, return_indices)


def upsampling_2d(x: Any, indexes: Any, ksize: Any, stride: Any = None, pad: Any = 0, outsize: Any = None,
                  cover_all: bool = True) -> Variable:
    """Put every pixel back to where max pooling took it from, between zeros.

    Args:
        x: Floating-point images of shape (N, C, H, W).
        indexes: Places as of `max_pooling_2d` with ``return_indices=True``, of the same shape.
        ksize: Size of the window, or height and width, as ``stride`` and ``pad``.
        stride: Step of the window; by default ``ksize``.
        pad: Padding.
        outsize: Height and width of the output; by default the least on which there are such windows.
        cover_all: Whether the windows covered every pixel.

    Raises:
        InvalidType: Dtypes or shapes do not fit.
    """
    ksize = spread(ksize, 2, "ksize")
    stride = ksize if stride is None else spread(stride, 2, "stride")
    pad = spread(pad, 2, "pad")
    expect_axes(x, 2)
    size = original_sizes(x.shape[2:], ksize, stride, pad, bool(cover_all)) if outsize is None else spread(
        outsize, 2, "outsize")
    return Place(ksize, stride, pad, size).apply((x, indexes))[0]
