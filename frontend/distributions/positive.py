"""Distributions over positive numbers: exponential, gamma, chi-square, beta, lognormal, Pareto."""

from __future__ import annotations

import math
from typing import Any

from .. import functions as F
from ..distribution import Distribution
from ..elementwise import elementwise
from ..variable import as_variable
from ._common import drawn, inside, noise, within

INFINITY = math.inf


def lbeta(a: Any, b: Any) -> Any:
    """Logarithm of the beta function."""
    return F.lgamma(a) + F.lgamma(b) - F.lgamma(a + b)


class Exponential(Distribution):
    """Exponential distribution.

    Args:
        lam: Rates.
    """

    _parameters = ("lam",)

    def __init__(self, lam: Any) -> None:
        self.lam = as_variable(lam)

    def log_prob(self, x: Any) -> Any:
        x = as_variable(x)
        return within(F.log(self.lam) - self.lam * x, x, 0.0, INFINITY)

    def cdf(self, x: Any) -> Any:
        return -F.expm1(-self.lam * F.relu(as_variable(x)))

    def icdf(self, x: Any) -> Any:
        return -F.log1p(-as_variable(x)) / self.lam

    def sample_n(self, n: int) -> Any:
        return noise("standard_exponential", self.lam, n) / self.lam

    @property
    def mean(self) -> Any:
        return 1 / self.lam

    @property
    def variance(self) -> Any:
        return 1 / F.square(self.lam)

    @property
    def entropy(self) -> Any:
        return 1 - F.log(self.lam)

    @property
    def support(self) -> str:
        return "positive"


class Gamma(Distribution):
    """Gamma distribution; no gradient flows through its samples to ``k``.

    Args:
        k: Shapes.
        theta: Scales.
    """

    _parameters = ("k", "theta")

    def __init__(self, k: Any, theta: Any) -> None:
        self.k = as_variable(k)
        self.theta = as_variable(theta)

    def log_prob(self, x: Any) -> Any:
        x = as_variable(x)
        z = inside(x, 0.0, INFINITY)
        y = (self.k - 1) * F.log(z) - z / self.theta - F.lgamma(self.k) - self.k * F.log(self.theta)
        return within(y, x, 0.0, INFINITY)

    def sample_n(self, n: int) -> Any:
        return drawn("standard_gamma", n, self.k) * self.theta

    @property
    def mean(self) -> Any:
        return self.k * self.theta

    @property
    def variance(self) -> Any:
        return self.k * F.square(self.theta)

    @property
    def entropy(self) -> Any:
        return self.k + F.log(self.theta) + F.lgamma(self.k) + (1 - self.k) * F.digamma(self.k)

    @property
    def support(self) -> str:
        return "positive"


class Chisquare(Distribution):
    """Chi-square distribution.

    Args:
        k: Degrees of freedom.
    """

    _parameters = ("k",)

    def __init__(self, k: Any) -> None:
        self.k = as_variable(k)

    def _gamma(self) -> Gamma:
        return Gamma(self.k / 2, self.k * 0 + 2)

    def log_prob(self, x: Any) -> Any:
        return self._gamma().log_prob(x)

    def sample_n(self, n: int) -> Any:
        return drawn("chisquare", n, self.k)

    @property
    def mean(self) -> Any:
        return self.k

    @property
    def variance(self) -> Any:
        return 2 * self.k

    @property
    def entropy(self) -> Any:
        return self._gamma().entropy

    @property
    def support(self) -> str:
        return "positive"


class Beta(Distribution):
    """Beta distribution; no gradient flows through its samples.

    Args:
        a: First shapes.
        b: Second shapes.
    """

    _parameters = ("a", "b")

    def __init__(self, a: Any, b: Any) -> None:
        self.a = as_variable(a)
        self.b = as_variable(b)

    def log_prob(self, x: Any) -> Any:
        x = as_variable(x)
        z = inside(x, 0.0, 1.0, other=0.5)
        y = (self.a - 1) * F.log(z) + (self.b - 1) * F.log1p(-z) - lbeta(self.a, self.b)
        return within(y, x, 0.0, 1.0)

    def sample_n(self, n: int) -> Any:
        return drawn("beta", n, self.a, self.b)

    @property
    def mean(self) -> Any:
        return self.a / (self.a + self.b)

    @property
    def variance(self) -> Any:
        total = self.a + self.b
        return self.a * self.b / (F.square(total) * (total + 1))

    @property
    def entropy(self) -> Any:
        a, b = self.a, self.b
        return (lbeta(a, b) - (a - 1) * F.digamma(a) - (b - 1) * F.digamma(b)
                + (a + b - 2) * F.digamma(a + b))

    @property
    def support(self) -> str:
        return "[0, 1]"


class LogNormal(Distribution):
    """Distribution of what has a normally distributed logarithm.

    Args:
        mu: Means of the logarithm.
        sigma: Standard deviations of the logarithm.
    """

    _parameters = ("mu", "sigma")

    def __init__(self, mu: Any, sigma: Any) -> None:
        self.mu = as_variable(mu)
        self.sigma = as_variable(sigma)

    def log_prob(self, x: Any) -> Any:
        x = as_variable(x)
        log = F.log(inside(x, 0.0, INFINITY))
        y = -0.5 * F.square((log - self.mu) / self.sigma) - log - F.log(self.sigma) - 0.5 * math.log(2 * math.pi)
        return within(y, x, 0.0, INFINITY)

    def sample_n(self, n: int) -> Any:
        return F.exp(noise("standard_normal", self.mu, n) * self.sigma + self.mu)

    @property
    def mean(self) -> Any:
        return F.exp(self.mu + F.square(self.sigma) / 2)

    @property
    def variance(self) -> Any:
        square = F.square(self.sigma)
        return F.exp(2 * self.mu + square) * F.expm1(square)

    @property
    def entropy(self) -> Any:
        return self.mu + F.log(self.sigma) + 0.5 * math.log(2 * math.pi * math.e)

    @property
    def support(self) -> str:
        return "positive"


@elementwise("ParetoMean")
def _pareto_mean(xp: Any, scale: Any, alpha: Any) -> Any:
    finite = alpha > 1
    return xp.where(finite, alpha * scale / (xp.where(finite, alpha, 2.0) - 1), INFINITY)


@elementwise("ParetoVariance")
def _pareto_variance(xp: Any, scale: Any, alpha: Any) -> Any:
    finite = alpha > 2
    a = xp.where(finite, alpha, 3.0)
    return xp.where(finite, scale * scale * a / ((a - 1) * (a - 1) * (a - 2)), INFINITY)


class Pareto(Distribution):
    """Pareto distribution.

    Args:
        scale: Least values.
        alpha: Exponents.
    """

    _parameters = ("scale", "alpha")

    def __init__(self, scale: Any, alpha: Any) -> None:
        self.scale = as_variable(scale)
        self.alpha = as_variable(alpha)

    def log_prob(self, x: Any) -> Any:
        x = as_variable(x)
        log = F.log(inside(x, self.scale, INFINITY))
        y = F.log(self.alpha) + self.alpha * F.log(self.scale) - (self.alpha + 1) * log
        return within(y, x, self.scale, INFINITY)

    def sample_n(self, n: int) -> Any:
        return F.exp(noise("standard_exponential", self.alpha, n) / self.alpha) * self.scale

    @property
    def mean(self) -> Any:
        return _pareto_mean(self.scale, self.alpha)

    @property
    def variance(self) -> Any:
        return _pareto_variance(self.scale, self.alpha)

    @property
    def entropy(self) -> Any:
        return F.log(self.scale / self.alpha) + 1 / self.alpha + 1

    @property
    def support(self) -> str:
        return "[scale, inf]"

