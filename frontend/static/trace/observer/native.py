"""Code in C that is called as it is: under the net, with callbacks that are observed."""
from __future__ import annotations

import functools
import operator
import random
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import calls, containers

if TYPE_CHECKING:
    from .frame import Frame


Handler = Callable[["Frame", tuple[Any, ...], dict[str, Any]], Any]
SCALARS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, np.generic, np.dtype)
GENERATORS = (np.random.RandomState, np.random.Generator, random.Random, np.random.BitGenerator)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, operator.attrgetter, operator.itemgetter,
              operator.methodcaller)
CALLBACKS = (*_FUNCTIONS, type, *calls.C_FUNCTIONS)
PURE_MODULES = frozenset(("math", "cmath", "itertools", "_operator", "_struct", "binascii", "unicodedata", "_bisect",
                           "_statistics", "_string", "_json", "_sre", "_abc", "_stat", "posix_path", "_decimal"))


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
        bound.__name__ if isinstance(bound, types.ModuleType) else type(bound).__module__)
    k.observation.note(
        f"{module}.{name} is implemented in C, and may read or change what no guard sees, which replays would not "
        "repeat; call it outside, or in a function decorated with static_code")
    return f(*args, **kwargs)
