"""Examples pickled one after the other into a file."""

from __future__ import annotations

import multiprocessing.util
import os
import pickle
import threading
from typing import Any

from ..dataset import DatasetMixin

__all__ = ["PickleDataset", "PickleDatasetWriter", "open_pickle_dataset", "open_pickle_dataset_writer"]


class PickleDatasetWriter:
    """Writes examples for a `PickleDataset`; use it in a ``with`` statement.

    Args:
        writer: File object open for writing bytes.
        protocol: Protocol of pickle.
    """

    def __init__(self, writer: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> None:
        self._writer = writer
        self._protocol = protocol

    def __enter__(self) -> PickleDatasetWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def write(self, x: Any) -> None:
        """Append an example."""
        pickle.dump(x, self._writer, self._protocol)

    def flush(self) -> None:
        """Hand what has been written to the file."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class _FileReader:
    """A file that is opened again in other processes, since a descriptor that two share has one place."""

    def __init__(self, path: Any) -> None:
        self._path = path
        self._file = open(path, "rb")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def after_fork(self) -> None:
        """Open the file again."""
        self._file.close()
        self._file = open(self._path, "rb")

    def __getstate__(self) -> Any:
        return self._path

    def __setstate__(self, path: Any) -> None:
        self.__init__(path)


class PickleDataset(DatasetMixin):
    """Examples that a `PickleDatasetWriter` has written, which are read when they are asked for.

    Loading runs what the file says: read only files that you trust.

    Args:
        reader: File object open for reading bytes. A data set is pickled with it; its ``after_fork()``, if it has one,
            is called in processes that were forked.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._start()
        self._places: list[int] = []
        place, end = 0, reader.seek(0, 2)
        reader.seek(0)
        while place < end:
            self._places.append(place)
            pickle.load(reader)
            place = reader.tell()

    def __enter__(self) -> PickleDataset:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._places)

    def get_example(self, index: int) -> Any:
        """The example at ``index``."""
        with self._lock:
            self._after_fork()
            self._reader.seek(self._places[index])
            return pickle.load(self._reader)

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._pid = os.getpid()
        multiprocessing.util.register_after_fork(self, PickleDataset._after_fork)

    def _after_fork(self) -> None:
        """Tell the reader that it is in another process now, if so."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            hook = getattr(self._reader, "after_fork", None)
            if hook is not None:
                hook()

    def __getstate__(self) -> dict[str, Any]:
        return {"_reader": self._reader, "_places": self._places}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


def open_pickle_dataset(path: Any) -> PickleDataset:
    """Open the data set that was written into a file.

    Raises:
        OSError: The file cannot be opened.

    >>> with kusari.datasets.open_pickle_dataset_writer("examples.pkl") as writer:
    ...     for x in ("one", 2):
    ...         writer.write(x)
    >>> with kusari.datasets.open_pickle_dataset("examples.pkl") as dataset:
    ...     dataset[:]
    ['one', 2]
    """
    return PickleDataset(_FileReader(path))


def open_pickle_dataset_writer(path: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> PickleDatasetWriter:
    """Create a file to write a data set of pickled examples into.

    Args:
        path: Path of the file, which is replaced.
        protocol: Protocol of pickle.

    Raises:
        OSError: The file cannot be created.
    """
    return PickleDatasetWriter(open(path, "wb"), protocol)
