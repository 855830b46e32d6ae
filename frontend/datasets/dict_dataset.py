"""Datasets in parallel, an example being a dict."""

from typing import Any

import numpy as np

from ..dataset import _batch


class DictDataset:
    """Dataset of dicts, one value from each of several named datasets of equal length.

    Raises:
        ValueError: no dataset is given, or their lengths differ.

    Example:
        >>> from kusari.datasets import DictDataset
        >>> DictDataset(x=[1, 2], t=[0, 1])[1]
        {'x': 2, 't': 1}
    """

    def __init__(self, **datasets: Any) -> None:
        if not datasets:
            raise ValueError("no datasets are given")
        self._length = len(next(iter(datasets.values())))
        for key, dataset in datasets.items():
            if len(dataset) != self._length:
                raise ValueError(
                    f'dataset length conflicts at "{key}": {len(dataset)}, the first has {self._length}'
                )
        self._datasets = datasets

    def __getitem__(self, index: Any) -> Any:
        """A dict of that of each dataset; for a slice a list of dicts."""
        columns = {key: dataset[index] for key, dataset in self._datasets.items()}
        if isinstance(index, slice):
            rows = zip(*columns.values(), strict=True)
            return [dict(zip(columns, row, strict=True)) for row in rows]
        return columns

    def _columns(self, indices: np.ndarray) -> dict[str, np.ndarray] | None:
        """All dicts at ``indices`` as a dict of arrays, where the datasets are arrays."""
        if type(self) is not DictDataset:
            return None
        columns = {key: _batch.columns_of(dataset, indices) for key, dataset in self._datasets.items()}
        return columns if all(isinstance(column, np.ndarray) for column in columns.values()) else None

    def __len__(self) -> int:
        """Number of dicts."""
        return self._length
