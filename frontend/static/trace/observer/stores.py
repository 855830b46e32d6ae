"""Stores as the user's code makes them in a traced call: of attributes, and of numbers that it adds to.

``self.calls += 1`` is an effect, and the number of before may be any, as long as nothing else reads it in the same
call: it is a store of a number that was read, then.
"""
from __future__ import annotations

import functools
import threading
import types
from collections import Counter, OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ....configuration import GlobalConfig, LocalConfig
from ....variable import Variable
from ...arrays import cards
from ...computed_numbers import ComputedNumber, plain, settled
from ...guards.guard import MISSING
from ..observation import Observation, is_ours
from . import operations
from .lookup import entries_in, find, is_data_descriptor

if TYPE_CHECKING:
    from .observer import Observer

_DICTIONARIES = (dict, OrderedDict, defaultdict, Counter)
_KEYS = (str, int)


def write(k: Observer, x: Any, name: str, value: Any) -> None:
    """Store ``x.name = value``, observed; ``value`` MISSING deletes."""
    o = k.observation
    if o.off:
        _native(x, name, settled(value, name))
        return
    deletes = value is MISSING
    special = "__delattr__" if deletes else "__setattr__"
    kind = type(x)
    if cards.reads(o.tape, f"an assignment to the attribute {name}", x):
        _native(x, name, value)
        return
    if issubclass(type(x), np.ndarray):
        operations.set_attribute(k, x, name, settled(value, name))
        return
    if issubclass(type(x), Variable):
        _write_variable(o, x, name, settled(value, name))
        return
    if isinstance(x, (LocalConfig, GlobalConfig)):
        o.note(f"config.{name} changes inside the static function, which replays cannot repeat; use using_config")
        _native(x, name, settled(value, name))
        return
    if isinstance(x, (types.ModuleType, type)):
        o.holds(value, functools.partial(_settle, x, name, value))
        _native(x, name, value)
        if issubclass(type(x), type):
            o.stored(x.__dict__, name, value, f"{x.__name__}.{name}", x,
                     (delattr if deletes else setattr, (x, name)))
        else:
            o.stored(x.__dict__, name, value, f"{x.__name__}.{name}")
        return
    setter = find(k, kind, special)
    if isinstance(setter, types.FunctionType) and not is_ours(setter.__module__):
        k.call(setter, x, name, *(() if deletes else (value,)))
        return
    write_own(k, setter, x, name, value)


def write_own(k: Observer, setter: Any, x: Any, name: str, value: Any) -> None:
    """Store with ``setter``, which is that of ``object``, of another class in C or of links."""
    o = k.observation
    kind = type(x)
    deletes = value is MISSING
    o.holds(value, functools.partial(_settle, x, name, value))
    if isinstance(x, threading.local):
        _native(x, name, value)
        o.stored(x, name, value, f"{kind.__name__}.{name}", None,
                 (functools.partial(_delete, x, name), ()) if deletes else (setattr, (x, name)))
        return
    found = find(k, kind, name)
    if found is not MISSING and is_data_descriptor(found):
        if type(found) is property and not deletes and found.fset is not None:
            k.call(found.fset, x, value)
            return
        setter = find(k, type(found), "__delete__" if deletes else "__set__")
        if isinstance(setter, types.FunctionType):
            k.call(setter, found, x, *(() if deletes else (value,)))
            return
        value = settled(value, name)
        _native(x, name, value)
        o.stored(x, name, value, f"{kind.__name__}.{name}", None,
                 (functools.partial(_delete, x, name) if deletes else setattr, () if deletes else (x, name)))
        return
    entries = entries_in(x)
    if _is_there(o, entries, name, value):  # as after `self.total += x`
        setter(x, name, value)
        return
    if deletes and entries is not None and o.is_outside(x):
        o.presence(entries, name, f"{kind.__name__}.{name}")
    setter(x, name, *(() if deletes else (value,)))
    if entries is not None and not o.is_fresh(x):
        if o.is_argument(x):
            o.stored(x, name, value, f"{kind.__name__}.{name}")
        else:
            o.stored(entries, name, value, f"{kind.__name__}.{name}")
            o.stored_in(x, entries, name)


def _is_there(o: Observation, entries: dict[str, Any] | None, name: str, value: Any) -> bool:
    """Whether an array is stored where it is, and was before the call."""
    if type(value) is not np.ndarray or entries is None or entries.get(name) is not value or (
            id(entries), name) in o._stored or not (o.owns(value) or o.tape.is_state(value)):
        return False
    place = o.tape.state_entry(value)
    if place is None or place[0] is not entries or place[1] != name:
        o.entry(entries, name, value, name)
    return True


def _settle(x: Any, name: str, value: Any) -> None:
    """Put plain numbers into an attribute, if it still has a value that the call has stored."""
    if vars(x).get(name) is value:
        _native(x, name, settled(value, name))


def _delete(x: Any, name: str) -> None:
    try:
        delattr(x, name)
    except AttributeError:
        pass


def _native(x: Any, name: str, value: Any) -> None:
    if value is MISSING:
        delattr(x, name)
    else:
        setattr(x, name, value)


def _write_variable(o: Observation, x: Any, name: str, value: Any) -> None:
    _native(x, name, value)
    o.note(f".{name} of a Variable may be read or stored, which replays would not repeat; do it outside")


# -- numbers that are added to -----------------------------------------------------------------------------------------


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
            isinstance(kind.__setattr__, types.FunctionType) and not is_ours(kind.__setattr__.__module__)) or any(
            hasattr(type(vars(cls)[name]), "__set__") for cls in kind.__mro__ if name in vars(cls)):
        return None
    o, entries = k.observation, entries_in(x)
    if entries is None or not o.is_outside(x):
        return None
    found = _of_entry(o, entries, name, f"{kind.__name__}.{name}")
    if found is not None:
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
    return Counted(holder, key, value, what) if _is_number(value) and o.additions.may_begin(holder, key) else None


def _is_number(x: Any) -> bool:
    return type(x) in (int, float) or isinstance(x, (np.integer, np.floating)) and not isinstance(x, ComputedNumber)


def applied(k: Observer, op: str, native: Any, counted: Counted, operand: Any) -> Any:
    """Apply an operator in place, which is ``native`` of Python's, to such a number."""
    if k.observation.off:
        return native(counted.value, plain(operand))
    if not (_is_number(operand) or isinstance(operand, ComputedNumber)):
        return k.inplace(op, counted.read(k.observation), operand)
    made = native(counted.value, operand.kusari_value if isinstance(operand, ComputedNumber) else operand)
    counted.made, counted.operation, counted.operand = made, native, operand
    return counted
