"""Datasets with named columns made of lists, arrays and functions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ...backends import cuda
from .tabular_dataset import AsMode, Column, Join, Rows, TabularDataset, Transform

_unnamed = itertools.count()  # columns without a name get one that no other has


def from_data(data: Any, *, size: int | None = None) -> TabularDataset:
    """Make a dataset of columns.

    Args:
        data: A column, a tuple of columns (then examples are tuples) or a dictionary of them. A column is a list, an
            array, ``(name, list or array)``, or ``(name, function)``, where the function gives the element of a row
            number. ``((name, name, …), function)`` are several columns: the function returns a tuple or a dictionary.
        size: Number of rows, needed where all columns are functions.

    Raises:
        ValueError: The columns' lengths differ, or no length is known; a function has no name; a name is there twice.
        TypeError: A column is none of these.

    >>> from kusari.dataset import tabular
    >>> tabular.from_data([1, 2, 3])[0], tabular.from_data(([1, 2], [3, 4]))[1]
    (1, (2, 4))
    >>> tabular.from_data({"a": [0, 1], "b": lambda i: 10 * i})[1]
    {'a': 1, 'b': 10}
    >>> tabular.from_data((("a", "b"), lambda i: (i, -i)), size=5).slice[3:, "b"].fetch()
    [-3, -4]
    """
    if isinstance(data, dict):
        columns, mode = list(data.items()), dict
    elif isinstance(data, tuple) and not _is_named(data):
        columns, mode = [c if isinstance(c, tuple) else (None, c) for c in data], tuple
    else:
        pair = data if isinstance(data, tuple) else (None, data)
        columns, mode = [pair], None  # a function decides itself
    if not columns:
        raise ValueError("a dataset needs at least one column")
    for _, values in columns:
        if not callable(values) and not _is_given(values):
            raise TypeError(f"a column should be a list, an array or a function, got {type(values).__name__}")
    lengths = [len(values) for _, values in columns if not callable(values)]
    if len(known := {*lengths, *([] if size is None else [size])}) > 1:
        raise ValueError(f"all columns must have the same length, got {sorted(known)}")
    if not lengths and size is None:
        raise ValueError("size must be given where all columns are functions")
    parts = [_part(name, values, lengths[0] if lengths else size or 0) for name, values in columns]
    whole = parts[0] if len(parts) == 1 else Join(*parts)
    return whole if mode is None else AsMode(whole, mode)


def _is_given(values: Any) -> bool:
    return isinstance(values, (list, np.ndarray)) or (cuda.available and isinstance(values, cuda.ndarray))


def _is_named(data: tuple[Any, ...]) -> bool:
    """Whether a tuple is a name (or names) and a column, not columns."""
    return len(data) == 2 and (isinstance(data[0], str) or (
        isinstance(data[0], tuple) and callable(data[1]) and all(isinstance(name, str) for name in data[0])))


def _part(name: Any, values: Any, size: int) -> TabularDataset:
    names = name if isinstance(name, tuple) else (f"_{next(_unnamed)}" if name is None else name,)
    if callable(values):
        if name is None:
            raise ValueError("a function needs a name, or names: ('name', function)")
        return Transform(_Given(("index",), list(range(size))), names, values)
    return _Given(names, values)


class _Given(TabularDataset):
    """One column that is a list or an array."""

    def __init__(self, keys: tuple[str, ...], values: Column) -> None:
        self._keys = keys
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    @property
    def mode(self) -> type | None:
        return None

    def get_examples(self, indices: Rows, key_indices: tuple[int, ...] | None) -> tuple[Column, ...]:
        values = self._values
        if isinstance(indices, slice):
            values = values[indices]
        elif indices is not None:
            values = [values[i] for i in indices] if isinstance(values, list) else values[indices]
        return (values,) if key_indices is None else (values,) * len(key_indices)
