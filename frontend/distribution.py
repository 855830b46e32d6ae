"""Probability distributions: their interface, and divergences between them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from . import backend
from .functions import exp, log, reshape, sqrt

__all__ = ["Distribution", "cross_entropy", "kl_divergence", "register_kl"]


class Distribution:
    """Base class of probability distributions, of which one object holds a batch.

    Shapes: parameters have ``batch_shape``, samples ``sample_shape + batch_shape + event_shape``. What a distribution
    does not define raises ``NotImplementedError``.
    """

    _parameters: tuple[str, ...] = ()

    def _refuse(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} does not define {what}")

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._parameters}

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch."""
        return tuple(getattr(self, self._parameters[0]).shape)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one sample of one distribution."""
        return ()

    @property
    def xp(self) -> Any:
        """The array module of the parameters."""
        return backend.get_array_module(*self.params.values())

    def sample(self, sample_shape: int | tuple[int, ...] = ()) -> Any:
        """Draw samples.

        Args:
            sample_shape: How many, as a shape or a number.
        """
        shape = (sample_shape,) if isinstance(sample_shape, (int, np.integer)) else tuple(sample_shape)
        return reshape(self.sample_n(prod(shape)), shape + self.batch_shape + self.event_shape)

    def sample_n(self, n: int) -> Any:
        """Draw ``n`` samples, along a first axis."""
        raise self._refuse("sample_n")

    def log_prob(self, x: Any) -> Any:
        """Logarithm of the probability (or density) at ``x``."""
        raise self._refuse("log_prob")

    def prob(self, x: Any) -> Any:
        """Probability (or density) at ``x``."""
        return exp(self.log_prob(x))

    def cdf(self, x: Any) -> Any:
        """Probability of what is not greater than ``x``."""
        raise self._refuse("cdf")

    def icdf(self, x: Any) -> Any:
        """Inverse of `cdf`."""
        raise self._refuse("icdf")

    def log_cdf(self, x: Any) -> Any:
        """Logarithm of `cdf`."""
        return log(self.cdf(x))

    def survival_function(self, x: Any) -> Any:
        """``1 - cdf(x)``."""
        return 1.0 - self.cdf(x)

    def log_survival_function(self, x: Any) -> Any:
        """Logarithm of `survival_function`."""
        return log(self.survival_function(x))

    @property
    def mean(self) -> Any:
        """Mean."""
        raise self._refuse("mean")

    @property
    def mode(self) -> Any:
        """Mode."""
        raise self._refuse("mode")

    @property
    def variance(self) -> Any:
        """Variance."""
        raise self._refuse("variance")

    @property
    def stddev(self) -> Any:
        """Standard deviation."""
        return sqrt(self.variance)

    @property
    def covariance(self) -> Any:
        """Covariance of the axes of one event."""
        raise self._refuse("covariance")

    @property
    def entropy(self) -> Any:
        """Entropy, in nats."""
        raise self._refuse("entropy")

    def perplexity(self, x: Any = None) -> Any:
        """Exponential of the entropy; ``x`` is not read, but may be given as in Chainer."""
        return exp(self.entropy)

    @property
    def support(self) -> str:
        """The values that samples may take, in words."""
        raise self._refuse("support")


_DIVERGENCES: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


def register_kl(Dist1: type, Dist2: type) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Decorator: enter the function that computes `kl_divergence` of two classes of distributions."""
    def enter(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        _DIVERGENCES[Dist1, Dist2] = f
        return f
    return enter


def kl_divergence(dist1: Distribution, dist2: Distribution) -> Any:
    """Kullback and Leibler's divergence of ``dist1`` from ``dist2``, one number for each of the batch.

    Raises:
        KeyError: None is known for these classes; `register_kl` enters one.

    >>> import numpy as np
    >>> one, two = np.ones(1, "f"), 2 * np.ones(1, "f")
    >>> kusari.kl_divergence(kusari.distributions.Normal(one, one), kusari.distributions.Normal(two, one)).array
    array([0.5], dtype=float32)
    """
    kinds = type(dist1), type(dist2)
    if kinds not in _DIVERGENCES:
        raise KeyError(f"no divergence of {kinds[0].__name__} from {kinds[1].__name__} is known; "
                       "enter one with kusari.register_kl")
    return _DIVERGENCES[kinds](dist1, dist2)


def cross_entropy(dist1: Distribution, dist2: Distribution) -> Any:
    """Cross entropy: the entropy of ``dist1`` and its `kl_divergence` from ``dist2``.

    Raises:
        KeyError: No divergence is known for these classes.
    """
    return dist1.entropy + kl_divergence(dist1, dist2)
