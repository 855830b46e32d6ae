"""Examples pickled one after the other into a file."""

from __future__ import annotations

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


class PickleDataset(DatasetMixin):
    """Examples that a `PickleDatasetWriter` has written, which are read when they are asked for.

    Loading runs what the file says: read only files that you trust.

    Args:
        reader: File object open for reading bytes.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._lock = threading.RLock()
        self._pid = os.getpid()
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

    def get_example(self, i: int) -> Any:
        """The example at ``i``."""
        with self._lock:
            if self._pid != os.getpid():  # a descriptor that two processes share has one place
                self._reader, self._pid = open(self._reader.name, "rb"), os.getpid()
            self._reader.seek(self._places[i])
            return pickle.load(self._reader)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self._reader.name, "places": self._places}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._reader = open(state["path"], "rb")
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._places = state["places"]

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
    return PickleDataset(open(path, "rb"))


def open_pickle_dataset_writer(path: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> PickleDatasetWriter:
    """Create a file to write a data set of pickled examples into.

    Args:
        path: Path of the file, which is replaced.
        protocol: Protocol of pickle.

    Raises:
        OSError: The file cannot be created.
    """
    return PickleDatasetWriter(open(path, "wb"), protocol)
