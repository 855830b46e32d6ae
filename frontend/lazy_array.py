"""Arrays that are made when they are first read."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


class LazyArray:
    """Stands for the array that ``make`` returns, which is called once at most.

    A Variable may have one as its gradient: its properties show the array.
    """

    __slots__ = ("__weakref__", "_array", "_make")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._array: Any = None

    def apart(self) -> LazyArray:
        """Return another one of the same array, which holders of this one do not know."""
        array = self._array
        return LazyArray(self._make or (lambda: array))

    def array(self) -> Any:
        """Return the array, made now if it is not there yet."""
        if self._make is not None:
            self._array, self._make = self._make(), None
        return self._array
