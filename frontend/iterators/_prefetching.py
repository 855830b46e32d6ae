"""The base of iterators that read ahead."""

from typing import Any

import numpy as np

from ..dataset.iterator import Iterator
from . import _position


class PrefetchingIterator(Iterator):
    """Iterator whose batches are read by workers, ahead of their use.

    Invariant: ``_pending`` holds (place after the batch, its indices, handle of its examples or None) of the batches
    being read, oldest first; ``_pool`` are the workers, once there are any; ``_place`` is the place after the last
    batch given out, ``_ahead`` the last one planned.
    A subclass says how a batch is read: ``_submit(indices)`` and ``_collect(handle)``.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        repeat: bool = True,
        shuffle: bool | None = None,
        order_sampler: Any = None,
        n_prefetch: int = 1,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self._repeat = repeat
        self._n_prefetch = max(int(n_prefetch), 1)
        self.order_sampler = _position.choose_sampler(shuffle, order_sampler)
        self._finalized = False
        self._pool: Any = None
        self._pending: list[tuple[_position.Position, list[int], Any]] = []
        self._restart()

    def _restart(self) -> None:
        """Forget what was read ahead and stand at the start."""
        self._drop_pending()
        self._place = self._ahead = _position.start(self.order_sampler, len(self.dataset))
        self._previous_epoch_detail: float | None = None

    def _submit(self, indices: list[int]) -> Any:
        """Start reading the examples at ``indices``; gives a handle."""
        raise NotImplementedError

    def _collect(self, handle: Any) -> list[Any]:
        """Wait for the examples of a handle."""
        raise NotImplementedError

    def _release(self) -> None:
        """Stop the workers."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """The state without workers: a copy has its own, which read again whatever was read ahead."""
        return {**self.__dict__, "_pool": None, "_pending": [(*planned, None) for *planned, _ in self._pending]}

    def _drop_pending(self) -> None:
        """Wait for batches that will not be read, ignoring their errors."""
        for _, _, handle in self._pending:
            try:
                self._collect(handle or [])
            except Exception:
                continue
        self._pending = []

    def _plan(self) -> None:
        """Start reading until enough batches are under way, or the data is used up."""
        while len(self._pending) < self._n_prefetch:
            place, indices = _position.advance(
                self._ahead, self.batch_size, self._repeat, self.order_sampler, len(self.dataset)
            )
            if indices is None:
                return
            self._ahead = place
            self._pending.append((place, indices, self._submit(indices)))

    def __next__(self) -> list[Any]:
        """The next batch; raises StopIteration after one epoch unless ``repeat``."""
        if self._finalized:
            raise RuntimeError(f"{type(self).__name__} was finalized and can read no more")
        self._plan()
        self._previous_epoch_detail = self.epoch_detail
        if not self._pending:
            raise StopIteration
        self._place, indices, handle = self._pending.pop(0)
        batch = self._collect(self._submit(indices) if handle is None else handle)
        self._plan()
        return batch

    next = __next__

    def reset(self) -> None:
        """Go back to the start, with a new order if there is an order sampler."""
        if self._finalized:
            raise NotImplementedError(f"a finalized {type(self).__name__} cannot be reset: make a new one")
        self._restart()

    def finalize(self) -> None:
        """Stop the workers; the iterator cannot be used afterwards."""
        if not self._finalized:
            self._finalized = True
            self._pending = []
            self._release()

    def __copy__(self) -> Any:
        """An iterator of its own over the same dataset, standing at the same place."""
        other = self._twin()
        other._place = other._ahead = self._place
        other._previous_epoch_detail = self._previous_epoch_detail
        return other

    def _twin(self) -> Any:
        """A new iterator with the same arguments."""
        raise NotImplementedError

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
        """Save the position and the orders that are already drawn, or load them.

        The orders drawn for batches read ahead are part of the state: a resumed run must not draw them twice.
        """
        loading = _position.is_loading(serializer)
        if loading:
            self._drop_pending()
        self._place = _position.serialize(serializer, self._place, self._order_key)
        self._previous_epoch_detail = _position.serialize_detail(
            serializer, self._previous_epoch_detail, self._place, self.batch_size, len(self.dataset))
        _position.serialize_sampler(serializer, self.order_sampler)
        if self.order_sampler is not None:
            self._serialize_ahead(serializer["ahead"], loading)

    _order_key = "order"

    def _serialize_ahead(self, serializer: Any, loading: bool) -> None:
        """Save the places of the batches under way, or start reading them again."""
        try:
            count = int(serializer("count", len(self._pending)))
        except KeyError:  # written by an iterator that saves no more than its place
            count = 0
        pending = self._pending
        if loading:
            self._ahead = self._place
            pending = [(self._place, [], None)] * count
        for i, (place, indices, _) in enumerate(pending):
            child = serializer[str(i)]
            place = _position.serialize(child, place)
            indices = np.asarray(child("indices", None if loading else np.array(indices))).tolist()
            if loading:
                self._pending.append((place, indices, self._submit(indices)))
                self._ahead = place
