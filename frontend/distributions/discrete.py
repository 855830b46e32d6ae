"""Distributions over whole numbers and classes: Bernoulli, categorical, geometric, Poisson."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import backend
from .. import functions as F
from ..distribution import Distribution
from ..elementwise import elementwise
from ..function_node import FunctionNode
from ..variable import as_variable
from ._common import drawn, given, inside, within

INFINITY = math.inf


@elementwise("BernoulliLogProb")
def _bernoulli_log_prob(xp: Any, logit: Any, x: Any) -> Any:
    # x log p + (1 - x) log(1 - p), where neither logarithm is computed of something next to 0, and infinite log-odds
    # are not multiplied by 0.
    above = xp.where(x == 1, 0.0, xp.maximum(logit, 0.0)) * (1 - x)
    below = xp.where(x == 0, 0.0, xp.minimum(logit, 0.0)) * x
    return below - above - xp.log1p(xp.exp(-abs(logit)))


@elementwise("BernoulliEntropy")
def _entropy(xp: Any, logit: Any, p: Any) -> Any:
    # -p log p - (1 - p) log(1 - p), likewise.
    odds, rare = abs(logit), xp.where(logit > 0, 1 - p, p)
    return xp.where(rare == 0, 0.0, odds) * rare + xp.log1p(xp.exp(-odds))


@elementwise("Binary")
def _binary(xp: Any, y: Any, x: Any, otherwise: float = -INFINITY) -> Any:
    return xp.where(xp.logical_or(x == 0, x == 1), y, otherwise)


class Bernoulli(Distribution):
    """Bernoulli distribution.

    Args:
        p: Probabilities of 1.
        logit: Their log-odds, instead of ``p``.
        binary_check: Whether the logarithm of the probability of what is neither 0 nor 1 is minus infinity.

    Raises:
        ValueError: Not exactly one of ``p`` and ``logit`` is given.

    >>> kusari.distributions.Bernoulli(np.array([0.2, 0.7], "f")).entropy.array.round(3)
    array([0.5  , 0.611], dtype=float32)
    """

    _parameters = ("logit",)

    def __init__(self, p: Any = None, logit: Any = None, binary_check: bool = False) -> None:
        if (p is None) == (logit is None):
            raise ValueError("Bernoulli needs exactly one of p and logit (not both)")
        self._p = None if p is None else as_variable(p)
        self._logit = None if logit is None else as_variable(logit)
        self.binary_check = binary_check

    @property
    def p(self) -> Any:
        """Probabilities of 1."""
        return F.sigmoid(self._logit) if self._p is None else self._p

    @property
    def logit(self) -> Any:
        """Log-odds."""
        return F.log(self._p) - F.log1p(-self._p) if self._p is not None else self._logit

    @property
    def batch_shape(self) -> tuple[int, ...]:
        known: Any = self._logit if self._p is None else self._p
        return tuple(known.shape)

    def log_prob(self, x: Any) -> Any:
        logit = self.logit
        x = given(x, logit)
        y = _bernoulli_log_prob(logit, x)
        return _binary(y, x) if self.binary_check else y

    def prob(self, x: Any) -> Any:
        p = self.p
        x = given(x, p)
        y = x * p + (1 - x) * (1 - p)
        return _binary(y, x, 0.0) if self.binary_check else y

    def sample_n(self, n: int) -> Any:
        return drawn("binomial", n, self.p, dtype="int64", first=(1,))

    @property
    def mean(self) -> Any:
        return self.p

    @property
    def variance(self) -> Any:
        return self.p * (1 - self.p)

    @property
    def stddev(self) -> Any:
        return F.sqrt(self.variance)

    @property
    def entropy(self) -> Any:
        return _entropy(self.logit, self.p)

    @property
    def support(self) -> str:
        return "{0, 1}"


class DrawClass(FunctionNode):
    """``n`` classes drawn for each row of probabilities (…, K): the first whose cumulated probability is exceeded."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        p, = inputs
        xp = backend.get_array_module(p)
        bounds = xp.cumsum(p.astype(np.float64), axis=-1)
        u = xp.moveaxis(xp.random.random_sample((*p.shape[:-1], self.n)), -1, 0)[..., None] * bounds[..., -1:]
        return (u >= bounds[..., :-1]).sum(axis=-1).astype(np.int64),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return None,


def _chosen(log_p: Any, x: Any) -> Any:
    """The logarithms at the classes x, which has more leading axes."""
    k = log_p.shape[-1]
    full = F.broadcast_to(log_p, (*x.shape, k))
    return F.reshape(F.select_item(F.reshape(full, (x.size, k)), F.reshape(x, (x.size,))), x.shape)


class Categorical(Distribution):
    """Categorical distribution over classes 0 to K - 1.

    Args:
        p: Probabilities (…, K).
        logit: Keyword only: scores whose softmax they are, instead of ``p``.

    Raises:
        ValueError: Not exactly one of ``p`` and ``logit`` is given.
    """

    _parameters = ("p",)

    def __init__(self, p: Any = None, **kwargs: Any) -> None:
        logit = kwargs.pop("logit", None)
        if kwargs:
            raise TypeError(f"Categorical got unexpected keyword arguments {sorted(kwargs)}")
        if (p is None) == (logit is None):
            raise ValueError("Categorical needs exactly one of p and logit (not both)")
        self._p = None if p is None else as_variable(p)
        self._log_p = None if logit is None else F.log_softmax(as_variable(logit), axis=-1)

    @property
    def p(self) -> Any:
        """Probabilities."""
        return F.exp(self._log_p) if self._p is None else self._p

    @property
    def log_p(self) -> Any:
        """Logarithms of the probabilities."""
        return F.log(self._p) if self._log_p is None else self._log_p

    @property
    def batch_shape(self) -> tuple[int, ...]:
        known: Any = self._log_p if self._p is None else self._p
        return tuple(known.shape[:-1])

    def log_prob(self, x: Any) -> Any:
        return _chosen(self.log_p, as_variable(x))

    def sample_n(self, n: int) -> Any:
        return DrawClass(n).apply((self.p,))[0]

    @property
    def entropy(self) -> Any:
        return -F.sum(self.p * self.log_p, axis=-1)


class OneHotCategorical(Distribution):
    """Categorical distribution over vectors that are 1 at their class and 0 elsewhere.

    Args:
        p: Probabilities (…, K).
    """

    _parameters = ("p",)

    def __init__(self, p: Any) -> None:
        self.p = as_variable(p)

    @property
    def log_p(self) -> Any:
        """Logarithms of the probabilities."""
        return F.log(self.p)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.p.shape[:-1])

    @property
    def event_shape(self) -> tuple[int, ...]:
        return tuple(self.p.shape[-1:])

    def log_prob(self, x: Any) -> Any:
        return F.sum(self.log_p * given(x, self.p), axis=-1)

    def sample_n(self, n: int) -> Any:
        return OneHot(self.p.shape[-1], self.p.dtype.name).apply(DrawClass(n).apply((self.p,)))[0]

    @property
    def mean(self) -> Any:
        return self.p

    @property
    def variance(self) -> Any:
        return self.p * (1 - self.p)


class OneHot(FunctionNode):
    """Classes to vectors that are 1 at their class."""

    def __init__(self, k: int, dtype: str) -> None:
        super().__init__()
        self.k = k
        self.dtype = dtype

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        xp = backend.get_array_module(*inputs)
        return (inputs[0][..., None] == xp.arange(self.k)).astype(self.dtype),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return None,


class Geometric(Distribution):
    """Distribution of the number of trials until one succeeds.

    Args:
        p: Probabilities of success.
    """

    _parameters = ("p",)

    def __init__(self, p: Any) -> None:
        self.p = as_variable(p)

    def log_prob(self, x: Any) -> Any:
        x = given(x, self.p)
        return within((x - 1) * F.log1p(-self.p) + F.log(self.p), x, 1.0, INFINITY)

    def sample_n(self, n: int) -> Any:
        return drawn("geometric", n, self.p)

    @property
    def mean(self) -> Any:
        return 1 / self.p

    @property
    def variance(self) -> Any:
        return (1 - self.p) / F.square(self.p)

    @property
    def support(self) -> str:
        return "positive integer"


class Poisson(Distribution):
    """Poisson distribution.

    Args:
        lam: Means.
    """

    _parameters = ("lam",)

    def __init__(self, lam: Any) -> None:
        self.lam = as_variable(lam)

    def log_prob(self, x: Any) -> Any:
        x = given(x, self.lam)
        z = inside(x, 0.0, INFINITY)
        return within(z * F.log(self.lam) - F.lgamma(z + 1) - self.lam, x, 0.0, INFINITY)

    def sample_n(self, n: int) -> Any:
        return drawn("poisson", n, self.lam)

    @property
    def mean(self) -> Any:
        return self.lam

    @property
    def variance(self) -> Any:
        return self.lam

    @property
    def support(self) -> str:
        return "non negative integer"
