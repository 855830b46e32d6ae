"""M-SVAG."""

from __future__ import annotations

from typing import Any

from kusari.ir import Symbol

from ..optimizer import GradientMethod, HyperparameterProxy
from .stateful import StatefulRule

__all__ = ["MSVAG", "MSVAGRule"]


class MSVAGRule(StatefulRule):
    """The update rule of :class:`MSVAG`; its states are ``m`` and ``v``, averages of the gradient and of its square."""

    hyper_names = ("lr", "beta", "eta", "weight_decay_rate")
    state_names = ("m", "v")

    def hyper_values(self) -> dict[str, float]:
        """Return the hyperparameters, and the corrections that follow from them and the number of the update."""
        h = self.hyperparam.get_dict()
        beta, power = h["beta"], h["beta"] ** self.t
        h["rate"] = 1 - beta
        h["correction"] = 1 - power
        rho = (1 - beta) * (1 + power) / ((1 + beta) * (1 - power))
        # The average of one gradient has no variance yet: 0 / 0, which a compiled count of updates sees as about 1 / 0.
        h["share"] = rho / (1 - rho) if isinstance(self.t, Symbol) or self.t > 1 else 0.0
        return h

    def update_exprs(
        self, xp: Any, hyper: Any, param: Any, grad: Any, m: Any, v: Any
    ) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        m = m + hyper.rate * (grad - m)
        v = v + hyper.rate * (grad * grad - v)
        mean, square = m / hyper.correction, v / hyper.correction
        signal = mean * mean
        total = signal + xp.where(xp.absolute(hyper.share) < 1e6, hyper.share * (square - signal), 0.0)
        factor = xp.where(total > 0, signal / xp.where(total > 0, total, 1.0), 1.0)
        step = hyper.lr * (factor * mean) + hyper.weight_decay_rate * param
        return {"m": m, "v": v, "param": param - hyper.eta * step}


class MSVAG(GradientMethod):
    """M-SVAG: momentum whose elements shrink with their relative variance.

    Balles & Hennig, `Dissecting Adam: The Sign, Magnitude and Variance of Stochastic Gradients
    <https://arxiv.org/abs/1705.07774>`_ (2018).

    Args:
        lr: Learning rate.
        beta: Decay rate of both averages.
        eta: Factor of the whole step, for schedules.
        weight_decay_rate: Share of the parameter taken away in each step (times ``eta``).
    """

    lr = HyperparameterProxy("lr")
    beta = HyperparameterProxy("beta")
    eta = HyperparameterProxy("eta")
    weight_decay_rate = HyperparameterProxy("weight_decay_rate")

    def __init__(self, lr: float = 0.1, beta: float = 0.9, eta: float = 1.0, weight_decay_rate: float = 0) -> None:
        super().__init__()
        h = self.hyperparam
        h.lr, h.beta, h.eta, h.weight_decay_rate = lr, beta, eta, weight_decay_rate

    def create_update_rule(self) -> MSVAGRule:
        """Return a new update rule."""
        return MSVAGRule(self.hyperparam)


MSVAGRule.defaults = MSVAG().hyperparam
