"""Kinds of code in C, callbacks that it may call observed, and code in C that nothing is known of."""
from __future__ import annotations

import functools
import operator
import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...trees import SCALARS

if TYPE_CHECKING:
    from .observer import Observer


Handler = Callable[..., Any]  # takes the observer and the arguments of a call
VALUES = (*SCALARS, type(Ellipsis), slice, range, np.generic, np.dtype)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, operator.attrgetter, operator.itemgetter,
              operator.methodcaller)
C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
               types.MethodWrapperType, types.ClassMethodDescriptorType, type(re.compile("").sub))
CALLBACKS = (*_FUNCTIONS, type, *C_FUNCTIONS)
PURE_MODULES = frozenset(("math", "cmath", "itertools", "_operator", "_struct", "binascii", "unicodedata", "_bisect",
                           "_statistics", "_string", "_json", "_sre", "_abc", "_stat", "posix_path", "_decimal"))
# Modules of Python's library whose functions compute from their arguments alone, whatever they keep for themselves.
PURE_PYTHON = frozenset((
    "re", "copyreg", "enum", "typing", "abc", "types", "textwrap", "string", "keyword", "reprlib", "fractions",
    "decimal", "numbers", "statistics", "sre_compile", "sre_parse", "re._compiler", "re._parser"))


def wrapped(k: Observer, x: Any, kinds: tuple[type, ...] | None = None) -> Any:
    """Return a function that code in C may call in place of another one: the call is observed."""
    if not isinstance(x, kinds or _FUNCTIONS):
        return x
    return lambda *args, **kwargs: k.call(x, *args, **kwargs)


def unknown(k: Observer, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function that is in no table: the traced call falls back."""
    bound = getattr(f, "__self__", None)
    name = getattr(f, "__qualname__", None) or type(f).__qualname__
    module = getattr(f, "__module__", None) or (
        bound.__name__ if isinstance(bound, types.ModuleType) else type(bound).__module__)
    k.observation.note(
        f"{module}.{name} is implemented in C, and may read or change what no guard sees, which replays would not "
        "repeat; call it outside, or in a function decorated with static_code")
    return f(*args, **kwargs)
