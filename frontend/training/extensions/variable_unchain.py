"""Letting go of the graphs of reported variables."""

from typing import Any

from ...variable import Variable
from ..extension import Extension


class unchain_variables(Extension):
    """Extension that cuts reported variables from their graphs at the end of an iteration.

    Useful when ``config.keep_graph_on_report`` is set: the graph's memory is free before the next iteration.
    """

    priority = 0

    def __call__(self, trainer: Any) -> None:
        """Cut the variables of the observation."""
        for value in trainer.observation.values():
            if isinstance(value, Variable):
                value.unchain_backward()

    def trigger(self, trainer: Any) -> bool:
        """Every iteration."""
        return True
