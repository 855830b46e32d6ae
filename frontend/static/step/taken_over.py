"""The work that compiled updates take over from Python that may be overridden: one list, and looks at it."""
from __future__ import annotations

import inspect
import os
from collections.abc import Collection, Iterable
from types import FunctionType
from typing import Any

from kusari.runtime.versions import Versions

from ...link import Link
from ...link.namespace import namespace_of
from ...optimizer import GradientMethod
from ...parameter import Parameter
from ...update_rule import UpdateRule
from ...variable import Variable
from ..errors import NotCompilable
from ..guards.check import checks_of
from ..guards.guard import MISSING, Attribute, ClassOf, Entry, Guard
from ..source import Source

UPDATE, HOOKS, STEP = "update", "hooks", "step"  # what takes it over: every update, hooks before it, whole steps

# What is not called, or not read. The public ones are looked at before each update, in classes and in objects.
TAKEN_OVER: dict[type, dict[str, tuple[str, ...]]] = {
    GradientMethod: {
        UPDATE: ("update_params", "reallocate_cleared_grads", "check_nan_in_grads", "is_safe_to_update"),
        HOOKS: ("call_hooks", "call_hook")},
    UpdateRule: {UPDATE: ("update", "update_core", "update_core_cpu", "update_exprs")},
    Parameter: {UPDATE: ("update", "grad"), STEP: ("cleargrad", "zerograd")},
    Link: {STEP: ("cleargrads",)},
    Variable: {STEP: ("backward",)},
}
# What is looked at once: our own methods, and attributes that are no properties.
FIELDS: dict[type, tuple[str, ...]] = {
    GradientMethod: ("target", "_hooks", "_loss_scale", "_loss_scaling_is_dynamic", "_use_cleargrads",
                     "_gradients_are_finite", "_note_finite"),
    UpdateRule: ("enabled", "t", "hyperparam", "_hooks", "_state", "_use_fp32_update", "_fp32_param", "_update",
                 "_update_in_fp32", "_apply_exprs", "_prepare_state", "_fp32_of", "__setattr__", "__getattribute__"),
    Parameter: ("update_rule", "array", "data", "dtype", "_array", "_grad", "_grad_var", "_loss_scale",
                "__setattr__", "__getattribute__"),
}
_STAY = frozenset(("target", "t", "epoch", "hyperparam", "enabled", "initializer", "update_rule", "is_static",
                   "initial_alpha", "use_auto_new_epoch"))
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname((lambda: None).__code__.co_filename))) + os.sep


class Conditions:
    """Guards by which a program holds.

    Those in ``each`` are asked before each update, the ``others`` where a class or a dictionary has another attribute.
    """

    def __init__(self) -> None:
        self.each: dict[Any, Guard] = {}    # by the objects that they name, by identity, so that none is asked twice
        self.others: dict[Any, Guard] = {}
        self.kinds: dict[type, None] = {}
        self.dictionaries: dict[int, dict[str, Any]] = {}

    def copy(self) -> Conditions:
        """Return the same conditions, to which others may be appended."""
        copied = Conditions()
        for name, value in vars(self).items():
            setattr(copied, name, dict(value))
        return copied

    def attribute(self, kind: type, name: str, value: Any) -> None:
        """Append that a class has the attribute ``value``."""
        self.others[id(kind), name, id(value)] = Attribute(kind, name, value, "", "")
        self.kinds[kind] = None

    def own(self, x: Any, names: Iterable[str]) -> None:
        """Append that an object has no attributes of its own where its class is to give them.

        A greater number of attributes shows new ones, since none can have gone: the library's own stay.
        """
        entries = _own_table(x)
        if stay := all_stay(entries):
            self.dictionaries[id(entries)] = entries
        for name in names:
            (self.others if stay else self.each)[id(entries), name] = Entry(entries, name, MISSING, "", "")

    def own_value(self, x: Any, name: str) -> None:
        """Append that an object has the attribute of its own that it has now, or none, if so."""
        entries = namespace_of(x)
        if name in entries:
            self.outside(entries, name, entries[name])
        else:
            self.own(x, (name,))

    def outside(self, place: Any, name: str, value: Any) -> None:
        """Append that a global, or the variable in a cell, is ``value``."""
        if name:
            self.each[id(place), name, id(value)] = Entry(place, name, value, "", "") if isinstance(place, dict) else (
                Attribute(place, "cell_contents", value, "", ""))

    def kind(self, x: Any) -> None:
        """Append that an object is of its class."""
        self.each[id(x), type(x)] = ClassOf(x, "", "")

    def test(self, source: Source) -> str:
        """Return the test of all conditions."""
        dictionaries = [*self.dictionaries.values()]
        versions, intact = Versions([*self.kinds], dictionaries), checks_of([*self.others.values()])

        def unchanged() -> bool:
            if (intact.test is None or intact.test()) and all(map(all_stay, dictionaries)):
                versions.note()
                return True
            return False
        return " and ".join([f"({source.name(versions.same, 'same')}() or {source.name(unchanged, 'unchanged')}())",
                             *[guard.test(source) for guard in self.each.values()]])


def all_stay(entries: dict[str, Any]) -> bool:
    """Whether no attribute of an object is one that its user may have given it, and may take away."""
    return all(name.startswith("_") or name in _STAY for name in entries)


def _own_table(x: Any) -> dict[str, Any]:
    """Return the dictionary of an object, made one that shares its keys with no other object's.

    CPython looks up attributes by the slow way as soon as a dictionary with shared keys is referenced; any key that is
    not a string ends the sharing.
    """
    entries: dict[Any, Any] = namespace_of(x)
    entries[0] = None
    del entries[0]
    return entries


def is_ours(found: Any) -> bool:
    """Whether a function or property is code of this package, and none that is wrapped around it."""
    function = found.fget if isinstance(found, property) else found
    return isinstance(function, FunctionType) and function.__code__.co_filename.startswith(_PACKAGE)


def found_in(kind: type, name: str) -> Any:
    """Return an attribute as the class has it, no descriptor being asked; None if it has none."""
    return inspect.getattr_static(kind, name, None)


class Looks:
    """Looks at all that a program takes over from an optimizer: at once, where one raises, and as ``conditions``."""

    def __init__(self, optimizer: Any, parameters: Collection[Any], parts: Collection[str]) -> None:
        self.parts = parts
        self.conditions = Conditions()
        self._kinds: dict[type, tuple[str, ...]] = {}
        self._look(optimizer, GradientMethod)
        for p in parameters:
            self._look(p, Parameter)
            if (rule := p.update_rule) is not None:
                if not isinstance(rule, UpdateRule):
                    raise NotCompilable(f"{type(rule).__name__} is no UpdateRule")
                self._look(rule, UpdateRule)
        if STEP in parts:
            self._look(optimizer.target, Link)
            self._kind(Variable, Variable)

    def _look(self, x: Any, base: type) -> None:
        kind = type(x)
        names = self._kinds[kind] if kind in self._kinds else self._kind(kind, base)
        own = namespace_of(x)
        for name in (*names, *FIELDS.get(base, ())):
            if name in own and isinstance(found_in(kind, name), (FunctionType, property)):
                raise NotCompilable(f"{name} is overridden in an object of {kind.__name__}")
        self.conditions.own(x, [name for name in names if not isinstance(found_in(kind, name), property)])

    def _kind(self, kind: type, base: type) -> tuple[str, ...]:
        names = tuple(name for part, some in TAKEN_OVER[base].items() if part in self.parts for name in some)
        for name in names:
            found = found_in(kind, name)
            if found is not None and not is_ours(found) and (base is not UpdateRule or not _stated_with(kind, name)):
                raise NotCompilable(f"{kind.__name__}.{name} is overridden")
            self.conditions.attribute(kind, name, found)
        for name in FIELDS.get(base, ()):
            found = found_in(kind, name)
            if found is not getattr(object, name, None) and hasattr(type(found), "__get__") and not is_ours(found):
                raise NotCompilable(f"{kind.__name__}.{name} is overridden")
        self._kinds[kind] = names
        return names


def _stated_with(kind: type, name: str) -> bool:
    """Whether a class of the user's states expressions, and ``name`` along with them: then they are the same."""
    base = next((c for c in kind.__mro__ if "update_exprs" in vars(c)), UpdateRule)
    return name in vars(base) and not base.__module__.startswith(f"{__name__.partition('.')[0]}.")
