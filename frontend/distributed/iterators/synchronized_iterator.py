"""The iterator that shuffles in the same way on all ranks."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...dataset.iterator import Iterator
from ...iterators import ShuffleOrderSampler

__all__ = ["create_synchronized_iterator"]


def create_synchronized_iterator(actual_iterator: Any, communicator: Any) -> Any:
    """Make an iterator that goes through its dataset in the same random order on all ranks.

    Args:
        actual_iterator: An iterator with an ``order_sampler``; it begins anew.
        communicator: A communicator.

    Raises:
        ValueError: The iterator has no ``order_sampler``.

    Source: https://docs.chainer.org/en/v7.8.1/chainermn/reference/index.html#iterators
    """
    return _SynchronizedIterator(actual_iterator, communicator)


class _SynchronizedIterator(Iterator):
    """An iterator with the order of rank 0; other attributes are those of ``actual_iterator``."""

    def __init__(self, actual_iterator: Any, communicator: Any) -> None:
        def described() -> int:
            if not hasattr(actual_iterator, "order_sampler"):
                raise ValueError("actual_iterator must have order_sampler")
            return int(np.random.randint(0, 2**32 - 1, dtype=np.uint32)) if communicator.rank == 0 else 0
        seed = communicator.agree("create_synchronized_iterator", None, described)[0]
        vars(self).update(actual_iterator=actual_iterator, communicator=communicator)
        actual_iterator.order_sampler = ShuffleOrderSampler(np.random.RandomState(seed))
        actual_iterator.reset()

    def __getattr__(self, name: str) -> Any:
        if name == "actual_iterator":
            raise AttributeError(name)
        return getattr(self.actual_iterator, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.actual_iterator, name, value)

    def __next__(self) -> Any:
        return self.actual_iterator.__next__()

    def next(self) -> Any:
        """Return the next batch."""
        return self.actual_iterator.next()

    def serialize(self, serializer: Any) -> None:
        """Save or load the iterator."""
        self.actual_iterator.serialize(serializer)

    def finalize(self) -> None:
        """Finalize the iterator."""
        self.actual_iterator.finalize()
