"""Images read between their pixels: what spatial transformers, deformable convolutions and aligned regions share."""
from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kusari.ir import SCALAR

from ...elementwise import elementwise
from ...structured import Structured
from ...variable import Variable
from .axes import transpose
from .indexing import GetItemAdvanced
from .shape import reshape


@elementwise("CornerWeight")
def corner_weight(xp: Any, row: Any, column: Any, h: int = 1, w: int = 1, dy: int = 0, dx: int = 0) -> Any:
    """The weight, in the value at a position, of the pixel ``dy`` below and ``dx`` right of the one before it."""
    top, left = xp.floor(row), xp.floor(column)
    down, right = row - top, column - left
    inside = xp.logical_and(xp.logical_and(top >= -dy, top < h - dy), xp.logical_and(left >= -dx, left < w - dx))
    return xp.where(inside, (down if dy else 1 - down) * (right if dx else 1 - right), 0)


class CornerPlaces(Structured):
    """Where those pixels are in the flattened images: inputs ``row, column, images``, an int64 each.

    ``row`` and ``column`` have the number of the image, which ``images`` gives, along axis 0; with ``c`` more than
    one, the channel along axis 1. Pixels outside are replaced by some inside: their weight is 0.
    """

    def __init__(self, size: tuple[int, int, int], dy: int, dx: int) -> None:
        super().__init__()
        self.size = size
        self.dy = dy
        self.dx = dx

    def _place(self, xp: Any, row: Any, column: Any, images: Any, channel: Any) -> Any:
        c, h, w = self.size

        def whole(v: Any, d: int, n: int) -> Any:
            v = xp.floor(v) + d
            return xp.where(v >= 0, xp.minimum(v, n - 1), 0).astype("int64")  # of NaN too
        return ((images.astype("int64") * c + channel) * h + whole(row, self.dy, h)) * w + whole(column, self.dx, w)

    def _shapes(self, ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        rest = (1,) * (ndim - 1)
        return (-1, *rest), (1, -1, *rest[1:]) if self.size[0] > 1 else (1, *rest)

    def lower(self, b: Any, row: Any, column: Any, images: Any) -> tuple[Any, ...]:
        by_image, by_channel = self._shapes(len(row.shape))
        images = b.reshape(images, (images.shape[0], *by_image[1:]))
        channel = b.reshape(b.arange(self.size[0]), tuple(self.size[0] if n == -1 else n for n in by_channel))
        return b.map(partial(self._place, SCALAR), row, column, images, channel),


class Numbers(Structured):
    """``0, 1, …`` as int32, one for each row of the input, which is not read."""

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return b.arange(x.shape[0]),


def corner_places(row: Any, column: Any, images: Any, size: tuple[int, int, int], dy: int, dx: int) -> Variable:
    """Return the places of one corner of every position; see `CornerPlaces`."""
    return CornerPlaces(size, dy, dx).apply((row, column, images))[0]


def sampled(x: Any, row: Any, column: Any) -> Variable:
    """The values of images (N, C, H, W) at positions (N, P) in pixels: (N, P, C); outside they are 0."""
    n, c, h, w = x.shape
    pixels = reshape(transpose(x, (0, 2, 3, 1)), (n * h * w, c))
    images = Numbers().apply((x,))[0]
    y: Any = None
    for dy, dx in np.ndindex(2, 2):
        places = corner_places(row, column, images, (1, h, w), dy, dx)
        weight = corner_weight(row, column, h=h, w=w, dy=dy, dx=dx)
        part = GetItemAdvanced(("@",)).apply((pixels, places))[0] * reshape(weight, (*weight.shape, 1))
        y = part if y is None else y + part
    return y
