"""Stand-ins for rules and hooks while they state their arithmetic, which note the attributes it depends on."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ..errors import NotCompilable, is_from_handler
from ..trees import SCALARS
from .taken_over import Conditions, found_in, is_ours

_PLAIN = (*SCALARS, np.generic, FunctionType)
COUNTED = "t"  # changes in every step


class ReadHyperparameters:
    """The attributes that stating has read: of the object itself, of its classes, and of its hyperparameters."""

    def __init__(self) -> None:
        self.own: dict[str, Any] = {}
        self.of_class: dict[tuple[type, str], Any] = {}
        self.outside: dict[tuple[int, str], tuple[Any, Any]] = {}  # (namespace or cell, what stands there), by name
        self.hyper: dict[str, None] = {}

    def around(self, function: FunctionType) -> None:
        """Note globals and variables of outer functions that a function of the user's, or one it calls, may read."""
        if is_ours(function) or (id(function), "") in self.outside:
            return
        self.outside[id(function), ""] = function, None
        codes, names = [function.__code__], {""}
        for code in codes:
            names.update(code.co_names)
            codes += [c for c in code.co_consts if isinstance(c, CodeType)]
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        found = [(function.__globals__, name, value) for name, value in function.__globals__.items() if name in names]
        found += [(cell, name, cell.cell_contents) for name, cell in cells if cell != CellType()]
        for place, name, value in found:
            if isinstance(value, ModuleType):
                for n in names & vars(value).keys():
                    if isinstance(vars(value)[n], _PLAIN):
                        self.outside[id(vars(value)), n] = vars(value), vars(value)[n]
            elif isinstance(value, FunctionType):
                self.outside[id(place), name] = place, value
                self.around(value)
            elif not isinstance(value, (type, BuiltinFunctionType)):
                self.outside[id(place), name] = place, _plain(function.__qualname__, name, value)

    def kept(self) -> list[Any]:
        """Return the parts of conditions, to be compared."""
        return [{k: id(v) for k, v in self.own.items()}, {k: id(v) for k, v in self.of_class.items()},
                {k: id(v) for k, (_, v) in self.outside.items()}]

    def add(self, conditions: Conditions, objects: Iterable[Any]) -> None:
        """Append that one of these has become another, of any of ``objects``, which are alike now."""
        for (kind, name), value in self.of_class.items():
            conditions.attribute(kind, name, value)
        of_class = {name: None for _, name in self.of_class}
        for (_, name), (place, value) in self.outside.items():
            conditions.outside(place, name, value)
        for x in objects:
            conditions.own(x, [name for name in of_class if name not in self.own])
            for name in self.own:
                conditions.own_value(x, name)


class Stated:
    """Stands for a rule or a hook; what is ``given`` comes first, all other attributes it reads are noted in ``read``.

    It has the object's class, also for ``super()``, and cannot be changed.
    """

    __slots__ = ("_stated",)

    def __init__(self, of: Any, given: dict[str, Any], read: ReadHyperparameters) -> None:
        object.__setattr__(self, "_stated", (of, given, read))

    def __getattribute__(self, name: str) -> Any:
        of, given, read = object.__getattribute__(self, "_stated")
        kind = type(of)
        if name == "__class__":
            return kind
        if name in given:
            return given[name]
        if name in vars(of) and name != COUNTED:
            value = read.own[name] = _plain(kind.__name__, name, vars(of)[name])
            return value
        found = found_in(kind, name)
        if isinstance(found, FunctionType):
            for c in kind.__mro__:  # there may be calls by super()
                if name in vars(c):
                    read.of_class[c, name] = vars(c)[name]
                    if isinstance(vars(c)[name], FunctionType):
                        read.around(vars(c)[name])
            read.of_class[kind, name] = found
            return MethodType(found, self)
        if hasattr(type(found), "__get__") or not hasattr(kind, name):
            raise NotCompilable(f"{kind.__name__} states its arithmetic by {name!r}, which is no plain attribute")
        read.of_class[kind, name] = _plain(kind.__name__, name, found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        kind = type(object.__getattribute__(self, "_stated")[0])
        raise NotCompilable(f"{kind.__name__} stores {name!r} where it states its arithmetic")


class StatedHyperparameters:
    """A proxy of the hyperparameters of a rule: entries of ``values`` take precedence."""

    def __init__(self, of: Any, values: SimpleNamespace, shared: bool, read: ReadHyperparameters) -> None:
        self._stated = of, values, shared, read

    def get_dict(self) -> dict[str, Any]:
        """Return all entries as a dictionary."""
        return {name: getattr(self, name) for name in self._stated[0].get_dict()}

    def __getattr__(self, name: str) -> Any:
        of, values, shared, read = self._stated
        key = name if shared and name in vars(values) else asked(name)
        if key not in vars(values):
            setattr(values, key, _plain(type(of).__name__, name, getattr(of, name)))
        if key != name:
            read.hyper[name] = None
        return getattr(values, key)


def asked(name: str) -> str:
    """Return the name, among the values of a group, of a hyperparameter that is not taken from ``hyper_values``."""
    return f"hyperparam.{name}"


def state(method: Callable[..., Any], of: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the expressions that a method of the user's makes of symbols."""
    try:
        return method(*args, **kwargs)
    except NotCompilable:
        raise
    except Exception as error:  # it may do anything with what it is given
        if is_from_handler(error):
            raise
        raise NotCompilable(f"{type(of).__name__} states no expressions of symbols: {error}") from error


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text, a function or a tuple of such, which cannot change."""
    return isinstance(value, _PLAIN) or isinstance(value, tuple) and all(isinstance(v, _PLAIN) for v in value)


def _plain(who: str, name: str, value: Any) -> Any:
    if is_plain(value):
        return value
    raise NotCompilable(f"{who} states its arithmetic by {name!r}, which may change")
