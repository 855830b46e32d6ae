"""The initializers that draw from a normal distribution."""

from __future__ import annotations

import math
from typing import Any

from ..initializer import get_fans
from ._random import Random

__all__ = ["GlorotNormal", "HeNormal", "LeCunNormal", "Normal"]


class Normal(Random):
    """Draws from a normal distribution around zero.

    Args:
        scale: Standard deviation.
        dtype: See :class:`~kusari.Initializer`.
        rng: Random state to draw from instead of the global one.
    """

    def __init__(self, scale: float = 0.05, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(scale, dtype, **kwargs)

    def __call__(self, array: Any) -> None:
        self._draw(array, "normal", 0.0, self._width(array.shape))


class LeCunNormal(Normal):
    """Normal distribution of deviation ``scale * sqrt(1 / fan_in)``: the default of weights.

    LeCun et al., `Efficient BackProp <http://yann.lecun.com/exdb/publis/pdf/lecun-98b.pdf>`_ (1998).
    """

    def __init__(self, scale: float = 1.0, dtype: Any = None, **kwargs: Any) -> None:
        super().__init__(scale, dtype, **kwargs)

    def _width(self, shape: tuple[int, ...]) -> float:
        return self.scale * math.sqrt(1.0 / get_fans(shape)[0])


class GlorotNormal(LeCunNormal):
    """Normal distribution of deviation ``scale * sqrt(2 / (fan_in + fan_out))``.

    Glorot & Bengio, `Understanding the difficulty of training deep feedforward neural networks
    <https://proceedings.mlr.press/v9/glorot10a.html>`_ (2010).
    """

    def _width(self, shape: tuple[int, ...]) -> float:
        fan_in, fan_out = get_fans(shape)
        return self.scale * math.sqrt(2.0 / (fan_in + fan_out))


class HeNormal(LeCunNormal):
    """Normal distribution of deviation ``scale * sqrt(2 / fan)``.

    He et al., `Delving Deep into Rectifiers <https://arxiv.org/abs/1502.01852>`_ (2015).

    Args:
        scale: Factor of the deviation.
        dtype: See :class:`~kusari.Initializer`.
        fan_option: ``'fan_in'`` keeps the variance of activations, ``'fan_out'`` that of gradients.
        rng: Random state to draw from instead of the global one.
    """

    def __init__(self, scale: float = 1.0, dtype: Any = None, fan_option: str = "fan_in", **kwargs: Any) -> None:
        super().__init__(scale, dtype, **kwargs)
        self.fan_option = fan_option

    def _width(self, shape: tuple[int, ...]) -> float:
        if self.fan_option not in ("fan_in", "fan_out"):
            raise ValueError(f"fan_option should be either 'fan_in' or 'fan_out', but is {self.fan_option!r}")
        fan_in, fan_out = get_fans(shape)
        return self.scale * math.sqrt(2.0 / (fan_in if self.fan_option == "fan_in" else fan_out))
