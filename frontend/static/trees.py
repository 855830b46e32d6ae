"""Argument and result trees: Variables and arrays are leaves, everything else is part of the tree's specification."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from types import MemberDescriptorType
from typing import Any

import numpy as np

from ..backends.cuda import is_of_cupy
from ..epochs import Attributes
from ..parameter import Parameter
from ..variable import Variable
from .computed_numbers import ComputedNumber, number_of

VARIABLE = "variable"
ARRAY = "array"
MISS: Any = object()  # returned by a fast path for a call that is not its own

SCALARS = (bool, int, float, complex, str, bytes, type(None))
_OF_PYTHON = 1 << 9  # a flag of classes that are not built in
_PARTS = {"tuple": 2, "list": 1, "dict": 2, "dataclass": 3, "stored": 2}  # where a specification has its parts


def array_of(leaf: Any) -> Any:
    """Return the array of a leaf."""
    return leaf._array if isinstance(leaf, Variable) else leaf


def flatten(tree: Any, leaves: list[Any], containers: dict[int, Any] | None = None,
            keeps: Callable[[Any], bool] | None = None) -> Any:
    """Append the leaves of ``tree`` to ``leaves`` and return its specification, which is hashable.

    Two trees with equal specifications differ only in their leaves. Parameters and objects of unknown types are part
    of the specification by identity, and so are objects that ``keeps`` is true of. With ``containers``, lists,
    dictionaries and dataclasses that come again are the very same ones.
    """
    if keeps is not None and keeps(tree):
        return ("kept", _Identity(tree))
    kind = type(tree)
    if containers is not None and (kind in (list, dict) or is_record(kind)):
        number = containers.get(id(tree))
        if number is not None:
            return ("again", number[0])
        containers[id(tree)] = len(containers), tree
    if issubclass(kind, Variable):
        if issubclass(kind, Parameter):
            return _static(tree)
        leaves.append(tree)
        return VARIABLE
    if issubclass(kind, np.ndarray) or is_of_cupy(kind):
        leaves.append(tree)
        return ARRAY
    if kind in SCALARS:
        return _static(tree)
    if issubclass(kind, ComputedNumber):
        leaves.append(tree.kusari_array)
        return ("number", tree.kusari_kind)
    if issubclass(kind, tuple) and not getattr(tree, "__dict__", None):
        return ("tuple", kind, tuple([flatten(x, leaves, containers, keeps) for x in tree]))
    if kind is list:
        return ("list", tuple([flatten(x, leaves, containers, keeps) for x in tree]))
    if kind is dict:
        return ("dict", tuple([_static(k) for k in tree]),
                tuple([flatten(x, leaves, containers, keeps) for x in tree.values()]))
    if is_record(kind):
        own = attributes_of(tree)
        return ("dataclass", kind, tuple(own), tuple([flatten(x, leaves, containers, keeps) for x in own.values()]))
    return _static(tree)


def is_record(kind: type) -> bool:
    """Whether instances of a class, a dataclass, are no more than their attributes, so that others can be made."""
    return hasattr(kind, "__dataclass_fields__") and not issubclass(kind, type) and all(
        [c is object or c.__flags__ & _OF_PYTHON for c in kind.__mro__])


def attributes_of(x: Any) -> dict[str, Any]:
    """Return the attributes that an instance has itself, those in slots first."""
    return {**{name: getattr(x, name) for name in _slots_of(type(x)) if hasattr(x, name)}, **getattr(x, "__dict__", {})}


def _slots_of(kind: type) -> list[str]:
    return [name for c in kind.__mro__ for name, found in vars(c).items() if type(found) is MemberDescriptorType]


def leaf_kinds(spec: Any) -> list[str]:
    """Return ``VARIABLE`` or ``ARRAY`` for each leaf of a tree with the specification ``spec``."""
    if spec is VARIABLE or spec is ARRAY:
        return [spec]
    if spec[0] == "number":
        return [ARRAY]
    return [k for s in parts_of(spec) or () for k in leaf_kinds(s)]


def parts_of(spec: Any) -> tuple[Any, ...] | None:
    """Return the specifications of the items of a container, or of a result and its effects; None of anything else."""
    place = _PARTS.get(spec[0]) if type(spec) is tuple else None
    return None if place is None else spec[place]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class _Identity:
    """An object that counts as equal only to itself; it is kept alive so that its identity stays its own."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"{type(self.value).__name__} object"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class _Exact:
    """A complex number or a float of NumPy's, equal to one of the same text: 0 is not -0, and NaN is NaN."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Exact) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))

    def __repr__(self) -> str:
        return str(self.value)


def _static(x: Any) -> Any:
    kind = type(x)
    if kind is float:
        return ("static", kind, repr(x))
    if kind is complex or isinstance(x, np.inexact):
        return ("static", kind, _Exact(x))
    if kind in SCALARS or isinstance(x, (np.generic, np.dtype)) and not isinstance(x, np.void):  # a record may change
        return ("static", kind, x)
    return ("object", _Identity(x))


def unflatten(spec: Any, leaves: Iterator[Any], made: list[Any] | None = None) -> Any:
    """Return the tree of ``spec`` with ``leaves`` in place; stores that it has are made."""
    if spec is VARIABLE or spec is ARRAY:
        return next(leaves)
    made = [] if made is None else made
    match spec[0]:
        case "static":
            value = spec[2]
            return float(value) if spec[1] is float else value.value if type(value) is _Exact else value
        case "object" | "kept":
            return spec[1].value
        case "number":
            return number_of(spec[1], next(leaves))
        case "again":
            return made[spec[1]]
        case "tuple":
            items = [unflatten(s, leaves, made) for s in spec[2]]
            return tuple.__new__(spec[1], items)  # what the class does besides was done in the call
        case "list":
            items = []
            made.append(items)
            items += [unflatten(s, leaves, made) for s in spec[1]]
            return items
        case "dict":
            entries: dict[Any, Any] = {}
            made.append(entries)
            keys = [unflatten(k, leaves) for k in spec[1]]
            entries.update(zip(keys, [unflatten(s, leaves, made) for s in spec[2]], strict=True))
            return entries
        case "stored":  # a result, and the effects of the call
            result, *args = [unflatten(s, leaves, made) for s in spec[2]]
            for effect, given in zip(spec[1], args, strict=True):
                effect.apply(given)
            Attributes.version = object()
            return result
        case "dataclass":
            record = object.__new__(spec[1])
            made.append(record)
            slots = _slots_of(spec[1])
            for name, part in zip(spec[2], spec[3], strict=True):
                value = unflatten(part, leaves, made)
                if name in slots:
                    object.__setattr__(record, name, value)
                else:
                    record.__dict__[name] = value
            return record
        case _:
            raise AssertionError(spec)


def has_arrays(values: tuple[Any, ...]) -> bool:
    """Whether a tuple has Variables, arrays or computed numbers in it, which replays make anew or read again."""
    return any([isinstance(x, (Variable, np.ndarray, ComputedNumber)) or isinstance(x, tuple) and has_arrays(x)
                for x in values])
