"""From the short forms of a trigger to the trigger itself."""

from collections.abc import Callable
from typing import Any

from .triggers.interval_trigger import IntervalTrigger

__all__ = ["IntervalTrigger", "get_trigger"]


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
