"""Properties that are computed once."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..configuration import config

__all__ = ["cached_property"]


class cached_property(property):
    """A property that is computed once with a graph, and once without: whether ``config.enable_backprop`` is set.

    >>> class Twice:
    ...     @cached_property
    ...     def value(self):
    ...         print("computed")
    ...         return 2
    >>> twice = Twice()
    >>> twice.value + twice.value
    computed
    4
    """

    def __init__(self, func: Callable[[Any], Any]) -> None:
        super().__init__(func)
        self.__name__ = func.__name__
        self.__doc__ = func.__doc__

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        if obj is None:
            return self
        known = obj.__dict__.setdefault("_cached_properties", {})
        key = self.__name__, bool(config.enable_backprop)
        if key not in known:
            known[key] = super().__get__(obj, owner)
        return known[key]
