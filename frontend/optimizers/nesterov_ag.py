"""Nesterov's accelerated gradient."""

from __future__ import annotations

from typing import Any

from ..optimizer import HyperparameterProxy
from .momentum_sgd import MomentumSGD, MomentumSGDRule

__all__ = ["NesterovAG", "NesterovAGRule"]


class NesterovAGRule(MomentumSGDRule):
    """The update rule of :class:`NesterovAG`; its state is the velocity ``v``."""

    def hyper_values(self) -> dict[str, float]:
        """Return the rates, and the factors of velocity and gradient in the step."""
        values = self.hyperparam.get_dict()
        lr, momentum = values["lr"], values["momentum"]
        return {**values, "velocity_factor": momentum * momentum, "grad_factor": (1 + momentum) * lr}

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any, v: Any) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        new_v = v * hyper.momentum - hyper.lr * grad
        return {"v": new_v, "param": param + hyper.velocity_factor * new_v - hyper.grad_factor * grad}

    def update_core_cpu(self, param: Any) -> None:
        """The same, in place."""
        array, grad = param._array, param.grad
        if array is None or grad is None:
            return
        hyper = self.hyper_values()
        v = self.state["v"]
        v *= hyper["momentum"]
        v -= hyper["lr"] * grad
        array += hyper["velocity_factor"] * v
        array -= hyper["grad_factor"] * grad


class NesterovAG(MomentumSGD):
    """Nesterov's accelerated gradient, in the form that evaluates gradients at the parameters themselves.

    Bengio et al., `Advances in Optimizing Recurrent Networks <https://arxiv.org/abs/1212.0901>`_ (2012).

    Args:
        lr: Learning rate.
        momentum: Decay rate of the velocity.
    """

    lr = HyperparameterProxy("lr")
    momentum = HyperparameterProxy("momentum")

    def create_update_rule(self) -> NesterovAGRule:
        """Return a new update rule."""
        return NesterovAGRule(self.hyperparam)


NesterovAGRule.defaults = NesterovAG().hyperparam
