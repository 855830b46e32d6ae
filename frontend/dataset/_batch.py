"""Batches that remember their columns, so that arrays need not be cut into examples and stacked again.

Reading 100 pairs one by one from arrays and stacking them takes half a millisecond, more than a small model's whole
step; taking 100 rows at once takes some microseconds.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


class Batch(list[Any]):
    """A list of examples cut from ``columns``, what ``concat_examples`` would make of them.

    Invariant: the examples are views of the columns, so that writing to an example's array writes to its column, and
    tuples, whose elements cannot be replaced (so no dicts); whether the list is still as it was made,
    ``columns_of_batch`` looks.
    """

    __slots__ = ("columns", "made")

    def __init__(self, examples: list[Any], columns: Any) -> None:
        super().__init__(examples)
        self.columns = columns
        self.made = examples


def read(dataset: Any, indices: Any) -> list[Any]:
    """The examples of ``dataset`` at ``indices``, as a :class:`Batch` where it is made of NumPy arrays."""
    columns = columns_of(dataset, indices)
    if columns is None:
        return [dataset[i] for i in (indices.tolist() if isinstance(indices, np.ndarray) else indices)]
    if isinstance(columns, dict):
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(columns, tuple):
        examples = list(zip(*columns, strict=True))
    else:
        examples = list(columns)
    return Batch(examples, columns)


def columns_of(dataset: Any, indices: Any) -> Any:
    """The rows of ``dataset`` at ``indices`` put together, or None when they have to be read one by one.

    A dataset takes part by a method ``_columns``; it must not answer for a subclass, whose examples may be others.
    """
    if type(dataset) is np.ndarray:
        # Strings and objects are not stacked like numbers are.
        if not dataset.ndim or dataset.dtype.kind not in "biufc":
            return None
        if type(indices) is np.ndarray and indices.dtype.kind == "i":
            return dataset.take(indices, 0)  # in a third of the time
        return dataset[indices]
    hook = getattr(type(dataset), "_columns", None)
    return None if hook is None else hook(dataset, np.asarray(indices))


def columns_of_batch(batch: Any) -> Any:
    """Return ``batch`` concatenated, None if its form is not known."""
    if type(batch) is not Batch or len(batch) != len(batch.made):
        return None
    return batch.columns if all(map(operator.is_, batch, batch.made)) else None
