"""Normalization by mean and variance, of batches and of layers: the nodes."""
from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from kusari.ir.symbol import sqrt

from ... import backend
from ...configuration import config, force_backprop_mode
from ...function_node import FunctionNode
from ...utils import type_check
from ..array.broadcast import broadcast_to
from ..array.cast import cast
from ..array.shape import reshape
from ..math.exponential import rsqrt, square
from ..math.identity import Identity
from ..math.reduction import sum as sum_


def _hat(x: Any, mean: Any, inv: Any) -> Any:
    return (x - mean) * inv


def wide(dtype: Any) -> Any:
    """Return the dtype that statistics of ``dtype`` are computed in."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def moments(b: Any, x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """Lower mean, variance and inverse standard deviation over ``axes``, which stay."""
    m = prod(x.shape[a] for a in axes)
    mean = b.call("multiply", b.reduce("sum", x, axes), 1.0 / max(m, 1))
    var = b.reduce("sum", b.map(lambda x, mean: (x - mean) ** 2, x, mean), axes)
    var = b.call("multiply", var, 1.0 / max(m, 1))
    return mean, var, b.map(lambda var: 1.0 / sqrt(var + eps), var)


def mix_in(b: Any, state: Any, new: Any, decay: float, factor: float) -> None:
    """Lower the update of a running statistic: ``decay`` of it and ``factor`` of the new one."""
    mixed = b.map(lambda old, new: old * decay + new * factor, state, b.reshape(new, state.shape))
    b.assign(state, b.cast(mixed, state.tensor.dtype))


class Standardize(FunctionNode):
    """``(x - mean) / sqrt(var + eps) * gamma + beta``: inputs ``x, gamma, beta[, running_mean, running_var]``.

    Mean and variance are over ``axes``; gamma and beta run along ``key``. Further outputs, for the gradient: the mean
    and the inverse standard deviation. Running statistics are updated in place.
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

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, gamma, beta, *running = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        self.retain_inputs((0, 1))
        self.retain_outputs((1, 2))
        axes, shape = self.axes, self._expanded(x.shape)
        dtype = wide(x.dtype)
        m = prod([x.shape[a] for a in axes])
        mean = x.mean(axis=axes, keepdims=True, dtype=dtype)
        y = x - mean
        var = xp.square(y).mean(axis=axes, keepdims=True)
        inv = 1 / xp.sqrt(var + self.eps)
        if set(axes).isdisjoint(self.key):
            y *= inv * gamma.reshape(shape)
        else:
            y *= inv
            y *= gamma.reshape(shape)
        y += beta.reshape(shape)
        if running:
            keep, fresh = self.decay, 1 - self.decay
            running[0] *= keep
            running[0] += (fresh * mean).reshape(running[0].shape)
            running[1] *= keep
            running[1] += (fresh * m / max(m - 1.0, 1.0) * var).reshape(running[1].shape)
        return y.astype(x.dtype, copy=False), mean, inv

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, gamma = self.get_retained_inputs()
        mean, inv = self.get_retained_outputs()
        grads = StandardizeGrad(self.axes, self.key, self.eps).apply((x, gamma, mean, inv, grad_outputs[0]))
        return tuple([grads[i] if i < 3 else None for i in indexes])

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
        return b.cast(y, x.tensor.dtype), mean, inv

    def onnx(self, g: Any, x: str, gamma: str, beta: str, *running: str) -> Any:
        ndim = len(g.type(x).shape)
        if self.key == (ndim - 1,) == self.axes and not running and g.opset >= 17:
            return g.LayerNormalization(x, gamma, beta, axis=-1, epsilon=self.eps)
        return NotImplemented


class StandardizeGrad(FunctionNode):
    """Gradients of x, gamma and beta: inputs ``x, gamma, mean, inv, gy``.

    Invariant: mean and inv are functions of x; gradients through them are part of that of x.
    """

    def __init__(self, axes: tuple[int, ...], key: tuple[int, ...], eps: float) -> None:
        super().__init__()
        self.axes = axes
        self.key = key
        self.eps = eps

    def _sums(self, ndim: int) -> tuple[int, ...]:
        return tuple([i for i in range(ndim) if i not in self.key])

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, gamma, mean, inv, gy = inputs
        self.retain_inputs((0, 1, 4))
        axes, others = self.axes, self._sums(x.ndim)
        shape = tuple([n if i in self.key else 1 for i, n in enumerate(x.shape)])
        g = gy.astype(mean.dtype, copy=False)
        hat = x - mean
        hat *= inv
        scale = 1.0 / max(prod([x.shape[a] for a in axes]), 1)
        product = g * hat
        gbeta = g.sum(axis=others, keepdims=True)  # an array, also where all axes are summed
        ggamma = product.sum(axis=others, keepdims=True)
        wide_gamma = gamma.reshape(shape)
        if axes == others:
            # Sums over the statistics' axes are those of gamma and beta, times gamma.
            hat *= ggamma * -scale
            hat += g
            hat -= gbeta * scale
            hat *= inv * wide_gamma
        else:
            product *= wide_gamma
            g = g * wide_gamma
            hat *= product.sum(axis=axes, keepdims=True) * -scale
            hat += g
            hat -= g.sum(axis=axes, keepdims=True) * scale
            hat *= inv
        return (hat.astype(x.dtype, copy=False), ggamma.astype(gamma.dtype, copy=False).reshape(gamma.shape),
                gbeta.astype(gamma.dtype, copy=False).reshape(gamma.shape))

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        from ...backprop import grad
        with force_backprop_mode():  # the graph of the composition is needed whatever becomes of its gradients
            # Through identities, since gy may itself be a function of x, and the derivatives wanted are partial.
            x, gamma, gy = Identity().apply(self.get_retained_inputs())
            outputs = self._composed(x, gamma, gy)
        pairs = [(y, g) for y, g in zip(outputs, grad_outputs, strict=True) if g is not None]
        found = grad([y for y, _ in pairs], [x, gamma, gy], [g for _, g in pairs],
                     enable_double_backprop=config.enable_backprop)
        where = {0: 0, 1: 1, 4: 2}
        return tuple([found[where[i]] if i in where else None for i in indexes])

    def _composed(self, x: Any, gamma: Any, gy: Any) -> tuple[Any, Any, Any]:
        """Return the outputs as differentiable functions of x, gamma and gy alone.

        Everything in between is wide: the cube of an inverse deviation is soon infinite in float16.
        """
        kinds, dtype = (x.dtype, gamma.dtype), wide(x.dtype)
        x, gamma, gy = cast(x, dtype), cast(gamma, dtype), cast(gy, dtype)
        axes, others = self.axes, self._sums(x.ndim)
        scale = 1.0 / max(prod([x.shape[a] for a in axes]), 1)

        def mean(v: Any) -> Any:
            return broadcast_to(sum_(v, axes, True) * scale, v.shape)
        d = x - mean(x)
        inv = rsqrt(sum_(square(d), axes, True) * scale + self.eps)
        hat = d * broadcast_to(inv, x.shape)
        shape = tuple([n if i in self.key else 1 for i, n in enumerate(x.shape)])
        g = gy * broadcast_to(reshape(gamma, shape), x.shape)
        gx = (g - mean(g) - hat * mean(g * hat)) * broadcast_to(inv, x.shape)
        return cast(gx, kinds[0]), cast(sum_(gy * hat, others), kinds[1]), cast(sum_(gy, others), kinds[1])

    def lower(self, b: Any, x: Any, gamma: Any, mean: Any, inv: Any, gy: Any) -> tuple[Any, ...]:
        axes, others = self.axes, self._sums(len(x.shape))
        dtype = mean.tensor.dtype
        shape = tuple([n if i in self.key else 1 for i, n in enumerate(x.shape)])
        x_, g = b.cast(x, dtype), b.cast(gy, dtype)
        gamma_ = b.reshape(gamma, shape)
        scale = 1.0 / max(prod(x.shape[a] for a in axes), 1)
        ggamma = b.reduce("sum", b.map(lambda x, mean, inv, g: g * _hat(x, mean, inv), x_, mean, inv, g), others)
        gbeta = b.reduce("sum", g, others)

        def slope(x: Any, mean: Any, inv: Any, g: Any, gamma: Any, along: Any, total: Any) -> Any:
            return (g - (_hat(x, mean, inv) * along + total) * scale) * inv
        if axes == others:
            gx = b.map(lambda *v: slope(*v) * v[4], x_, mean, inv, g, gamma_, ggamma, gbeta)
        else:
            g = b.call("multiply", g, gamma_)
            along = b.reduce("sum", b.map(lambda x, mean, inv, g: g * _hat(x, mean, inv), x_, mean, inv, g), axes)
            total = b.reduce("sum", g, axes)
            gx = b.map(slope, x_, mean, inv, g, gamma_, along, total)
        return (b.cast(gx, x.tensor.dtype), b.cast(b.reshape(ggamma, gamma.shape), gamma.tensor.dtype),
                b.cast(b.reshape(gbeta, gamma.shape), gamma.tensor.dtype))


class FixedStandardize(FunctionNode):
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

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x, gamma, beta, mean, var = inputs
        xp = np if type(x) is np.ndarray else backend.get_array_module(x)
        self.retain_inputs((0, 1, 3, 4))
        shape = self._expanded(x.shape)
        y = x - mean.reshape(shape)
        y *= (gamma / xp.sqrt(var + self.eps)).reshape(shape)
        y += beta.reshape(shape)
        return y.astype(x.dtype, copy=False),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        inputs = self.get_retained_inputs()
        dtype = wide(inputs[0].dtype)
        x, gamma, mean, var, gy = (cast(v, dtype) for v in (*inputs, grad_outputs[0]))
        shape, others = self._expanded(x.shape), tuple([i for i in range(x.ndim) if i not in self.key])
        inv = rsqrt(var + self.eps)

        def wide_(v: Any) -> Any:
            return broadcast_to(reshape(v, shape), x.shape)

        def along(v: Any) -> Any:
            return reshape(sum_(v, others), gamma.shape)
        grads: list[Any] = []
        for i in indexes:
            if i == 0:
                grads.append(gy * wide_(gamma * inv))
            elif i == 2:
                grads.append(along(gy))
            elif i == 3:
                grads.append(-along(gy) * gamma * inv)
            else:
                product = along(gy * (x - wide_(mean))) * inv
                grads.append(product if i == 1 else product * gamma * inv * inv * -0.5)
        kinds = [v.dtype for v in (inputs[0], inputs[1], inputs[1], inputs[2], inputs[3])]
        return tuple([cast(g, kinds[i]) for g, i in zip(grads, indexes, strict=True)])

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
