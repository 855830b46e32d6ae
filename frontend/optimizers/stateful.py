"""The base of the rules of adaptive methods: named hyperparameters, and states that start at zero."""

from __future__ import annotations

from typing import Any

from .. import backend
from ..optimizer import Hyperparameter, UpdateRule

__all__ = ["StatefulRule"]


class StatefulRule(UpdateRule):
    """A rule with states like the parameter; a subclass gives their names and states its arithmetic.

    Raises:
        TypeError: a hyperparameter is given that the rule does not have.
    """

    is_elementwise = True
    computes_in_float32 = True
    hyper_names: tuple[str, ...] = ()
    state_names: tuple[str, ...] = ()

    def __init__(self, parent_hyperparam: Hyperparameter | None = None, **own: Any) -> None:
        super().__init__(parent_hyperparam)
        for name, value in own.items():
            if name not in self.hyper_names:
                raise TypeError(
                    f"{type(self).__name__} has no hyperparameter {name!r}; it has {', '.join(self.hyper_names)}"
                )
            if value is not None:
                setattr(self.hyperparam, name, value)

    def init_state(self, param: Any) -> None:
        """Start all states with zeros."""
        xp = backend.get_array_module(param._array)
        with param.device.create_context():
            for name in self.state_names:
                self.state[name] = xp.zeros_like(param._array)
