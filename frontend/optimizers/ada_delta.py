"""AdaDelta."""

from __future__ import annotations

from typing import Any

from ..optimizer import GradientMethod, HyperparameterProxy
from .stateful import StatefulRule

__all__ = ["AdaDelta", "AdaDeltaRule"]


class AdaDeltaRule(StatefulRule):
    """The update rule of :class:`AdaDelta`.

    States: ``msg`` and ``msdx``, averages of the squares of gradients and of steps.
    """

    hyper_names = ("rho", "eps")
    state_names = ("msg", "msdx")

    def hyper_values(self) -> dict[str, float]:
        """Return the hyperparameters and the share of what is new in an average."""
        values = self.hyperparam.get_dict()
        return {**values, "rate": 1 - values["rho"]}

    def update_exprs(
        self, xp: Any, hyper: Any, param: Any, grad: Any, msg: Any, msdx: Any
    ) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        msg = msg * hyper.rho + hyper.rate * grad * grad
        step = xp.sqrt((msdx + hyper.eps) / (msg + hyper.eps)) * grad
        return {"msg": msg, "msdx": msdx * hyper.rho + hyper.rate * step * step, "param": param - step}


class AdaDelta(GradientMethod):
    """AdaDelta: steps as large as recent ones, relative to recent gradients; there is no learning rate.

    Zeiler, `ADADELTA: An Adaptive Learning Rate Method <https://arxiv.org/abs/1212.5701>`_ (2012).

    Args:
        rho: Decay rate of both averages.
        eps: Added to both averages.
    """

    rho = HyperparameterProxy("rho")
    eps = HyperparameterProxy("eps")

    def __init__(self, rho: float = 0.95, eps: float = 1e-6) -> None:
        super().__init__()
        self.hyperparam.rho = rho
        self.hyperparam.eps = eps

    def create_update_rule(self) -> AdaDeltaRule:
        """Return a new update rule."""
        return AdaDeltaRule(self.hyperparam)


AdaDeltaRule.defaults = AdaDelta().hyperparam
