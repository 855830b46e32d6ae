"""RMSprop, and the variant of Graves."""

from __future__ import annotations

from typing import Any

from ..optimizer import GradientMethod, HyperparameterProxy
from .stateful import StatefulRule

__all__ = ["RMSprop", "RMSpropGraves", "RMSpropGravesRule", "RMSpropRule"]


class RMSpropRule(StatefulRule):
    """The update rule of :class:`RMSprop`; its state is ``ms``, an average of the gradient's square."""

    hyper_names = ("lr", "alpha", "eps", "eps_inside_sqrt")
    state_names = ("ms",)

    def hyper_values(self) -> dict[str, float]:
        """Return the hyperparameters and the share of what is new in the average."""
        values = self.hyperparam.get_dict()
        return {**values, "rate": 1 - values["alpha"]}

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any, ms: Any) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        ms = ms * hyper.alpha + hyper.rate * grad * grad
        root = xp.sqrt(ms + hyper.eps) if self.hyperparam.eps_inside_sqrt else xp.sqrt(ms) + hyper.eps
        return {"ms": ms, "param": param - hyper.lr * grad / root}


class RMSprop(GradientMethod):
    """RMSprop: the gradient divided by the root of an average of its square.

    Tieleman & Hinton, `Lecture 6.5 of Neural Networks for Machine Learning
    <https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf>`_ (2012).

    Args:
        lr: Learning rate.
        alpha: Decay rate of the average.
        eps: Added to the root, against division by zero.
        eps_inside_sqrt: Whether ``eps`` is added to the average before the root is taken.
    """

    lr = HyperparameterProxy("lr")
    alpha = HyperparameterProxy("alpha")
    eps = HyperparameterProxy("eps")
    eps_inside_sqrt = HyperparameterProxy("eps_inside_sqrt")

    def __init__(
        self, lr: float = 0.01, alpha: float = 0.99, eps: float = 1e-8, eps_inside_sqrt: bool = False
    ) -> None:
        super().__init__()
        h = self.hyperparam
        h.lr, h.alpha, h.eps, h.eps_inside_sqrt = lr, alpha, eps, eps_inside_sqrt

    def create_update_rule(self) -> RMSpropRule:
        """Return a new update rule."""
        return RMSpropRule(self.hyperparam)


class RMSpropGravesRule(StatefulRule):
    """The update rule of :class:`RMSpropGraves`.

    States: ``n`` and ``g``, averages of the gradient's square and of the gradient; ``delta``, the step.
    """

    hyper_names = ("lr", "alpha", "momentum", "eps")
    state_names = ("n", "g", "delta")

    def hyper_values(self) -> dict[str, float]:
        """Return the hyperparameters and the share of what is new in an average."""
        values = self.hyperparam.get_dict()
        return {**values, "rate": 1 - values["alpha"]}

    def update_exprs(
        self, xp: Any, hyper: Any, param: Any, grad: Any, n: Any, g: Any, delta: Any
    ) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        n = n * hyper.alpha + hyper.rate * grad * grad
        g = g * hyper.alpha + hyper.rate * grad
        delta = delta * hyper.momentum - hyper.lr * grad / xp.sqrt(n - g * g + hyper.eps)
        return {"n": n, "g": g, "delta": delta, "param": param + delta}


class RMSpropGraves(GradientMethod):
    """RMSprop with momentum, dividing by the gradient's deviation.

    Graves, `Generating Sequences With Recurrent Neural Networks <https://arxiv.org/abs/1308.0850>`_ (2013).

    Args:
        lr: Learning rate.
        alpha: Decay rate of both averages.
        momentum: Decay rate of the step.
        eps: Added to the variance.
    """

    lr = HyperparameterProxy("lr")
    alpha = HyperparameterProxy("alpha")
    momentum = HyperparameterProxy("momentum")
    eps = HyperparameterProxy("eps")

    def __init__(self, lr: float = 1e-4, alpha: float = 0.95, momentum: float = 0.9, eps: float = 1e-4) -> None:
        super().__init__()
        h = self.hyperparam
        h.lr, h.alpha, h.momentum, h.eps = lr, alpha, momentum, eps

    def create_update_rule(self) -> RMSpropGravesRule:
        """Return a new update rule."""
        return RMSpropGravesRule(self.hyperparam)


RMSpropRule.defaults = RMSprop().hyperparam
RMSpropGravesRule.defaults = RMSpropGraves().hyperparam
