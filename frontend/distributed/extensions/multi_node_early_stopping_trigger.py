"""Early stopping in which all ranks stop at the same time."""
from __future__ import annotations

from typing import Any

from ...training.triggers import EarlyStoppingTrigger
from .observation_aggregator import ObservationAggregator

__all__ = ["MultiNodeEarlyStoppingTrigger"]


class MultiNodeEarlyStoppingTrigger:
    """Trigger like `kusari.training.triggers.EarlyStoppingTrigger`, on the mean of a value over all ranks.

    Args:
        comm: A communicator.
        check_trigger, monitor, patience, mode, verbose, max_trigger: As for ``EarlyStoppingTrigger``.
        suffix: Added to the name of the value for that of its mean.
    """

    def __init__(self, comm: Any, *, check_trigger: Any = (1, "epoch"), monitor: str = "main/loss",
                 patience: int | None = None, mode: str = "auto", verbose: bool = False,
                 max_trigger: Any = (100, "epoch"), suffix: str = "_aggregated", **kwargs: Any) -> None:
        self.actual_trigger = EarlyStoppingTrigger(
            check_trigger=check_trigger, monitor=monitor + suffix, patience=patience, mode=mode, verbose=verbose,
            max_trigger=max_trigger, **kwargs)
        self.aggregator = ObservationAggregator(comm, monitor, monitor + suffix, comm_trigger=check_trigger)

    def __call__(self, trainer: Any) -> bool:
        """Whether to stop."""
        self.aggregator(trainer)
        return self.actual_trigger(trainer)

    def get_training_length(self) -> tuple[float, str]:
        """(period, unit) of the latest end."""
        return self.actual_trigger.get_training_length()

    def serialize(self, serializer: Any) -> None:
        """Save or load the best value and the patience spent."""
        self.actual_trigger.serialize(serializer["actual_trigger"])
