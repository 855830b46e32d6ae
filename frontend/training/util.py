"""Public path of :func:`get_trigger`."""

from .trigger import get_trigger

__all__ = ["get_trigger"]
