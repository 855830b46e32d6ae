"""The signature of arguments: the key of a schedule, and tests for it that generated functions make."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends.cuda import is_cupy_array
from ..configuration import config
from ..variable import Variable
from .source import Source
from .trees import SCALARS, array_of, flatten

FEW_ARRAYS = 5    # up to here they are compared with each other one by one
MANY_ARRAYS = 16  # from here on text is written with loops: a line for each array takes longer than the call


def signature(args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
    """Append the leaves of the arguments to ``leaves`` and return all else that a schedule depends on, hashable."""
    key: list[Any] = [config.train, config.enable_backprop]
    first = True
    for a in args:
        kind = type(a)
        if kind is np.ndarray:
            leaves.append(a)
            key.append(a.shape)
            key.append(a.dtype)
        elif first and owns_schedules(a):
            pass  # the object the function is called on: it owns the cache
        else:
            _append(a, leaves, key)
        first = False
    for name, value in kwargs.items():  # in their order, which the function may see
        key.append(name)
        _append(value, leaves, key)
    if len(leaves) > 1:
        arrays = list(map(array_of, leaves))
        if len({id(a) for a in arrays}) < len(arrays):  # one array given twice is one value
            key.append(tuple([next(i for i, b in enumerate(arrays) if b is a) for a in arrays]))
            key.append(tuple([next(i for i, b in enumerate(leaves) if b is a) for a in leaves]))
    return tuple(key)


def without_numbers(key: Any) -> Any:
    """Return a signature without the numbers and the objects of unknown classes that are arguments."""
    if type(key) is not tuple:
        return key
    if len(key) == 2 and key[0] == "object":
        return key[0]
    if len(key) == 3 and key[0] == "static" and key[1] is not bool and issubclass(
            key[1], (int, float, complex, np.number)):
        return key[:2]
    return tuple(map(without_numbers, key))


@dataclass(frozen=True, eq=False)
class ArrayTypes:
    """The types of arguments that are distinct plain arrays, behind the object that owns the schedules, if any.

    All are of one ``kind``: NumPy's, or CuPy's on the ``card`` with a number.

    Invariant: other arguments that ``test`` accepts have the same signature.
    """

    first: int  # number of arguments before the arrays
    types: list[tuple[tuple[int, ...], Any]]
    kind: type = np.ndarray
    card: int | None = None

    @classmethod
    def of(cls, args: tuple[Any, ...], leaves: Sequence[Any]) -> ArrayTypes | None:
        """Return the types of the arrays of a call; None where its arguments are anything else."""
        first = len(args) - len(leaves)
        if not leaves or first not in (0, 1):
            return None
        kind = type(args[first])
        card = None if kind is np.ndarray else args[first].device.id if is_cupy_array(args[first]) else -1
        if card == -1 or any(type(a) is not kind or card is not None and a.device.id != card for a in args[first:]):
            return None
        if first and not owns_schedules(args[0]) or len(set(map(id, leaves))) < len(leaves):
            return None
        return cls(first, [(a.shape, a.dtype) for a in leaves], kind, card)

    def test(self, source: Source, given: Given) -> str:
        """Return the test that arguments have these types, and that none is given twice."""
        ndarray = source.name(self.kind, "ndarray")
        place = "" if self.card is None else f" and {{x}}.device.id == {self.card}"
        if len(self.types) > MANY_ARRAYS:
            x = source.fresh("x")
            same = f"type({x}) is {ndarray}{place.format(x=x)}"
            found = f"[({x}.shape, {x}.dtype) if {same} else None for {x} in {given.together}]"
            return f"{found} == {source.name(self.types, 'types')} and {given.distinct()}"
        tests = [f"type({x}) is {ndarray} and {x}.dtype is {source.name(dtype, 'dtype')} and {x}.shape == {shape}"
                 f"{place.format(x=x)}"
                 for x, (shape, dtype) in zip(given.arrays, self.types, strict=True)]
        return " and ".join([*tests, *filter(None, [given.distinct()])])


@dataclass(frozen=True)
class Given:
    """Arrays in the text of a function: an expression for each, and one for a sequence of all."""

    arrays: tuple[str, ...]
    together: str

    def distinct(self, some: Sequence[str] | None = None) -> str:
        """Return the test that arrays, all or some, are distinct objects; empty for fewer than two."""
        xs = self.arrays if some is None else some
        if len(xs) <= FEW_ARRAYS:
            return " and ".join([f"{x} is not {y}" for i, x in enumerate(xs) for y in xs[:i]])
        together = self.together if some is None else f"({', '.join(xs)},)"
        return f"len({{*map(id, {together})}}) == {len(xs)}"


def unpack(source: Source, args: str, count: int, first: int = 0) -> Given:
    """Append lines that take ``count`` arrays out of a tuple, which has ``first`` others before them."""
    if count > MANY_ARRAYS:
        arrays = source.fresh("arrays")
        source.line(f"{arrays} = {args}[{first}:]" if first else f"{arrays} = {args}")
        return Given(tuple([f"{arrays}[{i}]" for i in range(count)]), arrays)
    names = tuple([source.fresh("a") for _ in range(count)])
    if count:
        source.line(f"{', '.join([*[source.fresh('first') for _ in range(first)], *names])}, = {args}")
    return Given(names, f"({', '.join(names)}{',' * (count == 1)})")


def owns_schedules(x: Any) -> bool:
    """Whether a first argument is an object with schedules of its own, so that it need not be in the signature."""
    kind = type(x)  # the object itself is not asked: it may answer anything
    return kind not in PLAIN and kind.__dictoffset__ != 0 and not (
        issubclass(kind, (Variable, np.ndarray, type)) or is_cupy_array(x))


PLAIN = frozenset((*SCALARS, tuple, list, dict))


def _append(tree: Any, leaves: list[Any], key: list[Any]) -> None:
    start = len(leaves)
    key.append(flatten(tree, leaves))
    for leaf in leaves[start:]:
        array = array_of(leaf)
        if isinstance(leaf, Variable):
            key.append((None,) if array is None else (array.shape, array.dtype, leaf._requires_grad))
            if type(leaf) is not Variable:
                key.append(type(leaf))
        else:
            key += (array.shape, array.dtype)
        if array is not None and is_cupy_array(array):
            key.append(("card", array.device.id))
