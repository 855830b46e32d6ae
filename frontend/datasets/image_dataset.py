"""Data sets of image files, in folders and in zip files."""

from __future__ import annotations

import importlib
import io
import os
import threading
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..dataset import DatasetMixin
from ..dtypes import get_dtype
from .concatenated_dataset import ConcatenatedDataset

__all__ = ["ImageDataset", "LabeledImageDataset", "LabeledZippedImageDataset", "MultiZippedImageDataset",
           "ZippedImageDataset"]  # fmt: skip


def _read(file: Any, dtype: Any) -> np.ndarray:
    """Return an image as an array (channels, height, width)."""
    try:
        library = importlib.import_module("PIL.Image")
    except ImportError as error:
        raise ImportError(
            f"reading images needs the package Pillow, which cannot be imported ({error}); it comes with the extra "
            "`image`: pip install kusari[image]"
        ) from error
    with library.open(file) as image:
        array = np.asarray(image, dtype=dtype)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _lines(path: Any) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def _pairs(path: Any) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for number, line in enumerate(_lines(path), 1):
        name, _, label = line.rpartition(" ")
        if not name or not label.lstrip("-").isdigit():
            raise ValueError(f"line {number} of {path} must be a path, a space and a whole number, got {line!r}")
        found.append((name.strip(), int(label)))
    return found


class ImageDataset(DatasetMixin):
    """Images read from files when they are asked for: arrays (channels, height, width).

    Grey images have one channel, others as many as the file has.

    Args:
        paths: The files, or the path of a text file with one of them per line.
        root: The folder that they are below.
        dtype: Of the arrays; None is ``kusari.config.dtype``.

    Reading needs Pillow (the extra ``image``).
    """

    def __init__(self, paths: str | os.PathLike[str] | Iterable[Any], root: Any = ".", dtype: Any = None) -> None:
        self._paths = _lines(paths) if isinstance(paths, (str, os.PathLike)) else list(paths)
        self._root = root
        self._dtype = get_dtype(dtype)

    def __len__(self) -> int:
        return len(self._paths)

    def get_example(self, i: int) -> np.ndarray:
        """The image at ``i``.

        Raises:
            OSError: The file cannot be read, or is no image.
            ImportError: Pillow is not installed.
        """
        return _read(os.path.join(self._root, self._paths[i]), self._dtype)


class LabeledImageDataset(DatasetMixin):
    """Pairs of an image read from a file, as of `ImageDataset`, and its label.

    Args:
        pairs: Pairs of a path and a label, or the path of a text file with a path, a space and a label in each line.
        root: The folder that the images are below.
        dtype: Of the images; None is ``kusari.config.dtype``.
        label_dtype: Of the labels.

    Raises:
        ValueError: A line of the file is something else.
    """

    def __init__(self, pairs: str | os.PathLike[str] | Iterable[tuple[Any, Any]], root: Any = ".", dtype: Any = None,
                 label_dtype: Any = np.int32) -> None:
        self._pairs: Sequence[tuple[Any, Any]] = _pairs(pairs) if isinstance(pairs, (str, os.PathLike)) else list(pairs)
        self._root = root
        self._dtype = get_dtype(dtype)
        self._label_dtype = label_dtype

    def __len__(self) -> int:
        return len(self._pairs)

    def get_example(self, i: int) -> tuple[np.ndarray, Any]:
        """The image and the label at ``i``; raises what `ImageDataset.get_example` does."""
        path, label = self._pairs[i]
        return _read(os.path.join(self._root, path), self._dtype), np.array(label, self._label_dtype)


class _Archive:
    """A zip file that is opened in each process for itself, and read by one thread at a time."""

    def __init__(self, path: Any) -> None:
        self.path = path
        self._open: tuple[int, zipfile.ZipFile] | None = None
        self._lock = threading.Lock()

    def read(self, name: str) -> io.BytesIO:
        with self._lock:
            return io.BytesIO(self._file().read(name))

    def names(self) -> list[str]:
        with self._lock:
            return [i.filename for i in self._file().infolist() if not i.is_dir()]

    def _file(self) -> zipfile.ZipFile:
        # Two processes that share a descriptor would move each other's place in the file.
        if self._open is None or self._open[0] != os.getpid():
            self._open = os.getpid(), zipfile.ZipFile(self.path)
        return self._open[1]

    def __reduce__(self) -> Any:
        return _Archive, (self.path,)


class ZippedImageDataset(DatasetMixin):
    """Images of a zip file, as of `ImageDataset`, in the order in which they stand there.

    Args:
        zipfilename: Path of the file.
        dtype: Of the arrays; None is ``kusari.config.dtype``.
    """

    def __init__(self, zipfilename: Any, dtype: Any = None) -> None:
        self._archive = _Archive(zipfilename)
        self._names = self._archive.names()
        self._dtype = get_dtype(dtype)

    def __len__(self) -> int:
        return len(self._names)

    def get_example(self, i_or_filename: int | str) -> np.ndarray:
        """The image at a place, or of a name in the file; raises what `ImageDataset.get_example` does."""
        name = i_or_filename if isinstance(i_or_filename, str) else self._names[i_or_filename]
        return _read(self._archive.read(name), self._dtype)


class MultiZippedImageDataset(DatasetMixin):
    """Images of several zip files, one after the other.

    Args:
        zipfilenames: Paths of the files.
        dtype: Of the arrays; None is ``kusari.config.dtype``.
    """

    def __init__(self, zipfilenames: Iterable[Any], dtype: Any = None) -> None:
        self._all = ConcatenatedDataset(*[ZippedImageDataset(name, dtype) for name in zipfilenames])

    def __len__(self) -> int:
        return len(self._all)

    def get_example(self, i: int) -> np.ndarray:
        """The image at ``i``; raises what `ImageDataset.get_example` does."""
        return self._all[i]


class LabeledZippedImageDataset(DatasetMixin):
    """Pairs of an image of a zip file and its label.

    Args:
        zipfilename: Path of the zip file.
        labelfilename: Path of a text file with a name in the zip file, a space and a label in each line.
        dtype: Of the images; None is ``kusari.config.dtype``.
        label_dtype: Of the labels.

    Raises:
        ValueError: A line of the text file is something else.
    """

    def __init__(self, zipfilename: Any, labelfilename: Any, dtype: Any = None, label_dtype: Any = np.int32) -> None:
        self._archive = _Archive(zipfilename)
        self._pairs = _pairs(labelfilename)
        self._dtype = get_dtype(dtype)
        self._label_dtype = label_dtype

    def __len__(self) -> int:
        return len(self._pairs)

    def get_example(self, i: int) -> tuple[np.ndarray, Any]:
        """The image and the label at ``i``; raises what `ImageDataset.get_example` does."""
        name, label = self._pairs[i]
        return _read(self._archive.read(name), self._dtype), np.array(label, self._label_dtype)
