"""What a schedule depends on besides what it has read: the signature of the arguments, and quick tests for it."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backends.cuda import is_cupy_array
from ..configuration import config
from ..variable import Variable
from .trees import array_of, flatten

FEW = 5  # arrays that are compared with each other one by one


def signature(args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
    """Append the leaves of the arguments to ``leaves`` and return what a schedule depends on, hashable."""
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
    if kwargs:
        for name in sorted(kwargs):
            key.append(name)
            _append(kwargs[name], leaves, key)
    if len(leaves) > 1:
        arrays = list(map(array_of, leaves))
        if len({id(a) for a in arrays}) < len(arrays):  # one array given twice is one value
            key.append(tuple([next(i for i, b in enumerate(arrays) if b is a) for a in arrays]))
            key.append(tuple([next(i for i, b in enumerate(leaves) if b is a) for a in leaves]))
    return tuple(key)


def without_numbers(key: Any) -> Any:
    """Return a signature without the numbers that are arguments."""
    if type(key) is not tuple:
        return key
    if len(key) == 3 and key[0] == "static" and key[1] is not bool and issubclass(
            key[1], (int, float, complex, np.number)):
        return key[:2]
    return tuple(map(without_numbers, key))


@functools.lru_cache(maxsize=256)
def _test(count: int, types: tuple[tuple[tuple[int, ...], Any], ...]) -> Callable[[tuple[Any, ...]], bool]:
    """Return a quick test for ``count`` arguments of which the last are distinct arrays of these shapes and dtypes."""
    names: dict[str, Any] = {"ndarray": np.ndarray}
    checks = [f"len(args) == {count}"]
    places = range(count - len(types), count)
    for i, (shape, dtype) in zip(places, types, strict=True):
        names[f"d{i}"] = dtype
        checks.append(f"type(args[{i}]) is ndarray and args[{i}].dtype is d{i} and args[{i}].shape == {shape}")
    if len(types) <= FEW:
        checks += [f"args[{i}] is not args[{j}]" for i in places for j in places if j < i]
    else:
        checks.append(f"len({{*map(id, args[{count - len(types)}:])}}) == {len(types)}")
    return eval(f"lambda args: {' and '.join(checks)}", names)


def matcher(args: tuple[Any, ...], leaves: Sequence[Any]) -> Callable[[tuple[Any, ...]], bool] | None:
    """Return a test that accepts only arguments of the same signature, for calls on plain arrays only."""
    first = len(args) - len(leaves)
    if not leaves or first not in (0, 1) or any(type(a) is not np.ndarray for a in args[first:]):
        return None
    if first and not owns_schedules(args[0]) or len(set(map(id, leaves))) < len(leaves):
        return None
    return _test(len(args), tuple([(a.shape, a.dtype) for a in leaves]))


def owns_schedules(x: Any) -> bool:
    """Whether a first argument is an object with schedules of its own, so that it need not be in the signature."""
    kind = type(x)  # the object itself is not asked: it may answer anything
    return kind not in PLAIN and kind.__dictoffset__ != 0 and not (
        issubclass(kind, (Variable, np.ndarray, type)) or is_cupy_array(x))


PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None), tuple, list, dict))


def _append(tree: Any, leaves: list[Any], key: list[Any]) -> None:
    start = len(leaves)
    key.append(flatten(tree, leaves))
    for leaf in leaves[start:]:
        if isinstance(leaf, Variable):
            array = leaf._array
            key.append((None,) if array is None else (array.shape, array.dtype, leaf._requires_grad))
            if type(leaf) is not Variable:
                key.append(type(leaf))
        else:
            key.append(leaf.shape)
            key.append(leaf.dtype)
