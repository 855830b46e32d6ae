"""A dataset seen through a function."""

from collections.abc import Callable
from typing import Any

from ..dataset.dataset_mixin import DatasetMixin


class TransformDataset(DatasetMixin):
    """Dataset whose examples are those of another one, passed through a function when they are read.

    Args:
        dataset: the dataset underneath.
        transform: ``transform(example)`` gives the new example; called at every access.

    Example:
        >>> from kusari.datasets import TransformDataset
        >>> TransformDataset([1, 2, 3], lambda x: x * 10)[:2]
        [10, 20]
    """

    def __init__(self, dataset: Any, transform: Callable[[Any], Any]) -> None:
        self._dataset = dataset
        self._transform = transform

    def __len__(self) -> int:
        """Number of examples of the dataset underneath."""
        return len(self._dataset)

    def get_example(self, i: int) -> Any:
        """The transformed example at ``i``."""
        return self._transform(self._dataset[i])
