"""Methods of lists, dictionaries, sets and deques: reads become guards, changes become effects."""
from __future__ import annotations

import array
import collections
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...computed_numbers import settled
from ...guards.guard import MISSING, shown
from . import containers
from .builtin_functions import content
from .c_code import CALLBACKS, wrapped
from .containers import made

if TYPE_CHECKING:
    from .observer import Observer


CHANGES: dict[type, frozenset[str]] = {
    list: frozenset(("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "__setitem__",
                     "__delitem__", "__iadd__", "__imul__")),
    dict: frozenset(("setdefault", "pop", "popitem", "update", "clear", "__setitem__", "__delitem__", "__ior__",
                     "move_to_end")),
    set: frozenset(("add", "remove", "discard", "pop", "clear", "update", "difference_update", "intersection_update",
                    "symmetric_difference_update", "__ior__", "__iand__", "__isub__", "__ixor__")),
    collections.deque: frozenset(("append", "appendleft", "extend", "extendleft", "insert", "remove", "pop", "popleft",
                                  "clear", "reverse", "rotate", "__setitem__", "__delitem__")),
    bytearray: frozenset(("append", "extend", "insert", "remove", "pop", "clear", "reverse", "__setitem__")),
    array.array: frozenset(("append", "extend", "insert", "remove", "pop", "reverse", "fromlist", "frombytes",
                            "byteswap", "__setitem__")),
}
_BLIND = frozenset(("append", "extend", "add", "appendleft", "extendleft", "clear", "update", "insert"))  # read nothing
_TAKING = frozenset(("extend", "extendleft", "update", "difference_update", "intersection_update",
                     "symmetric_difference_update", "__iadd__", "__ior__"))
_OF_ITERABLES = frozenset(("copy", "__add__", "__mul__", "union", "difference", "intersection",
                           "symmetric_difference", "fromkeys", "__or__", "__and__", "__sub__"))


def holds_numbers(x: Any, name: str) -> bool:
    """Whether a method puts its argument into a container as it is, so that a computed number stays one there."""
    return type(x) in (list, collections.deque) and name in ("append", "appendleft")


def of_container(base: type, k: Observer, f: Any, x: Any, name: str, args: tuple[Any, ...],
                 kwargs: dict[str, Any]) -> Any:
    """Call a method of a built-in container."""
    o = k.observation
    what = containers.name_of(x)
    if holds_numbers(x, name):
        o.holds(args, functools.partial(containers.settle, x))
    else:
        args, kwargs = settled(args, f".{name}()"), settled(kwargs, f".{name}()")
    if type(x) not in containers.MUTABLE and name.startswith("__"):  # a method of a subclass calls it
        o.items(x, what)
        effect = name in CHANGES[base] and o.changing(x, what)
        result = f(*args, **kwargs)
        if effect:
            o.changed(getattr(base, name), x, args, what)
        return made(k, result)
    operation = (_OF_DICTIONARIES if base is dict else _OPERATIONS).get(name)
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
        args = tuple([o.fresh(settled(content(k, y) if base is dict else list(containers.iterate(k, y)), name))
                      for y in args])
    if name == "sort" and kwargs.get("key") is not None:
        o.note("a list from outside is sorted in place") if not o.is_fresh(x) else None
        kwargs = {**kwargs, "key": wrapped(k, kwargs["key"], CALLBACKS)}
    if name not in _BLIND:
        o.items(x, what)
    effect = o.changing(x, what, name == "clear")
    result = f(*args, **kwargs)
    if effect and base is dict and name == "update":
        for key, value in dict(*args, **kwargs).items():
            o.stored(x, key, value, f"item {shown(key)} of {what}")
    elif effect:
        o.changed(functools.partial(_method, name, kwargs), x, args, what)
    return result


def _get(k: Observer, x: Any, key: Any, *default: Any) -> Any:
    found = containers.contains(k, x, key) if type(x) is not collections.defaultdict else key in x
    if type(x) in (dict, collections.OrderedDict) or found:
        k.observation.entry(x, key, dict.get(x, key, MISSING), f"item {shown(key)} of {containers.name_of(x)}")
    return dict.get(x, key, *default)


def _setdefault(k: Observer, x: Any, key: Any, default: Any = None) -> Any:
    if containers.contains(k, x, key):
        return containers.read(k, x, key)
    containers.write(k, x, key, default)
    return x[key]


def _pop(k: Observer, x: Any, key: Any, *default: Any) -> Any:
    if not containers.contains(k, x, key):
        return dict.pop(x, key, *default)
    value = containers.read(k, x, key)
    _delete(k, x, key)
    return value


def _delete(k: Observer, x: Any, key: Any) -> None:
    containers.write(k, x, key, MISSING)


def _method(name: str, kwargs: dict[str, Any], x: Any, *args: Any) -> Any:
    return getattr(x, name)(*args, **kwargs)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "__getitem__": containers.read, "__contains__": containers.contains, "__len__": containers.length,
    "__setitem__": containers.write, "__delitem__": _delete}
_OF_DICTIONARIES = {**_OPERATIONS, "get": _get, "setdefault": _setdefault, "pop": _pop}
