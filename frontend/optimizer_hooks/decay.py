"""Penalties on the parameters' size."""

from __future__ import annotations

from typing import Any

from .. import backend

__all__ = ["Lasso", "WeightDecay"]


class _Penalty:
    """A hook that adds ``rate`` times some direction to the gradient of each parameter."""

    name: str
    call_for_each_param = True
    timing = "pre"
    scaled_attributes: tuple[str, ...] = ()  # gradients that are multiplied by the scale of a loss
    needs_norm = False

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def _direction(self, xp: Any, param: Any) -> Any:
        raise NotImplementedError

    def grad_expr(self, xp: Any, param: Any, grad: Any) -> Any:
        """Return the new gradient, elementwise: what the compiler uses."""
        return grad + self.rate * self._direction(xp, param)

    def __call__(self, rule: Any, param: Any) -> None:
        array, grad = param.data, param.grad
        if array is None or grad is None:
            return
        rate = self.rate
        if self.scaled_attributes and param._loss_scale is not None:
            rate *= param._loss_scale  # the gradient is scaled until its update
        with param.device.create_context():
            grad += rate * self._direction(backend.get_array_module(array), array)


class WeightDecay(_Penalty):
    """Adds ``rate`` times the parameter to its gradient: the gradient of an L2 penalty of ``rate / 2``.

    Args:
        rate: Coefficient.

    >>> optimizer = kusari.optimizers.SGD().setup(L.Linear(3, 2))
    >>> optimizer.add_hook(kusari.optimizer_hooks.WeightDecay(0.0005))
    """

    name = "WeightDecay"
    scaled_attributes = ("rate",)

    def _direction(self, xp: Any, param: Any) -> Any:
        return param


class Lasso(_Penalty):
    """Adds ``rate`` times the parameter's sign to its gradient: the gradient of an L1 penalty.

    Args:
        rate: Coefficient.
    """

    name = "Lasso"

    def _direction(self, xp: Any, param: Any) -> Any:
        return xp.sign(param)
