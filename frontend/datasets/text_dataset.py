"""Lines of text files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..dataset import DatasetMixin

__all__ = ["TextDataset"]


class TextDataset(DatasetMixin):
    """Lines of a text file, or of several files in parallel, which are read when they are asked for.

    Args:
        paths: Path of a file, or paths of files of equally many lines.
        encoding: Encoding of all files, or of each.
        errors: The treatment of bytes that are no text, as of ``open``; of all files, or of each.
        newline: How lines end, as of ``open``; of all files, or of each.
        filter_func: Called with a line of each file; says whether they are part of the data set.

    An example is a line with its end, as a file gives it; of several files a tuple.

    Raises:
        ValueError: The files have different numbers of lines, or as many options as files are not given.
        OSError: A file cannot be read.
    """

    def __init__(self, paths: Any, encoding: Any = None, errors: Any = None, newline: Any = None,
                 filter_func: Callable[..., bool] | None = None) -> None:
        self._paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if not self._paths:
            raise ValueError("TextDataset needs at least one file")
        self._options = [dict(zip(("encoding", "errors", "newline"), each, strict=True)) for each in zip(
            *(self._each(name, value) for name, value in (("encoding", encoding), ("errors", errors),
                                                          ("newline", newline))), strict=True)]
        self._start()
        places: list[list[int]] = []
        for file in self._files():
            at, found = file.tell(), []
            while file.readline():
                found.append(at)
                at = file.tell()
            places.append(found)
        counts = [len(found) for found in places]
        if len(set(counts)) > 1:
            self.close()
            raise ValueError(f"the files must have equally many lines, got {counts}")
        self._places = list(zip(*places, strict=True))
        if filter_func is not None:
            self._places = [where for where in self._places if filter_func(*self._lines(where))]

    def _each(self, name: str, value: Any) -> Sequence[Any]:
        if value is None or isinstance(value, str):
            return [value] * len(self._paths)
        if len(value) != len(self._paths):
            raise ValueError(f"{name}: one for each of {len(self._paths)} files is needed, got {len(value)}")
        return list(value)

    def _start(self) -> None:
        self._open: tuple[int, list[Any]] | None = None
        self._lock = threading.Lock()

    def _files(self) -> list[Any]:
        if self._open is None or self._open[0] != os.getpid():
            self._open = os.getpid(), [open(path, **options)
                                       for path, options in zip(self._paths, self._options, strict=True)]
        return self._open[1]

    def _lines(self, places: tuple[int, ...]) -> list[str]:
        with self._lock:
            found: list[str] = []
            for file, place in zip(self._files(), places, strict=True):
                file.seek(place)
                found.append(file.readline())
            return found

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_open", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __len__(self) -> int:
        return len(self._places)

    def get_example(self, idx: int) -> Any:
        """The line at ``idx``, or a tuple of lines."""
        lines = self._lines(self._places[idx])
        return lines[0] if len(lines) == 1 else tuple(lines)

    def close(self) -> None:
        """Close the files; lines cannot be read any more."""
        with self._lock:
            for file in self._files():
                file.close()
