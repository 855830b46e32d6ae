"""Windows as channels, and convolution with weights of their own for every position."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import backend
from ...function_node import FunctionNode
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...variable import Variable, as_variable
from ..array.axes import transpose
from ..array.cast import cast
from ..array.shape import reshape
from ..math.matmul import matmul
from .windows import MOST_SLICES, Ints, Windows, expect_axes, sizes, spread


class _Columns(FunctionNode):
    """The base of `Im2Col` and its gradient; ``size`` are the extents of the images, ``out`` the numbers of windows."""

    def __init__(self, ksize: Ints, stride: Ints, pad: Ints, dilate: Ints, size: Ints, out: Ints) -> None:
        super().__init__()
        self.ksize = ksize
        self.stride = stride
        self.pad = pad
        self.dilate = dilate
        self.size = size
        self.out = out

    @property
    def _windows(self) -> Windows:
        return Windows(self.ksize, self.stride, self.pad, self.dilate, self.out)

    def _other(self, kind: type[_Columns], g: Any) -> tuple[Any, ...]:
        return kind(self.ksize, self.stride, self.pad, self.dilate, self.size, self.out).apply((g,))


class Im2Col(_Columns):
    """Every element of the windows as a channel of its own."""

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        type_check.expect(in_types[0].dtype.kind == "f")

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        n, c = x.shape[:2]
        y = xp.stack(self._windows.pieces(xp, x), axis=2)
        return y.reshape(n, c * self._windows.count, *self.out),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._other(Col2Im, grad_outputs[0])

    def lower(self, b: Any, x: Any) -> tuple[Any, ...] | None:
        windows = self._windows
        if windows.count > MOST_SLICES:
            return None
        n, c = x.shape[:2]
        pieces = [b.reshape(v, (n, c, 1, *self.out)) for v in windows.lowered_pieces(b, x)]
        return b.reshape(b.concat(pieces, 2), (n, c * windows.count, *self.out)),


class Col2Im(_Columns):
    """Every channel back to where it was in its image, added up."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        g, = inputs
        xp = np if type(g) is np.ndarray else backend.get_array_module(g)
        windows = self._windows
        n, c = len(g), g.shape[1] // windows.count
        g = g.reshape(n, c, windows.count, *self.out)
        y = xp.zeros((n, c, *windows.padded_sizes(self.size)), g.dtype)
        for i, where in enumerate(windows.offsets()):
            y[(..., *where)] += g[:, :, i]
        return xp.ascontiguousarray(windows.cropped(y, self.size)),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._other(Im2Col, grad_outputs[0])

    def lower(self, b: Any, g: Any) -> tuple[Any, ...] | None:
        windows = self._windows
        if windows.count > MOST_SLICES:
            return None
        n, c = g.shape[0], g.shape[1] // windows.count
        g = b.reshape(g, (n, c, windows.count, *self.out))
        pieces = [b.reshape(b.slice(g, (0, 0, i, 0, 0), (n, c, i + 1, *self.out), (1,) * 5), (n, c, *self.out))
                  for i in range(windows.count)]
        return windows.lowered_sum(b, pieces, self.size),


@for_arrays
def im2col(x: Any, ksize: Any, stride: Any = 1, pad: Any = 0, cover_all: bool = False, dilate: Any = 1) -> Variable:
    """Make every element of the windows of images a channel of its own.

    Args:
        x: Floating-point images of shape (N, C, H, W).
        ksize: Height and width of the window, or one number for both, as ``stride``, ``pad`` and ``dilate``.
        stride: Step of the window.
        pad: Zeros on either side.
        cover_all: Whether every pixel is in a window.
        dilate: Distance between the pixels of a window.

    Returns:
        Variable: Of shape (N, C * kh * kw, output height, output width).

    Raises:
        InvalidType: Not floating-point, not of four axes, or no window fits.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.im2col(np.arange(6, dtype="f").reshape(1, 1, 2, 3), 2).array.reshape(4, 2).tolist()
    [[0.0, 1.0], [1.0, 2.0], [3.0, 4.0], [4.0, 5.0]]
    """
    if x.ndim != 4 or x.dtype.kind != "f":
        raise type_check.InvalidType("x: floating-point (N, C, H, W)", f"{x.dtype}{x.shape}",
                                     "\nInvalid operation is performed in: Im2Col (Forward)")
    ksize, stride, pad, dilate = (spread(v, 2, name) for v, name in (
        (ksize, "ksize"), (stride, "stride"), (pad, "pad"), (dilate, "dilate")))
    size = tuple(x.shape[2:])
    out = sizes(size, ksize, stride, pad, bool(cover_all), dilate)
    return Im2Col(ksize, stride, pad, dilate, size, out).apply((x,))[0]


@for_arrays
def local_convolution_2d(x: Any, W: Any, b: Any = None, stride: Any = 1) -> Variable:
    """Convolution with weights of their own for every position.

    Args:
        x: Floating-point images of shape (N, C, H, W).
        W: Weights of shape (O, output height, output width, C, kh, kw).
        b: Bias of shape (O, output height, output width), or None.
        stride: Step of the window, or one each for height and width.

    Returns:
        Variable: Of shape (N, O, output height, output width), of the dtype of ``x``.

    Raises:
        InvalidType: Dtypes or shapes do not fit.

    See: Taigman et al., `DeepFace <https://doi.org/10.1109/CVPR.2014.220>`_, 2014.
    """
    expect_axes(x, 2)
    W = as_variable(W)
    if W.ndim != 6:
        raise type_check.InvalidType("W.ndim == 6", f"{W.ndim} != 6")
    columns = im2col(x, W.shape[4:], stride)
    n, depth, *out = columns.shape
    if tuple(W.shape[1:3]) != tuple(out) or W.shape[3] != x.shape[1]:
        raise type_check.InvalidType(f"W.shape[1:4] == {(*out, x.shape[1])}", f"{W.shape[1:4]}")
    positions = out[0] * out[1]
    # One product for each position: (N, depth) with (depth, O).
    a = transpose(reshape(columns, (n, depth, positions)), (2, 0, 1))
    w = transpose(reshape(W, (W.shape[0], positions, depth)), (1, 0, 2))
    y = cast(reshape(transpose(matmul(a, w, transb=True), (1, 2, 0)), (n, W.shape[0], *out)), x.dtype)
    if b is None:
        return y
    b = as_variable(b)
    if b.shape != y.shape[1:] or b.dtype != y.dtype:
        raise type_check.InvalidType(f"b.shape == {y.shape[1:]}, {y.dtype}", f"{b.shape}, {b.dtype}",
                                     "\nInvalid operation is performed in: LocalConvolution2D (Forward)")
    return y + b
