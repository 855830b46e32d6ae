"""The plain iterator: reads in the calling thread."""

from typing import Any

import numpy as np

from ..dataset import _batch
from ..dataset.convert import concat_examples
from ..dataset.iterator import Iterator
from . import _position


class SerialIterator(Iterator):
    """Iterator that reads the examples of a batch one after the other.

    Args:
        dataset: anything with ``len()`` and integer indices.
        batch_size: number of examples of a batch.
        repeat: go on with the next epoch for ever; otherwise stop after one, the last batch being smaller
            if need be.
        shuffle: ``True`` (the default without an ``order_sampler``) draws a new order for every epoch from
            NumPy's global generator; ``False`` keeps the order of the dataset.
        order_sampler: callable ``(current_order, current_position) -> next order``; then ``shuffle`` must
            be ``None``.

    Raises:
        ValueError: both ``shuffle`` and ``order_sampler`` are given, or the dataset is empty.

    Example:
        >>> from kusari.iterators import SerialIterator
        >>> list(SerialIterator([1, 2, 3], 2, repeat=False, shuffle=False))
        [[1, 2], [3]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        repeat: bool = True,
        shuffle: bool | None = None,
        order_sampler: Any = None,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self._repeat = repeat
        self.order_sampler = _position.choose_sampler(shuffle, order_sampler)
        self.reset()

    def reset(self) -> None:
        """Go back to the start, with a new order if there is an order sampler."""
        self._place = _position.start(self.order_sampler, len(self.dataset))
        self._previous_epoch_detail: float | None = None

    def __next__(self) -> list[Any]:
        """The next batch; raises StopIteration after one epoch unless ``repeat``."""
        return _batch.read(self.dataset, self._advance())

    next = __next__

    def next_arrays(self) -> Any:
        """Return the next batch as ``concat_examples`` gives it, without examples in between where possible.

        A standard updater calls this in place of :meth:`next` where it would hand the batch to ``concat_examples``.
        """
        indices = self._advance()
        columns = _batch.columns_of(self.dataset, indices)
        return concat_examples(_batch.read(self.dataset, indices)) if columns is None else columns

    def _advance(self) -> Any:
        """Go on to the next batch; returns its indices."""
        place, size = self._place, len(self.dataset)
        self._previous_epoch_detail = place.detail(size)
        order, start, end = place.order, place.current_position, place.current_position + self.batch_size
        if type(order) is np.ndarray and start < end < len(order) and (self._repeat or not place.epoch):
            self._place = _position.Position(end, place.epoch, False, order)  # as nearly always: within an epoch
            return order[start:end]
        self._place, indices = _position.advance(
            place, self.batch_size, self._repeat, self.order_sampler, size
        )
        if indices is None:
            raise StopIteration
        return indices

    @property
    def current_position(self) -> int:
        """Number of examples read in the current epoch."""
        return self._place.current_position

    @property
    def epoch(self) -> int:
        """Number of epochs completed."""
        return self._place.epoch

    @property
    def is_new_epoch(self) -> bool:
        """Whether the last batch completed an epoch."""
        return self._place.is_new_epoch

    @property
    def epoch_detail(self) -> float:
        """Epochs done, with a fraction for the one under way."""
        return self._place.detail(len(self.dataset))

    @property
    def previous_epoch_detail(self) -> float | None:
        """``epoch_detail`` before the last batch; None before the first."""
        return self._previous_epoch_detail

    @property
    def repeat(self) -> bool:
        """Whether the iterator goes on after an epoch."""
        return self._repeat

    def serialize(self, serializer: Any) -> None:
        """Save the position and the order of the epoch, or load them."""
        self._place = _position.serialize(serializer, self._place)
        self._previous_epoch_detail = _position.serialize_detail(
            serializer, self._previous_epoch_detail, self._place, self.batch_size, len(self.dataset))
        _position.serialize_sampler(serializer, self.order_sampler)
