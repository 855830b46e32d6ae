"""Distributions over the real numbers: normal, Laplace, Gumbel, Cauchy, uniform."""

from __future__ import annotations

import math
import warnings
from typing import Any

from .. import functions as F
from ..distribution import Distribution
from ..elementwise import elementwise
from ..variable import as_variable
from ._common import noise, within

EULER = 0.5772156649015329


class Normal(Distribution):
    """Normal distribution.

    Args:
        loc: Means.
        scale: Standard deviations.
        log_scale: Keyword only: their logarithms, instead of ``scale``.

    Raises:
        ValueError: Not exactly one of ``scale`` and ``log_scale`` is given.

    >>> d = kusari.distributions.Normal(np.zeros(2, "f"), scale=np.ones(2, "f"))
    >>> d.log_prob(np.array([0, 1], "f")).array.round(3)
    array([-0.919, -1.419], dtype=float32)
    """

    _parameters = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any = None, **kwargs: Any) -> None:
        log_scale = kwargs.pop("log_scale", None)
        if kwargs:
            raise TypeError(f"Normal got unexpected keyword arguments {sorted(kwargs)}")
        if (scale is None) == (log_scale is None):
            raise ValueError("Normal needs exactly one of scale and log_scale (not both)")
        self.loc = as_variable(loc)
        self._scale = None if scale is None else as_variable(scale)
        self._log_scale = None if log_scale is None else as_variable(log_scale)

    @property
    def scale(self) -> Any:
        """Standard deviations."""
        return F.exp(self._log_scale) if self._scale is None else self._scale

    @property
    def log_scale(self) -> Any:
        """Logarithms of the standard deviations."""
        return F.log(self._scale) if self._log_scale is None else self._log_scale

    def log_prob(self, x: Any) -> Any:
        return -0.5 * F.square((x - self.loc) / self.scale) - self.log_scale - 0.5 * math.log(2 * math.pi)

    def cdf(self, x: Any) -> Any:
        return F.ndtr((x - self.loc) / self.scale)

    def icdf(self, x: Any) -> Any:
        return self.loc + self.scale * F.ndtri(as_variable(x))

    def log_cdf(self, x: Any) -> Any:
        return F.log_ndtr((x - self.loc) / self.scale)

    def survival_function(self, x: Any) -> Any:
        return F.ndtr((self.loc - x) / self.scale)

    def log_survival_function(self, x: Any) -> Any:
        return F.log_ndtr((self.loc - x) / self.scale)

    def sample_n(self, n: int) -> Any:
        return noise("standard_normal", self.loc, n) * self.scale + self.loc

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def stddev(self) -> Any:
        return self.scale

    @property
    def variance(self) -> Any:
        return F.square(self.scale)

    @property
    def entropy(self) -> Any:
        return self.log_scale + 0.5 * math.log(2 * math.pi * math.e)

    @property
    def support(self) -> str:
        return "real"


class _LocScale(Distribution):
    _parameters = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc = as_variable(loc)
        self.scale = as_variable(scale)

    @property
    def support(self) -> str:
        return "real"


@elementwise("LaplaceICDF")
def _laplace_icdf(xp: Any, x: Any) -> Any:
    return xp.where(x < 0.5, xp.log(xp.minimum(2 * x, 1.0)), -xp.log(xp.minimum(2 - 2 * x, 1.0)))


@elementwise("LaplaceCDF")
def _laplace_cdf(xp: Any, x: Any) -> Any:
    tail = 0.5 * xp.exp(-abs(x))
    return xp.where(x < 0, tail, 1 - tail)


class Laplace(_LocScale):
    """Laplace distribution.

    Args:
        loc: Means.
        scale: Mean distances from them.
    """

    def log_prob(self, x: Any) -> Any:
        return -abs((x - self.loc) / self.scale) - F.log(2 * self.scale)

    def cdf(self, x: Any) -> Any:
        return _laplace_cdf((x - self.loc) / self.scale)

    def icdf(self, x: Any) -> Any:
        return self.loc + self.scale * _laplace_icdf(as_variable(x))

    def sample_n(self, n: int) -> Any:
        return self.icdf(noise("uniform", self.loc, n, 0.0, 1.0))

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return 2 * F.square(self.scale)

    @property
    def entropy(self) -> Any:
        return F.log(self.scale) + (1 + math.log(2))


class Gumbel(_LocScale):
    """Gumbel distribution.

    Args:
        loc: Modes.
        scale: Scales.
    """

    def log_prob(self, x: Any) -> Any:
        y = (x - self.loc) / self.scale
        return -F.log(self.scale) - y - F.exp(-y)

    def sample_n(self, n: int) -> Any:
        return noise("gumbel", self.loc, n) * self.scale + self.loc

    @property
    def mean(self) -> Any:
        return self.loc + EULER * self.scale

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        return math.pi ** 2 / 6 * F.square(self.scale)

    @property
    def entropy(self) -> Any:
        return F.log(self.scale) + (EULER + 1)


class Cauchy(_LocScale):
    """Cauchy distribution; it has neither mean nor variance, which are NaN.

    Args:
        loc: Medians.
        scale: Scales.
    """

    def log_prob(self, x: Any) -> Any:
        return -F.log1p(F.square((x - self.loc) / self.scale)) - F.log(self.scale) - math.log(math.pi)

    def cdf(self, x: Any) -> Any:
        return F.arctan((x - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, x: Any) -> Any:
        return self.loc + self.scale * F.tan(math.pi * (as_variable(x) - 0.5))

    def sample_n(self, n: int) -> Any:
        return noise("standard_cauchy", self.loc, n) * self.scale + self.loc

    def _undefined(self) -> Any:
        return as_variable(self.loc.xp.full_like(self.loc.array, math.nan))

    @property
    def mean(self) -> Any:
        warnings.warn("The mean of a Cauchy distribution is undefined.", RuntimeWarning)
        return self._undefined()

    @property
    def mode(self) -> Any:
        return self.loc

    @property
    def variance(self) -> Any:
        warnings.warn("The variance of a Cauchy distribution is undefined.", RuntimeWarning)
        return self._undefined()

    @property
    def entropy(self) -> Any:
        return F.log(4 * math.pi * self.scale)


class Uniform(Distribution):
    """Uniform distribution over intervals.

    Args:
        low: Lower bounds.
        high: Upper bounds.
        loc: Lower bounds, with ``scale`` instead of ``high``.
        scale: Lengths.

    Raises:
        ValueError: Neither ``low`` and ``high`` nor ``loc`` and ``scale`` are given, or both.
    """

    def __init__(self, *, low: Any = None, high: Any = None, loc: Any = None, scale: Any = None) -> None:
        bounds = low is not None and high is not None and loc is None and scale is None
        lengths = loc is not None and scale is not None and low is None and high is None
        if not bounds and not lengths:
            raise ValueError("Uniform needs either low and high, or loc and scale (not both)")
        self._parameters = ("low", "high") if bounds else ("loc", "scale")
        self.low = self.loc = as_variable(low if bounds else loc)
        self.high = as_variable(high) if bounds else self.loc + as_variable(scale)
        self.scale = self.high - self.low if bounds else as_variable(scale)

    def log_prob(self, x: Any) -> Any:
        x = as_variable(x)
        return within(F.broadcast_to(-F.log(self.scale), x.shape), x, self.low, self.high)

    def cdf(self, x: Any) -> Any:
        return F.clip((as_variable(x) - self.low) / self.scale, 0.0, 1.0)

    def icdf(self, x: Any) -> Any:
        return as_variable(x) * self.scale + self.low

    def sample_n(self, n: int) -> Any:
        return noise("uniform", self.low, n, 0.0, 1.0) * self.scale + self.low

    @property
    def mean(self) -> Any:
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Any:
        return F.square(self.scale) / 12

    @property
    def entropy(self) -> Any:
        return F.log(self.scale)

    @property
    def support(self) -> str:
        return "[low, high]"
