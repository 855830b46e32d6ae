"""Averages of ratios."""

from typing import Any

from ...reporter import report
from ..extension import PRIORITY_EDITOR, Extension
from ..trigger import get_trigger


class MicroAverage(Extension):
    """Extension that reports a ratio of sums, where the mean of ratios would weigh batches wrongly.

    Numerators and denominators are summed up over an interval, and at its end their ratio is reported.

    Args:
        numerator_key: name of the numerator in the observation.
        denominator_key: name of the denominator.
        result_key: name of the ratio.
        trigger: the interval.
    """

    priority = PRIORITY_EDITOR

    def __init__(
        self, numerator_key: str, denominator_key: str, result_key: str, trigger: Any = (1, "epoch")
    ) -> None:
        self._trigger: Any = get_trigger(trigger)
        self._numerator_key = numerator_key
        self._denominator_key = denominator_key
        self._result_key = result_key
        self._numerator: Any = 0
        self._denominator: Any = 0

    def __call__(self, trainer: Any) -> None:
        """Add this iteration's values, and report at the end of the interval."""
        observation = trainer.observation
        if self._numerator_key in observation and self._denominator_key in observation:
            self._numerator += _array(observation[self._numerator_key])
            self._denominator += _array(observation[self._denominator_key])
        if self._trigger(trainer) and self._denominator:
            report({self._result_key: float(self._numerator) / float(self._denominator)})
            self._numerator = self._denominator = 0

    def serialize(self, serializer: Any) -> None:
        """Save or load the sums and the interval."""
        self._numerator = serializer("_numerator", self._numerator)
        self._denominator = serializer("_denominator", self._denominator)
        if hasattr(self._trigger, "serialize"):
            try:
                self._trigger.serialize(serializer["_trigger"])
            except KeyError:  # Chainer's snapshots do not have it
                return


def _array(value: Any) -> Any:
    """The array of a variable, or the value itself."""
    return getattr(value, "array", value)
