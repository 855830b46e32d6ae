"""Noise on gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["GradientNoise", "exponential_decay_noise"]


def exponential_decay_noise(xp: Any, shape: tuple[int, ...], dtype: Any, hook: Any, opt: Any) -> Any:
    """Return Gaussian noise of variance ``eta / (1 + t) ** 0.55``, the annealing of the paper."""
    return xp.random.normal(0, _deviation(hook.eta, opt.t), shape).astype(dtype)


def _deviation(eta: float, t: int) -> float:
    return math.sqrt(eta / math.pow(1 + t, 0.55))


class GradientNoise:
    """Adds noise to the gradients.

    Neelakantan et al., `Adding Gradient Noise Improves Learning for Very Deep Networks
    <https://arxiv.org/abs/1511.06807>`_ (2015).

    Args:
        eta: Size of the noise; the paper uses 0.01, 0.3 or 1.0.
        noise_func: ``noise_func(xp, shape, dtype, hook, rule)`` returns the noise.
    """

    name = "GradientNoise"
    timing = "pre"
    call_for_each_param = True
    scaled_attributes = ()
    needs_norm = False
    needs_noise = True

    def __init__(self, eta: float, noise_func: Callable[..., Any] = exponential_decay_noise) -> None:
        self.eta = eta
        self.noise_func = noise_func

    def normal_deviation(self, t: int) -> float | None:
        """The standard deviation of what is drawn by ``random.normal``; None for a function of the user's."""
        return _deviation(self.eta, t) if self.noise_func is exponential_decay_noise else None

    def grad_expr(self, xp: Any, param: Any, grad: Any, noise: Any) -> Any:
        """Return the new gradient, elementwise, given the noise: what the compiler uses."""
        return grad + noise

    def __call__(self, rule: Any, param: Any) -> None:
        grad = param.grad
        if grad is None:
            return
        with param.device.create_context():
            grad += self.noise_func(param.xp, grad.shape, grad.dtype, self, rule)
