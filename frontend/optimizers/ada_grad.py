"""AdaGrad."""

from __future__ import annotations

from typing import Any

from ..optimizer import GradientMethod, HyperparameterProxy
from .stateful import StatefulRule

__all__ = ["AdaGrad", "AdaGradRule"]


class AdaGradRule(StatefulRule):
    """The update rule of :class:`AdaGrad`; its state is ``h``, the sum of the gradient's squares."""

    hyper_names = ("lr", "eps")
    state_names = ("h",)

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any, h: Any) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        h = h + grad * grad
        return {"h": h, "param": param - hyper.lr * grad / (xp.sqrt(h) + hyper.eps)}


class AdaGrad(GradientMethod):
    """AdaGrad: every element's rate falls with the sum of its squared gradients.

    Duchi et al., `Adaptive Subgradient Methods for Online Learning and Stochastic Optimization
    <http://jmlr.org/papers/v12/duchi11a.html>`_ (2011).

    Args:
        lr: Learning rate.
        eps: Added to the root of the sum.
    """

    lr = HyperparameterProxy("lr")
    eps = HyperparameterProxy("eps")

    def __init__(self, lr: float = 0.001, eps: float = 1e-8) -> None:
        super().__init__()
        self.hyperparam.lr = lr
        self.hyperparam.eps = eps

    def create_update_rule(self) -> AdaGradRule:
        """Return a new update rule."""
        return AdaGradRule(self.hyperparam)


AdaGradRule.defaults = AdaGrad().hyperparam
