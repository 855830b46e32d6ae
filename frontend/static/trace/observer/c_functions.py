"""Functions and methods that are implemented in C, by tables of the arguments that each reads and changes.

One without an entry that gets, or is bound to, something mutable makes the call fall back.
"""
from __future__ import annotations

import contextvars
import functools
import importlib
import json.encoder
import operator
import random
import re
import string
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....configuration import LocalConfig
from ....link.namespace import entries_of
from ....variable import Variable
from ...computed_numbers import settled
from ...guards.guard import MISSING
from ..numpy_nodes import drawn, drawn_by_python, of_python
from ..observation import FRAMES_PER_CALL, NOT_DRAWN_AGAIN, NOT_GONE_ON
from ..own_functions import GENERATORS
from . import containers, lookup, operations, texts
from .builtin_functions import BUILTINS, namespace
from .c_code import PURE_MODULES, VALUES, Handler, unknown, wrapped
from .container_methods import CHANGES, holds_numbers, of_container
from .containers import made, native

if TYPE_CHECKING:
    from .observer import Observer


_split: Any = importlib.import_module("_string").formatter_field_name_split
_json_encoder: type | None = getattr(json.encoder, "c_make_encoder", None)


class _Formatter(string.Formatter):
    """``str.format`` whose attributes and items are observed."""

    def __init__(self, k: Observer) -> None:
        self._frame = k

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        """Return the value of a replacement field."""
        first, rest = _split(field_name)
        x = self.get_value(first, args, kwargs)
        for is_attribute, name in rest:
            x = self._frame.attr(x, name) if is_attribute else self._frame.item(x, name)
        return x, first

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format a value."""
        return self._frame.format(value, "", format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """Convert a value."""
        return value if conversion is None else texts.text(
            self._frame, {"r": repr, "s": str, "a": ascii}[conversion], value)


def call(k: Observer, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function or method that is implemented in C."""
    if f is entries_of:
        return namespace(k, *args)
    handler = BUILTINS.get(f) if type(f) is not types.MethodWrapperType else None
    if handler is not None:
        return handler(k, *args, **kwargs)
    if isinstance(f, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
        x, *rest = args
        if not isinstance(x, f.__objclass__):
            return unknown(k, f, args, kwargs)
        return _method(k, f.__get__(x, type(x)), rest, kwargs)
    x = getattr(f, "__self__", None)
    if x is None or issubclass(type(x), types.ModuleType):
        return _function(k, f, args, kwargs)
    return _method(k, f, args, kwargs)


_PLAIN = (str, bytes, int, float, bool, type(None), np.ndarray, list, dict, tuple, set)
_SHALLOW = frozenset(("append", "extend", "get", "items", "keys", "values", "copy", "pop", "insert", "clear"))


def _method(k: Observer, f: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a method above the net, unless it is one that calls nothing of the user's."""
    x = f.__self__
    if type(x) is slice:
        f = getattr(settled(x, f.__name__), f.__name__)
    if not issubclass(type(x), np.ndarray) and not holds_numbers(x, f.__name__):
        args, kwargs = settled(args, f.__name__), settled(kwargs, f.__name__)
    handler = _method_of(type(x))
    if type(x) in _PLAIN and (f.__name__ in _SHALLOW or isinstance(x, (str, np.ndarray))) and all(
            type(y) in _PLAIN or issubclass(type(y), Variable) for y in args):
        return handler(k, f, *args, **kwargs)
    with k.observation.tape.net:
        return handler(k, f, *args, **kwargs)


def _function(k: Observer, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module = getattr(f, "__module__", None) or getattr(f.__self__, "__name__", "")
    if module == "math" and not kwargs:
        args = tuple([k.call(float, x) if type(x) is np.ndarray and not x.ndim else x for x in args])
        found = of_python(k.observation.tape, f, args)
        if found is not NotImplemented:
            return found
    if module in ("builtins", *PURE_MODULES):
        return native(k, f, settled(args, f.__name__), settled(kwargs, f.__name__))
    if module == "_heapq":
        o, heap = k.observation, args[0]
        o.items(heap, "a list")
        for x in args:
            containers.look(k, x)
        effect = o.changing(heap)
        result = f(*args, **kwargs)
        if effect:
            o.changed(f, heap, args[1:], "a list")
        return result
    if module.partition(".")[0] in ("numpy", "cupy"):
        return operations.function(k, f, args, kwargs)
    args, kwargs = settled(args, f.__name__), settled(kwargs, f.__name__)
    if f is sys.getrecursionlimit:
        return k.observation.called_again(f, (), f() // FRAMES_PER_CALL, "the limit of recursion")
    if module in ("_thread", "sys", "posix", "_contextvars", "_asyncio", "os") and f.__name__ in (
            "get_ident", "getrecursionlimit", "intern", "getpid", "getcwd", "copy_context", "get_native_id"):
        return k.observation.called_again(f, args, f(*args, **kwargs), f"{f.__name__}()")
    if module == "_random" or f.__name__ == "urandom":
        k.observation.note(f"random numbers may be drawn from the system or from a generator without a seed, "
                           f"{NOT_DRAWN_AGAIN}")
        return f(*args, **kwargs)
    return unknown(k, f, args, kwargs)


_HARMLESS = frozenset(("__eq__", "__ne__", "__hash__", "__sizeof__", "__dir__", "__init_subclass__"))
_MAKING = frozenset(("fromkeys", "from_iterable", "fromhex", "maketrans", "from_bytes", "mro", "__prepare__",
                     "__getitem__", "__class_getitem__"))
_STEPS = frozenset(("__next__", "send", "throw", "close", "__iter__"))
_TEXTS: dict[str, Any] = {"__repr__": repr, "__str__": str, "__format__": format}


@functools.lru_cache(maxsize=1024)
def _method_of(kind: type) -> Handler:
    """Return the handler of the methods of a class, which takes a bound method and its arguments."""
    return next((method for base, method in _METHODS if issubclass(kind, base)), _of_object)


def _of_string(k: Observer, f: Any, /, *args: Any, **kwargs: Any) -> Any:
    if f.__name__ == "format":
        return _Formatter(k).vformat(f.__self__, args, kwargs)
    return _Formatter(k).vformat(f.__self__, (), *args) if f.__name__ == "format_map" else _of_scalar(
        k, f, *args, **kwargs)


def _of_scalar(k: Observer, f: Any, /, *args: Any, **kwargs: Any) -> Any:
    if f.__name__ == "join":
        args = (list(containers.iterate(k, args[0])),)
    for y in (*args, *kwargs.values()):
        containers.look(k, y)
    return made(k, f(*[wrapped(k, y) for y in args], **kwargs))


def _of_class(k: Observer, f: Any, /, *args: Any, **kwargs: Any) -> Any:
    o, x, name = k.observation, f.__self__, f.__name__
    if name == "__new__":
        return o.fresh(f(*args, **kwargs))
    if name == "__subclasses__":
        return o.fresh(list(o.called_again(_subclasses, (x,), tuple(f()), f"the subclasses of {x.__name__}")))
    if name in _MAKING:
        return made(k, f(*[containers.iterate(k, y) if hasattr(type(y), "__iter__") and not isinstance(
            y, (str, bytes)) else y for y in args], **kwargs))
    if name in ("__instancecheck__", "__subclasscheck__"):
        return o.called_again(f, args, f(*args), f"the instances of {x.__name__}")
    return unknown(k, f, args, kwargs)


def _subclasses(cls: type) -> tuple[type, ...]:
    return tuple(cls.__subclasses__())


def _of_object(k: Observer, f: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a method of any other object, by its name."""
    o, x, name = k.observation, f.__self__, f.__name__
    if name == "get" and isinstance(x, contextvars.ContextVar):
        return o.called_again(f, args, f(*args), f"the context variable {x.name}")
    if type(x).__module__ == "_thread":  # a lock: who takes it gives it back
        return f(*args, **kwargs)
    if name in ("write", "flush", "writelines") and hasattr(x, "readable"):
        return _write(k, f, args, kwargs)
    if name in _HARMLESS or name == "__init__" and o.is_fresh(x) or name == "__get__" and isinstance(
            x, (types.FunctionType, property, staticmethod, classmethod)):
        return f(*args, **kwargs)
    if name in ("__reduce_ex__", "__reduce__"):
        containers.look(k, x)
        return f(*args)
    if name == "__setattr__":
        return lookup.write_own(k, f.__objclass__.__setattr__, x, *args)
    if name == "__delattr__":
        return lookup.write_own(k, f.__objclass__.__delattr__, x, args[0], MISSING)
    if name == "__getattribute__":
        return (lookup.read if issubclass(type(x), LocalConfig) else lookup.read_own)(k, x, *args)
    if name in _TEXTS:
        return texts.text(k, _TEXTS[name], x, *args)
    if name in _STEPS and (name != "__iter__" or not o.is_outside(x)):
        if o.is_outside(x):
            o.note(f"a {type(x).__name__} {NOT_GONE_ON}")
        return f(*args, **kwargs)
    if not o.is_fresh(x) or any(issubclass(type(y), (np.ndarray, Variable)) for y in args):
        return unknown(k, f, args, kwargs)
    for y in args:
        containers.look(k, y)
    return made(k, f(*args, **kwargs))


def _write(k: Observer, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Write to a file."""
    for y in args:
        containers.look(k, y)
    result = f(*args, **kwargs)
    if not k.observation.is_fresh(f.__self__):
        k.observation.effect(f, args, f"{type(f.__self__).__name__}.{f.__name__}()")
    return result


def of_generator(k: Observer, f: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a method of a generator of random numbers."""
    o, x, name = k.observation, f.__self__, f.__name__
    args, kwargs = settled(args, name), settled(kwargs, name)
    for y in (*args, *kwargs.values()):
        containers.look(k, y)
    if not o.is_fresh(x):
        where = "numpy.random" if x is np.random.rand.__self__ else (
            "the module random" if x is random.random.__self__ else f"a {type(x).__name__}")
        o.tape.settle()
        result = f(*args, **kwargs)
        if name in ("get_state", "getstate"):
            o.note("the state of a generator of random numbers may be read, and replays would not read again")
            return result
        found = drawn(o.tape, name, args, kwargs, result) if x is np.random.rand.__self__ else drawn_by_python(
            o.tape, f, args, kwargs, result)
        if found is None:
            o.note(f"random numbers are drawn from {where} outside functions, {NOT_DRAWN_AGAIN}")
        return result if found is None else found
    return operations.constant(k, f(*args, **kwargs))


def _on_arrays(operation: Callable[..., Any]) -> Handler:
    return lambda k, f, /, *args, **kwargs: operation(k, f.__self__, f.__name__, args, kwargs)


_METHODS: tuple[tuple[Any, Handler], ...] = (
    (np.ndarray, _on_arrays(operations.method)), (np.ufunc, _on_arrays(operations.ufunc_method)),
    (str, _of_string), (GENERATORS, of_generator),
    ((*VALUES, re.Pattern, re.Match, tuple, frozenset, *containers._VIEWS), _of_scalar), (type, _of_class),
    *((base, functools.partial(of_container, base)) for base in CHANGES))


def _attrgetter(k: Observer, f: Any, x: Any) -> Any:
    found: list[Any] = []
    for path in f.__reduce__()[1]:
        found.append(functools.reduce(k.attr, path.split("."), x))
    return found[0] if len(found) == 1 else tuple(found)


def _itemgetter(k: Observer, f: Any, x: Any) -> Any:
    found = [k.item(x, key) for key in f.__reduce__()[1]]
    return found[0] if len(found) == 1 else tuple(found)


def _methodcaller(k: Observer, f: Any, x: Any) -> Any:
    made_by, rest = f.__reduce__()[:2]
    named: dict[str, Any] = {}
    if isinstance(made_by, functools.partial):
        named, rest = dict(made_by.keywords), (*made_by.args, *rest)
    name, *more = rest
    return k.call(k.attr(x, name), *more, **named)


def _reference(k: Observer, f: Any) -> Any:
    found = f()
    if not k.observation.is_fresh(f):
        k.observation.referred(f, found)
    return found


INSTANCES: dict[type, Handler] = {
    operator.attrgetter: _attrgetter, operator.itemgetter: _itemgetter, operator.methodcaller: _methodcaller,
    weakref.ref: _reference}
if _json_encoder is not None:
    INSTANCES[_json_encoder] = lambda k, f, /, *args, **kwargs: native(k, f, args, kwargs)
