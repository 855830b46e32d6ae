"""Random functions other than masks: Gaussian samples, random slopes, Gumbel softmax."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import backend
from ...configuration import config
from ...elementwise import elementwise
from ...errors import InvalidType
from ...structured import Structured
from ...utils.arrays import for_arrays
from ...variable import Variable, as_variable
from ..activation.rectifiers import leaky_relu
from ..activation.softmax import softmax
from .dropout import reject


class RandomLike(Structured):
    """A draw of the input's shape and dtype; the input's values do not matter, and no gradient flows."""

    def __init__(self, dist: str, args: tuple[float, ...] = ()) -> None:
        super().__init__()
        self.dist = dist
        self.args = args

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        dtype = x.tensor.dtype
        drawn = np.float32 if b.on_card and dtype != np.float64 else np.float64
        return b.cast(b.random(self.dist, self.args, x.shape, drawn), dtype),


@elementwise("Gaussian")
def _sample(xp: Any, mean: Any, ln_var: Any, eps: Any) -> Any:
    return mean + xp.exp(ln_var * 0.5) * eps


@_sample.gradient
def _(xp: Any, gy: Any, y: Any, mean: Any, ln_var: Any, eps: Any) -> Any:
    return gy, gy * (eps * xp.exp(ln_var * 0.5) * 0.5), None


def alike(label: str, **arrays: Any) -> None:
    """Raise `InvalidType` unless the arrays are floating-point, of one shape and one dtype."""
    (first, x), *others = arrays.items()
    for name, y in others:
        if y.shape != x.shape or y.dtype != x.dtype or x.dtype.kind != "f":
            raise InvalidType(f"{first}: floating-point, {name}: of the same shape and dtype",
                              f"{x.dtype}{x.shape}, {y.dtype}{y.shape}",
                              f"\nInvalid operation is performed in: {label} (Forward)")


@for_arrays
def gaussian(mean: Any, ln_var: Any, **kwargs: Any) -> Any:
    """Draw from diagonal Gaussians; gradients flow to means and variances.

    Args:
        mean: Means.
        ln_var: Logarithms of the variances, of the same shape.
        eps (array or None): Keyword only. Standard normal values to use instead of drawing some.
        return_eps (bool): Keyword only. Whether to return these values too.

    Returns:
        Variable, or with ``return_eps`` a pair of it and the standard normal values.

    Raises:
        InvalidType: The inputs are not floating-point, or differ in shape or dtype.
    """
    eps, return_eps = kwargs.pop("eps", None), kwargs.pop("return_eps", False)
    reject(kwargs)
    alike("Gaussian", mean=mean, ln_var=ln_var, **{} if eps is None else {"eps": eps})
    drawn = RandomLike("standard_normal").apply((ln_var,))[0] if eps is None else eps
    y = _sample(mean, ln_var, drawn)
    return (y, drawn.array if isinstance(drawn, Variable) else drawn) if return_eps else y


@elementwise("RReLU")
def _rrelu(xp: Any, x: Any, r: Any) -> Any:
    return xp.where(x >= 0, x, x * r)


@_rrelu.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, r: Any) -> Any:
    return xp.where(x >= 0, gy, gy * r), None


def rrelu(x: Any, l: float = 1.0 / 8, u: float = 1.0 / 3, **kwargs: Any) -> Any:
    """Leaky rectified linear unit with random slopes in training, and with their mean otherwise.

    Args:
        x: Floating-point input.
        l: Least slope.
        u: Greatest slope.
        r (array or None): Keyword only. Slopes to use in training instead of drawing some.
        return_r (bool): Keyword only. Whether to return the slopes too.

    Returns:
        Variable, or with ``return_r`` a pair of it and the slopes.

    Raises:
        ValueError: ``l`` and ``u`` are not in [0, 1), or ``l`` is not less than ``u``.
        InvalidType: ``x`` is not floating-point, or ``r`` differs from it in shape or dtype.

    See: Xu et al., `Empirical Evaluation of Rectified Activations <https://arxiv.org/abs/1505.00853>`_, 2015.
    """
    r, return_r = kwargs.pop("r", None), kwargs.pop("return_r", False)
    reject(kwargs)
    if not 0 <= l < 1 or not 0 <= u < 1:
        raise ValueError(f"rrelu: l and u must be in the range [0, 1), got {l} and {u}")
    if l >= u:
        raise ValueError(f"rrelu: l must be less than u, got {l} and {u}")
    if not config.train:
        y = leaky_relu(x, (l + u) / 2)
        return (y, backend.get_array_module(x).full(x.shape, (l + u) / 2, x.dtype)) if return_r else y
    if r is not None:
        alike("RReLU", x=x, r=r)
    slopes = RandomLike("uniform", (float(l), float(u))).apply((x,))[0] if r is None else r
    y = _rrelu(x, slopes)
    return (y, slopes.array if isinstance(slopes, Variable) else slopes) if return_r else y


def gumbel_softmax(log_pi: Any, tau: float = 0.1, axis: int = 1) -> Variable:
    """Draw from a relaxed categorical distribution.

    Args:
        log_pi: Logarithms of the class probabilities.
        tau: Temperature.
        axis: The axis that runs over the classes.

    See: Jang et al., `Categorical Reparameterization with Gumbel-Softmax <https://arxiv.org/abs/1611.01144>`_, 2016.
    """
    log_pi = as_variable(log_pi)
    if not log_pi.ndim:  # one class
        return Variable(log_pi.xp.ones((), log_pi.dtype))
    noise = RandomLike("gumbel").apply((log_pi,))[0]
    return softmax((log_pi + noise) * (1 / tau), axis=axis)
