"""Indexing for datasets that only say how to make one example."""

from typing import Any

import numpy as np


class DatasetMixin:
    """Base class that gives a dataset slices and index lists, from :meth:`get_example` and ``__len__``.

    Example:
        >>> from kusari.dataset import DatasetMixin
        >>> class Squares(DatasetMixin):
        ...     def __len__(self):
        ...         return 5
        ...     def get_example(self, i):
        ...         return i * i
        >>> Squares()[1], Squares()[-1], Squares()[1:4], Squares()[[0, 3]]
        (1, 16, [1, 4, 9], [0, 9])
    """

    def __getitem__(self, index: Any) -> Any:
        """One example for an integer, a list of examples for a slice, a list or a one-dimensional array.

        Raises:
            IndexError: an integer is outside ``-len(self) … len(self) - 1``.
        """
        if isinstance(index, slice):
            return [self.get_example(i) for i in range(*index.indices(len(self)))]
        if isinstance(index, (list, tuple, np.ndarray)):
            array = np.asarray(index)
            if array.ndim == 1:
                if array.dtype == bool:
                    if len(array) != len(self):
                        raise IndexError(f"a mask of {len(array)} flags for a dataset of {len(self)} examples")
                    array = np.flatnonzero(array)
                return [self._example(int(i)) for i in array]
            index = array.item()
        return self._example(index)

    def _example(self, i: int) -> Any:
        """One example by an index that may count from the end."""
        size = len(self)
        if not -size <= i < size:
            raise IndexError(f"dataset index out of range: {i}, the dataset has {size} examples")
        return self.get_example(i + size if i < 0 else i)

    def __len__(self) -> int:
        """Number of examples."""
        raise NotImplementedError(f"{type(self).__name__} has to define __len__")

    def get_example(self, i: int) -> Any:
        """The example at ``i``, ``0 <= i < len(self)``; to be defined by the dataset."""
        raise NotImplementedError(f"{type(self).__name__} has to define get_example")
