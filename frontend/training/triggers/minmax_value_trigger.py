"""Triggers that fire when a reported value is better than ever before."""

import operator
from collections.abc import Callable
from typing import Any

from ...reporter import DictSummary
from .interval_trigger import get_trigger


class BestValueTrigger:
    """Trigger that fires when the mean of a reported value becomes the best so far.

    Args:
        key: name of the value in the observation.
        compare: ``compare(best, new)`` tells whether ``new`` is better.
        trigger: when the mean over the time since is looked at; default every epoch.
    """

    def __init__(self, key: str, compare: Callable[[Any, Any], bool], trigger: Any = (1, "epoch")) -> None:
        self._key = key
        self._compare = compare
        self._trigger: Any = get_trigger(trigger)
        self._best: float | None = None
        self._summary = DictSummary()

    def __call__(self, trainer: Any) -> bool:
        """Whether the interval just ended and its mean is the best so far."""
        observation = trainer.observation
        if self._key in observation:
            self._summary.add({self._key: observation[self._key]})
        if not self._trigger(trainer):
            return False
        mean = self._summary.compute_mean()
        self._summary = DictSummary()
        if self._key not in mean:
            return False
        value = float(mean[self._key])
        if self._best is not None and not self._compare(self._best, value):
            return False
        self._best = value
        return True

    def serialize(self, serializer: Any) -> None:
        """Save or load the interval, the sum so far and the best value."""
        hook = getattr(self._trigger, "serialize", None)
        if hook is not None:
            hook(serializer["interval_trigger"])
        self._summary.serialize(serializer["summary"])
        best = serializer("best_value", self._best)
        self._best = None if best is None else float(best)


class MaxValueTrigger(BestValueTrigger):
    """Trigger that fires when the mean of a reported value becomes the highest so far.

    Args:
        key: name of the value in the observation.
        trigger: when the mean over the time since is looked at; default every epoch.
    """

    def __init__(self, key: str, trigger: Any = (1, "epoch")) -> None:
        super().__init__(key, operator.lt, trigger)


class MinValueTrigger(BestValueTrigger):
    """Trigger that fires when the mean of a reported value becomes the lowest so far.

    Args:
        key: name of the value in the observation.
        trigger: when the mean over the time since is looked at; default every epoch.
    """

    def __init__(self, key: str, trigger: Any = (1, "epoch")) -> None:
        super().__init__(key, operator.gt, trigger)
