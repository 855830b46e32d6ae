"""Blocks of space as depth, and back."""
from __future__ import annotations

from typing import Any

from ...structured import Structured
from ...utils import type_check
from ...variable import Variable


class Space2Depth(Structured):
    """Move every ``r`` by ``r`` block of pixels into the channels."""

    def __init__(self, r: int) -> None:
        super().__init__()
        self.r = r

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x, = in_types
        type_check.expect(x.dtype.kind == "f", x.ndim == 4, x.shape[2] % self.r == 0, x.shape[3] % self.r == 0)

    def _shapes(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shape with blocks as axes, those axes reordered, and the shape of the result."""
        n, c, h, w = shape
        r = self.r
        return (n, c, h // r, r, w // r, r), (0, 3, 5, 1, 2, 4), (n, r * r * c, h // r, w // r)

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        blocks, axes, shape = self._shapes(x.shape)
        return b.reshape(b.transpose(b.reshape(x, blocks), axes), shape),

    def onnx(self, g: Any, x: str) -> Any:
        return g.SpaceToDepth(x, blocksize=self.r)


class Depth2Space(Structured):
    """The inverse of `Space2Depth`."""

    def __init__(self, r: int) -> None:
        super().__init__()
        self.r = r

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x",))
        x, = in_types
        type_check.expect(x.dtype.kind == "f", x.ndim == 4, x.shape[1] % (self.r * self.r) == 0)

    def _shapes(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        n, c, h, w = shape
        r = self.r
        return (n, r, r, c // (r * r), h, w), (0, 3, 4, 1, 5, 2), (n, c // (r * r), h * r, w * r)

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        depths, axes, shape = self._shapes(x.shape)
        return b.reshape(b.transpose(b.reshape(x, depths), axes), shape),

    def onnx(self, g: Any, x: str) -> Any:
        return g.DepthToSpace(x, blocksize=self.r)


def space2depth(X: Any, r: int) -> Variable:  # Chainer's name
    """Move blocks of pixels into the channels: each ``r`` by ``r`` block becomes one pixel, ``r * r`` times as deep.

    Args:
        X: Images, ``(batch, channels, height, width)``, floating point; height and width are multiples of ``r``.
        r: Size of the blocks.

    Raises:
        InvalidType: ``X`` is not of such a shape or dtype.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.space2depth.html

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.space2depth(np.arange(4, dtype="f").reshape(1, 1, 2, 2), 2).array.ravel().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    return Space2Depth(int(r)).apply((X,))[0]


def depth2space(X: Any, r: int) -> Variable:  # Chainer's name
    """Spread channels over blocks of pixels, the inverse of `space2depth` (the pixel shuffle of sub-pixel convolution).

    Shi et al., `Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural
    Network <https://arxiv.org/abs/1609.05158>`_ (2016).

    Args:
        X: Images, ``(batch, channels, height, width)``, floating point; the channels are a multiple of ``r * r``.
        r: Size of the blocks.

    Raises:
        InvalidType: ``X`` is not of such a shape or dtype.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.depth2space.html

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.depth2space(np.arange(4, dtype="f").reshape(1, 4, 1, 1), 2).array.tolist()
    [[[[0.0, 1.0], [2.0, 3.0]]]]
    """
    return Depth2Space(int(r)).apply((X,))[0]
