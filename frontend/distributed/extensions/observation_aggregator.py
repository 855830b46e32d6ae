"""Observed values of all ranks made one."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import backend
from ...training.extension import PRIORITY_EDITOR, Extension
from ...training.util import get_trigger
from ...utils.arrays import is_array
from ...variable import Variable

__all__ = ["ObservationAggregator"]


class ObservationAggregator(Extension):
    """Extension that replaces an observed value by a summary of the values of all ranks since the last time.

    Args:
        comm: A communicator.
        original_key: Name of the value.
        aggregated_key: Name of the summary; by default the same.
        comm_trigger: When ranks exchange what they have observed.
        aggregator: Makes the summary of a list of lists, one for each rank; by default the mean.
    """

    trigger = (1, "iteration")
    priority = PRIORITY_EDITOR
    name = None

    def __init__(self, comm: Any, original_key: str, aggregated_key: str | None = None, *,
                 comm_trigger: Any = (1, "iteration"), aggregator: Callable[[list[list[Any]]], Any] | None = None
                 ) -> None:
        self.comm = comm
        self.original_key = original_key
        self.aggregated_key = original_key if aggregated_key is None else aggregated_key
        self.comm_trigger: Any = get_trigger(comm_trigger)
        self.aggregator = aggregator or _mean
        self.observation_history: list[Any] = []

    def __call__(self, trainer: Any) -> None:
        """Take the observed value, and report the summary if it is time."""
        if self.original_key in trainer.observation:
            value = trainer.observation[self.original_key]
            value = value.array if isinstance(value, Variable) else value
            if is_array(value):
                value = backend.CpuDevice().send(backend.from_chx(value))
            self.observation_history.append(value)
        if not self.comm_trigger(trainer):
            return
        every = self.comm.gather_obj(self.observation_history)
        self.observation_history = []
        summary = self.comm.bcast_obj(None if every is None else self.aggregator(every))
        if summary is not None:
            trainer.observation[self.aggregated_key] = summary


def _mean(every: list[list[Any]]) -> Any:
    values = [value for each in every for value in each]
    return sum(values[1:], values[0]) / len(values) if values else None
