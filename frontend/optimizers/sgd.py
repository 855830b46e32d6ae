"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..optimizer import GradientMethod, Hyperparameter, HyperparameterProxy, UpdateRule

__all__ = ["SGD", "SGDRule"]


class SGDRule(UpdateRule):
    """The update rule of :class:`SGD`: ``param -= lr * grad``."""

    is_elementwise = True

    def __init__(self, parent_hyperparam: Hyperparameter | None = None, lr: float | None = None) -> None:
        super().__init__(parent_hyperparam)
        if lr is not None:
            self.hyperparam.lr = lr

    def update_exprs(self, xp: Any, hyper: Any, param: Any, grad: Any) -> dict[str, Any]:
        """State the update once for eager execution and the compiler."""
        return {"param": param - hyper.lr * grad}

    def update_core_cpu(self, param: Any) -> None:
        """The same, in place."""
        array, grad = param._array, param.grad
        if array is not None and grad is not None:
            array -= self.hyper_values()["lr"] * grad


class SGD(GradientMethod):
    """Stochastic gradient descent: ``param -= lr * grad``.

    Args:
        lr: Learning rate.

    >>> model = L.Linear(3, 2)
    >>> optimizer = kusari.optimizers.SGD(lr=0.1).setup(model)
    >>> optimizer.update(lambda x: F.sum(model(x)), np.ones((4, 3), "float32"))
    >>> model.b.array
    array([-0.4, -0.4], dtype=float32)
    """

    lr = HyperparameterProxy("lr")

    def __init__(self, lr: float = 0.01) -> None:
        super().__init__()
        self.hyperparam.lr = lr

    def create_update_rule(self) -> SGDRule:
        """Return a new update rule."""
        return SGDRule(self.hyperparam)


SGDRule.defaults = SGD().hyperparam
