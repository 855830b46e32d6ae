"""The iterator whose batches one rank reads for all."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...dataset.iterator import Iterator
from ...utils.arrays import is_array

__all__ = ["create_multi_node_iterator"]

_PLACE = ("epoch", "current_position", "is_new_epoch", "epoch_detail", "previous_epoch_detail")


def create_multi_node_iterator(actual_iterator: Any, communicator: Any, rank_master: int = 0) -> Any:
    """Make an iterator that gives all ranks the batches of ``actual_iterator`` on the master.

    All ranks have to make it together, and to take batches, reset and serialize it together.

    Args:
        actual_iterator: An iterator over arrays, numbers, or tuples and dicts of them; other ranks' are not used.
        communicator: A communicator.
        rank_master: The rank that reads.

    Source: https://docs.chainer.org/en/v7.8.1/chainermn/reference/index.html#iterators
    """
    if communicator.rank == rank_master:
        return _Master(actual_iterator, communicator, rank_master)
    return _Follower(actual_iterator, communicator, rank_master)


def _can_be_sent(example: Any) -> bool:
    """Whether an example is made of arrays and numbers."""
    if isinstance(example, dict):
        return all(map(_can_be_sent, example.values()))
    if isinstance(example, (tuple, list)):
        return all(map(_can_be_sent, example))
    return is_array(example) or isinstance(example, (int, float, np.generic))


class _Shared(Iterator):
    """The common part of master and followers: a message per batch, with the batch and the place after it."""

    def __init__(self, actual_iterator: Any, communicator: Any, rank_master: int) -> None:
        self.actual_iterator = actual_iterator
        self.communicator = communicator
        self.rank_master = rank_master

    def _place(self) -> dict[str, Any]:
        raise NotImplementedError

    def _tell(self, message: Any) -> Any:
        return self.communicator.bcast_obj(message, root=self.rank_master)

    def next(self) -> Any:
        """Return the next batch."""
        return self.__next__()


class _Master(_Shared):
    """The iterator of the rank that reads; other attributes are those of ``actual_iterator``."""

    def __init__(self, actual_iterator: Any, communicator: Any, rank_master: int) -> None:
        super().__init__(actual_iterator, communicator, rank_master)
        self._tell((len(actual_iterator.dataset), getattr(actual_iterator, "repeat", None), self._place()))

    def _place(self) -> dict[str, Any]:
        return {name: getattr(self.actual_iterator, name, None) for name in _PLACE}

    def __next__(self) -> Any:
        try:
            batch = self.actual_iterator.next()
        except StopIteration:
            self._tell(("stop", None, self._place()))
            raise
        if not all(map(_can_be_sent, batch)):
            self._tell(("type", None, self._place()))
            raise _wrong_type()
        self._tell(("batch", batch, self._place()))
        return batch

    def reset(self) -> None:
        """Go back to the start, on all ranks."""
        self.actual_iterator.reset()
        self._tell(self._place())

    def serialize(self, serializer: Any) -> None:
        """Save or load the iterator, and tell the others its place."""
        self.actual_iterator.serialize(serializer)
        self._tell(self._place())

    def finalize(self) -> None:
        """Finalize the iterator."""
        self.actual_iterator.finalize()

    def __getattr__(self, name: str) -> Any:
        if name == "actual_iterator":
            raise AttributeError(name)
        return getattr(self.actual_iterator, name)


class _Follower(_Shared):
    """The iterator of a rank that is sent what another reads."""

    epoch = 0
    current_position = 0
    is_new_epoch = False
    epoch_detail = 0.0
    previous_epoch_detail: float | None = None

    def __init__(self, actual_iterator: Any, communicator: Any, rank_master: int) -> None:
        super().__init__(actual_iterator, communicator, rank_master)
        self.dataset_size, self.repeat, place = self._tell(None)
        vars(self).update(place)

    def __next__(self) -> Any:
        kind, batch, place = self._tell(None)
        vars(self).update(place)
        if kind == "stop":
            raise StopIteration
        if kind == "type":
            raise _wrong_type()
        return batch

    def reset(self) -> None:
        """Go back to the start, on all ranks."""
        vars(self).update(self._tell(None))

    def serialize(self, serializer: Any) -> None:
        """Save or load the place, which is the master's."""
        place = self._tell(None)
        for name in ("current_position", "epoch", "is_new_epoch"):
            serializer(name, place[name])
        vars(self).update(place)

    def finalize(self) -> None:
        """Do nothing."""


def _wrong_type() -> TypeError:
    return TypeError("Multi node iterator supports ndarray or tuple of scalars as the data type of the batch element "
                     "only: arrays, numbers, and tuples, lists and dicts of them.")
