"""``lazy``: an attribute that is computed when it is first asked for."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class lazy(Generic[T]):
    """Makes a method an attribute that is computed once, by the first thread that asks.

    Unlike ``functools.cached_property`` before Python 3.12 it holds no lock: a process that forks while another thread
    computes would hand that lock to a child in which it is never released.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
