"""Layers of transposed convolution."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...functions.connection.convolution_nd import DETERMINISTIC
from ...functions.connection.windows import spread
from ...functions.noise.dropout import reject
from ...initializers import _get_initializer
from ...link import Link
from ...parameter import Parameter
from .convolution_nd import bias_parameter, share

__all__ = ["Deconvolution1D", "Deconvolution2D", "Deconvolution3D", "DeconvolutionND"]


class DeconvolutionND(Link):
    """A layer of transposed convolution over any number of axes.

    Args:
        ndim: Number of axes after batch and channels.
        in_channels: Number of channels of the input; None (or left out) to see it from the first input.
        out_channels: Number of channels of the output.
        ksize: Size of the filters; one for all axes or one for each, as ``stride``, ``pad`` and ``dilate``.
        stride: Step of the filters in the output.
        pad: What is cut off on either side.
        nobias: Whether to leave out ``b``.
        outsize: Extents of the output; by default the least that the input may come from.
        initialW: Initializer of ``W``, of shape (in, out / groups, ksize…); by default
            :class:`~kusari.initializers.LeCunNormal`.
        initial_bias: Initializer of ``b``, of shape (out,); by default zero.
        dilate: Distance between the elements of a filter.
        groups: Number of groups of channels that are convolved separately.

    Attributes:
        W: Filters.
        b: Bias; None with ``nobias``.

    Raises:
        ValueError: ``groups`` does not divide the channels.

    See: :func:`~kusari.functions.deconvolution_nd`.

    >>> L.DeconvolutionND(1, 4, 3, stride=2)(np.ones((2, 5, 8), "float32")).shape
    (2, 4, 17)
    """

    def __init__(
        self,
        ndim: int,
        in_channels: int | None,
        out_channels: int | None,
        ksize: Any = None,
        stride: Any = 1,
        pad: Any = 0,
        nobias: bool = False,
        outsize: Any = None,
        initialW: Any = None,
        initial_bias: Any = None,
        dilate: Any = 1,
        groups: int = 1,
    ) -> None:
        super().__init__()
        if ksize is None:
            in_channels, out_channels, ksize = None, in_channels, out_channels
        self.out_channels: Any = out_channels
        self.ksize: Any = ksize
        self.stride = spread(stride, ndim, "stride")
        self.pad = spread(pad, ndim, "pad")
        self.outsize = None if outsize is None else spread(outsize, ndim, "outsize")
        self.dilate = spread(dilate, ndim, "dilate")
        self.groups = int(groups)
        with self.init_scope():
            self.W = Parameter(_get_initializer(initialW))
            if in_channels is not None:
                self._initialize_params(in_channels)
            self.b = bias_parameter(nobias, initial_bias, self.out_channels)

    def _initialize_params(self, in_channels: int) -> None:
        share(in_channels, self.groups, "input")
        ksize = spread(self.ksize, len(self.stride), "ksize")
        self.W.initialize((in_channels, share(self.out_channels, self.groups, "output"), *ksize))

    def forward(self, x: Any) -> Any:
        """Apply the layer.

        Args:
            x: Input of shape (N, in channels, …).
        """
        if self.W._array is None:
            self._initialize_params(x.shape[1])
        return F.deconvolution_nd(
            x, self.W, self.b, self.stride, self.pad, self.outsize, dilate=self.dilate, groups=self.groups
        )


class Deconvolution1D(DeconvolutionND):
    """A layer of transposed convolution over one axis: see :class:`DeconvolutionND`."""

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int | None,
        ksize: Any = None,
        stride: Any = 1,
        pad: Any = 0,
        nobias: bool = False,
        outsize: Any = None,
        initialW: Any = None,
        initial_bias: Any = None,
        dilate: Any = 1,
        groups: int = 1,
    ) -> None:
        super().__init__(1, in_channels, out_channels, ksize, stride, pad, nobias, outsize, initialW, initial_bias,
                         dilate, groups)  # fmt: skip


class Deconvolution2D(DeconvolutionND):
    """A layer of transposed convolution over height and width: see :class:`DeconvolutionND`.

    ``dilate`` and ``groups`` are keywords only.

    >>> L.Deconvolution2D(3, 2, 4, 2, 1)(np.ones((1, 3, 8, 8), "float32")).shape
    (1, 2, 16, 16)
    """

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int | None,
        ksize: Any = None,
        stride: Any = 1,
        pad: Any = 0,
        nobias: bool = False,
        outsize: Any = None,
        initialW: Any = None,
        initial_bias: Any = None,
        **kwargs: Any,
    ) -> None:
        dilate, groups = kwargs.pop("dilate", 1), kwargs.pop("groups", 1)
        reject(kwargs, deterministic=DETERMINISTIC)
        super().__init__(2, in_channels, out_channels, ksize, stride, pad, nobias, outsize, initialW, initial_bias,
                         dilate, groups)  # fmt: skip


class Deconvolution3D(DeconvolutionND):
    """A layer of transposed convolution over three axes: see :class:`DeconvolutionND`."""

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int | None,
        ksize: Any = None,
        stride: Any = 1,
        pad: Any = 0,
        nobias: bool = False,
        outsize: Any = None,
        initialW: Any = None,
        initial_bias: Any = None,
        dilate: Any = 1,
        groups: int = 1,
    ) -> None:
        super().__init__(3, in_channels, out_channels, ksize, stride, pad, nobias, outsize, initialW, initial_bias,
                         dilate, groups)  # fmt: skip
