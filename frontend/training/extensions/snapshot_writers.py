"""How a snapshot gets from memory to the disk: at once, or by a thread or process while training goes on."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ...serializers import DictionarySerializer, save_npz
from ._files import atomic_write


class Writer:
    """Base class of snapshot writers: ``writer(filename, outdir, target)`` saves a dict of arrays."""

    def __call__(self, filename: str, outdir: str, target: dict[str, Any]) -> None:
        """Save ``target`` to ``filename`` in ``outdir``, now or later."""
        raise NotImplementedError(f"{type(self).__name__} has to define __call__")

    def save(
        self, filename: str, outdir: str, target: dict[str, Any], savefun: Callable[..., Any], **options: Any
    ) -> None:
        """Save now, whole or not at all: ``savefun(path, target)`` writes next to the place and is moved there."""
        with atomic_write(os.path.join(outdir, filename)) as temporary:
            savefun(temporary, target, **options)

    def finalize(self) -> None:
        """Wait for what is being saved."""


class SimpleWriter(Writer):
    """Writer that saves at once, in the calling thread.

    Args:
        savefun: function ``(path, target)`` that writes the file.
        options: keyword arguments for it.
    """

    def __init__(self, savefun: Callable[..., Any] = save_npz, **options: Any) -> None:
        self._savefun = savefun
        self._options = options

    def __call__(self, filename: str, outdir: str, target: dict[str, Any]) -> None:
        """Save now."""
        self.save(filename, outdir, target, self._savefun, **self._options)


class StandardWriter(Writer):
    """Base class of writers that give every snapshot a worker of its own, after waiting for the one before.

    Args:
        savefun: function ``(path, target)`` that writes the file.
        options: keyword arguments for it.
    """

    def __init__(self, savefun: Callable[..., Any] = save_npz, **options: Any) -> None:
        self._savefun = savefun
        self._options = options
        self._worker: Any = None

    def __call__(self, filename: str, outdir: str, target: dict[str, Any]) -> None:
        """Start a worker that saves."""
        self.finalize()
        self._worker = self.create_worker(filename, outdir, target)
        self._worker.start()

    def create_worker(self, filename: str, outdir: str, target: dict[str, Any]) -> Any:
        """A thread or process, not started yet, that saves."""
        raise NotImplementedError(f"{type(self).__name__} has to define create_worker")

    def finalize(self) -> None:
        """Wait for the worker."""
        if self._worker is not None:
            self._worker.join()
            self._worker = None


class ThreadWriter(StandardWriter):
    """Writer that saves in a thread."""

    def create_worker(self, filename: str, outdir: str, target: dict[str, Any]) -> threading.Thread:
        """The thread."""
        return threading.Thread(
            target=self.save, args=(filename, outdir, target, self._savefun), kwargs=self._options
        )


class ProcessWriter(StandardWriter):
    """Writer that saves in a process."""

    def create_worker(self, filename: str, outdir: str, target: dict[str, Any]) -> Any:
        """The process."""
        return multiprocessing.Process(
            target=_save, args=(filename, outdir, target, self._savefun), kwargs=self._options
        )

    def finalize(self) -> None:
        """Wait for the process; a failed one raises RuntimeError."""
        worker = self._worker
        super().finalize()
        if worker is not None and worker.exitcode:
            raise RuntimeError(f"the process that saved a snapshot failed with exit code {worker.exitcode}")


def _save(filename: str, outdir: str, target: dict[str, Any], savefun: Callable[..., Any], **options: Any) -> None:
    """Save, as a function that a process can be given."""
    Writer().save(filename, outdir, target, savefun, **options)


class QueueWriter(Writer):
    """Base class of writers with one worker that saves one snapshot after the other.

    Args:
        savefun: function ``(path, target)`` that writes the file.
        task: called with file name, directory and target, instead of what `create_task` returns.
    """

    def __init__(self, savefun: Callable[..., Any] = save_npz, task: Callable[..., Any] | None = None) -> None:
        self._task = self.create_task(savefun) if task is None else task
        self._queue: Any = self.create_queue()
        self._consumer: Any = self.create_consumer(self._queue)
        self._consumer.start()

    def __call__(self, filename: str, outdir: str, target: dict[str, Any]) -> None:
        """Put the snapshot into the queue."""
        self._queue.put((self._task, filename, outdir, target))

    def create_task(self, savefun: Callable[..., Any]) -> Callable[[str, str, dict[str, Any]], None]:
        """The saving of one snapshot, called with file name, directory and target; to be overridden."""
        return SimpleWriter(savefun)

    def create_queue(self) -> Any:
        """The queue between training and worker."""
        raise NotImplementedError(f"{type(self).__name__} has to define create_queue")

    def create_consumer(self, q: Any) -> Any:
        """The worker, not started yet."""
        raise NotImplementedError(f"{type(self).__name__} has to define create_consumer")

    def consume(self, q: Any) -> None:
        """Do the tasks of a queue until None comes; this is what the worker runs."""
        while (task := q.get()) is not None:
            task[0](*task[1:])
            q.task_done()
        q.task_done()

    def finalize(self) -> None:
        """Wait until the queue is empty, and stop the worker."""
        if self._consumer is not None:
            self._queue.put(None)
            self._consumer.join()
            self._consumer = None


class ThreadQueueWriter(QueueWriter):
    """Writer with one thread that saves one snapshot after the other."""

    def create_queue(self) -> queue.Queue[Any]:
        """A queue between threads."""
        return queue.Queue()

    def create_consumer(self, q: Any) -> threading.Thread:
        """The thread."""
        return threading.Thread(target=self.consume, args=(q,), daemon=True)


class ProcessQueueWriter(QueueWriter):
    """Writer with one process that saves one snapshot after the other."""

    def create_queue(self) -> Any:
        """A queue between processes."""
        return multiprocessing.JoinableQueue()

    def create_consumer(self, q: Any) -> Any:
        """The process."""
        return multiprocessing.Process(target=self.consume, args=(q,), daemon=True)


def frozen_state(target: Any) -> dict[str, Any]:
    """The state of ``target`` as a flat dict of arrays of its own: training may go on while it is saved."""
    serializer = DictionarySerializer()
    serializer.save(target)
    return {
        key: value.copy() if isinstance(value, np.ndarray) else value for key, value in serializer.target.items()
    }
