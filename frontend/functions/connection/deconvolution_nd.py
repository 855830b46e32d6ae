"""Transposed convolutions over one, two, three or any number of axes."""
from __future__ import annotations

from typing import Any

from ...utils.arrays import for_arrays
from ...variable import Variable
from ..noise.dropout import reject
from .convolution import DeconvolutionND
from .convolution_nd import DETERMINISTIC
from .windows import expect_axes, expect_weights, spread


@for_arrays
def deconvolution_nd(x: Any, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0, outsize: Any = None,
                     dilate: Any = 1, groups: int = 1) -> Variable:
    """Transposed convolution over all axes after batch and channels: the gradient of a convolution, as a function.

    Args:
        x: Floating-point input of shape (N, C, d1, d2, …).
        W: Weights of shape (C, O / groups, k1, k2, …).
        b: Bias of shape (O,), or None.
        stride: Step of the windows in the output; one for all axes or one for each, as ``pad`` and ``dilate``.
        pad: What is cut off on either side.
        outsize: Extents of the output; by default ``stride (d - 1) + dilate (k - 1) + 1 - 2 pad``. A convolution
            of an array of that size, with or without ``cover_all``, must give the size of ``x``.
        dilate: Distance between the elements of a window.
        groups: Number of groups of channels that are convolved separately.

    Raises:
        InvalidType: Dtypes or shapes do not fit.
        ValueError: A setting has another number of axes than ``x``.

    See: Zeiler et al., `Deconvolutional Networks <https://doi.org/10.1109/CVPR.2010.5539957>`_, 2010.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.deconvolution_nd(np.ones((1, 2, 4), "f"), np.ones((2, 3, 4), "f"), stride=2, pad=1).shape
    (1, 3, 8)
    """
    ndim, b = expect_weights(x, W, b, "Deconvolution")
    size = None if outsize is None else spread(outsize, ndim, "outsize")
    node = DeconvolutionND(spread(stride, ndim, "stride"), spread(pad, ndim, "pad"), spread(dilate, ndim, "dilate"),
                           int(groups), size)
    return node.apply((x, W) if b is None else (x, W, b))[0]


@for_arrays
def deconvolution_1d(x: Any, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0, outsize: Any = None,
                     dilate: Any = 1, groups: int = 1) -> Variable:
    """Transposed convolution over one axis: see :func:`deconvolution_nd`.

    Raises:
        ValueError: ``x`` has not one axis after batch and channels.
    """
    expect_axes(x, 1)
    return deconvolution_nd(x, W, b, stride, pad, outsize, dilate, groups)


@for_arrays
def deconvolution_2d(x: Any, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0, outsize: Any = None,
                     **kwargs: Any) -> Variable:
    """Transposed convolution over two axes: see :func:`deconvolution_nd`.

    Args:
        x: Floating-point images of shape (N, C, H, W).
        W: Weights of shape (C, O / groups, kh, kw).
        b: Bias of shape (O,), or None.
        stride: Step of the windows in the output, or one each for height and width, as ``pad`` and ``dilate``.
        pad: What is cut off on either side.
        outsize: Height and width of the output.
        dilate: Keyword only. Distance between the pixels of a window.
        groups (int): Keyword only. Number of groups of channels that are convolved separately.

    Raises:
        InvalidType: Dtypes or shapes do not fit.
    """
    dilate, groups = kwargs.pop("dilate", 1), kwargs.pop("groups", 1)
    reject(kwargs, deterministic=DETERMINISTIC)
    stride, pad, dilate = spread(stride, 2, "stride"), spread(pad, 2, "pad"), spread(dilate, 2, "dilate")
    size = None if outsize is None else spread(outsize, 2, "outsize")
    return DeconvolutionND(stride, pad, dilate, int(groups), size).apply((x, W) if b is None else (x, W, b))[0]


@for_arrays
def deconvolution_3d(x: Any, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0, outsize: Any = None,
                     dilate: Any = 1, groups: int = 1) -> Variable:
    """Transposed convolution over three axes: see :func:`deconvolution_nd`.

    Raises:
        ValueError: ``x`` has not three axes after batch and channels.
    """
    expect_axes(x, 3)
    return deconvolution_nd(x, W, b, stride, pad, outsize, dilate, groups)
