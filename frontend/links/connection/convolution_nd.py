"""Convolutional layers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ... import functions as F
from ...functions.connection.convolution_nd import DETERMINISTIC
from ...functions.connection.windows import spread
from ...functions.noise.dropout import reject
from ...initializers import _get_initializer
from ...link import Link
from ...parameter import Parameter
from ...variable import as_array

__all__ = ["Convolution1D", "Convolution2D", "Convolution3D", "ConvolutionND", "DepthwiseConvolution2D",
           "DilatedConvolution2D"]  # fmt: skip


def share(channels: int, groups: int, which: str) -> int:
    """Return the channels of one group.

    Raises:
        ValueError: The groups do not divide them.
    """
    if groups < 1 or channels % groups:
        raise ValueError(
            f"the number of {which} channels must be divisible by the number of groups, got {channels} and {groups}"
        )
    return channels // groups


def bias_parameter(nobias: bool, initial_bias: Any, shape: Any) -> Parameter | None:
    """Return the bias of a layer, zero by default, or None without one."""
    return None if nobias else Parameter(_get_initializer(0 if initial_bias is None else initial_bias), shape)


class ConvolutionND(Link):
    """A convolutional layer over any number of axes.

    Args:
        ndim: Number of axes after batch and channels.
        in_channels: Number of channels of the input; None (or left out) to see it from the first input.
        out_channels: Number of channels of the output.
        ksize: Size of the filters; one for all axes or one for each, as ``stride``, ``pad`` and ``dilate``.
        stride: Step of the filters.
        pad: Zeros on either side.
        nobias: Whether to leave out ``b``.
        initialW: Initializer of ``W``, of shape (out, in / groups, ksize…); by default
            :class:`~kusari.initializers.LeCunNormal`.
        initial_bias: Initializer of ``b``, of shape (out,); by default zero.
        cover_all: Whether every element of the input is covered.
        dilate: Distance between the elements of a filter.
        groups: Number of groups of channels that are convolved separately.

    Attributes:
        W: Filters.
        b: Bias; None with ``nobias``.

    Raises:
        ValueError: ``groups`` does not divide the channels.

    See: :func:`~kusari.functions.convolution_nd`.

    >>> L.ConvolutionND(1, 4, 3)(np.ones((2, 5, 8), "float32")).shape
    (2, 4, 6)
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
        initialW: Any = None,
        initial_bias: Any = None,
        cover_all: bool = False,
        dilate: Any = 1,
        groups: int = 1,
    ) -> None:
        super().__init__()
        if ksize is None:
            in_channels, out_channels, ksize = None, in_channels, out_channels
        self.in_channels = in_channels
        self.out_channels: Any = out_channels
        self.ksize: Any = ksize
        self.stride = spread(stride, ndim, "stride")
        self.pad = spread(pad, ndim, "pad")
        self.cover_all = cover_all
        self.dilate = spread(dilate, ndim, "dilate")
        self.groups = int(groups)
        with self.init_scope():
            self.W = Parameter(_get_initializer(initialW))
            if in_channels is not None:
                self._initialize_params(in_channels)
            self.b = bias_parameter(nobias, initial_bias, self.out_channels)

    @classmethod
    def from_params(
        cls, W: Any, b: Any = None, stride: Any = 1, pad: Any = 0, nobias: bool = False, **kwargs: Any
    ) -> Any:
        """Return a layer with copies of the given parameters.

        Args:
            W: Filters of shape (out, in / groups, ksize…), an array or a variable.
            b: Bias of shape (out,); zero if it is None.
            stride: Step of the filters.
            pad: Zeros on either side.
            nobias: Whether to leave out the bias, also where ``b`` is given.
            **kwargs: ``dilate``, ``groups`` and what else the layer takes by name.

        >>> L.Convolution2D.from_params(np.ones((2, 3, 1, 1), "float32"), stride=2)(np.ones((1, 3, 3, 3), "f")).shape
        (1, 2, 2, 2)
        """
        make: Any = partial(cls, len(W.shape) - 2) if cls is ConvolutionND else cls
        channels = W.shape[1] * kwargs.get("groups", 1)
        return make(channels, W.shape[0], W.shape[2:], stride, pad, nobias, as_array(W), as_array(b), **kwargs)

    def _initialize_params(self, in_channels: int) -> None:
        share(self.out_channels, self.groups, "output")
        ksize = spread(self.ksize, len(self.stride), "ksize")
        self.W.initialize((self.out_channels, share(in_channels, self.groups, "input"), *ksize))

    @property
    def printable_specs(self) -> Iterator[tuple[str, Any]]:
        """The settings that ``str(link)`` shows."""
        for name in ("in_channels", "out_channels", "ksize", "stride", "pad"):
            yield name, getattr(self, name)
        yield from (("nobias", self.b is None), ("dilate", self.dilate), ("groups", self.groups))

    def forward(self, x: Any) -> Any:
        """Apply the layer.

        Args:
            x: Input of shape (N, in channels, …).
        """
        if self.W._array is None:
            self.in_channels = x.shape[1]
            self._initialize_params(x.shape[1])
        return F.convolution_nd(
            x, self.W, self.b, self.stride, self.pad, self.cover_all, dilate=self.dilate, groups=self.groups
        )


class Convolution1D(ConvolutionND):
    """A convolutional layer over one axis: see :class:`ConvolutionND`."""

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int | None,
        ksize: Any = None,
        stride: Any = 1,
        pad: Any = 0,
        nobias: bool = False,
        initialW: Any = None,
        initial_bias: Any = None,
        cover_all: bool = False,
        dilate: Any = 1,
        groups: int = 1,
    ) -> None:
        super().__init__(1, in_channels, out_channels, ksize, stride, pad, nobias, initialW, initial_bias, cover_all,
                         dilate, groups)  # fmt: skip


class Convolution2D(ConvolutionND):
    """A convolutional layer over height and width.

    Args:
        in_channels: Number of channels of the input; None (or left out) to see it from the first input.
        out_channels: Number of channels of the output.
        ksize: Height and width of the filters, or one number for both, as ``stride``, ``pad`` and ``dilate``.
        stride: Step of the filters.
        pad: Zeros on either side.
        nobias: Whether to leave out ``b``.
        initialW: Initializer of ``W``, of shape (out, in / groups, height, width); by default
            :class:`~kusari.initializers.LeCunNormal`.
        initial_bias: Initializer of ``b``, of shape (out,); by default zero.
        dilate: Keyword only. Distance between the pixels of a filter.
        groups (int): Keyword only. Number of groups of channels that are convolved separately.

    Attributes:
        W: Filters.
        b: Bias; None with ``nobias``.

    Raises:
        ValueError: ``groups`` does not divide the channels.

    See: :func:`~kusari.functions.convolution_2d`.

    >>> L.Convolution2D(3, 4, 3, pad=1)(np.ones((2, 3, 8, 8), "float32")).shape
    (2, 4, 8, 8)
    """

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int | None,
        ksize: Any = None,
        stride: Any = 1,
        pad: Any = 0,
        nobias: bool = False,
        initialW: Any = None,
        initial_bias: Any = None,
        **kwargs: Any,
    ) -> None:
        dilate, groups = kwargs.pop("dilate", 1), kwargs.pop("groups", 1)
        reject(kwargs, deterministic=DETERMINISTIC)
        super().__init__(2, in_channels, out_channels, ksize, stride, pad, nobias, initialW, initial_bias, False,
                         dilate, groups)  # fmt: skip


class Convolution3D(ConvolutionND):
    """A convolutional layer over three axes: see :class:`ConvolutionND`."""

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int | None,
        ksize: Any = None,
        stride: Any = 1,
        pad: Any = 0,
        nobias: bool = False,
        initialW: Any = None,
        initial_bias: Any = None,
        cover_all: bool = False,
        dilate: Any = 1,
        groups: int = 1,
    ) -> None:
        super().__init__(3, in_channels, out_channels, ksize, stride, pad, nobias, initialW, initial_bias, cover_all,
                         dilate, groups)  # fmt: skip


class DilatedConvolution2D(Convolution2D):
    """A convolutional layer with gaps in the filters: :class:`Convolution2D` with ``dilate`` at another place."""

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int | None,
        ksize: Any = None,
        stride: Any = 1,
        pad: Any = 0,
        dilate: Any = 1,
        nobias: bool = False,
        initialW: Any = None,
        initial_bias: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, ksize, stride, pad, nobias, initialW, initial_bias, dilate=dilate
        )


class DepthwiseConvolution2D(Link):
    """A convolutional layer that keeps channels apart: each has ``channel_multiplier`` filters of its own.

    Args:
        in_channels: Number of channels of the input; None to see it from the first input.
        channel_multiplier: Number of filters for each channel.
        ksize: Height and width of the filters, or one number for both, as ``stride`` and ``pad``.
        stride: Step of the filters.
        pad: Zeros on either side.
        nobias: Whether to leave out ``b``.
        initialW: Initializer of ``W``, of shape (multiplier, in, height, width); by default
            :class:`~kusari.initializers.LeCunNormal`.
        initial_bias: Initializer of ``b``, of shape (in * multiplier,); by default zero.

    Attributes:
        W: Filters.
        b: Bias; None with ``nobias``.

    See: :func:`~kusari.functions.depthwise_convolution_2d`.

    >>> L.DepthwiseConvolution2D(3, 2, 3)(np.ones((2, 3, 8, 8), "float32")).shape
    (2, 6, 6, 6)
    """

    def __init__(
        self,
        in_channels: int | None,
        channel_multiplier: int,
        ksize: Any,
        stride: Any = 1,
        pad: Any = 0,
        nobias: bool = False,
        initialW: Any = None,
        initial_bias: Any = None,
    ) -> None:
        super().__init__()
        self.ksize = ksize
        self.stride = spread(stride, 2, "stride")
        self.pad = spread(pad, 2, "pad")
        self.channel_multiplier = channel_multiplier
        self.nobias = nobias
        with self.init_scope():
            self.W = Parameter(_get_initializer(initialW))
            self.b = bias_parameter(nobias, initial_bias, None)
        if in_channels is not None:
            self._initialize_params(in_channels)

    def _initialize_params(self, in_channels: int) -> None:
        self.W.initialize((self.channel_multiplier, in_channels, *spread(self.ksize, 2, "ksize")))
        if self.b is not None:
            self.b.initialize((self.channel_multiplier * in_channels,))

    def forward(self, x: Any) -> Any:
        """Apply the layer.

        Args:
            x: Images of shape (N, in channels, height, width).
        """
        if self.W._array is None:
            self._initialize_params(x.shape[1])
        return F.depthwise_convolution_2d(x, self.W, self.b, self.stride, self.pad)
