"""Noise on gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["GradientNoise", "exponential_decay_noise"]


def exponential_decay_noise(xp: Any, shape: tuple[int, ...], dtype: Any, hook: Any, opt: Any) -> Any:
    """Return Gaussian noise of variance ``eta / (1 + t) ** 0.55``, the annealing of the paper."""
    deviation = math.sqrt(hook.eta / math.pow(1 + opt.t, 0.55))
    return xp.random.normal(0, deviation, shape).astype(dtype)


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

    def __init__(self, eta: float, noise_func: Callable[..., Any] = exponential_decay_noise) -> None:
        self.eta = eta
        self.noise_func = noise_func

    def __call__(self, rule: Any, param: Any) -> None:
        grad = param.grad
        if grad is None:
            return
        with param.device.create_context():
            grad += self.noise_func(param.xp, grad.shape, grad.dtype, self, rule)
