"""Momentum SGD whose learning rate may change."""

from __future__ import annotations

from typing import Any

from ..optimizer import GradientMethod, HyperparameterProxy
from .stateful import StatefulRule

__all__ = ["CorrectedMomentumSGD", "CorrectedMomentumSGDRule"]


class CorrectedMomentumSGDRule(StatefulRule):
    """The update rule of :class:`CorrectedMomentumSGD`; its state is ``v``, the velocity without the learning rate."""

    computes_in_float32 = False
    hyper_names = ("lr", "momentum")
    state_names = ("v",)

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any, v: Any) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        v = v * hyper.momentum - grad
        return {"v": v, "param": param + hyper.lr * v}


class CorrectedMomentumSGD(GradientMethod):
    """SGD with momentum, where a change of the learning rate also changes the steps that are under way.

    ``v = momentum * v - grad``, ``param += lr * v``. Goyal et al., `Accurate, Large Minibatch SGD: Training ImageNet
    in 1 Hour <https://arxiv.org/abs/1706.02677>`_ (2017), section 3.1.

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

    def create_update_rule(self) -> CorrectedMomentumSGDRule:
        """Return a new update rule."""
        return CorrectedMomentumSGDRule(self.hyperparam)


CorrectedMomentumSGDRule.defaults = CorrectedMomentumSGD().hyperparam
