"""The trigger that fires by the clock."""

from typing import Any


class TimeTrigger:
    """Trigger that fires every ``period`` seconds of training time.

    Args:
        period: seconds between two events; the time of the runs before a resumed one counts.

    Raises:
        ValueError: the period is not positive.
    """

    def __init__(self, period: float) -> None:
        if not period > 0:
            raise ValueError(f"the period of a time trigger must be positive, got {period!r}")
        self._period = period
        self._next_time = self._period

    def __call__(self, trainer: Any) -> bool:
        """Whether the next point in time was reached."""
        if self._next_time >= trainer.elapsed_time:
            return False
        self._next_time += self._period
        return True

    def serialize(self, serializer: Any) -> None:
        """Save or load the next point in time."""
        self._next_time = float(serializer("next_time", self._next_time))
