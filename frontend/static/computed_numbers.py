"""Numbers that a traced call takes out of arrays: each is the number, and knows the array without axes that it is.

NumPy gives numbers where an array has no axes left: ``x.max()``, ``loss.array * 2``. Arithmetic on them is recorded,
and they may be reported and returned. Any other use reads the number: whatever asks for it calls a method of its class,
and that tells the trace; code in C, which need not, gets plain numbers. Python's integers are never such numbers.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

KINDS = (int, float, np.integer, np.floating)
MOST_DEPTH = 6  # of containers in containers
_OF_TYPES = frozenset((
    "__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__delattr__", "__dir__", "__doc__",
    "__init_subclass__", "__subclasshook__", "__class_getitem__", "__reduce__", "__reduce_ex__", "__getnewargs__",
    "__getstate__", "__array_priority__", "dtype", "shape", "ndim", "size", "nbytes", "itemsize"))


class Reader:
    """The reads of the numbers of one trace; ``told`` hears of each until the trace is over."""

    def __init__(self, told: Callable[[ComputedNumber, str], None]) -> None:
        self.told: Callable[[ComputedNumber, str], None] | None = told


class ComputedNumber:
    """The base of the classes of such numbers: the plain number, its array, and names that no program asks for."""

    kusari_kind: type
    kusari_value: Any
    kusari_array: Any
    kusari_reader: Reader
    kusari_sum: tuple[Any, int] | None = None  # a number and what was added to it, if this is their sum

    def kusari_read(self, name: str) -> None:
        """Take note that the number is used by anything that is not recorded."""
        if self.kusari_reader.told is not None:
            self.kusari_reader.told(self, name)


@functools.cache
def _class_of(kind: Any) -> Any:
    """Return the class of computed numbers of a type, any method of which is a read."""
    body: dict[str, Any] = {
        "kusari_kind": kind, "__class__": property(lambda self: kind), "__module__": kind.__module__}
    for name in dir(kind):
        if name not in _OF_TYPES:
            own = getattr(kind, name)
            body[name] = _method(name, own) if callable(own) else property(_attribute(name))
    body["__new__"] = lambda cls, *args: kind(*args)  # others of its type are plain numbers
    body["__reduce_ex__"] = _reduced
    return type(kind.__name__, (kind, ComputedNumber), body)  # NumPy asks the first base for a dtype


def _reduced(self: ComputedNumber, protocol: Any) -> Any:
    self.kusari_read("__reduce_ex__()")
    value = self.kusari_value
    return (float, (value,)) if type(value) is float else value.__reduce_ex__(protocol)


def _method(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: ComputedNumber, *args: Any, **kwargs: Any) -> Any:
        self.kusari_read(f"{name}()")
        return own(self.kusari_value, *args, **kwargs)
    return method


def _attribute(name: str) -> Callable[[ComputedNumber], Any]:
    def attribute(self: ComputedNumber) -> Any:
        self.kusari_read(f".{name}")
        return getattr(self.kusari_value, name)
    return attribute


def computed_number(value: Any, array: Any, reader: Reader) -> Any:
    """Return the number ``value`` as one that knows its array."""
    kind = type(value)
    made = kind.__new__(_class_of(kind), value)
    made.kusari_value, made.kusari_array, made.kusari_reader = value, array, reader
    return made


def numbers_in(tree: Any, depth: int = 0) -> list[ComputedNumber]:
    """Return the computed numbers in a tree of containers."""
    if depth > MOST_DEPTH:
        return []
    if isinstance(tree, ComputedNumber):
        return [tree]
    if type(tree) is slice:
        tree = (tree.start, tree.stop, tree.step)
    elif type(tree) is dict:
        tree = (*tree, *tree.values())
    elif not isinstance(tree, (tuple, list, set, frozenset)):
        return []
    return [number for x in tree for number in numbers_in(x, depth + 1)]


def plain(x: Any) -> Any:
    """Return plain numbers in place of computed ones, for a call that has fallen back: NumPy tells them apart."""
    return settled(x, "a call that has fallen back")


def settled(tree: Any, name: str, depth: int = 0) -> Any:
    """Return a tree with plain numbers in place of computed ones, which are read; what can change stays the same."""
    if isinstance(tree, ComputedNumber):
        tree.kusari_read(name)
        return tree.kusari_value
    if not numbers_in(tree, depth):
        return tree
    if type(tree) is slice:
        return slice(*[settled(x, name, depth + 1) for x in (tree.start, tree.stop, tree.step)])
    if type(tree) is dict:
        pairs = [(settled(key, name, depth + 1), settled(x, name, depth + 1)) for key, x in tree.items()]
        if numbers_in([*tree], depth):
            tree.clear()
        tree.update(pairs)
        return tree
    items = [settled(x, name, depth + 1) for x in tree]
    if type(tree) is set:
        tree.clear()
        tree.update(items)
        return tree
    if type(tree) is list:
        tree[:] = items
        return tree
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


def number_of(kind: type, array: Any) -> Any:
    """Return the number of a type that an array without axes is.

    >>> number_of(float, np.ones((), "f"))
    1.0
    """
    return array[()] if issubclass(kind, np.generic) else kind(array)
