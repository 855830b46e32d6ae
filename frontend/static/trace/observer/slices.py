"""Slices between computed numbers, ``x[:, i:i + 8]``: rows by an array of integers, as many as in the trace.

Where the number of rows is not known to be the same in other calls (``x[:n]``), replays compare the numbers.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...computed_numbers import ComputedNumber
from ..numpy_nodes import by_python

if TYPE_CHECKING:
    from ..recorder import Tape

_WHOLE = slice(None)


def is_between_numbers(index: Any) -> bool:
    """Whether an index is a slice between a computed integer and the same with a number added: as many rows always."""
    if type(index) is not slice or not all(isinstance(x, ComputedNumber) and isinstance(x, (int, np.integer)) for x in (
            index.start, index.stop)) or not (index.step is None or type(index.step) is int):
        return False
    return _root(index.start) is _root(index.stop)


def _root(number: Any) -> Any:
    return number if number.kusari_sum is None else number.kusari_sum[0]


def taken(tape: Tape, x: Any, key: Any, take: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Return ``x`` and an index, of which ``take`` has done all such slices."""
    keys = list(key) if type(key) is tuple else [key]
    if not any(map(is_between_numbers, keys)) or any(isinstance(i, (list, bool)) or hasattr(i, "ndim") and not (
            isinstance(i, ComputedNumber)) for i in keys):
        return x, key
    axis, more = 0, x.ndim - sum(i is not None and i is not Ellipsis for i in keys)
    for n, i in enumerate(keys):
        if is_between_numbers(i) and axis < x.ndim:
            rows = _rows(tape, i, x.shape[axis])
            if rows is None:
                return x, key
            x, keys[n] = take(x, (*[_WHOLE] * axis, rows)), _WHOLE
        axis += more if i is Ellipsis else i is not None
    return x, tuple(keys)


def stored(tape: Tape, x: Any, key: Any) -> Any:
    """Return an index to store to with rows in the place of such a slice, where all others are slices."""
    keys = list(key) if type(key) is tuple else [key]
    found = [n for n, i in enumerate(keys) if is_between_numbers(i)]
    if len(found) != 1 or any(type(i) is not slice for i in keys) or len(keys) > x.ndim:
        return key
    rows = _rows(tape, keys[found[0]], x.shape[found[0]])
    if rows is not None:
        keys[found[0]] = rows
    return tuple(keys)


def _rows(tape: Tape, index: slice, count: int) -> Any:
    """Return the numbers of the rows, of so many, that a slice picks, as a value; None if replays cannot."""
    def rows(*bounds: Any) -> Any:
        return np.arange(*slice(*[None if x is None else int(x) for x in bounds]).indices(count))
    bounds = index.start, index.stop, index.step
    plain = [x.kusari_value if isinstance(x, ComputedNumber) else x for x in bounds]
    given = tuple([x.kusari_array if isinstance(x, ComputedNumber) else x for x in bounds])
    return by_python(tape, "rows of a slice", rows, given, {}, rows(*plain))


def plain_index(index: Any) -> Any:
    """Return an index with plain numbers, which are not read."""
    if type(index) is slice:
        return slice(*plain_index((index.start, index.stop, index.step)))
    if type(index) is tuple:
        return tuple(map(plain_index, index))
    return index.kusari_value if isinstance(index, ComputedNumber) else index
