"""An iterator that reads in threads."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ._prefetching import PrefetchingIterator


class MultithreadIterator(PrefetchingIterator):
    """Iterator that reads the next batch in threads while the current one is used.

    The examples and their order are those of :class:`~kusari.iterators.SerialIterator`; the order of the
    next epoch is drawn one batch earlier.

    Args:
        dataset: anything with ``len()`` and integer indices, safe to read from several threads.
        batch_size: number of examples of a batch.
        repeat: go on with the next epoch for ever.
        shuffle: as for ``SerialIterator``.
        n_threads: number of threads.
        order_sampler: as for ``SerialIterator``.

    Example:
        >>> from kusari.iterators import MultithreadIterator
        >>> with MultithreadIterator([1, 2, 3], 2, repeat=False, shuffle=False, n_threads=2) as batches:
        ...     list(batches)
        [[1, 2], [3]]
    """

    _order_key = "_order"

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        repeat: bool = True,
        shuffle: bool | None = None,
        n_threads: int = 1,
        order_sampler: Any = None,
    ) -> None:
        self.n_threads = n_threads
        super().__init__(dataset, batch_size, repeat, shuffle, order_sampler)

    def _submit(self, indices: list[int]) -> list[Future[Any]]:
        """Have the pool read every example."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix="kusari-iterator")
        return [self._pool.submit(self.dataset.__getitem__, i) for i in indices]

    def _collect(self, handle: list[Future[Any]]) -> list[Any]:
        """The examples, or the first error of reading one."""
        return [future.result() for future in handle]

    def reset(self) -> None:
        """Go back to the start, also once it was finalized: threads are started anew."""
        self._finalized = False
        super().reset()

    def _release(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _twin(self) -> "MultithreadIterator":
        """A new iterator with the same arguments."""
        shuffle = False if self.order_sampler is None else None
        return MultithreadIterator(
            self.dataset, self.batch_size, self._repeat, shuffle, self.n_threads, self.order_sampler
        )
