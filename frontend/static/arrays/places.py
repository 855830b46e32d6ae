"""Where the arrays of one call stood before it: an array under two names is one value, while both have that array.

Replays look for the arrays of parameters and for persistent arrays where those stand. Attributes and globals are
guarded to be the objects they were.
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..guards.guard import Entry, is_one_array
from ..trees import array_of

if TYPE_CHECKING:
    from ..trace.observation import Observation

_Place = tuple[dict[str, Any], str, str]


class Places:
    """The parameters and persistent arrays of one call. Invariant: arrays in it are kept alive."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[int, str], tuple[Any, _Place]] = {}
        self._named: set[int] = set()  # arrays that are read otherwise than as parameters by functions

    def add(self, array: Any, entries: dict[str, Any], key: str, what: str, by_function: bool = False) -> None:
        """Note that an array stands in a namespace, for the first time: the call may put another one there."""
        found, _ = self._arrays.setdefault((id(entries), key), (array, (entries, key, what)))
        if not by_function and found is array:
            self._named.add(id(array))

    def given(self, leaves: list[Any], observation: Observation) -> str | None:
        """Return which argument's array is also read by a name; None if there is none."""
        if observation.found_given is not None:
            return observation.found_given
        names = {id(a): "an array" for a in observation.seen_arrays()}
        names |= {id(a): what for a, (_, _, what) in self._arrays.values() if id(a) in self._named}
        return next((names[id(a)] for a in map(array_of, leaves) if id(a) in names), None)

    def guard(self, observation: Observation) -> None:
        """Guard that places with one array have one in replays, and the one that stands elsewhere, too."""
        seen = {id(a) for a in observation.seen_arrays()}
        first: dict[int, _Place] = {}
        for array, place in self._arrays.values():
            entries, key, what = place
            if id(array) in seen:
                observation.guard("entry", entries, key, functools.partial(Entry, *place[:2], array, what))
            elif id(array) in self._named and (other := first.setdefault(id(array), place)) is not place:
                observation.called_again(is_one_array, (entries, key, *other[:2]), True, f"{what} is {other[2]}")
