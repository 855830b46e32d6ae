"""Distributions over vectors: multivariate normal, Dirichlet; and axes of a batch taken for those of an event."""

from __future__ import annotations

import math
from typing import Any

from .. import backend
from .. import functions as F
from ..distribution import Distribution
from ..function_node import FunctionNode
from ..functions.math.matrices import Inv
from ..variable import Variable, as_variable
from ._common import noise


def inverse(a: Any) -> Variable:
    """Inverses of matrices with any number of leading axes."""
    n = a.shape[-1]
    return F.reshape(Inv(3).apply((F.reshape(a, (a.size // max(n * n, 1), n, n)),))[0], a.shape)


def log_diagonal(a: Any) -> Variable:
    """The sum of the logarithms of the diagonals."""
    return F.sum(F.log(F.diagonal(a, axis1=-2, axis2=-1)), axis=-1)


class MultivariateNormal(Distribution):
    """Multivariate normal distribution.

    Args:
        loc: Means (…, D).
        scale_tril: Keyword only: lower triangular factors of the covariances, (…, D, D).

    Raises:
        ValueError: ``scale_tril`` is not given.
    """

    _parameters = ("loc", "scale_tril")

    def __init__(self, loc: Any, **kwargs: Any) -> None:
        scale_tril = kwargs.pop("scale_tril", None)
        if kwargs:
            raise TypeError(f"MultivariateNormal got unexpected keyword arguments {sorted(kwargs)}")
        if scale_tril is None:
            raise ValueError("MultivariateNormal needs scale_tril")
        self.loc = as_variable(loc)
        self.scale_tril = as_variable(scale_tril)

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.loc.shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.loc.shape[:-1])

    @property
    def event_shape(self) -> tuple[int, ...]:
        return tuple(self.loc.shape[-1:])

    def log_prob(self, x: Any) -> Any:
        centred = as_variable(x) - self.loc
        y = F.matmul(inverse(self.scale_tril), F.expand_dims(centred, -1))
        square = F.sum(F.square(y), axis=(-2, -1))
        return -0.5 * square - log_diagonal(self.scale_tril) - 0.5 * self.d * math.log(2 * math.pi)

    def sample_n(self, n: int) -> Any:
        eps = F.expand_dims(noise("standard_normal", self.loc, n), -1)
        return F.squeeze(F.matmul(self.scale_tril, eps), -1) + self.loc

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def covariance(self) -> Any:
        return F.matmul(self.scale_tril, self.scale_tril, transb=True)

    @property
    def entropy(self) -> Any:
        return log_diagonal(self.scale_tril) + 0.5 * self.d * math.log(2 * math.pi * math.e)

    @property
    def support(self) -> str:
        return "real"


class DrawGamma(FunctionNode):
    """``n`` draws of NumPy's standard gamma distributions, a row of parameters after the other; no gradient flows."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        alpha, = inputs
        xp = backend.get_array_module(alpha)
        rows = alpha.reshape(-1, 1, alpha.shape[-1])
        drawn = xp.asarray(xp.random.standard_gamma(rows, size=(len(rows), self.n, alpha.shape[-1])))
        return xp.ascontiguousarray(drawn.astype(alpha.dtype).swapaxes(0, 1)).reshape(self.n, *alpha.shape),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return None,


class Dirichlet(Distribution):
    """Dirichlet distribution; no gradient flows through its samples.

    Args:
        alpha: Concentrations (…, K).
    """

    _parameters = ("alpha",)

    def __init__(self, alpha: Any) -> None:
        self.alpha = as_variable(alpha)

    @property
    def alpha0(self) -> Any:
        """Sums of the concentrations."""
        return F.sum(self.alpha, axis=-1)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.alpha.shape[:-1])

    @property
    def event_shape(self) -> tuple[int, ...]:
        return tuple(self.alpha.shape[-1:])

    def log_beta(self) -> Any:
        """Logarithms of the normalizing constants."""
        return F.sum(F.lgamma(self.alpha), axis=-1) - F.lgamma(self.alpha0)

    def log_prob(self, x: Any) -> Any:
        return F.sum((self.alpha - 1) * F.log(as_variable(x)), axis=-1) - self.log_beta()

    def sample_n(self, n: int) -> Any:
        draws = DrawGamma(n).apply((self.alpha,))[0]
        return draws / F.sum(draws, axis=-1, keepdims=True)

    @property
    def mean(self) -> Any:
        return self.alpha / F.expand_dims(self.alpha0, -1)

    @property
    def variance(self) -> Any:
        mean = self.mean
        return mean * (1 - mean) / (F.expand_dims(self.alpha0, -1) + 1)

    @property
    def entropy(self) -> Any:
        k, total = self.alpha.shape[-1], self.alpha0
        return (self.log_beta() + (total - k) * F.digamma(total)
                - F.sum((self.alpha - 1) * F.digamma(self.alpha), axis=-1))

    @property
    def support(self) -> str:
        return "[0, 1]"


class Independent(Distribution):
    """A distribution some of whose batch's axes are those of one event.

    Args:
        distribution: The distribution.
        reinterpreted_batch_ndims: Number of axes, the last ones of the batch; None: all but the first.

    Raises:
        ValueError: The batch has not so many.

    >>> d = kusari.distributions.Normal(np.zeros((2, 3), "f"), np.ones((2, 3), "f"))
    >>> kusari.distributions.Independent(d, 1).log_prob(np.zeros((2, 3), "f")).array.round(3)
    array([-2.757, -2.757], dtype=float32)
    """

    def __init__(self, distribution: Distribution, reinterpreted_batch_ndims: int | None = None) -> None:
        ndim = len(distribution.batch_shape)
        count = max(ndim - 1, 0) if reinterpreted_batch_ndims is None else reinterpreted_batch_ndims
        if not 0 <= count <= ndim:
            raise ValueError(f"reinterpreted_batch_ndims must be at most the batch's {ndim} axes, got {count}")
        self.distribution = distribution
        self.reinterpreted_batch_ndims = count

    def summed(self, x: Any) -> Any:
        """Sum what the distribution gives for each of its batch over the axes of one event."""
        n = self.reinterpreted_batch_ndims
        return F.sum(x, axis=tuple(range(x.ndim - n, x.ndim))) if n else x

    @property
    def params(self) -> dict[str, Any]:
        return self.distribution.params

    @property
    def batch_shape(self) -> tuple[int, ...]:
        shape = self.distribution.batch_shape
        return shape[:len(shape) - self.reinterpreted_batch_ndims]

    @property
    def event_shape(self) -> tuple[int, ...]:
        shape = self.distribution.batch_shape
        return shape[len(shape) - self.reinterpreted_batch_ndims:] + self.distribution.event_shape

    def log_prob(self, x: Any) -> Any:
        return self.summed(self.distribution.log_prob(x))

    def log_cdf(self, x: Any) -> Any:
        return self.summed(self.distribution.log_cdf(x))

    def cdf(self, x: Any) -> Any:
        return F.exp(self.log_cdf(x))

    def log_survival_function(self, x: Any) -> Any:
        return self.summed(self.distribution.log_survival_function(x))

    def survival_function(self, x: Any) -> Any:
        return F.exp(self.log_survival_function(x))

    def sample_n(self, n: int) -> Any:
        return self.distribution.sample_n(n)

    @property
    def mean(self) -> Any:
        return self.distribution.mean

    @property
    def mode(self) -> Any:
        return self.distribution.mode

    @property
    def variance(self) -> Any:
        return self.distribution.variance

    @property
    def stddev(self) -> Any:
        return self.distribution.stddev

    @property
    def entropy(self) -> Any:
        return self.summed(self.distribution.entropy)

    @property
    def support(self) -> str:
        return self.distribution.support
