"""Limits on gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import backend
from ..backends import cuda

__all__ = ["GradientClipping", "GradientHardClipping"]


class GradientClipping:
    """Scales all gradients so that their common L2 norm is at most ``threshold``.

    Pascanu et al., `On the difficulty of training recurrent neural networks <https://arxiv.org/abs/1211.5063>`_
    (2013). With a scaled loss it sees gradients that are scaled, as all hooks of optimizers do.

    Args:
        threshold: The largest norm.
    """

    name = "GradientClipping"
    timing = "pre"
    scaled_attributes: tuple[str, ...] = ()
    call_for_each_param = False
    needs_norm = True

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def grad_expr(self, xp: Any, param: Any, grad: Any, norm: Any) -> Any:
        """Return the new gradient, elementwise, given the norm of all gradients: what the compiler uses."""
        return grad * xp.where(norm > self.threshold, self.threshold / norm, 1.0)

    def __call__(self, opt: Any) -> None:
        grads = [grad for param in opt.target.params(include_uninit=False) if (grad := param.grad) is not None]
        if any(map(cuda.is_cupy_array, grads)):
            self._clip_on_cards(grads)
            return
        square = 0.0
        for grad in grads:
            flat = grad.ravel()
            square += float(flat.dot(flat))
        norm = math.sqrt(square)
        if norm > self.threshold:
            rate = self.threshold / norm
            for grad in grads:
                grad *= rate

    def _clip_on_cards(self, grads: list[Any]) -> None:
        """The same without a wait for the norm: where it is small enough, gradients are multiplied by one."""
        first = backend.get_device_from_array(*grads)
        with first.create_context():
            square = first.xp.zeros((), np.float64)
        for grad in grads:
            with cuda.get_device_from_array(grad):
                flat = grad.ravel()
                part = flat.dot(flat).astype(np.float64)
            with first.create_context():
                square += first.send(part)
        with first.create_context():
            norm = first.xp.sqrt(square)
            rate = first.xp.where(norm > self.threshold, self.threshold / norm, 1.0)
        for grad in grads:
            with cuda.get_device_from_array(grad):
                grad *= backend.get_device_from_array(grad).send(rate).astype(grad.dtype)


class GradientHardClipping:
    """Clips each element of the gradients to an interval.

    Args:
        lower_bound: The smallest value.
        upper_bound: The largest value.
    """

    name = "GradientHardClipping"
    timing = "pre"
    scaled_attributes: tuple[str, ...] = ()
    call_for_each_param = True
    needs_norm = False

    def __init__(self, lower_bound: float, upper_bound: float) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def grad_expr(self, xp: Any, param: Any, grad: Any) -> Any:
        """Return the new gradient, elementwise: what the compiler uses."""
        return xp.minimum(xp.maximum(grad, self.lower_bound), self.upper_bound)

    def __call__(self, rule: Any, param: Any) -> None:
        grad = param.grad
        if grad is None:
            return
        with param.device.create_context():
            grad[...] = param.xp.clip(grad, self.lower_bound, self.upper_bound)
