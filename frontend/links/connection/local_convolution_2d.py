"""A convolutional layer without shared weights."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...functions.connection.windows import sizes, spread
from ...initializers import _get_initializer
from ...link import Link
from ...parameter import Parameter
from .convolution_nd import bias_parameter

__all__ = ["LocalConvolution2D"]


class LocalConvolution2D(Link):
    """A convolutional layer with filters of its own for every position.

    Args:
        in_channels: Number of channels of the input; None (or left out) to see it from the first input.
        out_channels: Number of channels of the output.
        in_size: Height and width of the input, or one number for both; None to see it from the first input.
        ksize: Height and width of the filters, or one number for both, as ``stride``.
        stride: Step of the filters.
        nobias: Whether to leave out ``b``.
        initialW: Initializer of ``W``, of shape (out, output height, output width, in, height, width); by default
            :class:`~kusari.initializers.LeCunNormal`.
        initial_bias: Initializer of ``b``, of shape (out, output height, output width); by default zero.

    Attributes:
        W: Filters.
        b: Bias; None with ``nobias``.

    See: :func:`~kusari.functions.local_convolution_2d`.

    >>> L.LocalConvolution2D(3, 4, 8, 3)(np.ones((2, 3, 8, 8), "float32")).shape
    (2, 4, 6, 6)
    """

    def __init__(
        self,
        in_channels: int | None,
        out_channels: int | None,
        in_size: Any = None,
        ksize: Any = None,
        stride: Any = 1,
        nobias: bool = False,
        initialW: Any = None,
        initial_bias: Any = None,
    ) -> None:
        super().__init__()
        if ksize is None:
            in_channels, out_channels, ksize = None, in_channels, out_channels
        self.ksize = spread(ksize, 2, "ksize")
        self.stride = spread(stride, 2, "stride")
        self.nobias = nobias
        self.out_channels: Any = out_channels
        with self.init_scope():
            self.W = Parameter(_get_initializer(initialW))
            self.b = bias_parameter(nobias, initial_bias, None)
        if in_channels is not None and in_size is not None:
            self._initialize_params(in_channels, spread(in_size, 2, "in_size"))

    def _initialize_params(self, in_channels: int, in_size: tuple[int, ...]) -> None:
        out = sizes(in_size, self.ksize, self.stride, (0, 0), False)
        self.W.initialize((self.out_channels, *out, in_channels, *self.ksize))
        if self.b is not None:
            self.b.initialize((self.out_channels, *out))

    def forward(self, x: Any) -> Any:
        """Apply the layer.

        Args:
            x: Images of shape (N, in channels, height, width).
        """
        if self.W._array is None:
            self._initialize_params(x.shape[1], tuple(x.shape[2:]))
        return F.local_convolution_2d(x, self.W, self.b, self.stride)
