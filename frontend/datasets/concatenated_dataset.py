"""Datasets one after the other."""

import itertools
from bisect import bisect_right
from typing import Any

from ..dataset.dataset_mixin import DatasetMixin


class ConcatenatedDataset(DatasetMixin):
    """Dataset of the examples of several datasets, one after the other.

    Example:
        >>> from kusari.datasets import ConcatenatedDataset
        >>> ConcatenatedDataset([1, 2], [3])[:]
        [1, 2, 3]
    """

    def __init__(self, *datasets: Any) -> None:
        self._datasets = datasets
        self._ends = list(itertools.accumulate(len(d) for d in datasets))

    def __len__(self) -> int:
        """Sum of the lengths."""
        return self._ends[-1] if self._ends else 0

    def get_example(self, i: int) -> Any:
        """The example at ``i``, counted through all datasets."""
        which = bisect_right(self._ends, i)
        start = self._ends[which - 1] if which else 0
        return self._datasets[which][i - start]
