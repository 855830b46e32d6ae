"""The initializers that draw from a uniform distribution."""

from __future__ import annotations

import math
from typing import Any

from ..initializer import get_fans
from ._random import Random

__all__ = ["GlorotUniform", "HeUniform", "LeCunUniform", "Uniform"]


class Uniform(Random):
    """Draws from the interval ``[-scale, scale)``.

    Args:
        scale: Half the width of the interval.
        dtype: See :class:`~kusari.Initializer`.
        rng: Random state to draw from instead of the global one.
    """

    def __init__(self, scale: float = 0.05, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(scale, dtype, **kwargs)

    def __call__(self, array: Any) -> None:
        width = self._width(array.shape)
        self._draw(array, "uniform", -width, width)


class LeCunUniform(Uniform):
    """Uniform distribution of half-width ``scale * sqrt(3 / fan_in)``; see ``LeCunNormal``."""

    def __init__(self, scale: float = 1.0, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(scale, dtype, **kwargs)

    def _width(self, shape: tuple[int, ...]) -> float:
        return self.scale * math.sqrt(3.0 / get_fans(shape)[0])


class GlorotUniform(LeCunUniform):
    """Uniform distribution of half-width ``scale * sqrt(6 / (fan_in + fan_out))``; see ``GlorotNormal``."""

    def _width(self, shape: tuple[int, ...]) -> float:
        fan_in, fan_out = get_fans(shape)
        return self.scale * math.sqrt(6.0 / (fan_in + fan_out))


class HeUniform(LeCunUniform):
    """Uniform distribution of half-width ``scale * sqrt(6 / fan_in)``; see ``HeNormal``."""

    def _width(self, shape: tuple[int, ...]) -> float:
        return self.scale * math.sqrt(6.0 / get_fans(shape)[0])
