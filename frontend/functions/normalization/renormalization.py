"""Batch renormalization."""
from __future__ import annotations

import warnings
from math import prod
from typing import Any

from kusari.ir.symbol import maximum, minimum, sqrt

from ...configuration import config
from ...structured import Structured
from ...utils import type_check
from ...utils.arrays import for_arrays
from ...variable import Variable, as_variable
from .normalization import BatchNormalization, fixed_batch_normalization
from .statistics import mix_in, moments, wide


class Corrections(Structured):
    """How far a batch is from the running statistics: inputs ``x, running_mean, running_var``, outputs ``r, d``.

    ``r`` is the ratio of the deviations, ``d`` the distance of the means in running deviations, both limited; no
    gradient flows through them. With ``decay`` the running statistics are updated in place.
    """

    def __init__(self, axes: tuple[int, ...], eps: float, rmax: float, dmax: float, decay: float | None) -> None:
        super().__init__()
        self.axes = axes
        self.eps = eps
        self.rmax = rmax
        self.dmax = dmax
        self.decay = decay

    @property
    def label(self) -> str:
        return "BatchRenormalization"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "running_mean", "running_var"))
        x_type, mean_type, var_type = in_types
        type_check.expect(x_type.dtype.kind == "f", mean_type.dtype.kind == "f", mean_type.shape == var_type.shape)
        kept = [i for i in range(type_check.eval(x_type.ndim)) if i not in self.axes]
        type_check.expect(mean_type.ndim == len(kept))
        for i, axis in enumerate(kept):
            type_check.expect(mean_type.shape[i] == x_type.shape[axis])

    def gradient(self, b: Any, inputs: Any, outputs: Any, gys: Any) -> tuple[Any, ...]:
        return None, None, None

    def _unbiased(self, shape: tuple[int, ...]) -> float:
        m = prod([shape[a] for a in self.axes])
        return m / max(m - 1.0, 1.0)

    def lower(self, b: Any, x: Any, running_mean: Any, running_var: Any) -> tuple[Any, ...]:
        mean, var, _ = moments(b, b.cast(x, wide(x.tensor.dtype)), self.axes, self.eps)
        mean, var = b.reshape(mean, running_mean.shape), b.reshape(var, running_var.shape)

        def limited(v: Any, low: float, high: float) -> Any:
            return minimum(maximum(v, low), high)
        eps = self.eps
        r = b.map(lambda var, running: limited(sqrt(var + eps) / sqrt(running + eps), 1 / self.rmax, self.rmax),
                  var, running_var)
        d = b.map(lambda mean, running, var: limited((mean - running) / sqrt(var + eps), -self.dmax, self.dmax),
                  mean, running_mean, running_var)
        dtype = running_mean.tensor.dtype
        r, d = b.cast(r, dtype), b.cast(d, dtype)
        if self.decay is not None:
            factors = 1 - self.decay, (1 - self.decay) * self._unbiased(x.shape)
            for state, new, f in zip((running_mean, running_var), (mean, var), factors, strict=True):
                mix_in(b, state, new, self.decay, f)
        return r, d


def batch_renormalization(x: Any, gamma: Any, beta: Any, rmax: float, dmax: float, eps: float = 2e-5,
                          running_mean: Any = None, running_var: Any = None, decay: float = 0.9,
                          update_statistics: bool = False) -> Variable:
    """Normalize by the batch's mean and variance, corrected towards the running ones; then scale and shift.

    Args:
        x: Floating-point input; channels along axis 1, or the axes of ``gamma`` from there.
        gamma: Scales.
        beta: Shifts, of the same shape.
        rmax: Greatest correction of the deviation, a factor; 1 is batch normalization's.
        dmax: Greatest correction of the mean, in deviations; 0 is batch normalization's.
        eps: Added to the variances.
        running_mean: Running means.
        running_var: Running variances.
        decay: Weight of the old running statistics in their update.
        update_statistics: Whether they are updated in place.

    Raises:
        TypeError: Running statistics are not given.
        InvalidType: The shapes or dtypes do not fit.

    See: Ioffe, `Batch Renormalization <https://arxiv.org/abs/1702.03275>`_, 2017.

    >>> import numpy as np

    >>> import kusari.functions as F
    >>> x, one, zero = np.array([[0], [2]], "f"), np.ones(1, "f"), np.zeros(1, "f")
    >>> F.batch_renormalization(x, one, zero, 3.0, 5.0, running_mean=zero, running_var=one * 4).array.round(3).ravel()
    array([0., 1.], dtype=float32)
    """
    if running_mean is None or running_var is None:
        raise TypeError("batch_renormalization needs running_mean and running_var")
    x, gamma, beta = as_variable(x), as_variable(gamma), as_variable(beta)
    channels = x.shape[1:1 + gamma.ndim]
    if gamma.shape != channels or beta.shape != channels or gamma.dtype != beta.dtype:
        raise type_check.InvalidType(f"gamma, beta: of one dtype, {channels}",
                                     f"{gamma.dtype}{gamma.shape}, {beta.dtype}{beta.shape}",
                                     "\nInvalid operation is performed in: BatchRenormalization (Forward)")
    axes = (0, *range(gamma.ndim + 1, x.ndim))
    update = update_statistics and not config.in_recomputing
    node = Corrections(axes, float(eps), float(rmax), float(dmax), float(decay) if update else None)
    r, d = node.apply((x, running_mean, running_var))
    key = tuple(range(1, gamma.ndim + 1))
    return BatchNormalization(axes, key, float(eps)).apply((x, gamma * r, gamma * d + beta))[0]


@for_arrays
def fixed_batch_renormalization(x: Any, gamma: Any, beta: Any, mean: Any, var: Any, eps: float = 2e-5) -> Variable:
    """Normalize by given means and variances, then scale and shift (deprecated: `fixed_batch_normalization`).

    Raises:
        InvalidType: The shapes or dtypes do not fit.
    """
    warnings.warn("fixed_batch_renormalization is deprecated. Use fixed_batch_normalization instead.",
                  DeprecationWarning, stacklevel=2)
    return fixed_batch_normalization(x, gamma, beta, mean, var, eps)
