"""Methods of lists, dictionaries, sets and deques: reads become guards, changes become effects."""
from __future__ import annotations

import array
import collections
import functools
from typing import TYPE_CHECKING, Any

from ...guards.guard import MISSING
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


def of_container(base: type, k: Observer, f: Any, x: Any, name: str, args: tuple[Any, ...],
                 kwargs: dict[str, Any]) -> Any:
    """Call a method of a built-in container."""
    o = k.observation
    what = containers.name_of(x)
    if type(x) not in containers.MUTABLE and name.startswith("__"):  # a method of a subclass calls it
        o.items(x, what)
        effect = name in CHANGES[base] and o.changing(x, what)
        result = f(*args, **kwargs)
        if effect:
            o.changed(getattr(base, name), x, args, what)
        return made(k, result)
    if base is dict and name in ("get", "__getitem__", "__contains__", "has_key"):
        if name == "get":
            key, *default = args
            found = containers.contains(k, x, key) if type(x) is not collections.defaultdict else key in x
            if type(x) in (dict, collections.OrderedDict) or found:
                o.entry(x, key, dict.get(x, key, MISSING), f"item {key!r} of {what}")
            return dict.get(x, key, *default)
        return containers.read(k, x, *args) if name == "__getitem__" else containers.contains(k, x, *args)
    if name == "__getitem__":
        return containers.read(k, x, *args)
    if name == "__contains__":
        return containers.contains(k, x, *args)
    if name == "__len__":
        return containers.length(k, x)
    if name in ("__setitem__", "__delitem__"):
        return containers.write(k, x, args[0], args[1] if len(args) > 1 else MISSING)
    if name not in CHANGES[base]:
        o.items(x, what)
        if name in ("index", "count", "remove"):
            for y in args:
                containers.look(k, y)
        if name in ("copy", "__add__", "__mul__", "union", "difference", "intersection", "symmetric_difference",
                    "fromkeys", "__or__", "__and__", "__sub__"):
            args = tuple([containers.iterate(k, y) if hasattr(type(y), "__iter__") else y for y in args])
        result = f(*args, **kwargs)
        return made(k, result)
    if base is dict and name in ("setdefault", "pop"):
        key, *default = args
        there = containers.contains(k, x, key)
        if name == "setdefault":
            if there:
                return containers.read(k, x, key)
            containers.write(k, x, key, default[0] if default else None)
            return x[key]
        if there:
            value = containers.read(k, x, key)
            containers.write(k, x, key, MISSING)
            return value
        return dict.pop(x, *args)
    if name in ("extend", "extendleft", "update", "difference_update", "intersection_update",
                "symmetric_difference_update", "__iadd__", "__ior__"):
        args = tuple([content(k, y) if base is dict else list(containers.iterate(k, y)) for y in args])
        for y in args:
            o.fresh(y) if type(y) is list else None
    if name == "sort" and kwargs.get("key") is not None:
        o.note("a list from outside is sorted in place") if not o.is_fresh(x) else None
        kwargs = {**kwargs, "key": wrapped(k, kwargs["key"], CALLBACKS)}
    if name not in _BLIND:
        o.items(x, what)
    effect = o.changing(x, what)
    result = f(*args, **kwargs)
    if effect and base is dict and name == "update":
        new = dict(*args, **kwargs)
        for key, value in new.items():
            o.stored(x, key, value, f"item {key!r} of {what}")
    elif effect:
        o.changed(functools.partial(_method, name, kwargs), x, args, what)
    return result


def _method(name: str, kwargs: dict[str, Any], x: Any, *args: Any) -> Any:
    return getattr(x, name)(*args, **kwargs)
