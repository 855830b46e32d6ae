"""The tables of functions implemented in C: what each reads and changes of its arguments and of what it is bound to.

A function without an entry that gets, or is bound to, something mutable makes the call fall back.
"""
from __future__ import annotations

import array
import builtins
import collections
import contextvars
import functools
import itertools
import json.encoder
import operator
import random
import re
import string
import sys
import types
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...callsite import user_frame
from ...configuration import LocalConfig
from ...variable import Variable
from ..arrays import operations
from ..guards.guard import MISSING
from . import calls, containers, lookup
from .observation import FRAMES_PER_CALL, is_ours

if TYPE_CHECKING:
    from .frame import Frame

Handler = Callable[["Frame", tuple[Any, ...], dict[str, Any]], Any]
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, np.generic, np.dtype)
GENERATORS = (np.random.RandomState, np.random.Generator, random.Random, np.random.BitGenerator)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, operator.attrgetter, operator.itemgetter,
              operator.methodcaller)
_CALLBACKS = (*_FUNCTIONS, type, *calls.C_FUNCTIONS)
_PURE_MODULES = frozenset(("math", "cmath", "itertools", "_operator", "_struct", "binascii", "unicodedata", "_bisect",
                           "_statistics", "_string", "_json", "_sre", "_abc", "_stat", "posix_path", "_decimal"))
_CLOCKS = frozenset(("time", "_datetime"))


# -- helpers -------------------------------------------------------------------------------------------------------


def wrapped(k: Frame, x: Any, kinds: tuple[type, ...] | None = None) -> Any:
    """Return a function that code in C may call in place of another one: the call is observed."""
    if not isinstance(x, kinds or _FUNCTIONS):
        return x
    return lambda *args, **kwargs: k.call(x, *args, **kwargs)


def native(k: Frame, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call what only looks at its arguments, in whole."""
    for x in (*args, *kwargs.values()):
        containers.look(k, x)
    with k.observation.tape.net:
        return made(k, f(*[wrapped(k, x) for x in args], **{n: wrapped(k, x) for n, x in kwargs.items()}))


def made(k: Frame, result: Any) -> Any:
    """Take note of a container or an iterator that code in C has made."""
    if type(result) in containers.MUTABLE or isinstance(result, containers._VIEWS) or hasattr(type(result), "__next__"):
        k.observation.fresh(result)
    return result


def unknown(k: Frame, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call what is in no table: the call falls back."""
    bound = getattr(f, "__self__", None)
    name = getattr(f, "__qualname__", None) or type(f).__qualname__
    module = getattr(f, "__module__", None) or (
        bound.__name__ if issubclass(type(bound), types.ModuleType) else type(bound).__module__)
    k.observation.note(
        f"{module}.{name} is implemented in C, and may read or change what no guard sees, which replays would not "
        "repeat; call it outside, or in a function decorated with static_code")
    return f(*args, **kwargs)


# -- classes -------------------------------------------------------------------------------------------------------


def construct(k: Frame, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return ``cls(*args, **kwargs)``, observed."""
    o = k.observation
    handler = _TYPES.get(cls)
    if handler is not None:
        return handler(k, args, kwargs)
    if issubclass(cls, np.ndarray) or issubclass(cls, np.generic):
        return operations.function(k, cls, args, kwargs)
    meta = type(cls)
    of_meta = lookup.find(k, meta, "__call__") if meta is not type else type.__call__
    if isinstance(of_meta, types.FunctionType):
        return k.call(of_meta, cls, *args, **kwargs)
    if issubclass(cls, GENERATORS) or cls is np.random.SeedSequence:
        return _generator(k, cls, args, kwargs)
    new = lookup.find(k, cls, "__new__")
    new = new.__func__ if isinstance(new, staticmethod) else new
    init = lookup.find(k, cls, "__init__")
    if isinstance(new, types.FunctionType):
        x = k.call(new, cls, *args, **kwargs)
    elif isinstance(init, types.FunctionType):
        x = cls.__new__(cls) if new is object.__new__ else cls.__new__(cls, *args, **kwargs)
    else:
        for y in (*args, *kwargs.values()):
            containers.look(k, y)
        if cls.__module__ in ("memory", "ctypes", "_ctypes", "mmap") or cls is memoryview:
            return unknown(k, cls, args, kwargs)
        with o.tape.net:
            x = cls(*[containers.iterate(k, y) if hasattr(type(y), "__next__") else y for y in args], **kwargs)
        return o.fresh(x)
    o.fresh(x)
    if isinstance(x, cls):
        init = lookup.find(k, type(x), "__init__")
        if isinstance(init, types.FunctionType):
            k.call(init, x, *args, **kwargs)
        elif init is not object.__init__ and not isinstance(new, types.FunctionType):
            x.__init__(*args, **kwargs)  # type: ignore[misc]
        elif init is not object.__init__ and not isinstance(x, (tuple, str, int, float)):
            x.__init__(*args, **kwargs)  # type: ignore[misc]
    return x


def generated(k: Frame, f: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method that ``dataclass`` or ``namedtuple`` has generated; NotImplemented of any other function."""
    if not f.__code__.co_filename.startswith("<") or not args:
        return NotImplemented
    o, x, name = k.observation, args[0], f.__name__
    if issubclass(type(x), type) and issubclass(x, tuple) and hasattr(x, "_fields"):
        return f(*args, **kwargs)
    fields = getattr(type(x), "__dataclass_fields__", None)
    if fields is None or name not in ("__init__", "__eq__", "__repr__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__",
                                      "__setattr__", "__delattr__"):
        return NotImplemented
    if name == "__init__":
        result = f(*args, **kwargs)
        return result
    for y in args:
        if type(y) is type(x):
            for field in fields:
                value = lookup.read(k, y, field)
                containers.look(k, value)
    return f(*args, **kwargs)


def _generator(k: Frame, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if cls is random.SystemRandom or all(x is None for x in (*args, *kwargs.values())):
        k.observation.note(f"random numbers may be drawn from a generator that the call makes ({cls.__name__}), and "
                           "replays would not draw again; use functions, a function decorated with static_code, or pass "
                           "the numbers as an argument")
    for x in args:
        containers.look(k, x)
    return k.observation.fresh(cls(*args, **kwargs))


# -- functions of ``builtins`` -------------------------------------------------------------------------------------


def _isinstance(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, classes = args
    if type(x) is not type and containers_of_classes(classes):
        if lookup._is_users(type(x)):
            k.observation.kind(x)
        return isinstance(x, classes)
    if k.observation.is_outside(x) and not issubclass(type(x), (np.ndarray, Variable)):
        return k.observation.called_again(isinstance, args, isinstance(x, classes), "the class of an object")
    return k.observation.called_again(issubclass, (type(x), classes), isinstance(x, classes), "the class of an object")


def containers_of_classes(classes: Any) -> bool:
    """Whether classes have no say in who is their instance."""
    if isinstance(classes, tuple):
        return all(map(containers_of_classes, classes))
    return type(classes) is type or isinstance(classes, types.UnionType) and all(
        map(containers_of_classes, classes.__args__)) or is_ours(getattr(classes, "__module__", None))


def _getattr(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, name, *default = args
    try:
        return lookup.read(k, x, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        lookup.read(k, *args)
    except AttributeError:
        return False
    return True


def _next(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    it, *default = args
    step = lookup.find(k, type(it), "__next__")
    try:
        if isinstance(step, types.FunctionType):
            return k.call(step, it)
        if not k.observation.is_fresh(it):
            k.observation.note(f"a {type(it).__name__} is an iterator, and replays would not go on with it")
        return next(it)
    except StopIteration:
        if default:
            return default[0]
        raise


def _iter(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 2:
        return unknown(k, iter, args, kwargs)
    found = iter(containers.iterate(k, args[0]))
    return k.observation.fresh(found) if found is not args[0] else found


def _type(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 1:
        return unknown(k, type, args, kwargs)
    if lookup._is_users(type(args[0])):
        k.observation.kind(args[0])
    return type(args[0])


def _id(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    if not isinstance(x, (types.FunctionType, type, types.ModuleType)) and not k.is_copy and (
            not k.observation.is_outside(x) or issubclass(type(x), (np.ndarray, Variable))):
        k.observation.note("id() of an object that is another one in every call is asked for")
    return id(x)


def _print(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    o = k.observation
    plain = [x if isinstance(x, (str, np.ndarray, Variable)) else calls.text(k, str, x) for x in args]
    file = kwargs.get("file")
    if file is not None and not (file is sys.stdout or file is sys.stderr or o.is_outside(file)):
        return unknown(k, print, args, kwargs)
    with o.tape.unobserved():
        print(*args, **kwargs)
    if not o.off:
        o.effect(functools.partial(_printed, dict(kwargs)), tuple(plain), "print()")
    return None


def _printed(kwargs: dict[str, Any], *args: Any) -> None:
    print(*args, **kwargs)


def _warn(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Warn at the user's line, and again in each replay."""
    def warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **rest: Any) -> Any:
        frame = user_frame()
        for _ in range(stacklevel - 1):
            frame = None if frame is None else frame.f_back
            while frame is not None and is_ours(frame.f_globals.get("__name__")):
                frame = frame.f_back
        where = (sys.argv[0] or "sys", 1, None, None) if frame is None else (
            frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__"),
            frame.f_globals.setdefault("__warningregistry__", {}))
        kind = type(message) if isinstance(message, Warning) else category or UserWarning
        again = functools.partial(warnings.warn_explicit, message, kind, *where)
        k.observation.effect(again, (), "a warning")
        again()
    return warn(*args, **kwargs)


def _vars(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args:
        return _forbidden("vars")(k, args, kwargs)
    entries = vars(args[0])
    if k.observation.is_fresh(args[0]):
        k.observation.fresh(entries)
    return entries


def _dir(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not args:
        return _forbidden("dir")(k, args, kwargs)
    x = args[0]
    found = dir(x)
    k.observation.called_again(_names_in, (x,), tuple(found), f"the names in a {type(x).__name__}")
    return k.observation.fresh(found)


def _names_in(x: Any) -> tuple[str, ...]:
    return tuple(dir(x))


def _sorted(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    items = list(containers.iterate(k, args[0]))
    for x in items:
        containers.look(k, x)
    key = kwargs.get("key")
    with k.observation.tape.net:
        return k.observation.fresh(sorted(items, **{**kwargs, **({"key": wrapped(k, key, _CALLBACKS)} if key is not None else {})}))


def _extreme(f: Any) -> Handler:
    def handler(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        items = list(containers.iterate(k, args[0])) if len(args) == 1 else list(args)
        for x in items:
            containers.look(k, x)
        key = kwargs.get("key")
        kwargs = {**kwargs, **({"key": wrapped(k, key, _CALLBACKS)} if key is not None else {})}
        with k.observation.tape.net:
            return f(items, **kwargs) if len(args) == 1 else f(*items, **kwargs)
    return handler


def _sum(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    total = kwargs["start"] if "start" in kwargs else args[1] if len(args) > 1 else 0
    for x in containers.iterate(k, args[0]):
        total = k.binary("+", total, x)
    return total


def _any(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return any(k.truth(x) for x in containers.iterate(k, args[0]))


def _all(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return all(k.truth(x) for x in containers.iterate(k, args[0]))


def _reduce(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    f, items, *start = args
    return functools.reduce(lambda a, b: k.call(f, a, b), containers.iterate(k, items), *start)


def _number(f: Any) -> Handler:
    """``int``, ``float``, ``complex`` or ``bool`` of anything."""
    def handler(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x = args[0] if args else None
        if issubclass(type(x), Variable):
            k.observation.tape.escape(x, f"{f.__name__}()")
        elif issubclass(type(x), np.ndarray):
            operations.read_elements(k, x, f"__{f.__name__}__()")
        elif args:
            for name in (f"__{f.__name__}__", "__index__"):
                found = lookup.find(k, type(x), name)
                if isinstance(found, types.FunctionType):
                    return k.call(found, x)
            containers.look(k, x)
        return f(*args, **kwargs)
    return handler


def _text(f: Any) -> Handler:
    def handler(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and not kwargs or f is format:
            return calls.text(k, f, *args)
        return native(k, f, args, kwargs)
    return handler


def _hash(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = lookup.find(k, type(args[0]), "__hash__")
    if isinstance(found, types.FunctionType):
        return k.call(found, args[0])
    return hash(args[0]) if isinstance(args[0], _SCALARS) else _id(k, args, kwargs) and hash(args[0])


def _collection(f: Any) -> Handler:
    """``list``, ``tuple``, ``set`` … of an iterable."""
    def handler(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return k.observation.fresh(f(*[containers.iterate(k, x) for x in args[:1]], *args[1:], **kwargs))
    return handler


def _tuple(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return tuple(*[containers.iterate(k, x) for x in args])


def _dict(f: Any) -> Handler:
    def handler(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rest = args
        if args and f is not collections.defaultdict:
            rest = (_content(k, args[0]), *args[1:])
        elif len(args) > 1:
            rest = (args[0], _content(k, args[1]), *args[2:])
        return k.observation.fresh(f(*rest, **kwargs))
    return handler


def _content(k: Frame, x: Any) -> Any:
    if isinstance(x, (dict, types.MappingProxyType)):
        k.observation.items(x, containers.name_of(x))
        return dict(x)  # as it is now
    return [tuple(containers.iterate(k, pair)) for pair in containers.iterate(k, x)]


def _iterator(f: Any) -> Handler:
    """``zip``, ``map``, ``enumerate``, ``itertools.chain`` …: an iterator over others."""
    def handler(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inner = [containers.iterate(k, x) if hasattr(type(x), "__iter__") and not isinstance(x, (str, bytes)) or isinstance(
            x, Variable) else wrapped(k, x, _CALLBACKS) for x in args]
        return k.observation.fresh(f(*inner, **kwargs))
    return handler


def _operator_of(op: str, how: str) -> Handler:
    def handler(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(k, how)(op, *args)
    return handler


def _forbidden(name: str) -> Handler:
    """A function of ``builtins`` that depends on the frame of its caller, or reads anything at all."""
    def handler(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        k.observation.note(f"by {name} it may read what it does not name, and no guard would see a change")
        frame = _frame_of_the_copy()
        if frame is None or args[1:] or name not in ("eval", "exec", "globals", "locals", "vars", "dir"):
            return getattr(builtins, name)(*args, **kwargs)
        names = {n: x for n, x in frame.f_locals.items() if not n.startswith("__kusari_")}
        if name in ("eval", "exec"):
            return getattr(builtins, name)(args[0], frame.f_globals, names)
        return frame.f_globals if name == "globals" else sorted(names) if name == "dir" else names
    return handler


def _frame_of_the_copy() -> types.FrameType | None:
    """Return the innermost frame of an instrumented copy."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and "__kusari__" not in frame.f_code.co_freevars:
        frame = frame.f_back
    return frame


def _round(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = lookup.find(k, type(args[0]), "__round__")
    return k.call(found, *args, **kwargs) if isinstance(found, types.FunctionType) else native(k, round, args, kwargs)


def _reversed(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = args[0]
    found = lookup.find(k, type(x), "__reversed__")
    if isinstance(found, types.FunctionType):
        return k.call(found, x)
    if isinstance(lookup.find(k, type(x), "__getitem__"), types.FunctionType):
        return k.observation.fresh(iter([k.item(x, i) for i in range(containers.length(k, x) - 1, -1, -1)]))
    containers.iterate(k, x)
    return k.observation.fresh(reversed(x))


def _arithmetic(f: Any, ufunc: Any) -> Handler:
    def handler(k: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(issubclass(type(x), Variable) for x in args):
            return k._of_variables(f, *args)
        if any(issubclass(type(x), np.ndarray) for x in args):
            return operations.function(k, ufunc, args, kwargs)
        found = lookup.find(k, type(args[0]), f"__{f.__name__}__")
        return k.call(found, *args) if isinstance(found, types.FunctionType) else f(*args, **kwargs)
    return handler


_BUILTINS: dict[Any, Handler] = {
    len: lambda k, a, _: containers.length(k, *a), isinstance: _isinstance, getattr: _getattr, hasattr: _hasattr,
    setattr: lambda k, a, _: lookup.write(k, *a), delattr: lambda k, a, _: lookup.write(k, *a, MISSING), next: _next,
    iter: _iter, id: _id, print: _print, vars: _vars, dir: _dir, sorted: _sorted, min: _extreme(min), max: _extreme(max),
    sum: _sum, any: _any, all: _all, repr: _text(repr), ascii: _text(ascii), format: _text(format), hash: _hash,
    functools.reduce: _reduce, abs: _arithmetic(abs, np.absolute), divmod: _arithmetic(divmod, np.divmod),
    pow: _arithmetic(pow, np.power), warnings.warn: _warn,
    issubclass: lambda k, a, _: k.observation.called_again(issubclass, a, issubclass(*a), "the classes of a class"),
    callable: lambda k, a, _: callable(*a), round: _round, sys.exc_info: lambda k, a, _: sys.exc_info(),
    **{f: _forbidden(f.__name__) for f in (eval, exec, globals, locals, compile, __import__, open, input, breakpoint)},
    operator.getitem: lambda k, a, _: k.item(*a), operator.setitem: lambda k, a, _: k.set_item(*a),
    operator.contains: lambda k, a, _: k.compare("in", a[1], a[0]), operator.truth: lambda k, a, _: k.truth(*a),
    operator.not_: lambda k, a, _: not k.truth(*a), operator.delitem: lambda k, a, _: k.del_item(*a),
    object.__setattr__: lambda k, a, _: lookup.write_own(k, object.__setattr__, *a),
    object.__delattr__: lambda k, a, _: lookup.write_own(k, object.__delattr__, *a, MISSING),
    object.__getattribute__: lambda k, a, _: lookup.read_own(k, *a),
    object.__init__: lambda k, a, _: None,
    object.__new__: lambda k, a, _: k.observation.fresh(object.__new__(a[0])),
}
_TYPES: dict[Any, Handler] = {
    int: _number(int), float: _number(float), complex: _number(complex), bool: lambda k, a, _: k.truth(*a) if a else False,
    str: _text(str), list: _collection(list), set: _collection(set), tuple: _tuple, type: _type,
    frozenset: lambda k, a, _: frozenset(*[containers.iterate(k, x) for x in a]),
    collections.deque: _collection(collections.deque), dict: _dict(dict), collections.OrderedDict: _dict(
        collections.OrderedDict), collections.defaultdict: _dict(collections.defaultdict),
    zip: _iterator(zip), map: _iterator(map), enumerate: _iterator(enumerate), reversed: _reversed,
    filter: _iterator(filter), range: lambda k, a, kw: native(k, range, a, kw), slice: lambda k, a, _: slice(*a),
    object: lambda k, a, _: k.observation.fresh(object()), super: lambda k, a, _: super(*a),
    functools.partial: lambda k, a, kw: k.observation.fresh(functools.partial(*a, **kw)),
    property: lambda k, a, kw: k.observation.fresh(property(*a, **kw)),
    **{x: _iterator(x) for x in vars(itertools).values() if issubclass(type(x), type)},
}


def fill_operators() -> None:
    """Enter the functions of ``operator``, which are the operators of a frame."""
    from .frame import BINARY, COMPARE, INPLACE, UNARY
    for table, how in ((BINARY, "binary"), (INPLACE, "inplace"), (UNARY, "unary"), (COMPARE, "compare")):
        for op, f in table.items():
            _BUILTINS[f] = _operator_of(op, how)


# -- methods -------------------------------------------------------------------------------------------------------

_CHANGES: dict[type, frozenset[str]] = {
    list: frozenset(("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "__setitem__",
                     "__delitem__", "__iadd__", "__imul__")),
    dict: frozenset(("setdefault", "pop", "popitem", "update", "clear", "__setitem__", "__delitem__", "__ior__",
                     "move_to_end")),
    set: frozenset(("add", "remove", "discard", "pop", "clear", "update", "difference_update", "intersection_update",
                    "symmetric_difference_update", "__ior__", "__iand__", "__isub__", "__ixor__")),
    collections.deque: frozenset(("append", "appendleft", "extend", "extendleft", "insert", "remove", "pop", "popleft",
                                  "clear", "reverse", "rotate", "__setitem__", "__delitem__")),
    bytearray: frozenset(("append", "extend", "insert", "remove", "pop", "clear", "reverse", "__setitem__")),
    array.array: frozenset(("append", "extend", "insert", "remove", "pop", "reverse", "fromlist", "frombytes", "byteswap",
                            "__setitem__")),
}
_BLIND = frozenset(("append", "extend", "add", "appendleft", "extendleft", "clear", "update", "insert"))  # read nothing


def _of_container(k: Frame, f: Any, x: Any, base: type, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a built-in container."""
    o = k.observation
    what = containers.name_of(x)
    if type(x) not in containers.MUTABLE and name.startswith("__"):  # of a subclass that calls it in a method of its own
        o.items(x, what)
        effect = name in _CHANGES[base] and o.changing(x, what)
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
    if name not in _CHANGES[base]:
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
        args = tuple([_content(k, y) if base is dict else list(containers.iterate(k, y)) for y in args])
        for y in args:
            o.fresh(y) if type(y) is list else None
    if name == "sort" and kwargs.get("key") is not None:
        o.note("a list from outside is sorted in place") if not o.is_fresh(x) else None
        kwargs = {**kwargs, "key": wrapped(k, kwargs["key"], _CALLBACKS)}
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


class _Formatter(string.Formatter):
    """``str.format`` whose attributes and items are observed."""

    def __init__(self, k: Frame) -> None:
        self._frame = k

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        """Return the value of a replacement field."""
        import _string
        first, rest = _string.formatter_field_name_split(field_name)
        x = self.get_value(first, args, kwargs)
        for is_attribute, name in rest:
            x = self._frame.attr(x, name) if is_attribute else self._frame.item(x, name)
        return x, first

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format a value."""
        return self._frame.format(value, "", format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """Convert a value."""
        return value if conversion is None else calls.text(
            self._frame, {"r": repr, "s": str, "a": ascii}[conversion], value)


def call(k: Frame, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function or method that is implemented in C."""
    handler = _BUILTINS.get(f) if type(f) is not types.MethodWrapperType else None
    if handler is not None:
        return handler(k, args, kwargs)
    if type(f) in (types.MethodDescriptorType, types.WrapperDescriptorType) and args:
        x, rest = args[0], args[1:]
        if not isinstance(x, f.__objclass__):
            return unknown(k, f, args, kwargs)
        return _netted(k, f.__get__(x, type(x)), x, f.__name__, rest, kwargs)
    x = getattr(f, "__self__", None)
    if x is None or issubclass(type(x), types.ModuleType):
        return _function(k, f, args, kwargs)
    return _netted(k, f, x, f.__name__, args, kwargs)


_PLAIN = (str, bytes, int, float, bool, type(None), np.ndarray, list, dict, tuple, set)
_SHALLOW = frozenset(("append", "extend", "get", "items", "keys", "values", "copy", "pop", "insert", "clear"))


def _netted(k: Frame, f: Any, x: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method above the net, unless it is one that calls nothing of the user's."""
    if type(x) in _PLAIN and (name in _SHALLOW or isinstance(x, (str, np.ndarray))) and all(
            type(y) in _PLAIN or issubclass(type(y), Variable) for y in args):
        return _bound(k, f, x, name, args, kwargs)
    with k.observation.tape.net:
        return _bound(k, f, x, name, args, kwargs)


def _function(k: Frame, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module = getattr(f, "__module__", None) or getattr(f.__self__, "__name__", "")
    if module in ("builtins", *_PURE_MODULES):
        return native(k, f, args, kwargs)
    if module == "_heapq":
        o, heap = k.observation, args[0]
        o.items(heap, "a list")
        for x in args:
            containers.look(k, x)
        effect = o.changing(heap, "a list")
        result = f(*args, **kwargs)
        if effect:
            o.changed(f, heap, args[1:], "a list")
        return result
    if module.partition(".")[0] in ("numpy", "cupy"):
        return operations.function(k, f, args, kwargs)
    if f is sys.getrecursionlimit:
        return k.observation.called_again(f, (), f() // FRAMES_PER_CALL, "the limit of recursion")
    if module in ("_thread", "sys", "posix", "_contextvars", "_asyncio", "os") and f.__name__ in (
            "get_ident", "getrecursionlimit", "intern", "getpid", "getcwd", "copy_context", "get_native_id"):
        return k.observation.called_again(f, args, f(*args, **kwargs), f"{f.__name__}()")
    if module == "_random" or f.__name__ == "urandom":
        k.observation.note("random numbers may be drawn from the system or from a generator without a seed, and replays "
                           "would not draw again; use functions, a function decorated with static_code, or pass the "
                           "numbers as an argument")
        return f(*args, **kwargs)
    return unknown(k, f, args, kwargs)


def _bound(k: Frame, f: Any, x: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of an object that is implemented in C."""
    o = k.observation
    if issubclass(type(x), np.ndarray):
        return operations.method(k, x, name, args, kwargs)
    if isinstance(x, np.ufunc):
        return operations.ufunc_method(k, x, name, args, kwargs)
    if isinstance(x, str) and name in ("format", "format_map"):
        return _Formatter(k).vformat(x, args, kwargs) if name == "format" else _Formatter(k).vformat(x, (), *args)
    if isinstance(x, GENERATORS):
        return of_generator(k, f, x, name, args, kwargs)
    if isinstance(x, (*_SCALARS, re.Pattern, re.Match)) or isinstance(x, (tuple, frozenset)):
        if name == "join":
            args = ([calls_text if isinstance(calls_text, str) else calls_text for calls_text in containers.iterate(k, args[0])],)
        for y in (*args, *kwargs.values()):
            containers.look(k, y)
        return made(k, f(*[wrapped(k, y) for y in args], **kwargs))
    if issubclass(type(x), type):
        if name in ("__new__",):
            return o.fresh(f(*args, **kwargs))
        if name in ("fromkeys", "from_iterable", "fromhex", "maketrans", "from_bytes", "mro", "__subclasses__",
                    "__prepare__", "__getitem__", "__class_getitem__"):
            if name == "__subclasses__":
                return o.fresh(list(o.called_again(_subclasses, (x,), tuple(f()), f"the subclasses of {x.__name__}")))
            return made(k, f(*[containers.iterate(k, y) if hasattr(type(y), "__iter__") and not isinstance(
                y, (str, bytes)) else y for y in args], **kwargs))
        if name in ("__instancecheck__", "__subclasscheck__"):
            return o.called_again(f, args, f(*args), f"the instances of {x.__name__}")
        return unknown(k, f, args, kwargs)
    for base in _CHANGES:
        if isinstance(x, base):
            return _of_container(k, f, x, base, name, args, kwargs)
    if isinstance(x, containers._VIEWS):
        for y in args:
            containers.look(k, y)
        return f(*args, **kwargs)
    if isinstance(x, types.MappingProxyType):
        if name == "get":
            o.entry(x, args[0], x.get(args[0], MISSING), f"item {args[0]!r} of a mappingproxy")
            return f(*args)
        o.items(x, "a mappingproxy")
        return made(k, f(*args))
    if isinstance(x, contextvars.ContextVar) and name == "get":
        return o.called_again(f, args, f(*args), f"the context variable {x.name}")
    if type(x).__module__ == "_thread":  # a lock: who takes it gives it back
        return f(*args, **kwargs)
    if name in ("write", "flush", "writelines") and hasattr(x, "readable"):
        for y in args:
            containers.look(k, y)
        result = f(*args, **kwargs)
        if not o.is_fresh(x):
            o.effect(f, args, f"{type(x).__name__}.{name}()")
        return result
    if name == "__init__" and o.is_fresh(x):
        return f(*args, **kwargs)
    if name == "__get__" and isinstance(x, (types.FunctionType, property, staticmethod, classmethod)):
        return f(*args, **kwargs)
    if name == "__reduce_ex__" or name == "__reduce__":
        containers.look(k, x)
        return f(*args)
    if name == "__setattr__":
        return lookup.write_own(k, f.__objclass__.__setattr__, x, *args)
    if name == "__delattr__":
        return lookup.write_own(k, f.__objclass__.__delattr__, x, *args, MISSING)
    if name == "__getattribute__":
        if issubclass(type(x), LocalConfig):
            return lookup.read(k, x, *args)
        return lookup.read_own(k, x, *args)
    if name in ("__repr__", "__str__", "__format__"):
        return calls.text(k, {"__repr__": repr, "__str__": str, "__format__": format}[name], x, *args)
    if name in ("__eq__", "__ne__", "__hash__", "__sizeof__", "__dir__", "__init_subclass__"):
        return f(*args, **kwargs)
    if name in ("__next__", "send", "throw", "close", "__iter__") and not o.is_outside(x):
        return f(*args, **kwargs)
    if name in ("__next__", "send", "throw", "close"):
        o.note(f"a {type(x).__name__} is an iterator, and replays would not go on with it")
        return f(*args, **kwargs)
    if o.is_fresh(x) and not any(issubclass(type(y), (np.ndarray, Variable)) for y in args):
        for y in args:
            containers.look(k, y)
        return made(k, f(*args, **kwargs))
    return unknown(k, f, args, kwargs)


def _subclasses(cls: type) -> tuple[type, ...]:
    return tuple(cls.__subclasses__())


def of_generator(k: Frame, f: Any, x: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a generator of random numbers."""
    o = k.observation
    for y in (*args, *kwargs.values()):
        containers.look(k, y)
    if not o.is_fresh(x):
        where = "numpy.random" if x is np.random.rand.__self__ else (
            "the module random" if x is random.random.__self__ else f"a {type(x).__name__}")
        if name in ("get_state", "getstate"):
            o.note("the state of a generator of random numbers may be read, and replays would not read again")
        else:
            o.note(f"random numbers are drawn from {where} outside functions, and replays would not draw again; use "
                   "functions, a function decorated with static_code, or pass the numbers as an argument")
        return f(*args, **kwargs)
    return operations.constant(k, f(*args, **kwargs))


# -- objects that are called ---------------------------------------------------------------------------------------


def _attrgetter(k: Frame, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = f.__reduce__()[1]

    def one(path: str) -> Any:
        x = args[0]
        for name in path.split("."):
            x = k.attr(x, name)
        return x
    return one(names[0]) if len(names) == 1 else tuple(map(one, names))


def _itemgetter(k: Frame, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    keys = f.__reduce__()[1]
    return k.item(args[0], keys[0]) if len(keys) == 1 else tuple([k.item(args[0], key) for key in keys])


def _methodcaller(k: Frame, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made_by, rest = f.__reduce__()[:2]
    named: dict[str, Any] = {}
    if isinstance(made_by, functools.partial):
        named, rest = dict(made_by.keywords), (*made_by.args, *rest)
    name, *more = rest
    return k.call(k.attr(args[0], name), *more, **named)


def _reference(k: Frame, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = f()
    if found is not None and not k.observation.is_fresh(f):
        k.observation.note("a weak reference is followed, and what compares its object later would keep it alive")
    return found if found is not None else k.observation.called_again(f, (), found, "a weak reference")


def _pure(k: Frame, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return native(k, f, args, kwargs)


INSTANCES: dict[type, Callable[[Frame, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    operator.attrgetter: _attrgetter, operator.itemgetter: _itemgetter, operator.methodcaller: _methodcaller,
    weakref.ref: _reference, **({json.encoder.c_make_encoder: _pure} if json.encoder.c_make_encoder else {}),
}
