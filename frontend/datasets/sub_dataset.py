"""Parts of a dataset: splits for hold-out and cross validation."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dataset import _batch
from ..dataset.dataset_mixin import DatasetMixin
from ..utils.experimental import renamed


class SubDataset(DatasetMixin):
    """The examples of a dataset from ``start`` to before ``finish``, in its order or in another.

    Args:
        dataset: the dataset underneath.
        start: first position.
        finish: position after the last.
        order: permutation of the dataset's indices, read at the positions; ``None`` keeps the order.

    Raises:
        ValueError: the interval leaves the dataset, or ``order`` has another length than the dataset.
    """

    def __init__(self, dataset: Any, start: int, finish: int, order: Sequence[int] | np.ndarray | None = None) -> None:
        if start < 0 or finish > len(dataset):
            raise ValueError(
                f"subset overruns the base dataset: {start} to {finish} of a dataset of {len(dataset)} examples"
            )
        if order is not None and len(order) != len(dataset):
            raise ValueError(
                f"order option must have the same length as the base dataset: "
                f"len(order) = {len(order)} while len(dataset) = {len(dataset)}"
            )
        self._dataset = dataset
        self._start = start
        self._finish = finish
        self._size = max(finish - start, 0)
        self._order = order

    def __len__(self) -> int:
        """Number of examples of the part."""
        return self._size

    def get_example(self, i: int) -> Any:
        """The example at position ``start + i``."""
        position = self._start + i
        return self._dataset[position if self._order is None else self._order[position]]

    def _columns(self, indices: np.ndarray) -> Any:
        """All examples at ``indices`` put together, where the dataset underneath can do that."""
        if type(self) is not SubDataset:
            return None
        positions = indices + self._start
        return _batch.columns_of(
            self._dataset, positions if self._order is None else np.asarray(self._order)[positions]
        )


def _permutation(dataset: Any, seed: int | None) -> np.ndarray:
    """A random order of the dataset's indices, from a generator of its own: a split is not to move the global one."""
    return np.random.RandomState(seed).permutation(len(dataset))


def split_dataset(
    dataset: Any, split_at: int, order: Sequence[int] | np.ndarray | None = None
) -> tuple[SubDataset, SubDataset]:
    """Split a dataset into the first ``split_at`` examples and the others.

    Args:
        dataset: any dataset.
        split_at: size of the first part.
        order: permutation of the indices that is split instead of ``0, 1, 2, …``.

    Raises:
        TypeError: ``split_at`` is not an integer.
        ValueError: ``split_at`` is negative or larger than the dataset.
    """
    try:
        split_at = operator.index(split_at)
    except TypeError:
        raise TypeError(f"split_at must be int, got {type(split_at)} instead") from None
    size = len(dataset)
    if split_at < 0:
        raise ValueError(f"split_at must be non-negative, got {split_at}")
    if split_at > size:
        raise ValueError(f"split_at exceeds the dataset size: {split_at} of {size} examples")
    return SubDataset(dataset, 0, split_at, order), SubDataset(dataset, split_at, size, order)


def split_dataset_random(
    dataset: Any, first_size: int, seed: int | None = None
) -> tuple[SubDataset, SubDataset]:
    """Split a dataset at random into a part of ``first_size`` examples and the rest.

    Args:
        dataset: any dataset.
        first_size: size of the first part.
        seed: seed of the split; ``None`` splits differently at every call, also after ``numpy.random.seed``.

    Example:
        >>> from kusari.datasets import split_dataset_random
        >>> first, second = split_dataset_random([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 4, seed=0)
        >>> first[:]
        [2, 8, 4, 9]
    """
    return split_dataset(dataset, first_size, _permutation(dataset, seed))


def split_dataset_n(dataset: Any, n: int, order: Sequence[int] | np.ndarray | None = None) -> list[SubDataset]:
    """Split a dataset into ``n`` parts of ``len(dataset) // n`` examples; a remainder is left out.

    Raises:
        ValueError: ``n`` is not positive.
    """
    if n < 1:
        raise ValueError(f"a dataset is split into one part or more, got n = {n}")
    size = len(dataset) // n
    return [SubDataset(dataset, i * size, (i + 1) * size, order) for i in range(n)]


def split_dataset_n_random(dataset: Any, n: int, seed: int | None = None) -> list[SubDataset]:
    """Split a dataset at random into ``n`` parts of ``len(dataset) // n`` examples; a remainder is left out."""
    return split_dataset_n(dataset, n, _permutation(dataset, seed))


def get_cross_validation_datasets(
    dataset: Any, n_folds: int | None = None, order: Sequence[int] | np.ndarray | None = None, **kwargs: Any
) -> list[tuple[SubDataset, SubDataset]]:
    """Pairs (training part, test part) for cross validation with ``n_folds`` folds.

    Every example is in the test part of exactly one pair. The first pair tests on the last fold.

    Args:
        dataset: any dataset.
        n_folds: number of folds; the sizes of two folds differ by at most one. ``n_fold`` is another
            word for it (deprecated).
        order: permutation of the indices that is cut into folds; ``None`` keeps the order.

    Raises:
        ValueError: ``n_folds`` is not positive.
    """
    n_folds = renamed(kwargs, "n_fold", "n_folds", n_folds)
    if n_folds is None or n_folds < 1:
        raise ValueError(f"cross validation needs one fold or more, got n_folds = {n_folds}")
    size = len(dataset)
    places = np.arange(size) if order is None else np.asarray(order)
    small, larger = divmod(size, n_folds)
    pairs: list[tuple[SubDataset, SubDataset]] = []
    end = size
    for fold in range(n_folds):
        # The folds are taken from the end; what follows a fold comes first in its training part.
        width = small + (1 if fold < larger else 0)
        turned = np.concatenate([places[end:], places[: end - width], places[end - width : end]])
        pairs.append(split_dataset(dataset, size - width, turned))
        end -= width
    return pairs


def get_cross_validation_datasets_random(
    dataset: Any, n_folds: int | None = None, seed: int | None = None, **kwargs: Any
) -> list[tuple[SubDataset, SubDataset]]:
    """Random pairs (training part, test part) for cross validation with ``n_folds`` folds.

    Args:
        dataset: any dataset.
        n_folds: number of folds.
        seed: seed of the order; ``None`` is different at every call, also after ``numpy.random.seed``.
    """
    return get_cross_validation_datasets(
        dataset, renamed(kwargs, "n_fold", "n_folds", n_folds), _permutation(dataset, seed))
