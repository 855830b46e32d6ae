"""An iterator that reads in processes."""

import multiprocessing
import signal
import warnings
from multiprocessing import resource_tracker
from typing import Any

from ._prefetching import PrefetchingIterator
from ._shared_memory import Slots, bytes_of, pack, unpack

_dataset: Any = None  # the dataset of a worker process, set once when it starts


def _start_worker(dataset: Any) -> None:
    """Keep the dataset in the worker: it is sent once, not with every batch. Ctrl-C is for the process above."""
    global _dataset
    _dataset = dataset
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _read(indices: list[int], place: Any) -> Any:
    """Read examples in the worker; their arrays go to a slot of shared memory."""
    return pack([_dataset[i] for i in indices], place)


class MultiprocessIterator(PrefetchingIterator):
    """Iterator that reads the next batches in processes while the current one is used.

    The examples and their order are those of :class:`~kusari.iterators.SerialIterator`. Worth its cost when
    reading an example takes long. The processes start at the first batch, in the way that
    ``multiprocessing`` is set to; unless that is ``fork``, the dataset must be picklable.

    Args:
        dataset: anything with ``len()`` and integer indices.
        batch_size: number of examples of a batch.
        repeat: go on with the next epoch for ever.
        shuffle: as for ``SerialIterator``.
        n_processes: number of processes; ``None`` is the number of processors.
        n_prefetch: number of batches read ahead.
        shared_mem: bytes of shared memory for each example, through which its arrays come; ``None`` is what those of
            the first batch take. An array for which there is no room comes by a pipe.
        order_sampler: as for ``SerialIterator``.
        dataset_timeout: seconds to wait for a batch before a `MultiprocessIterator.TimeoutWarning`; ``None``: no
            warning.
        maxtasksperchild: a worker is replaced after so many tasks; ``None`` never.

    """

    class TimeoutWarning(RuntimeWarning):
        """A batch takes long: reading an example hangs, or a process died."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        repeat: bool = True,
        shuffle: bool | None = None,
        n_processes: int | None = None,
        n_prefetch: int = 1,
        shared_mem: int | None = None,
        order_sampler: Any = None,
        dataset_timeout: float | None = 30.0,
        maxtasksperchild: int | None = None,
    ) -> None:
        self.n_processes = n_processes or multiprocessing.cpu_count()
        self.n_prefetch = n_prefetch
        self.dataset_timeout = dataset_timeout
        self._shared_mem = shared_mem
        self._slots: Slots | None = None
        self._maxtasksperchild = maxtasksperchild
        super().__init__(dataset, batch_size, repeat, shuffle, order_sampler, n_prefetch)

    def _submit(self, indices: list[int]) -> list[Any]:
        """Give every process a share of the batch."""
        if self._pool is None:
            resource_tracker.ensure_running()  # one for all: it removes shared memory where this process is killed
            self._pool = multiprocessing.get_context().Pool(
                self.n_processes, _start_worker, (self.dataset,), self._maxtasksperchild
            )
        share = -(-len(indices) // self.n_processes)
        parts = [indices[i : i + share] for i in range(0, len(indices), share)]
        if self._slots is None and self._shared_mem is not None:
            self._share(self._shared_mem)
        handles: list[Any] = []
        for part in parts:
            place = None if self._slots is None else self._slots.take()
            handles.append((self._pool.apply_async(_read, (part, place)), place, len(part)))
        return handles

    def _share(self, size: int) -> None:
        """Share memory for so many bytes of each example of the batches that are under way."""
        share = -(-self.batch_size // self.n_processes)
        self._slots = Slots((self._n_prefetch + 1) * self.n_processes, share * size)

    def _collect(self, handle: list[Any]) -> list[Any]:
        """The examples, or the first error of reading one."""
        found: list[Any] = []
        for part, place, count in handle:
            part.wait(self.dataset_timeout)
            if not part.ready():
                warnings.warn(
                    f"no batch came from the dataset's processes for {self.dataset_timeout} s: reading an example "
                    "takes long, or a process died; dataset_timeout sets the limit",
                    self.TimeoutWarning,
                    stacklevel=3,
                )
            memory = None
            try:
                message = part.get()
                memory = None if place is None or self._slots is None else self._slots.view(place)
                found += unpack(message, memory)
            finally:
                if memory is not None:
                    memory.release()  # the traceback of an error holds it
                if self._slots is not None:
                    self._slots.give_back(place)
            if self._slots is None:
                self._share(-(-bytes_of(message) // count))
        return found

    def _release(self) -> None:
        """Stop the processes, and give back the memory shared with them."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
            self._pool = None
        if self._slots is not None:
            self._slots.release()
            self._slots = None

    def __getstate__(self) -> dict[str, Any]:
        """The state without workers and the memory shared with them."""
        return {**super().__getstate__(), "_slots": None}

    def _twin(self) -> "MultiprocessIterator":
        """A new iterator with the same arguments."""
        return MultiprocessIterator(
            self.dataset,
            self.batch_size,
            self._repeat,
            False if self.order_sampler is None else None,
            self.n_processes,
            self.n_prefetch,
            self._shared_mem,
            self.order_sampler,
            self.dataset_timeout,
            self._maxtasksperchild,
        )
