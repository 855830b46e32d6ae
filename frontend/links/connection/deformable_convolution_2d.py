"""A convolutional layer that learns where to look."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...functions.connection.windows import spread
from ...initializers import _get_initializer
from ...link import Chain, Link
from ...parameter import Parameter
from .convolution_nd import Convolution2D, bias_parameter

__all__ = ["DeformableConvolution2D"]


class DeformableConvolution2DSampler(Link):
    """The filters of bent windows; `DeformableConvolution2D` gives it the offsets.

    Args:
        in_channels: Number of channels of the input; None to see it from the first input.
        out_channels: Number of channels of the output.
        ksize: Size of the windows, as ``stride`` and ``pad`` one number or a pair.
        stride: Step of the windows.
        pad: Zeros on either side.
        nobias: Whether to leave out ``b``.
        initialW: Initializer of ``W``; by default zero.
        initial_bias: Initializer of ``b``; by default zero.
    """

    def __init__(self, in_channels: int | None, out_channels: int, ksize: Any, stride: Any = 1, pad: Any = 0,
                 nobias: bool = False, initialW: Any = None, initial_bias: Any = None) -> None:
        super().__init__()
        self.ksize = spread(ksize, 2, "ksize")
        self.stride = spread(stride, 2, "stride")
        self.pad = spread(pad, 2, "pad")
        self.out_channels = out_channels
        with self.init_scope():
            self.W = Parameter(_get_initializer(0 if initialW is None else initialW))
            if in_channels is not None:
                self.W.initialize((out_channels, in_channels, *self.ksize))
            self.b = bias_parameter(nobias, initial_bias, out_channels)

    def forward(self, x: Any, offset: Any) -> Any:
        """Apply the layer to images and offsets; see :func:`~kusari.functions.deformable_convolution_2d_sampler`."""
        if self.W._array is None:
            self.W.initialize((self.out_channels, x.shape[1], *self.ksize))
        return F.deformable_convolution_2d_sampler(x, offset, self.W, self.b, self.stride, self.pad)


class DeformableConvolution2D(Chain):
    """A convolutional layer whose windows are bent by offsets, which another convolutional layer computes.

    Args:
        in_channels: Number of channels of the input; None to see it from the first input.
        out_channels: Number of channels of the output.
        ksize: Size of the windows, as ``stride`` and ``pad`` one number or a pair.
        stride: Step of the windows.
        pad: Zeros on either side.
        offset_nobias: Whether the layer of the offsets has no bias.
        offset_initialW: Initializer of its filters; by default :class:`~kusari.initializers.LeCunNormal`.
        offset_initial_bias: Initializer of its bias; by default zero.
        deform_nobias: Whether the bent windows have no bias.
        deform_initialW: Initializer of their filters; by default zero.
        deform_initial_bias: Initializer of their bias; by default zero.

    Attributes:
        offset_conv: The layer of the offsets.
        deform_conv: The bent windows.

    See: Dai et al., `Deformable Convolutional Networks <https://arxiv.org/abs/1703.06211>`_, 2017.

    >>> L.DeformableConvolution2D(3, 4, 3, pad=1)(np.ones((2, 3, 8, 8), "float32")).shape
    (2, 4, 8, 8)
    """

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int,
        ksize: Any,
        stride: Any = 1,
        pad: Any = 0,
        offset_nobias: bool = False,
        offset_initialW: Any = None,
        offset_initial_bias: Any = None,
        deform_nobias: bool = False,
        deform_initialW: Any = None,
        deform_initial_bias: Any = None,
    ) -> None:
        super().__init__()
        kh, kw = spread(ksize, 2, "ksize")
        with self.init_scope():
            self.offset_conv = Convolution2D(in_channels, 2 * kh * kw, (kh, kw), stride, pad, offset_nobias,
                                             offset_initialW, offset_initial_bias)
            self.deform_conv = DeformableConvolution2DSampler(in_channels, out_channels, (kh, kw), stride, pad,
                                                              deform_nobias, deform_initialW, deform_initial_bias)

    def forward(self, x: Any) -> Any:
        """Apply the layer.

        Args:
            x: Images of shape (N, in channels, height, width).
        """
        return self.deform_conv(x, self.offset_conv(x))
