"""Slots: places where code reads or stores, what was there, and the test whether it still is.

Each kind of place that is no entry of a namespace has a mark for its key.
"""
from __future__ import annotations

import operator
from dataclasses import dataclass
from types import CellType, MappingProxyType
from typing import Any

import numpy as np

from ..configuration import config
from ..variable import Variable
from .reach import MISSING

SCALARS = (bool, int, float, complex, str, bytes, type(None))


def same(new: Any, old: Any) -> bool:
    """Whether two values are equal scalars, or equal tuples of such; identical ones have been seen to before."""
    if new is old:
        return True
    kind = type(new)
    if kind is not type(old):
        return False
    if kind is float or kind is complex:
        return repr(new) == repr(old)
    if kind is tuple:
        return len(new) == len(old) and all(map(same, new, old))
    if isinstance(new, (np.generic, np.dtype)):
        return repr(new) == repr(old)
    return kind in SCALARS and new == old


def type_of(state: Any) -> Any:
    """Return what a schedule depends on of a Variable that is state; None of anything else."""
    array = state._array if type(state) is Variable else None
    return None if array is None else (array.shape, array.dtype, state._requires_grad)


def elements_of(array: Any) -> Any:
    """Return the elements of an array, and as what they are read."""
    return array.tobytes(), array.shape, array.dtype


def same_elements(array: Any, before: Any) -> bool:
    """Whether an array has the elements it had: ``before`` is what ``elements_of`` returned."""
    return elements_of(array) == before


def same_items(now: Any, before: list[Any]) -> bool:
    """Whether a container holds the items it held."""
    items = now if type(now) is list else items_of(now)
    return len(items) == len(before) and (all(map(operator.is_, items, before)) or all(map(same, items, before)))


def items_of(container: Any) -> list[Any]:
    if isinstance(container, (dict, MappingProxyType)):
        return [*container, *container.values()]
    return list(container)


@dataclass
class Slot:
    """A place where code reads or stores: entry ``key`` of a namespace, a closure cell, or the items of a container."""

    holder: Any
    key: Any
    value: Any
    what: str
    read: bool
    stored: bool = False
    versioned: bool = False  # it cannot change without the version of all links' attributes
    state: Any = None  # of a Variable that functions read: its type
    chained: bool = False  # and whether there was a graph behind it
    twin: Slot | None = None  # an earlier one with the same Variable
    forgotten: bool = False  # the library's own code replaces it before that reads it

    @property
    def attribute(self) -> bool:
        """Whether it is an entry of an object's own namespace."""
        return isinstance(self.holder, dict) and "__builtins__" not in self.holder

    def now(self) -> Any:
        """The value there now."""
        if isinstance(self.holder, CellType):
            try:
                return self.holder.cell_contents
            except ValueError:
                return MISSING
        if self.key is ITEMS:
            return self.value if same_items(self.holder, self.value) else MISSING
        if self.key is HOOKS:
            return bool(self.holder.get("_local_link_hooks"))
        if self.key is CONTEXT:
            return self.holder.get(MISSING)
        if self.key is KIND:
            return type(self.holder)
        if self.key is NAMES:
            return self.value if names_of(self.holder, self.value[1]) == self.value[0] else MISSING
        if self.key is CODE:
            return code_of(self.holder)
        if self.key is ELEMENTS:
            return self.value if same_elements(self.holder, self.value) else MISSING
        if self.holder is config:
            return getattr(config, self.key, MISSING)
        return self.holder.get(self.key, MISSING)

    def unchanged(self) -> bool:
        """Whether the value is still the one kept; of Variables that are no Parameters it counts that there is one."""
        now = self.now()
        if self.twin is not None and self.twin.state is not None:
            return now is self.twin.now()
        if self.state is not None:
            return type_of(now) == self.state
        return same(now, self.value) or (type(now) is Variable and type(self.value) is Variable)

    def condition(self, names: dict[str, Any]) -> str:
        """Write the test that the slot is unchanged."""
        n = len(names)
        holder, value = f"h{n}", f"v{n}"
        names[holder], names[value] = self.holder, self.value
        if self.key is ITEMS:
            return f"same_items({holder}, {value})"
        if self.key is HOOKS:
            return f"not {holder}.get('_local_link_hooks')"
        if self.key is CONTEXT:
            return f"same({holder}.get(MISSING), {value})"
        if self.key is KIND:
            return f"type({holder}) is {value}"
        if self.key is NAMES:
            return f"names_of({holder}, {value}[1]) == {value}[0]"
        if self.key is CODE:
            names[value], names[f"d{n}"] = self.value[:2]
            now = f"{holder}.__defaults__"
            return f"{holder}.__code__ is {value} and ({now} is d{n} or same({now}, d{n}))"
        if self.key is ELEMENTS:
            return f"({holder}.tobytes(), {holder}.shape, {holder}.dtype) == {value}"
        if isinstance(self.holder, CellType):
            now = f"{holder}.cell_contents"
            if self.value is MISSING:
                return f"empty({holder})"
        elif self.holder is config:
            now = f"{holder}.{self.key}" if self.value is not MISSING else f"getattr({holder}, {self.key!r}, MISSING)"
        else:
            if self.value is MISSING:
                return f"{self.key!r} not in {holder}"
            now = f"{holder}[{self.key!r}]"
        if self.twin is not None and self.twin.state is not None:
            names[value] = self.twin.holder
            return f"{now} is {value}[{self.twin.key!r}]"
        if self.state is not None:
            names[value] = self.state
            return f"type_of({now}) == {value}"
        if type(self.value) is Variable:
            names[value] = None
            return f"type({now}) is Variable"
        if isinstance(self.value, (*SCALARS, tuple, np.generic, np.dtype)) and not isinstance(
                self.value, (bool, type(None))):
            return f"({now} is {value} or same({now}, {value}))"
        return f"{now} is {value}"


class _Mark:
    """A key that is no name."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


ITEMS = _Mark("items")
HOOKS = _Mark("hooks")
CODE = _Mark("code")
ELEMENTS = _Mark("elements")
CONTEXT = _Mark("context")
KIND = _Mark("class")
NAMES = _Mark("names")
OF_LINKS = frozenset(("_params", "_persistent", "_children", "_within_init_scope", "_device", "_local_link_hooks",
                       "_walk", "name"))  # what the library keeps there
LARGEST_ARRAY = 1 << 16  # bytes: elements of larger arrays are not compared in every call


def code_of(function: Any) -> tuple[Any, Any]:
    """What a function does, apart from what its names mean: editors reload code into functions that exist."""
    return function.__code__, function.__defaults__


def names_of(entries: dict[str, Any], without: frozenset[str]) -> frozenset[str]:
    """The names of the attributes in a link's namespace, but for those ``without`` and the library's own."""
    return frozenset([n for n in entries if n not in without and n not in OF_LINKS and not n.startswith("_static")])


def is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # raises where there is nothing
    except ValueError:
        return True
    return False
