"""Datasets of nothing, for ranks whose models get all they need from other ranks."""
from __future__ import annotations

from typing import Any

__all__ = ["create_empty_dataset"]


def create_empty_dataset(dataset: Any) -> list[tuple[()]]:
    """Return a dataset of as many empty tuples as ``dataset`` has examples.

    >>> from kusari import distributed
    >>> distributed.datasets.create_empty_dataset([1.0, 2.0])
    [(), ()]
    """
    return [()] * len(dataset)
