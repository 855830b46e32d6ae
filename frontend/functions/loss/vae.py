"""Losses of variational autoencoders."""
from __future__ import annotations

import math
from typing import Any

from ...elementwise import elementwise
from ...utils.arrays import for_arrays
from ...variable import Variable
from ..array.cast import cast
from ..math.reduction import sum as sum_
from ..math.statistics import mean
from .errors import check_reduce

_OPTIONS = ("sum", "mean", "no")


def _reduced(loss: Any, reduce: str) -> Variable:
    return sum_(loss) if reduce == "sum" else mean(loss) if reduce == "mean" else loss


@elementwise("GaussianKL", kind="f")
def _kl(xp: Any, m: Any, ln_var: Any) -> Any:
    return (m * m + xp.exp(ln_var) - ln_var - 1) * 0.5


@_kl.gradient
def _(xp: Any, gy: Any, y: Any, m: Any, ln_var: Any) -> Any:
    return gy * m, gy * (xp.exp(ln_var) - 1) * 0.5


@elementwise("BernoulliNLL", kind="f")
def _bernoulli(xp: Any, x: Any, y: Any) -> Any:
    return xp.maximum(y, 0) + xp.log1p(xp.exp(-abs(y))) - x * y


@_bernoulli.gradient
def _(xp: Any, g: Any, z: Any, x: Any, y: Any) -> Any:
    return -g * y, g * (xp.tanh(y * 0.5) * 0.5 + 0.5 - x)


@elementwise("GaussianNLL", kind="f")
def _gaussian(xp: Any, x: Any, m: Any, ln_var: Any) -> Any:
    return (xp.square(x - m) * xp.exp(-ln_var) + ln_var + math.log(2 * math.pi)) * 0.5


@_gaussian.gradient
def _(xp: Any, g: Any, y: Any, x: Any, m: Any, ln_var: Any) -> Any:
    precision = xp.exp(-ln_var)
    slope = g * (x - m) * precision
    return slope, -slope, g * (1 - xp.square(x - m) * precision) * 0.5


def _data(x: Any, y: Any) -> Any:
    """Data in the dtype of the parameters beside it, unless it is a Variable: that is not converted silently."""
    return x if isinstance(x, Variable) or x.dtype == y.dtype else cast(x, y.dtype)


def gaussian_kl_divergence(mean: Any, ln_var: Any, reduce: str = "sum") -> Variable:
    """Kullback-Leibler divergence of diagonal Gaussians from the standard one.

    Args:
        mean: Means, of any shape.
        ln_var: Logarithms of the variances, of the same shape.
        reduce: ``"sum"``, ``"mean"`` or ``"no"``.

    Raises:
        ValueError: ``reduce`` has another value.
    """
    check_reduce(reduce, _OPTIONS)
    return _reduced(_kl(mean, ln_var), reduce)


@for_arrays
def bernoulli_nll(x: Any, y: Any, reduce: str = "sum") -> Variable:
    """Negative log-likelihood of data under Bernoulli distributions.

    Args:
        x: Data in [0, 1]; an array of another dtype (bool, integers) is converted.
        y: Logits: the distributions' parameters before the sigmoid.
        reduce: ``"sum"``, ``"mean"`` or ``"no"``.

    Raises:
        ValueError: ``reduce`` has another value.
    """
    check_reduce(reduce, _OPTIONS)
    return _reduced(_bernoulli(_data(x, y), y), reduce)


@for_arrays
def gaussian_nll(x: Any, mean: Any, ln_var: Any, reduce: str = "sum") -> Variable:
    """Negative log-likelihood of data under diagonal Gaussians.

    Args:
        x: Data; an array of another dtype is converted.
        mean: Means.
        ln_var: Logarithms of the variances.
        reduce: ``"sum"``, ``"mean"`` or ``"no"``.

    Raises:
        ValueError: ``reduce`` has another value.
    """
    check_reduce(reduce, _OPTIONS)
    return _reduced(_gaussian(_data(x, mean), mean, ln_var), reduce)
