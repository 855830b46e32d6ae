"""The nodes of convolution: forward, transposed, and the gradient of the weights; each other's gradients."""
from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ... import backend
from ...function_node import FunctionNode
from ...utils import type_check
from ...utils.conv import get_conv_outsize
from ..array.cast import cast
from ..math.reduction import sum as sum_
from .windows import Ints, Windows, instead_of, original_sizes, sizes, work_dtype

# Windows are copied to columns for as many samples at a time as make about this many elements: they stay in the cache.
_COLUMN_ELEMENTS = 1 << 19


class _Convolution(FunctionNode):
    """The base of the three nodes.

    ``size`` is the shape of the output's sliding axes where the arguments leave it open, or None.
    """

    def __init__(self, stride: Ints, pad: Ints, dilate: Ints, groups: int, size: Ints | None = None,
                 cover_all: bool = False) -> None:
        super().__init__()
        self.stride = stride
        self.pad = pad
        self.dilate = dilate
        self.groups = groups
        self.size = size
        self.cover_all = cover_all

    def _windows(self, ksize: Ints, out: Ints) -> Windows:
        return Windows(ksize, self.stride, self.pad, self.dilate, out)

    def _other(self, kind: type[_Convolution], size: Ints, *inputs: Any) -> Any:
        """Apply another node with the same windows."""
        return kind(self.stride, self.pad, self.dilate, self.groups, size).apply(inputs)[0]

    def _check_channels(self, in_types: Any, channels: Any, out: Any) -> None:
        ndim = len(self.stride)
        x_type, w_type = in_types[0], in_types[1]
        type_check.expect(x_type.dtype.kind == "f", w_type.dtype.kind == "f", x_type.ndim == ndim + 2,
                          w_type.ndim == ndim + 2)
        type_check.expect(channels(x_type, w_type))
        if len(in_types) == 3:
            b_type = in_types[2]
            type_check.expect(b_type.dtype == x_type.dtype, b_type.ndim == 1, b_type.shape[0] == out(w_type))


def _batches(n: int, elements: int) -> Iterator[slice]:
    """Ranges of samples whose columns, of ``elements`` each, fit the cache."""
    step = max(1, _COLUMN_ELEMENTS // max(1, elements))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _columns(xp: Any, x: Any, windows: Windows, groups: int, dtype: Any) -> Any:
    """Copy the windows of all samples: (groups, channels of a group × window, samples × positions)."""
    c, n = x.shape[1], x.shape[0]
    view = windows.view(xp, windows.padded(xp, x).swapaxes(0, 1))
    columns = xp.empty(view.shape, dtype)
    columns[...] = view
    return columns.reshape(groups, c // groups * windows.count, n * prod(windows.out))


def _rows(xp: Any, g: Any, groups: int, dtype: Any) -> Any:
    """Channels first: (groups, channels of a group, samples × positions)."""
    n, c = g.shape[:2]
    if n != 1:
        g = g.swapaxes(0, 1)
    return xp.ascontiguousarray(g, dtype=dtype).reshape(groups, c // groups, n * prod(g.shape[2:]))


def _product(xp: Any, a: Any, b: Any) -> Any:
    """Matrix product of each group."""
    return a[0].dot(b[0])[None] if len(a) == 1 else xp.matmul(a, b)


def correlate(xp: Any, x: Any, W: Any, windows: Windows, groups: int) -> Any:
    """Convolution of ``x`` (N, C, …) with ``W`` (O, C / groups, …); the result has the dtype of ``x``."""
    n, o = len(x), len(W)
    if (instead := instead_of(x, W)) is not None:
        return instead((n, o, *windows.out), x.dtype)
    work = work_dtype(x.dtype, W.dtype)
    w = W.reshape(groups, o // groups, prod(W.shape[1:])).astype(work, copy=False)
    if windows.is_identity and groups == 1:
        y = xp.matmul(w[0], x.reshape(n, x.shape[1], prod(windows.out)).astype(work, copy=False))
        return y.reshape(n, o, *windows.out).astype(x.dtype, copy=False)
    y = xp.empty((n, o, *windows.out), x.dtype)
    for part in _batches(n, x.shape[1] * windows.count * prod(windows.out)):
        found = _product(xp, w, _columns(xp, x[part], windows, groups, work))
        y[part] = found.reshape(o, len(x[part]), *windows.out).swapaxes(0, 1)
    return y


def weights_gradient(xp: Any, x: Any, gy: Any, windows: Windows, groups: int) -> Any:
    """Gradient of `correlate` with regard to ``W``."""
    c, o = x.shape[1], gy.shape[1]
    if (instead := instead_of(x, gy)) is not None:
        return instead((o, c // groups, *windows.ksize), x.dtype)
    work = work_dtype(x.dtype, gy.dtype)
    gW = xp.zeros((groups, o // groups, c // groups * windows.count), work)
    for part in _batches(len(x), c * windows.count * prod(windows.out)):
        columns = _columns(xp, x[part], windows, groups, work)
        gW += _product(xp, _rows(xp, gy[part], groups, work), columns.swapaxes(1, 2))
    return gW.reshape(o, c // groups, *windows.ksize).astype(x.dtype, copy=False)


def scatter(xp: Any, g: Any, W: Any, windows: Windows, groups: int, shape: Ints) -> Any:
    """Transposed convolution: the gradient of `correlate` with regard to ``x``, whose sliding axes are ``shape``."""
    n, o = g.shape[:2]
    c = W.shape[1] * groups
    if (instead := instead_of(g, W)) is not None:
        return instead((n, c, *shape), g.dtype)
    work = work_dtype(g.dtype, W.dtype)
    w = W.reshape(groups, o // groups, prod(W.shape[1:])).astype(work, copy=False).swapaxes(1, 2)
    if windows.is_identity and groups == 1:
        y = xp.matmul(w[0], g.reshape(n, o, prod(windows.out)).astype(work, copy=False))
        return y.reshape(n, c, *shape).astype(g.dtype, copy=False)
    y = xp.empty((n, c, *shape), g.dtype)
    extents = windows.padded_sizes(shape)
    for part in _batches(n, c * windows.count * prod(windows.out)):
        rows = _rows(xp, g[part], groups, work)
        columns = _product(xp, w, rows).reshape(c, windows.count, len(g[part]), *windows.out)
        total = xp.zeros((c, columns.shape[2], *extents), work)
        for i, where in enumerate(windows.offsets()):
            total[(..., *where)] += columns[:, i]
        y[part] = windows.cropped(total, shape).swapaxes(0, 1)
    return y


# -- in the compiler's vocabulary -----------------------------------------------------------------------------------


def _lowered(b: Any, op: str, first: Any, second: Any, windows: Windows, groups: int, size: Ints) -> Any:
    """One primitive, in the dtype of the first operand; ``size`` are the extents that it leaves open."""
    dtype = first.tensor.dtype
    work = work_dtype(dtype, second.tensor.dtype)
    y = b.one(op, b.cast(first, work), b.cast(second, work), stride=windows.stride, pad=windows.pad,
              dilate=windows.dilate, groups=groups, size=size)
    return b.cast(y, dtype)


def _lowered_bias(b: Any, y: Any, bias: Any) -> Any:
    if bias is None:
        return y
    return b.call("add", y, b.reshape(bias, (1, y.shape[1], *(1,) * (len(y.shape) - 2))))


def _bias(b: Any, ndim: int) -> Any:
    return b.reshape(-1, *(1,) * ndim)


class ConvolutionND(_Convolution):
    """Convolution of ``x`` with ``W`` plus a bias: inputs ``x, W`` or ``x, W, b``."""

    @property
    def label(self) -> str:
        return "Convolution2DFunction" if len(self.stride) == 2 else "ConvolutionND"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "W", "b")[:max(2, len(in_types))])
        self._check_channels(in_types, lambda x, w: x.shape[1] == w.shape[1] * self.groups, lambda w: w.shape[0])
        type_check.expect(in_types[1].shape[0] % self.groups == 0)

    def _geometry(self, x: Ints, W: Ints) -> Windows:
        out = self.size or sizes(x[2:], W[2:], self.stride, self.pad, self.cover_all, self.dilate)
        return self._windows(W[2:], out)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs((0, 1))
        x, W = inputs[0], inputs[1]
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        y = correlate(xp, x, W, self._geometry(x.shape, W.shape), self.groups)
        if len(inputs) == 3:
            y += _bias(inputs[2], len(self.stride))
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, W = self.get_retained_inputs()
        gy, = grad_outputs
        grads: list[Any] = []
        for i in indexes:
            if i == 0:
                grads.append(self._other(DeconvolutionND, x.shape[2:], gy, W))
            elif i == 1:
                gW = self._other(ConvolutionWeightsGradient, W.shape[2:], x, gy)
                grads.append(gW if gW.dtype == W.dtype else cast(gW, W.dtype))
            else:
                grads.append(sum_(gy, axis=(0, *range(2, gy.ndim))))
        return tuple(grads)

    def lower(self, b: Any, x: Any, W: Any, bias: Any = None) -> tuple[Any, ...] | None:
        windows = self._geometry(x.shape, W.shape)
        return _lowered_bias(b, _lowered(b, "conv", x, W, windows, self.groups, windows.out), bias),

    def onnx(self, g: Any, x: str, W: str, *bias: str) -> Any:
        types = g.type(x), g.type(W)
        if types[0].dtype != types[1].dtype:
            return NotImplemented
        ends: list[int] = []
        windows = self._geometry(types[0].shape, types[1].shape)
        for n, k, s, p, d, o, r in zip(types[0].shape[2:], *windows, windows.reach, strict=True):
            # The padding after the axis: as before it if that gives as many windows, else what they need.
            p_end = p if get_conv_outsize(n, k, s, p, False, d) == o else max(r - n - p, 0)
            if (n + p + p_end - d * (k - 1) - 1) // s + 1 != o:
                return NotImplemented
            ends.append(p_end)
        return g.Conv(x, W, *bias, kernel_shape=list(windows.ksize), strides=list(self.stride), group=self.groups,
                      dilations=list(self.dilate), pads=[*self.pad, *ends])


class DeconvolutionND(_Convolution):
    """Transposed convolution of ``x`` with ``W`` plus a bias: inputs ``x, W`` or ``x, W, b``."""

    @property
    def label(self) -> str:
        return "Deconvolution2DFunction" if len(self.stride) == 2 else "DeconvolutionND"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "W", "b")[:max(2, len(in_types))])
        self._check_channels(in_types, lambda x, w: x.shape[1] == w.shape[0], lambda w: w.shape[1] * self.groups)
        x_type, w_type = in_types[:2]
        type_check.expect(x_type.shape[1] % self.groups == 0)
        for i, n in enumerate(self.size or ()):
            s, p, d = self.stride[i], self.pad[i], self.dilate[i]
            k = type_check.eval(w_type.shape[2 + i])
            type_check.expect(get_conv_outsize(n, k, s, p, False, d) <= x_type.shape[2 + i],
                              x_type.shape[2 + i] <= get_conv_outsize(n, k, s, p, True, d))

    def _geometry(self, x: Ints, W: Ints) -> tuple[Windows, Ints]:
        shape = self.size or original_sizes(x[2:], W[2:], self.stride, self.pad, False, self.dilate)
        return self._windows(W[2:], x[2:]), shape

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs((0, 1))
        x, W = inputs[0], inputs[1]
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        windows, shape = self._geometry(x.shape, W.shape)
        y = scatter(xp, x, W, windows, self.groups, shape)
        if len(inputs) == 3:
            y += _bias(inputs[2], len(self.stride))
        return y,

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, W = self.get_retained_inputs()
        gy, = grad_outputs
        grads: list[Any] = []
        for i in indexes:
            if i == 0:
                grads.append(self._other(ConvolutionND, x.shape[2:], gy, W))
            elif i == 1:
                gW = self._other(ConvolutionWeightsGradient, W.shape[2:], gy, x)
                grads.append(gW if gW.dtype == W.dtype else cast(gW, W.dtype))
            else:
                grads.append(sum_(gy, axis=(0, *range(2, gy.ndim))))
        return tuple(grads)

    def lower(self, b: Any, x: Any, W: Any, bias: Any = None) -> tuple[Any, ...] | None:
        windows, shape = self._geometry(x.shape, W.shape)
        return _lowered_bias(b, _lowered(b, "conv_input", x, W, windows, self.groups, shape), bias),

    def onnx(self, g: Any, x: str, W: str, *bias: str) -> Any:
        types = g.type(x), g.type(W)
        windows, shape = self._geometry(types[0].shape, types[1].shape)
        more = [n + 2 * p - r for n, p, r in zip(shape, self.pad, windows.reach, strict=True)]
        if types[0].dtype != types[1].dtype or any(m >= s for m, s in zip(more, self.stride, strict=True)):
            return NotImplemented
        ends = [p - min(m, 0) for p, m in zip(self.pad, more, strict=True)]
        return g.ConvTranspose(x, W, *bias, kernel_shape=list(windows.ksize), strides=list(self.stride),
                               group=self.groups, dilations=list(self.dilate), pads=[*self.pad, *ends],
                               output_padding=[max(m, 0) for m in more])


class ConvolutionWeightsGradient(_Convolution):
    """Gradient of a convolution with regard to its weights: inputs ``x, gy``; ``size`` is that of the window."""

    def _geometry(self, gy: Ints) -> Windows:
        assert self.size is not None
        return self._windows(self.size, gy[2:])

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs((0, 1))
        x, gy = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        return weights_gradient(xp, x, gy, self._geometry(gy.shape), self.groups),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, gy = self.get_retained_inputs()
        ggW, = grad_outputs
        return tuple([self._other(DeconvolutionND, x.shape[2:], gy, ggW) if i == 0 else
                      self._other(ConvolutionND, gy.shape[2:], x, ggW) for i in indexes])

    def lower(self, b: Any, x: Any, gy: Any) -> tuple[Any, ...] | None:
        windows = self._geometry(gy.shape)
        return _lowered(b, "conv_weight", x, gy, windows, self.groups, windows.ksize),
