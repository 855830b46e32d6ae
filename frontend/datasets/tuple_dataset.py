"""Datasets in parallel, an example being a tuple."""

from typing import Any

import numpy as np

from ..dataset import _batch


class TupleDataset:
    """Dataset of tuples, one element from each of several datasets of equal length.

    Raises:
        ValueError: no dataset is given, or their lengths differ.

    Example:
        >>> from kusari.datasets import TupleDataset
        >>> pairs = TupleDataset([10, 20, 30], ["a", "b", "c"])
        >>> pairs[1], pairs[1:]
        ((20, 'b'), [(20, 'b'), (30, 'c')])
    """

    def __init__(self, *datasets: Any) -> None:
        if not datasets:
            raise ValueError("no datasets are given")
        self._length = len(datasets[0])
        for i, dataset in enumerate(datasets):
            if len(dataset) != self._length:
                raise ValueError(
                    f"dataset of the index {i} has a wrong length: {len(dataset)}, the first has {self._length}"
                )
        self._datasets = datasets

    def __getitem__(self, index: Any) -> Any:
        """A tuple of that of each dataset; for a slice a list of tuples."""
        columns = [dataset[index] for dataset in self._datasets]
        if isinstance(index, slice):
            return list(zip(*columns, strict=True))
        return tuple(columns)

    def _columns(self, indices: np.ndarray) -> tuple[np.ndarray, ...] | None:
        """All tuples at ``indices`` as a tuple of arrays, where the datasets are arrays."""
        if type(self) is not TupleDataset:
            return None
        columns = tuple(_batch.columns_of(dataset, indices) for dataset in self._datasets)
        return columns if all(isinstance(column, np.ndarray) for column in columns) else None

    def __len__(self) -> int:
        """Number of tuples."""
        return self._length
