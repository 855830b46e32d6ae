"""Normalization by mean and variance, of batches and of layers: the nodes."""
from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from kusari.ir.symbol import sqrt

from ...structured import Structured
from ...utils import type_check


def _hat(x: Any, mean: Any, inv: Any) -> Any:
    return (x - mean) * inv


def wide(dtype: Any) -> Any:
    """Return the dtype that statistics of ``dtype`` are computed in."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def moments(b: Any, x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """Lower mean, variance and inverse standard deviation over ``axes``, which stay."""
    m = prod(x.shape[a] for a in axes)
    mean = b.call("multiply", b.reduce("sum", x, axes), 1.0 / max(m, 1))
    # The variance does not change with what is taken for the mean, in the first order.
    var = b.reduce("sum", b.map(lambda x, mean: (x - mean) ** 2, x, b.detached(mean)), axes)
    var = b.call("multiply", var, 1.0 / max(m, 1))
    return mean, var, b.map(lambda var: 1.0 / sqrt(var + eps), var)


def mix_in(b: Any, state: Any, new: Any, decay: float, factor: float) -> None:
    """Lower the update of a running statistic: ``decay`` of it and ``factor`` of the new one."""
    mixed = b.map(lambda old, new: old * decay + new * factor, state, b.reshape(new, state.shape))
    b.assign(state, b.cast(mixed, state.tensor.dtype))


class Standardize(Structured):
    """``(x - mean) / sqrt(var + eps) * gamma + beta``: inputs ``x, gamma, beta[, running_mean, running_var]``.

    Mean and variance are over ``axes``; gamma and beta run along ``key``. Further outputs, for the gradient: mean and
    variance. Running statistics are updated in place.
    """

    def __init__(self, axes: tuple[int, ...], key: tuple[int, ...], eps: float, decay: float = 0.9) -> None:
        super().__init__()
        self.axes = axes
        self.key = key
        self.eps = eps
        self.decay = decay

    def check_type_forward(self, in_types: Any) -> None:
        names = ("x", "gamma", "beta", "running_mean", "running_var")
        type_check.argname(in_types, names[:len(in_types)])
        x_type, gamma_type, beta_type = in_types[:3]
        type_check.expect(x_type.dtype.kind == "f", gamma_type.dtype.kind == "f", beta_type.dtype == gamma_type.dtype,
                          gamma_type.ndim == len(self.key), beta_type.shape == gamma_type.shape)
        for i, axis in enumerate(self.key):
            type_check.expect(gamma_type.shape[i] == x_type.shape[axis])
        for running in in_types[3:]:
            type_check.expect(running.dtype.kind == "f", running.shape == gamma_type.shape)

    def _expanded(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([n if i in self.key else 1 for i, n in enumerate(shape)])

    def lower(self, b: Any, x: Any, gamma: Any, beta: Any, *running: Any) -> tuple[Any, ...]:
        shape, dtype = self._expanded(x.shape), wide(x.tensor.dtype)
        xw = b.cast(x, dtype)
        mean, var, inv = moments(b, xw, self.axes, self.eps)
        y = b.map(lambda x, mean, inv, gamma, beta: _hat(x, mean, inv) * gamma + beta,
                  xw, mean, inv, b.reshape(gamma, shape), b.reshape(beta, shape))
        if running:
            m = prod(x.shape[a] for a in self.axes)
            factors = (1 - self.decay, (1 - self.decay) * m / max(m - 1.0, 1.0))
            for state, new, f in zip(running, (mean, var), factors, strict=True):
                mix_in(b, state, new, self.decay, f)
        return b.cast(y, x.tensor.dtype), mean, var

    def onnx(self, g: Any, x: str, gamma: str, beta: str, *running: str) -> Any:
        ndim = len(g.type(x).shape)
        if self.key == (ndim - 1,) == self.axes and not running and g.opset >= 17:
            return g.LayerNormalization(x, gamma, beta, axis=-1, epsilon=self.eps)
        return NotImplemented


class FixedStandardize(Structured):
    """``(x - mean) / sqrt(var + eps) * gamma + beta`` with given statistics: inputs ``x, gamma, beta, mean, var``."""

    def __init__(self, key: tuple[int, ...], eps: float) -> None:
        super().__init__()
        self.key = key
        self.eps = eps

    @property
    def label(self) -> str:
        return "FixedBatchNormalization"

    def check_type_forward(self, in_types: Any) -> None:
        type_check.argname(in_types, ("x", "gamma", "beta", "mean", "var"))
        x_type, gamma_type = in_types[0], in_types[1]
        type_check.expect(x_type.dtype.kind == "f", gamma_type.dtype.kind == "f", gamma_type.ndim == len(self.key))
        for i, axis in enumerate(self.key):
            type_check.expect(gamma_type.shape[i] == x_type.shape[axis])
        for other in in_types[2:]:
            type_check.expect(other.dtype == gamma_type.dtype, other.shape == gamma_type.shape)

    def _expanded(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([n if i in self.key else 1 for i, n in enumerate(shape)])

    def lower(self, b: Any, x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> tuple[Any, ...]:
        shape = self._expanded(x.shape)
        dtype = wide(x.tensor.dtype)
        mean, gamma, var, beta = (b.cast(b.reshape(v, shape), dtype) for v in (mean, gamma, var, beta))
        # A map of its own: what joins a convolution's kernel is computed at every position.
        scale = b.map(lambda gamma, var: gamma / sqrt(var + self.eps), gamma, var)
        y = b.map(lambda x, mean, scale, beta: _hat(x, mean, scale) + beta, b.cast(x, dtype), mean, scale, beta)
        return b.cast(y, x.tensor.dtype),

    def onnx(self, g: Any, x: str, gamma: str, beta: str, mean: str, var: str) -> Any:
        if self.key != (1,):
            return NotImplemented
        return g.BatchNormalization(x, gamma, beta, mean, var, epsilon=self.eps)
