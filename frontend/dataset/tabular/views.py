"""Views of datasets with named columns: some rows and columns, several datasets, another mode or converter."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from .tabular_dataset import Column, TabularDataset

#: Rows: a slice, a list of numbers from 0, or None for all.
Rows = Any


class View(TabularDataset):
    """A dataset that reads another one."""

    def __init__(self, dataset: TabularDataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.dataset.keys

    @property
    def mode(self) -> type | None:
        return self.dataset.mode

    def get_examples(self, indices: Rows, key_indices: tuple[int, ...] | None) -> tuple[Column, ...]:
        return self.dataset.get_examples(indices, key_indices)

    def convert(self, data: Any) -> Any:
        return self.dataset.convert(data)


class AsMode(View):
    """A dataset with another mode."""

    def __init__(self, dataset: TabularDataset, mode: type) -> None:
        super().__init__(dataset)
        self._mode = mode

    @property
    def mode(self) -> type | None:
        return self._mode


class WithConverter(View):
    """A dataset with another converter."""

    def __init__(self, dataset: TabularDataset, converter: Callable[..., Any]) -> None:
        super().__init__(dataset)
        self._converter = converter

    def convert(self, data: Any) -> Any:
        if isinstance(data, tuple):
            return self._converter(*data)
        return self._converter(**data) if isinstance(data, dict) else self._converter(data)


class Slicer:
    """``dataset.slice``: views of rows and columns by indexing."""

    def __init__(self, dataset: TabularDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, index: Any) -> TabularDataset:
        rows, keys = index if isinstance(index, tuple) else (index, None)
        return Slice(self._dataset, rows, keys)


class Slice(View):
    """Some rows and columns of a dataset."""

    def __init__(self, dataset: TabularDataset, rows: Any, keys: Any) -> None:
        super().__init__(dataset)
        self._rows = checked_rows(rows, len(dataset))
        self._length = len(range(len(dataset))[rows]) if isinstance(rows, slice) else len(self._rows)
        self._single = isinstance(keys, (str, int))
        self._columns = None if keys is None else tuple(
            [_column(dataset.keys, k) for k in ((keys,) if self._single else keys)])  # fmt: skip

    def __len__(self) -> int:
        return self._length

    @property
    def keys(self) -> tuple[str, ...]:
        names = self.dataset.keys
        return names if self._columns is None else tuple([names[k] for k in self._columns])

    @property
    def mode(self) -> type | None:
        if self._columns is None:
            return self.dataset.mode
        return None if self._single else self.dataset.mode or tuple

    def get_examples(self, indices: Rows, key_indices: tuple[int, ...] | None) -> tuple[Column, ...]:
        if key_indices is None:
            columns = self._columns
        else:
            columns = key_indices if self._columns is None else tuple([self._columns[k] for k in key_indices])
        return self.dataset.get_examples(_composed(self._rows, indices, len(self.dataset)), columns)


def checked_rows(rows: Any, size: int) -> Rows:
    """Rows as a slice or as a list of numbers from 0.

    Raises:
        TypeError: They are something else, such as a single number.
        ValueError: There is not one flag for every row.
        IndexError: A row does not exist.
    """
    if isinstance(rows, slice):
        return rows
    if not isinstance(rows, (list, tuple, np.ndarray)):
        raise TypeError("rows should be a slice, or a list or array of integers or flags, got "
                        f"{rows!r}; dataset[i] is a single example")
    array = np.asarray(rows) if len(rows) else np.zeros(0, int)
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise TypeError(f"rows should be integers or flags along one axis, got {array.dtype}{array.shape}")
    if array.dtype.kind == "b":
        if len(array) != size:
            raise ValueError(f"{len(array)} flags for {size} rows; there must be one for each")
        return np.flatnonzero(array).tolist()
    numbers = array.tolist()
    for i in numbers:
        if not -size <= i < size:
            raise IndexError(f"row {i} of a dataset of {size} rows")
    return [i % size for i in numbers]


def _column(names: tuple[str, ...], key: Any) -> int:
    if isinstance(key, str):
        if key not in names:
            raise KeyError(f"there is no column {key!r} among {', '.join(map(repr, names))}")
        return names.index(key)
    if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
        raise KeyError(f"columns are given by a name, a number or a tuple of them, got {key!r}")
    if not -len(names) <= key < len(names):
        raise IndexError(f"column {key} of a dataset of {len(names)} columns")
    return int(key) % len(names)


def _composed(rows: Rows, of: Rows, size: int) -> Rows:
    """The rows ``of`` those rows of a dataset of ``size``."""
    if of is None:
        return rows
    if not isinstance(rows, slice):
        return rows[of] if isinstance(of, slice) else [rows[i] for i in of]
    whole = range(size)[rows]
    return _as_slice(whole[of]) if isinstance(of, slice) else [whole[i] for i in of]


def _as_slice(numbers: range) -> slice:
    if not numbers:
        return slice(0, 0)
    return slice(numbers.start, numbers.stop if numbers.stop >= 0 else None, numbers.step)


class Several(TabularDataset):
    """The base of `Concat` and `Join`: the first dataset decides."""

    def __init__(self, *datasets: TabularDataset) -> None:
        self.datasets = datasets

    def convert(self, data: Any) -> Any:
        return self.datasets[0].convert(data)


class Concat(Several):
    """The rows of several datasets."""

    def __init__(self, *datasets: TabularDataset) -> None:
        super().__init__(*datasets)
        for other in datasets[1:]:
            if other.keys != datasets[0].keys:
                raise ValueError(f"all datasets to be concatenated must have the same keys, got {datasets[0].keys} and "
                                 f"{other.keys}")

    def __len__(self) -> int:
        return sum(map(len, self.datasets))

    @property
    def keys(self) -> tuple[str, ...]:
        return self.datasets[0].keys

    @property
    def mode(self) -> type | None:
        return self.datasets[0].mode

    def get_examples(self, indices: Rows, key_indices: tuple[int, ...] | None) -> tuple[Column, ...]:
        count = len(self.keys) if key_indices is None else len(key_indices)
        if indices is None:
            parts = [dataset.get_examples(None, key_indices) for dataset in self.datasets]
            return tuple([[value for part in parts for value in part[k]] for k in range(count)])
        numbers = range(len(self))[indices] if isinstance(indices, slice) else indices
        ends = list(itertools.accumulate(map(len, self.datasets)))
        places: list[list[int]] = [[] for _ in self.datasets]  # where in the result each dataset's rows go
        for place, i in enumerate(numbers):
            places[bisect.bisect_right(ends, i)].append(place)
        found: list[list[Any]] = [[None] * len(numbers) for _ in range(count)]
        for dataset, own, end in zip(self.datasets, places, ends, strict=True):
            if not own:
                continue
            first = end - len(dataset)
            if isinstance(numbers, range):
                stop = max(-1, min(numbers.stop - first, len(dataset)))
                rows: Rows = _as_slice(range(numbers[own[0]] - first, stop, numbers.step))
            else:
                rows = [numbers[place] - first for place in own]
            examples = dataset.get_examples(rows, key_indices)
            if len(own) == len(numbers):
                return examples
            for column, values in zip(found, examples, strict=True):
                for place, value in zip(own, values, strict=True):
                    column[place] = value
        return tuple(found)


class Join(Several):
    """The columns of several datasets."""

    def __init__(self, *datasets: TabularDataset) -> None:
        super().__init__(*datasets)
        for other in datasets[1:]:
            if len(other) != len(datasets[0]):
                raise ValueError(f"all datasets to be joined must have the same length, got {len(datasets[0])} and "
                                 f"{len(other)}")
        names = self.keys
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the keys of datasets to be joined must be unique, but {twice[0]!r} is there twice")

    def __len__(self) -> int:
        return len(self.datasets[0])

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple([key for dataset in self.datasets for key in dataset.keys])

    @property
    def mode(self) -> type | None:
        return next((dataset.mode for dataset in self.datasets if dataset.mode is not None), tuple)

    def get_examples(self, indices: Rows, key_indices: tuple[int, ...] | None) -> tuple[Column, ...]:
        if key_indices is None:
            return tuple([c for dataset in self.datasets for c in dataset.get_examples(indices, None)])
        wanted = dict.fromkeys(key_indices)
        found: dict[int, Column] = {}
        first = 0
        for dataset in self.datasets:
            own = [k for k in wanted if first <= k < first + len(dataset.keys)]
            if own:
                columns = dataset.get_examples(indices, tuple([k - first for k in own]))
                found.update(zip(own, columns, strict=True))
            first += len(dataset.keys)
        return tuple([found[k] for k in key_indices])
