"""Convolutions whose windows are bent by offsets."""
from __future__ import annotations

from typing import Any

from ... import backend
from ...function_node import FunctionNode
from ...utils import get_conv_outsize, type_check
from ...variable import Variable, as_variable
from ..array.axes import transpose
from ..array.join import stack
from ..array.sample import sampled
from ..array.shape import reshape
from .linear import linear
from .windows import spread

Pair = tuple[int, int]


class BentWindows(FunctionNode):
    """Where the elements of bent windows are: inputs ``x, offset, W[, b]``, of which only the offsets are read.

    The rows and the columns come out, (N, elements * windows).
    """

    def __init__(self, ksize: Pair, stride: Pair, pad: Pair) -> None:
        super().__init__()
        self.ksize = ksize
        self.stride = stride
        self.pad = pad

    @property
    def label(self) -> str:
        return "DeformableConvolution2DSampler"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "offset", "W", "b")[:len(in_types)])
        x_type, o_type, w_type = in_types[:3]
        type_check.expect(x_type.dtype.kind == "f", o_type.dtype == x_type.dtype, w_type.dtype.kind == "f",
                          x_type.ndim == 4, o_type.ndim == 4, w_type.ndim == 4, x_type.shape[1] == w_type.shape[1],
                          x_type.shape[0] == o_type.shape[0], o_type.shape[1] == 2 * self.ksize[0] * self.ksize[1])
        for i in (0, 1):
            size = get_conv_outsize(type_check.eval(x_type.shape[2 + i]), self.ksize[i], self.stride[i], self.pad[i])
            type_check.expect(o_type.shape[2 + i] == size)
        if len(in_types) == 4:
            type_check.expect(in_types[3].dtype == x_type.dtype, in_types[3].ndim == 1,
                              in_types[3].shape[0] == w_type.shape[0])

    def _start(self, axis: int, window: Any, element: Any) -> Any:
        return window * self.stride[axis] + element - self.pad[axis]

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        offset = inputs[1]
        xp = backend.get_array_module(offset)
        n, _, oh, ow = offset.shape
        both = offset.reshape(n, 2, *self.ksize, oh, ow)
        found: list[Any] = []
        for axis, (element, window) in enumerate(self._shapes(oh, ow)):
            start = self._start(axis, xp.arange((oh, ow)[axis]).reshape(window),
                                xp.arange(self.ksize[axis]).reshape(element))
            found.append((both[:, 1 - axis] + start.astype(offset.dtype)).reshape(n, -1))
        return tuple(found)

    def _shapes(self, oh: int, ow: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        kh, kw = self.ksize
        return [((kh, 1, 1, 1), (1, 1, oh, 1)), ((1, kw, 1, 1), (1, 1, 1, ow))]

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        row, column = grad_outputs
        known: Any = column if row is None else row
        both = stack([known * 0 if g is None else g for g in (column, row)], 1)
        return tuple([reshape(both, self.inputs[1].shape) if i == 1 else None for i in indexes])

    def lower(self, b: Any, x: Any, offset: Any, *rest: Any) -> tuple[Any, ...]:
        n, _, oh, ow = offset.shape
        kh, kw = self.ksize
        dtype = offset.tensor.dtype
        both = b.reshape(offset, (n, 2, kh * kw * oh * ow))
        found: list[Any] = []
        for axis, (element, window) in enumerate(self._shapes(oh, ow)):
            part = b.slice(both, (0, 1 - axis, 0), (n, 2 - axis, kh * kw * oh * ow), (1, 1, 1))
            stride, pad = float(self.stride[axis]), float(self.pad[axis])
            place = b.map(lambda offset, o, k, stride=stride, pad=pad: offset + (o * stride + (k - pad)),
                          b.reshape(part, (n, kh, kw, oh, ow)),
                          b.reshape(b.cast(b.arange((oh, ow)[axis]), dtype), (1, *window)),
                          b.reshape(b.cast(b.arange(self.ksize[axis]), dtype), (1, *element)))
            found.append(b.reshape(place, (n, kh * kw * oh * ow)))
        return tuple(found)


def deformable_convolution_2d_sampler(x: Any, offset: Any, W: Any, b: Any = None, stride: Any = 1,
                                      pad: Any = 0) -> Variable:
    """Convolution whose windows read their elements at places moved by offsets, between the pixels.

    Args:
        x: Floating-point images (N, C, H, W).
        offset: How far every element of every window is moved, in pixels, (N, 2 * kh * kw, out height, out width):
            the horizontal offsets of the elements, row by row, then the vertical ones.
        W: Filters (O, C, kh, kw).
        b: Bias (O,), or None.
        stride: Step of the windows; one for both axes, or a pair.
        pad: Zeros on either side; one for both axes, or a pair.

    Returns:
        Variable: (N, O, out height, out width).

    Raises:
        InvalidType: The shapes or dtypes do not fit.

    See: Dai et al., `Deformable Convolutional Networks <https://arxiv.org/abs/1703.06211>`_, 2017.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> x, offset = np.array([[[[0, 10, 20]]]], "f"), np.array([[[[0.5, 0, -2]], [[0, 0, 0]]]], "f")
    >>> F.deformable_convolution_2d_sampler(x, offset, np.ones((1, 1, 1, 1), "f")).array.ravel()
    array([ 5., 10.,  0.], dtype=float32)
    """
    x, offset, W = as_variable(x), as_variable(offset), as_variable(W)
    ksize = tuple(W.shape[2:])
    node = BentWindows((ksize[0], ksize[1]) if len(ksize) == 2 else (0, 0), _pair(stride, "stride"), _pair(pad, "pad"))
    row, column = node.apply((x, offset, W) if b is None else (x, offset, W, b))
    n, c = x.shape[:2]
    k, (oh, ow) = ksize[0] * ksize[1], offset.shape[2:]
    pixels = transpose(reshape(sampled(x, row, column), (n, k, oh * ow, c)), (0, 2, 3, 1))
    y = linear(reshape(pixels, (n * oh * ow, c * k)), reshape(W, (W.shape[0], c * k)), b)
    return transpose(reshape(y, (n, oh, ow, W.shape[0])), (0, 3, 1, 2))


def _pair(value: Any, name: str) -> Pair:
    first, second = spread(value, 2, name)
    return first, second
