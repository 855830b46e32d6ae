"""SMORMS3."""

from __future__ import annotations

from typing import Any

from ..optimizer import GradientMethod, HyperparameterProxy
from .stateful import StatefulRule

__all__ = ["SMORMS3", "SMORMS3Rule"]


class SMORMS3Rule(StatefulRule):
    """The update rule of :class:`SMORMS3`.

    States: ``g`` and ``g2``, averages of the gradient and of its square; ``mem``, the length of their memory.
    """

    hyper_names = ("lr", "eps")
    state_names = ("mem", "g", "g2")

    def init_state(self, param: Any) -> None:
        """Start averages at zero, and the memory at one step."""
        super().init_state(param)
        self.state["mem"] += 1

    def update_exprs(
        self, xp: Any, hyper: Any, param: Any, grad: Any, mem: Any, g: Any, g2: Any
    ) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        rate = 1 / (mem + 1)
        g = (1 - rate) * g + rate * grad
        g2 = (1 - rate) * g2 + rate * grad * grad
        steady = g * g / (g2 + hyper.eps)
        return {
            "mem": 1 + mem * (1 - steady), "g": g, "g2": g2,
            "param": param - grad * xp.minimum(hyper.lr, steady) / (xp.sqrt(g2) + hyper.eps),
        }  # fmt: skip


class SMORMS3(GradientMethod):
    """SMORMS3: RMSprop with steps and a memory that depend on how steady the gradient is.

    Funk, `RMSprop loses to SMORMS3 – Beware the Epsilon! <https://sifter.org/simon/journal/20150420.html>`_ (2015).

    Args:
        lr: The largest learning rate.
        eps: Added where is divided.
    """

    lr = HyperparameterProxy("lr")
    eps = HyperparameterProxy("eps")

    def __init__(self, lr: float = 0.001, eps: float = 1e-16) -> None:
        super().__init__()
        self.hyperparam.lr = lr
        self.hyperparam.eps = eps

    def create_update_rule(self) -> SMORMS3Rule:
        """Return a new update rule."""
        return SMORMS3Rule(self.hyperparam)


SMORMS3Rule.defaults = SMORMS3().hyperparam
