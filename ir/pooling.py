"""The two ops of pooling: windows reduced to numbers, and numbers put back into windows."""
from __future__ import annotations

from typing import Any

import numpy as np

from .convolution import Windows
from .op import Attrs, Trait
from .primitives import like, module_of, primitive
from .types import TensorType, Type

Ints = tuple[int, ...]


def pool_windows(attrs: Attrs, size: Ints, out: Ints) -> Windows:
    """Return the geometry of a node of ``pool`` or ``unpool``."""
    kernel: Ints = tuple(attrs["kernel"])
    return Windows(size, out, kernel, tuple(attrs["stride"]), tuple(attrs["pad"]), (1,) * len(kernel))


@primitive("pool", Trait.NONE)
class POOL:
    """The ``fn`` (``max`` or ``sum``) of every window of ``x``, ``size`` along each axis; padding takes no part.

    With ``places`` the second output is the number of the window's element that is the maximum: the first that equals
    it, the last one of the window if none does.
    """

    @staticmethod
    def call(attrs: Attrs, x: Any) -> tuple[Any, ...]:
        xp, windows = module_of(x), pool_windows(attrs, x.shape[2:], tuple(attrs["size"]))
        padded = windows.padded(xp, x, -np.inf if attrs["fn"] == "max" else 0)
        pieces = [padded[windows.at(tap)] for tap in windows.taps()]
        y = xp.array(pieces[0], order="C")
        for piece in pieces[1:]:
            y = xp.maximum(y, piece) if attrs["fn"] == "max" else y + piece
        if not attrs["places"]:
            return (y,)
        places = xp.full(y.shape, len(pieces) - 1, np.int32)
        for i in range(len(pieces) - 2, -1, -1):
            places = xp.where(pieces[i] == y, np.int32(i), places)
        return (y, places)

    @staticmethod
    def types(attrs: Attrs, x: TensorType) -> tuple[Type, ...]:
        shape = (*x.shape[:2], *attrs["size"])
        pool_windows(attrs, x.shape[2:], tuple(attrs["size"]))
        if attrs["places"] and attrs["fn"] != "max":
            raise ValueError(f"a {attrs['fn']} has no place in its window")
        return like(x, shape) + (like(x, shape, np.int32) if attrs["places"] else ())


@primitive("unpool", Trait.NONE)
class UNPOOL:
    """Zeros of extents ``size`` to whose windows numbers are added: to all elements, or to the elements ``places``."""

    @staticmethod
    def call(attrs: Attrs, g: Any, *places: Any) -> tuple[Any, ...]:
        xp, windows = module_of(g), pool_windows(attrs, tuple(attrs["size"]), g.shape[2:])
        shape = (*g.shape[:2], *windows.size)
        total = windows.padded(xp, xp.zeros(shape, g.dtype))
        for i, tap in enumerate(windows.taps()):
            total[windows.at(tap)] += xp.where(places[0] == i, g, g.dtype.type(0)) if places else g
        return (xp.ascontiguousarray(windows.cropped(total, shape)),)

    @staticmethod
    def types(attrs: Attrs, g: TensorType, *places: TensorType) -> tuple[Type, ...]:
        pool_windows(attrs, tuple(attrs["size"]), g.shape[2:])
        if any(p.shape != g.shape or p.dtype != np.int32 for p in places):
            raise ValueError(f"expected places as int32 of the shape of {g!r}, got {places}")
        return like(g, (*g.shape[:2], *attrs["size"]))
