"""The base of random initializers.

They draw from NumPy's (CuPy's) global generator, in the array's shape, as Chainer does: the same seed gives
the same parameters.  ``rng=`` gives an initializer a generator of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import backend
from ..initializer import Initializer

__all__ = ["Random"]


class Random(Initializer):
    """A distribution whose width is ``scale`` times what the fans say."""

    def __init__(self, scale: float = 1.0, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(dtype)
        self.scale = scale
        self.rng = kwargs.pop("rng", None)
        if kwargs:
            unknown = ", ".join(map(repr, kwargs))
            raise TypeError(f"{type(self).__name__}() got unexpected keyword argument(s) {unknown}")

    def _width(self, shape: tuple[int, ...]) -> float:
        """The standard deviation, or half the interval."""
        return self.scale

    def _draw(self, array: Any, distribution: str, first: float, second: float) -> None:
        array = self._elements_of(array)
        xp = backend.get_array_module(array)
        generator = xp.random if self.rng is None else self.rng
        draw: Callable[..., Any] = getattr(generator, distribution)
        if xp is np:
            array[...] = draw(first, second, array.shape)
        elif isinstance(generator, (np.random.RandomState, np.random.Generator)):  # the host's: for any device
            array.set(draw(first, second, array.shape).astype(array.dtype))
        else:
            kind = np.float64 if array.dtype == np.float64 else np.float32  # CuPy draws no others
            array[...] = draw(first, second, array.shape, dtype=kind)
