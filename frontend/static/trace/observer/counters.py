"""Numbers that a call adds to: ``self.calls += 1`` is an effect, and the number of before may be any.

That holds as long as nothing else reads the number in the same call: it is a store of a number that was read, then.
"""
from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...computed_numbers import ComputedNumber, plain
from ..observation import Observation, is_ours
from . import lookup
from .builtin_functions import INPLACE

if TYPE_CHECKING:
    from .observer import Observer

_DICTIONARIES = (dict, OrderedDict, defaultdict, Counter)
_KEYS = (str, int)


class Counted:
    """A number in an entry of a dictionary while an augmented assignment is under way: nothing else sees this."""

    __slots__ = ("holder", "key", "value", "what", "made", "operation", "operand")

    def __init__(self, holder: dict[Any, Any], key: Any, value: Any, what: str) -> None:
        self.holder = holder
        self.key = key
        self.value = value
        self.what = what
        self.made: Any = None
        self.operation: Any = None
        self.operand: Any = None

    def read(self, o: Observation) -> Any:
        """Return the number as one that was read."""
        if o.is_stored(self.holder, self.key):
            o.note(f"{self.what} is stored while it is added to")
        return o.entry(self.holder, self.key, self.value, self.what)


def of_attribute(k: Observer, x: Any, name: str) -> Counted | None:
    """Return the number in an ordinary attribute that is about to be added to; None of anything else."""
    kind = type(x)
    if kind.__getattribute__ is not object.__getattribute__ or (
            isinstance(kind.__setattr__, FunctionType) and not is_ours(kind.__setattr__.__module__)) or any(
            hasattr(type(vars(cls)[name]), "__set__") for cls in kind.__mro__ if name in vars(cls)):
        return None
    o, entries = k.observation, lookup.entries_in(x)
    if entries is None or not o.is_outside(x) or (found := _of_entry(o, entries, name, f"{kind.__name__}.{name}")) is None:
        return None
    o.kind(x)
    return found


def of_item(k: Observer, x: Any, key: Any) -> Counted | None:
    """Return the number that is an item of a dictionary and about to be added to; None of anything else."""
    o = k.observation
    if type(x) not in _DICTIONARIES or type(key) not in _KEYS or not o.is_outside(x):
        return None
    return _of_entry(o, x, key, f"item {key!r} of a {type(x).__name__}")


def _of_entry(o: Observation, holder: dict[Any, Any], key: Any, what: str) -> Counted | None:
    value = holder.get(key)
    return Counted(holder, key, value, what) if _is_number(value) and o.may_count(holder, key) else None


def _is_number(x: Any) -> bool:
    return type(x) in (int, float) or isinstance(x, (np.integer, np.floating)) and not isinstance(x, ComputedNumber)


def applied(k: Observer, op: str, counted: Counted, operand: Any) -> Any:
    """Apply an operator in place to such a number."""
    native = INPLACE[op]
    if k.observation.off:
        return native(counted.value, plain(operand))
    if not (_is_number(operand) or isinstance(operand, ComputedNumber)):
        return k.inplace(op, counted.read(k.observation), operand)
    made = native(counted.value, operand.kusari_value if isinstance(operand, ComputedNumber) else operand)
    counted.made, counted.operation, counted.operand = made, native, operand
    return counted


def count(holder: Any, key: Any, operation: Any, operand: Any) -> None:
    """Add to the number in an entry."""
    holder[key] = operation(holder[key], operand)
