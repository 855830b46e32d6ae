"""Effects: changes of objects from outside by a traced call, as calls that each replay makes again, in their order."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..guards.guard import MISSING


class Effect:
    """``function(*target, *args)``: a store, a deletion or a call of a method that changes its object.

    ``holder`` and ``key`` name the entry that a store or a deletion is about; ``holder`` alone the changed object.
    Invariant: ``target`` are objects from outside, the same in every replay; ``args`` may contain computed values.
    """

    def __init__(self, function: Callable[..., Any], target: tuple[Any, ...], args: tuple[Any, ...], what: str,
                 holder: Any, key: Any = MISSING) -> None:
        self.function = function
        self.target = target
        self.args: tuple[Any, ...] = args
        self.what = what
        self.holder = holder
        self.key = key

    @property
    def is_entry(self) -> bool:
        """Whether it stores an entry of a namespace."""
        return self.function is store and type(self.holder) is dict

    def apply(self, args: tuple[Any, ...]) -> None:
        """Have the effect, with the arguments of a replay."""
        self.function(*self.target, *args)


def store(holder: Any, key: Any, value: Any) -> None:
    """Store an entry of a namespace or a container."""
    holder[key] = value


def refill(array: Any, value: Any) -> None:
    """Change the elements of an array."""
    array[...] = value


def refill_entry(holder: Any, key: Any, value: Any) -> None:
    """Change the elements of the array that is an entry of a namespace now."""
    holder[key][...] = value


def discard(holder: Any, key: Any) -> None:
    """Delete an entry, if it is there."""
    if key in holder:
        del holder[key]
