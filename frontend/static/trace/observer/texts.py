"""Values shown as text in a traced call: how an object shows itself is observed."""
from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....link.namespace import Attributed, entries_of
from ....variable import Variable
from ...computed_numbers import ComputedNumber, settled
from ...guards.guard import MISSING
from ..observation import is_ours
from . import containers, lookup, operations
from .c_code import PURE_PYTHON

if TYPE_CHECKING:
    from .observer import Observer


def shown(k: Observer, x: Any) -> Any:
    """Return an object in place of another one in ``"%s" % x``: how that shows itself is observed."""
    if isinstance(x, ComputedNumber):
        x.kusari_read("a text")
        return x.kusari_value
    return x if type(x).__module__ == "builtins" else _Shown(k, x)


class _Shown:
    def __init__(self, k: Observer, x: Any) -> None:
        self._frame = k
        self._shown = x

    def __str__(self) -> str:
        return text(self._frame, str, self._shown)

    def __repr__(self) -> str:
        return text(self._frame, repr, self._shown)

    def __int__(self) -> int:
        return settled(self._frame.call(int, self._shown), "a text")

    def __float__(self) -> float:
        return settled(self._frame.call(float, self._shown), "a text")

    def __index__(self) -> int:
        return operator.index(self._shown)


def text(k: Observer, function: Callable[..., str], x: Any, *rest: Any) -> str:
    """Return ``repr``, ``str`` or ``format`` of a value, observed."""
    o = k.observation
    kind = type(x)
    if issubclass(kind, (str, int, float, complex, bytes, bool, type(None))) and kind.__module__ == "builtins":
        return function(x, *rest)
    if issubclass(type(x), np.ndarray):
        operations.read_elements(k, x, f"{function.__name__}()")
        return function(x, *rest)
    if issubclass(type(x), Variable):
        o.tape.escape(x, f"{function.__name__}()")
        return function(x, *rest)
    names = {repr: ("__repr__",), str: ("__str__", "__repr__"), ascii: ("__repr__",),
             format: ("__format__", "__str__", "__repr__")}[function]
    for name in names:
        found = lookup.find(k, kind, name)
        if isinstance(found, types.FunctionType):
            if found.__module__ in PURE_PYTHON or is_ours(found.__module__):
                break
            return k.call(found, x, *(rest if name == "__format__" else ()))
        if found is not MISSING and found not in (object.__str__, object.__format__):
            break
    if kind.__module__ != "builtins" and kind.__repr__ is object.__repr__ and not o.is_outside(x):
        o.note("the address of an object that the call makes is shown, which is another one in every call")
    containers.look(k, x)
    _look_at_text(k, x)
    with o.tape.net:
        return function(x, *rest)


def _look_at_text(k: Observer, x: Any) -> None:
    """Take note of the attributes that functions of libraries show of an object."""
    entries = entries_of(x) if isinstance(x, Attributed) else getattr(x, "__dict__", None)
    if isinstance(entries, dict) and not isinstance(x, (type, types.FunctionType, types.ModuleType)):
        k.observation.items(entries, f"the attributes of a {type(x).__name__}")
