"""Filters that scale images."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from .. import backend
from ..initializer import Initializer

__all__ = ["DownsamplingConvFilter", "UpsamplingDeconvFilter"]


class _Interpolation(Initializer):
    """Writes one filter for each channel, from the channel to itself."""

    def __init__(self, interpolation: str = "linear", dtype: Any = None) -> None:
        if interpolation != "linear":
            raise ValueError(f"interpolation must be 'linear', got {interpolation!r}")
        self.interpolation = interpolation
        super().__init__(dtype)

    def _axis(self, size: int) -> np.ndarray:
        """The filter along one axis: a triangle as wide as two steps of a scaling by ``(size + 1) // 2``."""
        factor = (size + 1) // 2
        return 1 - abs(np.arange(size) - (size - 1) / 2) / factor

    def __call__(self, array: Any) -> None:
        """Fill ``array`` of shape (out, in, …).

        Raises:
            TypeError: The dtype is not the one that the initializer was made for.
            ValueError: The numbers of channels differ, and there is not one input channel.
        """
        array = self._elements_of(array)
        out, n_in = array.shape[:2] if array.ndim > 2 else (0, 0)
        if array.ndim < 3 or (n_in != 1 and out != n_in):
            raise ValueError("expected filters of shape (channels, channels, size…) or (channels, 1, size…), got "
                             f"{array.shape}")
        xp = backend.get_array_module(array)
        array[...] = 0
        channels = xp.arange(out)
        array[channels, channels if n_in == out else 0] = xp.asarray(
            reduce(np.multiply.outer, [self._axis(size) for size in array.shape[2:]]))


class UpsamplingDeconvFilter(_Interpolation):
    """Filters with which a deconvolution enlarges images by linear interpolation.

    Long et al., `Fully Convolutional Networks for Semantic Segmentation <https://arxiv.org/abs/1411.4038>`_ (2015).

    Args:
        interpolation: ``"linear"``.
        dtype: Data type.

    >>> link = L.Deconvolution1D(1, 1, 4, stride=2, pad=1, initialW=kusari.initializers.UpsamplingDeconvFilter())
    >>> link(np.array([[[0, 4, 8]]], "float32")).array
    array([[[0., 1., 3., 5., 7., 6.]]], dtype=float32)
    """


class DownsamplingConvFilter(_Interpolation):
    """Filters with which a convolution reduces images: means weighted by distance.

    Args:
        interpolation: ``"linear"``.
        dtype: Data type.
    """

    def _axis(self, size: int) -> np.ndarray:
        triangle = super()._axis(size)
        return triangle / triangle.sum()
