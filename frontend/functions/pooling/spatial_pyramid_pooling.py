"""Spatial pyramid pooling."""
from __future__ import annotations

from typing import Any

from ...variable import Variable
from ..array.join import concat
from ..array.shape import reshape
from ..connection.windows import expect_axes
from .max_pooling import max_pooling_2d


def spatial_pyramid_pooling_2d(x: Any, pyramid_height: int, pooling: str | None = None) -> Variable:
    """Max pooling into grids of 1, 2, 4, … bins a side, whatever the size of the images.

    Args:
        x: Floating-point images of shape (N, C, H, W).
        pyramid_height: Number of grids.
        pooling: ``"max"``; there is no other.

    Returns:
        Variable: Of shape (N, C * (4 ** pyramid_height - 1) / 3, 1, 1).

    Raises:
        ValueError: ``pooling`` is not ``"max"``.

    See: He et al., `Spatial Pyramid Pooling in Deep Convolutional Networks for Visual Recognition
    <https://arxiv.org/abs/1406.4729>`_, 2014.
    """
    if pooling != "max":
        raise ValueError(f"Unsupported pooling operation: {pooling!r}; expected 'max'")
    expect_axes(x, 2)
    found: list[Any] = []
    for level in range(pyramid_height):
        bins = 2 ** level
        ksize = [-(-n // bins) for n in x.shape[2:]]
        pad = [(k * bins - n) // 2 for k, n in zip(ksize, x.shape[2:], strict=True)]
        y = max_pooling_2d(x, ksize, None, pad, True)
        found.append(reshape(y, (len(y), y.shape[1] * y.shape[2] * y.shape[3], 1, 1)))
    return concat(found, axis=1)
