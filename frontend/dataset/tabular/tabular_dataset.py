"""The base of datasets with named columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import backend
from ..dataset_mixin import DatasetMixin

#: What is read of a column: a list or an array.
Column = Any


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
        from .views import Slicer

        return Slicer(self)

    def astuple(self) -> TabularDataset:
        """A view whose examples are tuples."""
        from .views import AsMode

        return AsMode(self, tuple)

    def asdict(self) -> TabularDataset:
        """A view whose examples are dictionaries."""
        from .views import AsMode

        return AsMode(self, dict)

    def concat(self, *datasets: TabularDataset) -> TabularDataset:
        """A view of this dataset's rows and then those of others, which have the same keys.

        Raises:
            ValueError: The keys differ.
        """
        from .views import Concat

        return Concat(self, *datasets)

    def join(self, *datasets: TabularDataset) -> TabularDataset:
        """A view of this dataset's columns and then those of others, which have as many rows.

        Raises:
            ValueError: The lengths differ, or two columns have one name.
        """
        from .views import Join

        return Join(self, *datasets)

    def transform(self, keys: str | tuple[str, ...], transform: Callable[..., Any]) -> TabularDataset:
        """A view of the results of a function on each example.

        Args:
            keys: The names of the new columns.
            transform: Called as ``transform(*example)``, ``transform(**example)`` or ``transform(element)``; what it
                returns, a tuple, a dictionary or an element, is the view's mode.
        """
        from .transforms import Transform

        return Transform(self, keys, transform)

    def transform_batch(self, keys: str | tuple[str, ...], transform_batch: Callable[..., Any]) -> TabularDataset:
        """A view of what a function makes of the columns of several examples at once; otherwise as `transform`."""
        from .transforms import TransformBatch

        return TransformBatch(self, keys, transform_batch)

    def with_converter(self, converter: Callable[..., Any]) -> TabularDataset:
        """A view whose :meth:`convert` calls ``converter(*data)``, ``converter(**data)`` or ``converter(column)``."""
        from .views import WithConverter

        return WithConverter(self, converter)


def _array(column: Column) -> Any:
    """A column as an array, on the device of what is in it."""
    if isinstance(column, np.ndarray) or not len(column):
        return np.asarray(column)
    return backend.get_array_module(column if hasattr(column, "dtype") else column[0]).asarray(column)
