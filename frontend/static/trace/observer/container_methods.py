"""Methods of lists, dictionaries, sets and deques: reads become guards, changes become effects.

So do additions to numbers: ``self.calls += 1`` is an effect, and the number of before may be any, as long as nothing
else reads it in the same call. It is a store of a number that was read, then.
"""
from __future__ import annotations

import array
import collections
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...computed_numbers import ComputedNumber, plain, settled
from ...guards.guard import MISSING
from ..observation import Observation, is_ours
from . import containers, lookup, operations
from .builtin_functions import content
from .c_code import CALLBACKS, wrapped
from .containers import made
from .operators import Operator

if TYPE_CHECKING:
    from .observer import Observer


_COUNTING = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_IN_PLACE = frozenset(("__iadd__", "__imul__", "__ior__", "__iand__", "__isub__", "__ixor__"))
_OF_LISTS = _IN_PLACE | {"append", "extend", "insert", "remove", "pop", "clear", "reverse", "__setitem__",
                         "__delitem__"}
CHANGES: dict[type, frozenset[str]] = {
    list: _OF_LISTS | {"sort"}, bytearray: _OF_LISTS,
    dict: _IN_PLACE | {"setdefault", "pop", "popitem", "update", "clear", "__setitem__", "__delitem__", "move_to_end"},
    set: _IN_PLACE | {"add", "remove", "discard", "pop", "clear", "update", "difference_update", "intersection_update",
                      "symmetric_difference_update"},
    collections.deque: _OF_LISTS | {"appendleft", "extendleft", "popleft", "rotate"},
    array.array: _OF_LISTS | {"fromlist", "frombytes", "byteswap"},
    types.MappingProxyType: frozenset(),
}
_BLIND = _IN_PLACE | {"append", "extend", "add", "appendleft", "extendleft", "clear", "update", "insert"}  # no reads
_OF_SETS = {"__ior__": "update", "__iand__": "intersection_update", "__isub__": "difference_update",
            "__ixor__": "symmetric_difference_update"}
_TAKING = _IN_PLACE | {"extend", "extendleft", "update", "difference_update", "intersection_update",
                       "symmetric_difference_update"}
_OF_ITERABLES = frozenset(("copy", "__add__", "__mul__", "union", "difference", "intersection",
                           "symmetric_difference", "fromkeys", "__or__", "__and__", "__sub__"))


def holds_numbers(x: Any, name: str) -> bool:
    """Whether a method puts its argument into a container as it is, so that a computed number stays one there."""
    return type(x) in (list, collections.deque) and name in ("append", "appendleft")


def of_container(base: type, k: Observer, f: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a method of a built-in container."""
    o, x, name = k.observation, f.__self__, f.__name__
    what = containers.name_of(x)
    if holds_numbers(x, name):
        o.holds(args, functools.partial(containers.settle, x))
    if type(x) not in containers.MUTABLE and name.startswith("__"):  # a method of a subclass calls it
        o.items(x, what)
        effect = name in CHANGES[base] and o.changing(x)
        result = f(*args, **kwargs)
        if effect:
            o.changed(getattr(base, name), x, args, what)
        return made(k, result)
    operation = (_OF_DICTIONARIES if base in (dict, types.MappingProxyType) else _OPERATIONS).get(name)
    if operation is not None:
        return operation(k, x, *args)
    if name not in CHANGES[base]:
        o.items(x, what)
        for y in args if name in ("index", "count") else ():
            containers.look(k, y)
        if name in _OF_ITERABLES:
            args = tuple([containers.iterate(k, y) if hasattr(type(y), "__iter__") else y for y in args])
        return made(k, f(*args, **kwargs))
    if name in _TAKING:
        args = tuple([made(k, settled(_as_now(k, base, y), name)) for y in args])
    if name == "sort" and kwargs.get("key") is not None:
        o.note("a list from outside is sorted in place") if not o.is_fresh(x) else None
        kwargs = {**kwargs, "key": wrapped(k, kwargs["key"], CALLBACKS)}
    if name not in _BLIND:
        o.items(x, what)
    effect = o.changing(x, name == "clear")
    result = f(*args, **kwargs)
    if effect and base is dict and name == "update":
        for key, value in dict(*args, **kwargs).items():
            o.stored(x, key, value, containers.item_of(x, key))
    elif effect:
        o.changed(functools.partial(_method, name, kwargs), x, args, what)
    return result


def inplace(k: Observer, op: Operator, a: Any, b: Any) -> Any:
    """Apply an operator in place to a list, set or dictionary."""
    if type(a) is set and isinstance(b, (set, frozenset)):
        of_container(set, k, getattr(a, _OF_SETS[op.own]), b)
        return a
    method, base = getattr(a, op.own, None), next(base for base in CHANGES if isinstance(a, base))
    found = NotImplemented if method is None else of_container(base, k, method, settled(b, op.sign))
    if found is not NotImplemented:
        return found
    k.observation.note(f"the operator {op.sign}= is applied to {containers.name_of(a)}, which is not observed")
    return op.function(a, b)


def _as_now(k: Observer, base: type, x: Any) -> Any:
    """Return the items that a container takes in, as they are now, or the number that multiplies it."""
    if isinstance(x, (int, bytes)):
        return x
    if base is set and isinstance(x, (set, frozenset)):
        if type(x) is set:
            k.observation.items(x, containers.name_of(x))
        return list(x)
    if isinstance(x, frozenset):
        return x
    if base is dict:
        return content(k, x)
    if isinstance(x, (dict, set)) or type(x) in containers.MUTABLE:
        k.observation.items(x, containers.name_of(x))
        return x[:] if isinstance(x, array.array) else x.copy()
    return list(containers.iterate(k, x))


def _get(k: Observer, x: Any, key: Any, *default: Any) -> Any:
    containers.contains(k, x, key)
    return (dict if isinstance(x, dict) else type(x)).get(x, key, *default)


def _setdefault(k: Observer, x: Any, key: Any, default: Any = None) -> Any:
    if not containers.contains(k, x, key):
        containers.write(k, x, key, default)
    return containers.read(k, x, key)


def _pop(k: Observer, x: Any, key: Any, *default: Any) -> Any:
    if not containers.contains(k, x, key):
        return dict.pop(x, key, *default)
    value = containers.read(k, x, key)
    containers.write(k, x, key, MISSING)
    return value


def _method(name: str, kwargs: dict[str, Any], x: Any, *args: Any) -> Any:
    return getattr(x, name)(*args, **kwargs)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "__getitem__": containers.read, "__contains__": containers.contains, "__len__": containers.length,
    "__setitem__": containers.write, "__delitem__": functools.partial(containers.write, value=MISSING)}
_OF_DICTIONARIES = {**_OPERATIONS, "get": _get, "setdefault": _setdefault, "pop": _pop}


# -- numbers that are added to -----------------------------------------------------------------------------------------


def same_key(a: Any, b: Any) -> bool:
    """Whether two keys of an array are equal: numbers, or the same objects."""
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(same_key, a, b))
    return a is b or type(a) is int and type(b) is int and a == b


class Counted:
    """A number in an entry of a dictionary, or an element of an array, while an augmented assignment is under way:
    nothing else sees this.
    """

    __slots__ = ("holder", "key", "value", "what", "made", "op", "operation", "operand")

    def __init__(self, holder: dict[Any, Any] | np.ndarray, key: Any, value: Any, what: str) -> None:
        self.holder = holder
        self.key = key
        self.value = value
        self.what = what
        self.made: Any = None
        self.op: Any = None
        self.operation: Any = None
        self.operand: Any = None

    def read(self, k: Observer) -> Any:
        """Return the number as one that was read."""
        o = k.observation
        if isinstance(self.holder, np.ndarray):
            return operations.item(k, self.holder, self.key)
        if o.is_stored(self.holder, self.key):
            o.note(f"{self.what} is stored while it is added to")
        return o.entry(self.holder, self.key, self.value, self.what)

    def is_of(self, holder: Any, key: Any) -> bool:
        """Whether an assignment stores the result where the number was read, as far as is known."""
        return holder is self.holder and (key is self.key or type(key) in (int, str) and key == self.key or isinstance(
            self.holder, np.ndarray) and same_key(key, self.key))

    def settled(self, k: Observer) -> Any:
        """Return the result for another place."""
        return k.operator(self.op, self.read(k), self.operand)

    def applied(self, k: Observer, op: Operator, operand: Any) -> Any:
        """Apply an operator to the number; returns this, as long as nothing but the assignment needs the result."""
        if k.observation.off:
            value = self.holder[plain(self.key)] if isinstance(self.holder, np.ndarray) else self.value
            return op.function(value, plain(operand))
        is_element = isinstance(self.holder, np.ndarray)
        if not (_is_number(operand) or isinstance(operand, ComputedNumber) or (
                is_element and type(operand) is np.ndarray)):
            return k.operator(op, self.read(k), operand)
        if not is_element:
            self.made = op.function(
                self.value, operand.kusari_value if isinstance(operand, ComputedNumber) else operand)
        self.op, self.operation, self.operand = op, op.function, operand
        return self


def of_attribute(k: Observer, x: Any, name: str) -> Counted | None:
    """Return the number in an ordinary attribute that is about to be added to; None of anything else."""
    kind = type(x)
    if kind.__getattribute__ is not object.__getattribute__ or (
            isinstance(kind.__setattr__, types.FunctionType) and not is_ours(kind.__setattr__.__module__)) or any(
            hasattr(type(vars(cls)[name]), "__set__") for cls in kind.__mro__ if name in vars(cls)):
        return None
    o, entries = k.observation, lookup.entries_in(x)
    if entries is None or not o.is_outside(x):
        return None
    found = _of_entry(o, entries, name, f"{kind.__name__}.{name}")
    if found is not None:
        o.kind(x)
    return found


def of_item(k: Observer, x: Any, key: Any) -> Counted | None:
    """Return the number that is an item of a dictionary or an array and about to be added to; None of anything else."""
    o = k.observation
    if type(x) is np.ndarray:
        return Counted(x, key, None, "an element of an array") if operations.counts(k, x, key) else None
    if type(x) not in _COUNTING or type(key) not in (str, int) or not o.is_outside(x):
        return None
    return _of_entry(o, x, key, f"item {key!r} of a {type(x).__name__}")


def _of_entry(o: Observation, holder: dict[Any, Any], key: Any, what: str) -> Counted | None:
    value = holder.get(key)
    if not _is_number(value) or isinstance(value, np.integer):  # which may overflow, with a warning in its place
        return None
    return Counted(holder, key, value, what) if o.additions.may_begin(holder, key) else None


def _is_number(x: Any) -> bool:
    return type(x) in (int, float) or isinstance(x, (np.integer, np.floating)) and not isinstance(x, ComputedNumber)
