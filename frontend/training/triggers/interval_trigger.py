"""The trigger that fires at a fixed interval, and the short forms of triggers."""

from collections.abc import Callable
from typing import Any

from ._progress import Progress


class IntervalTrigger:
    """Trigger that fires every ``period`` iterations or epochs.

    Args:
        period: length of the interval, possibly a fraction.
        unit: ``'epoch'`` or ``'iteration'``.

    Raises:
        ValueError: the unit is something else, or the period is not positive.
    """

    def __init__(self, period: float, unit: str) -> None:
        self._progress = Progress(unit)
        if not period > 0:
            raise ValueError(f"the period of an interval trigger must be positive, got {period!r}")
        self.period = period
        self.unit = unit

    def __call__(self, trainer: Any) -> bool:
        """Whether a multiple of the period was reached or passed since the last call."""
        before, now = self._progress.step(trainer.updater)
        return before // self.period != now // self.period

    def get_training_length(self) -> tuple[float, str]:
        """(period, unit): how long a training that it stops will take."""
        return self.period, self.unit

    def serialize(self, serializer: Any) -> None:
        """Save or load the progress seen at the last call."""
        self._progress.serialize(serializer)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.period}, '{self.unit}')"


def _never(trainer: Any) -> bool:
    """The trigger that never fires."""
    return False


def get_trigger(trigger: Any) -> Callable[..., Any]:
    """Make a trigger, a callable ``trigger(trainer) -> bool``, of one of its forms.

    Args:
        trigger: ``None`` (never fires), a callable (taken as it is), or a pair ``(period, unit)`` with the
            unit ``'epoch'`` or ``'iteration'``, an :class:`~kusari.training.triggers.IntervalTrigger`.

    Raises:
        TypeError: it is something else.
        ValueError: the unit is something else.

    Example:
        >>> from kusari.training import get_trigger
        >>> print(get_trigger((2, "epoch")))
        IntervalTrigger(2, 'epoch')
    """
    if trigger is None:
        return _never
    if callable(trigger):
        return trigger
    if not isinstance(trigger, (tuple, list)) or len(trigger) != 2:
        raise TypeError(f"a trigger is a callable, None, or a pair like (1, 'epoch'); got {trigger!r}")
    return IntervalTrigger(*trigger)
