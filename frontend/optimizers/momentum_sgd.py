"""Momentum SGD."""

from __future__ import annotations

from typing import Any

from .. import backend
from ..optimizer import GradientMethod, Hyperparameter, HyperparameterProxy, UpdateRule

__all__ = ["MomentumSGD", "MomentumSGDRule"]


class MomentumSGDRule(UpdateRule):
    """The update rule of :class:`MomentumSGD`; its state is the velocity ``v``."""

    is_elementwise = True

    def __init__(
        self, parent_hyperparam: Hyperparameter | None = None, lr: float | None = None, momentum: float | None = None
    ) -> None:
        super().__init__(parent_hyperparam)
        if lr is not None:
            self.hyperparam.lr = lr
        if momentum is not None:
            self.hyperparam.momentum = momentum

    def init_state(self, param: Any) -> None:
        """Start with no velocity."""
        self.state["v"] = backend.get_array_module(param._array).zeros_like(param._array)

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any, v: Any) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        v = v * hyper.momentum - hyper.lr * grad
        return {"v": v, "param": param + v}

    def update_core_cpu(self, param: Any) -> None:
        """The same, in place."""
        array, grad = param._array, param.grad
        if array is None or grad is None:
            return
        v = self.state["v"]
        hyper = self.hyper_values()
        v *= hyper["momentum"]
        v -= hyper["lr"] * grad
        array += v


class MomentumSGD(GradientMethod):
    """SGD with momentum: ``v = momentum * v - lr * grad``, ``param += v``.

    Args:
        lr: Learning rate.
        momentum: Decay rate of the velocity.
    """

    lr = HyperparameterProxy("lr")
    momentum = HyperparameterProxy("momentum")

    def __init__(self, lr: float = 0.01, momentum: float = 0.9) -> None:
        super().__init__()
        self.hyperparam.lr = lr
        self.hyperparam.momentum = momentum

    def create_update_rule(self) -> MomentumSGDRule:
        """Return a new update rule."""
        return MomentumSGDRule(self.hyperparam)


MomentumSGDRule.defaults = MomentumSGD().hyperparam
