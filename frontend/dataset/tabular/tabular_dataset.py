"""Datasets with named columns: their base, and views of some rows and columns, of several, and of functions of rows."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import backend
from ..dataset_mixin import DatasetMixin

#: What is read of a column: a list or an array.
Column = Any
#: Rows: a slice, a list of numbers from 0, or None for all.
Rows = Any


class TabularDataset(DatasetMixin):
    """Dataset whose examples all have the same elements, its columns.

    An example is a tuple, a dictionary, or, of a single column, the element itself: that is the dataset's ``mode``.
    Views of some rows or columns (:attr:`slice`), of several datasets (:meth:`concat`, :meth:`join`) and of what a
    function makes of a dataset (:meth:`transform`) read no more than they are asked for.

    A dataset of your own defines ``__len__``, :attr:`keys`, :attr:`mode` and :meth:`get_examples`.

    >>> import numpy as np
    >>> from kusari.dataset import TabularDataset
    >>> class Table(TabularDataset):
    ...     keys, mode = ("a", "b", "c"), tuple
    ...     def __len__(self):
    ...         return 4
    ...     def get_examples(self, indices, key_indices):
    ...         rows = np.arange(12).reshape(4, 3)[slice(None) if indices is None else indices]
    ...         return tuple(rows.T.tolist()) if key_indices is None else tuple(rows.T[list(key_indices)].tolist())
    >>> table = Table()
    >>> table[1], table.asdict()[1], table.fetch()
    ((3, 4, 5), {'a': 3, 'b': 4, 'c': 5}, ([0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]))
    >>> table.slice[[3, 2], ("c", "a")].fetch()
    ([11, 8], [9, 6])
    >>> table.transform("sum", lambda a, b, c: a + b + c).slice[:2].fetch()
    [3, 12]
    """

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the columns."""
        raise NotImplementedError(f"{type(self).__name__} has to define keys, the names of its columns")

    @property
    def mode(self) -> type | None:
        """The type of an example: ``tuple``, ``dict``, or None for the element of the only column."""
        raise NotImplementedError(f"{type(self).__name__} has to define mode: tuple, dict or None")

    def get_examples(self, indices: list[int] | slice | None, key_indices: tuple[int, ...] | None
                     ) -> tuple[Column, ...]:  # fmt: skip
        """Columns of some rows; to be defined by the dataset.

        Args:
            indices: The rows, each from 0 to ``len(self) - 1``; None for all.
            key_indices: The columns; None for all.

        Returns:
            For every column a list or an array with an element for every row.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define get_examples")

    def get_example(self, i: int) -> Any:
        """The example at ``i``."""
        return self._shown(tuple([column[0] for column in self.get_examples([i], None)]))

    def _shown(self, columns: tuple[Any, ...]) -> Any:
        """Columns, or elements of one example, as ``mode`` has them."""
        if self.mode is tuple:
            return columns
        return dict(zip(self.keys, columns, strict=True)) if self.mode is dict else columns[0]

    def fetch(self) -> Any:
        """All the data: a tuple or a dictionary of columns, or the only column."""
        return self._shown(tuple(self.get_examples(None, None)))

    def convert(self, data: Any) -> Any:
        """Return what :meth:`fetch` has returned with an array for each column.

        A dataset made by :meth:`with_converter` does something else, and so do views of it.
        """
        if isinstance(data, tuple):
            return tuple([_array(column) for column in data])
        return {key: _array(column) for key, column in data.items()} if isinstance(data, dict) else _array(data)

    @property
    def slice(self) -> Any:
        """Views of some rows, ``dataset.slice[rows]``, or of some rows and columns, ``dataset.slice[rows, keys]``.

        ``rows`` is a slice, or a list or array of integers or of flags; ``keys`` is a tuple of names or numbers of
        columns. A single name or number gives a dataset of mode None.
        """
        return Slicer(self)

    def astuple(self) -> TabularDataset:
        """A view whose examples are tuples."""
        return AsMode(self, tuple)

    def asdict(self) -> TabularDataset:
        """A view whose examples are dictionaries."""
        return AsMode(self, dict)

    def concat(self, *datasets: TabularDataset) -> TabularDataset:
        """A view of this dataset's rows and then those of others, which have the same keys.

        Raises:
            ValueError: The keys differ.
        """
        return Concat(self, *datasets)

    def join(self, *datasets: TabularDataset) -> TabularDataset:
        """A view of this dataset's columns and then those of others, which have as many rows.

        Raises:
            ValueError: The lengths differ, or two columns have one name.
        """
        return Join(self, *datasets)

    def transform(self, keys: str | tuple[str, ...], transform: Callable[..., Any]) -> TabularDataset:
        """A view of the results of a function on each example.

        Args:
            keys: The names of the new columns.
            transform: Called as ``transform(*example)``, ``transform(**example)`` or ``transform(element)``; what it
                returns, a tuple, a dictionary or an element, is the view's mode.
        """
        return Transform(self, keys, transform)

    def transform_batch(self, keys: str | tuple[str, ...], transform_batch: Callable[..., Any]) -> TabularDataset:
        """A view of what a function makes of the columns of several examples at once; otherwise as `transform`."""
        return TransformBatch(self, keys, transform_batch)

    def with_converter(self, converter: Callable[..., Any]) -> TabularDataset:
        """A view whose :meth:`convert` calls ``converter(*data)``, ``converter(**data)`` or ``converter(column)``."""
        return WithConverter(self, converter)


def _array(column: Column) -> Any:
    """A column as an array, on the device of what is in it."""
    if isinstance(column, np.ndarray) or not len(column):
        return np.asarray(column)
    return backend.get_array_module(column if hasattr(column, "dtype") else column[0]).asarray(column)


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


class Transform(View):
    """The results of a function for each example; its first result decides the mode."""

    def __init__(self, dataset: TabularDataset, keys: str | tuple[str, ...], function: Callable[..., Any]) -> None:
        super().__init__(dataset)
        self._keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self._function = function
        self._mode: type | None = None
        self._is_known = False

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    @property
    def mode(self) -> type | None:
        if not self._is_known:
            if not len(self):
                raise ValueError("the mode of a transformed dataset is that of its first example, but there is none")
            self._columns([0])
        return self._mode

    def get_examples(self, indices: Rows, key_indices: tuple[int, ...] | None) -> tuple[Column, ...]:
        columns = self._columns(indices)
        return columns if key_indices is None else tuple([columns[k] for k in key_indices])

    def _columns(self, indices: Rows) -> tuple[Column, ...]:
        rows = zip(*self.dataset.get_examples(indices, None), strict=True)
        examples = [self._checked(self._applied(row)) for row in rows]
        return tuple([list(column) for column in zip(*examples, strict=True)] or [[] for _ in self._keys])

    def _applied(self, columns: tuple[Any, ...]) -> Any:
        """The function of an example, or of columns."""
        mode = self.dataset.mode
        if mode is dict:
            return self._function(**dict(zip(self.dataset.keys, columns, strict=True)))
        return self._function(*columns)

    def _checked(self, result: Any) -> tuple[Any, ...]:
        """Return the function's result as a tuple, one element for each key."""
        mode = tuple if isinstance(result, tuple) else dict if isinstance(result, dict) else None
        if not self._is_known:
            self._mode, self._is_known = mode, True
        elif mode is not self._mode:
            raise ValueError(f"the function of a transformed dataset returned a {_named(self._mode)} before, and now a "
                             f"{_named(mode)}")
        if isinstance(result, dict):
            if set(result) != set(self._keys):
                raise ValueError(f"the function should return a dictionary of {self._keys}, got {tuple(result)}")
            return tuple([result[key] for key in self._keys])
        values = result if isinstance(result, tuple) else (result,)
        if len(values) != len(self._keys):
            raise ValueError(f"the function should return one value for each of {self._keys}, got {len(values)}")
        return values


def _named(mode: type | None) -> str:
    return "single value" if mode is None else mode.__name__


class TransformBatch(Transform):
    """The results of a function for the columns of many examples at once."""

    def _columns(self, indices: Rows) -> tuple[Column, ...]:
        columns = tuple(self.dataset.get_examples(indices, None))
        found = self._checked(self._applied(columns))
        for key, column in zip(self._keys, found, strict=True):
            if columns and len(column) != len(columns[0]):
                raise ValueError(f"the function should return as many elements as it was given, {len(columns[0])}, got "
                                 f"{len(column)} for {key!r}")
        return found
