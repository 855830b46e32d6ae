"""Objects made by classes, as a traced call makes them; methods that Python's library generates for such classes."""
from __future__ import annotations

import random
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from ...computed_numbers import settled
from ..observation import NOT_DRAWN_AGAIN
from . import containers, lookup, operations
from .builtin_functions import TYPES
from .c_code import GENERATORS, unknown

if TYPE_CHECKING:
    from .observer import Observer


_OF_DATACLASSES = frozenset(("__init__", "__eq__", "__repr__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__",
                             "__setattr__", "__delattr__"))


def construct(k: Observer, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return ``cls(*args, **kwargs)``, observed."""
    o = k.observation
    handler = TYPES.get(cls)
    if handler is not None:
        return handler(k, *args, **kwargs)
    if issubclass(cls, np.ndarray) or issubclass(cls, np.generic):
        return operations.function(k, cls, args, kwargs)
    meta = type(cls)
    of_meta = lookup.find(k, meta, "__call__") if meta is not type else type.__call__
    if isinstance(of_meta, types.FunctionType):
        return k.call(of_meta, cls, *args, **kwargs)
    if issubclass(cls, GENERATORS) or cls is np.random.SeedSequence:
        return make_generator(k, cls, args, kwargs)
    new = lookup.find(k, cls, "__new__")
    new = new.__func__ if isinstance(new, staticmethod) else new
    init = lookup.find(k, cls, "__init__")
    if isinstance(new, types.FunctionType):
        x = k.call(new, cls, *args, **kwargs)
    elif isinstance(init, types.FunctionType):
        x = object.__new__(cls) if new is object.__new__ else cls.__new__(cls, *args, **kwargs)
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
        elif init is not object.__init__ and not (
                isinstance(new, types.FunctionType) and isinstance(x, (tuple, str, int, float))):
            type(x).__init__(x, *args, **kwargs)
    return x


def generated(k: Observer, f: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method that ``dataclass`` or ``namedtuple`` has generated; NotImplemented of any other function."""
    if not f.__code__.co_filename.startswith("<") or not args:
        return NotImplemented
    x, name = args[0], f.__name__
    if issubclass(type(x), type) and issubclass(x, tuple) and hasattr(x, "_fields"):
        return f(*args, **kwargs)
    fields = getattr(type(x), "__dataclass_fields__", None)
    if fields is None or name not in _OF_DATACLASSES:
        return NotImplemented
    if name == "__init__":
        return f(*settled(args, "a dataclass"), **settled(kwargs, "a dataclass"))
    for y in args:
        if type(y) is type(x):
            for field in fields:
                value = lookup.read(k, y, field)
                containers.look(k, value)
    return f(*args, **kwargs)


def make_generator(k: Observer, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a generator of random numbers; one without a seed makes the call fall back."""
    if cls is random.SystemRandom or all(x is None for x in (*args, *kwargs.values())):
        k.observation.note(f"random numbers may be drawn from a generator that the call makes ({cls.__name__}), "
                           f"{NOT_DRAWN_AGAIN}")
    for x in args:
        containers.look(k, x)
    return k.observation.fresh(cls(*args, **kwargs))
