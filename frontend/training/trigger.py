"""From the short forms of a trigger to the trigger itself."""

from .triggers.interval_trigger import IntervalTrigger, get_trigger

__all__ = ["IntervalTrigger", "get_trigger"]
