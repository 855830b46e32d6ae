"""Convolutions over one, two, three or any number of axes."""
from __future__ import annotations

from typing import Any

from ...utils.arrays import for_arrays
from ...variable import Variable, as_variable
from ..array.axes import transpose
from ..array.shape import reshape
from ..noise.dropout import reject
from .convolution import ConvolutionND
from .windows import expect_axes, expect_weights, spread

DETERMINISTIC = "use kusari.using_config('cudnn_deterministic', ...)"


@for_arrays
def convolution_nd(x: Any, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0, cover_all: bool = False,
                   dilate: Any = 1, groups: int = 1) -> Variable:
    """Convolution (cross-correlation) over all axes after batch and channels.

    Args:
        x: Floating-point input of shape (N, C, d1, d2, …).
        W: Weights of shape (O, C / groups, k1, k2, …).
        b: Bias of shape (O,), or None.
        stride: Step from one window to the next; one for all axes or one for each, as ``pad`` and ``dilate``.
        pad: Zeros on either side.
        cover_all: Whether every element of the input is in a window, with more zeros after it if need be.
        dilate: Distance between the elements of a window.
        groups: Number of groups of channels that are convolved separately.

    Returns:
        Variable: Of shape (N, O, l1, l2, …), where l is ``(d + 2 pad - dilate (k - 1) - 1) // stride + 1``.

    Raises:
        InvalidType: Dtypes or shapes do not fit, or no window does.
        ValueError: A setting has another number of axes than ``x``.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.convolution_nd(np.ones((1, 2, 5, 6, 7), "f"), np.ones((4, 2, 3, 3, 3), "f"), pad=(0, 1, 2)).shape
    (1, 4, 3, 6, 9)
    """
    ndim, b = expect_weights(x, W, b, "Convolution")
    node = ConvolutionND(spread(stride, ndim, "stride"), spread(pad, ndim, "pad"), spread(dilate, ndim, "dilate"),
                         int(groups), None, bool(cover_all))
    return node.apply((x, W) if b is None else (x, W, b))[0]


@for_arrays
def convolution_1d(x: Any, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0, cover_all: bool = False,
                   dilate: Any = 1, groups: int = 1) -> Variable:
    """Convolution over one axis: see :func:`convolution_nd`.

    Raises:
        ValueError: ``x`` has not one axis after batch and channels.
    """
    expect_axes(x, 1)
    return convolution_nd(x, W, b, stride, pad, cover_all, dilate, groups)


@for_arrays
def convolution_2d(x: Any, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0, cover_all: bool = False,
                   **kwargs: Any) -> Variable:
    """Convolution over two axes: see :func:`convolution_nd`.

    Args:
        x: Floating-point images of shape (N, C, H, W).
        W: Weights of shape (O, C / groups, kh, kw).
        b: Bias of shape (O,), or None.
        stride: Step of the window, or one each for height and width, as ``pad`` and ``dilate``.
        pad: Zeros on either side.
        cover_all: Whether every pixel is in a window.
        dilate: Keyword only. Distance between the pixels of a window.
        groups (int): Keyword only. Number of groups of channels that are convolved separately.

    Raises:
        InvalidType: Dtypes or shapes do not fit, or no window does.

    See: LeCun et al., `Gradient-based learning applied to document recognition
    <https://doi.org/10.1109/5.726791>`_, 1998.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.convolution_2d(np.ones((2, 3, 8, 8), "f"), np.ones((4, 3, 3, 3), "f"), stride=2, pad=1).shape
    (2, 4, 4, 4)
    """
    dilate, groups = kwargs.pop("dilate", 1), kwargs.pop("groups", 1)
    reject(kwargs, deterministic=DETERMINISTIC)
    stride, pad, dilate = spread(stride, 2, "stride"), spread(pad, 2, "pad"), spread(dilate, 2, "dilate")
    node = ConvolutionND(stride, pad, dilate, int(groups), None, bool(cover_all))
    return node.apply((x, W) if b is None else (x, W, b))[0]


@for_arrays
def convolution_3d(x: Any, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0, cover_all: bool = False,
                   dilate: Any = 1, groups: int = 1) -> Variable:
    """Convolution over three axes: see :func:`convolution_nd`.

    Raises:
        ValueError: ``x`` has not three axes after batch and channels.
    """
    expect_axes(x, 3)
    return convolution_nd(x, W, b, stride, pad, cover_all, dilate, groups)


def dilated_convolution_2d(x: Any, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0, dilate: Any = 1,
                           cover_all: bool = False) -> Variable:
    """Convolution over two axes with gaps in the windows: `convolution_2d` with its ``dilate`` at another place.

    See: Yu and Koltun, `Multi-Scale Context Aggregation by Dilated Convolutions
    <https://arxiv.org/abs/1511.07122>`_, 2016.
    """
    return convolution_2d(x, W, b, stride, pad, cover_all, dilate=dilate)


def depthwise_convolution_2d(x: Any, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0) -> Variable:
    """Convolve each channel by itself with its own ``D`` filters.

    Args:
        x: Floating-point images of shape (N, C, H, W).
        W: Weights of shape (D, C, kh, kw).
        b: Bias of shape (C * D,), or None.
        stride: Step of the window, or one each for height and width, as ``pad``.
        pad: Zeros on either side.

    Returns:
        Variable: Of shape (N, C * D, …); the D maps of a channel follow each other.

    Raises:
        InvalidType: Dtypes or shapes do not fit.

    See: Chollet, `Xception: Deep Learning with Depthwise Separable Convolutions
    <https://arxiv.org/abs/1610.02357>`_, 2017.
    """
    W = as_variable(W)
    d, c, kh, kw = W.shape
    W = reshape(transpose(W, (1, 0, 2, 3)), (c * d, 1, kh, kw))
    return convolution_2d(x, W, b, stride, pad, groups=c)
