"""A perceptron at every position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functions as F
from ...link import ChainList
from ...utils.argument import assert_kwargs_empty, check_unexpected_kwargs
from .convolution_nd import Convolution2D

__all__ = ["MLPConvolution2D"]


class MLPConvolution2D(ChainList):
    """A convolutional layer followed by 1 by 1 convolutions, with an activation between each and the next.

    Args:
        in_channels: Number of channels of the input; None (or left out) to see it from the first input.
        out_channels: Numbers of channels of the outputs, one for each convolution.
        ksize: Height and width of the filters of the first one, or one number for both, as ``stride`` and ``pad``.
        stride: Step of the filters of the first one.
        pad: Zeros on either side of its input.
        activation: Function between the convolutions.
        conv_init: Initializer of the filters.
        bias_init: Initializer of the biases; by default zero.
        kwargs: None; ``wscale`` of old programs raises ValueError.

    See: Lin et al., `Network In Network <https://arxiv.org/abs/1312.4400>`_, 2014.

    >>> L.MLPConvolution2D(3, (8, 8, 4), 3, pad=1)(np.ones((2, 3, 5, 5), "float32")).shape
    (2, 4, 5, 5)
    """

    def __init__(
        self,
        in_channels: Any,
        out_channels: Any,
        ksize: Any = None,
        stride: Any = 1,
        pad: Any = 0,
        activation: Callable[[Any], Any] = F.relu,
        conv_init: Any = None,
        bias_init: Any = None,
        **kwargs: Any,
    ) -> None:
        check_unexpected_kwargs(kwargs, wscale="wscale is not supported anymore. Use conv_init with a scale")
        assert_kwargs_empty(kwargs)
        if ksize is None:
            in_channels, out_channels, ksize = None, in_channels, out_channels
        if not out_channels:
            raise ValueError("out_channels must name at least one number of channels")
        more = {"initialW": conv_init, "initial_bias": bias_init}
        links = [Convolution2D(in_channels, out_channels[0], ksize, stride, pad, **more)]
        for n_in, n_out in zip(out_channels[:-1], out_channels[1:], strict=True):
            links.append(Convolution2D(n_in, n_out, 1, **more))
        super().__init__(*links)
        self.activation = activation

    def forward(self, x: Any) -> Any:
        """Apply the layers.

        Args:
            x: Images of shape (N, in channels, height, width).
        """
        first, *others = self
        y = first(x)
        for link in others:
            y = link(self.activation(y))
        return y
