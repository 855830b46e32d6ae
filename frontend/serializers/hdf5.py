"""Serialization into HDF5 files, one group per object."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ..backends import cuda
from ..errors import EntryTypeError, MissingEntryError
from ..serializer import Deserializer, Serializer
from ..utils.arrays import is_array
from .npz import convert, fill

__all__ = ["HDF5Deserializer", "HDF5Serializer", "load_hdf5", "save_hdf5"]


def _h5py() -> Any:
    try:
        return importlib.import_module("h5py")
    except ImportError as error:
        raise ImportError(
            f"HDF5 files need the package h5py, which cannot be imported ({error}); it comes with the extra `hdf5`: "
            "pip install kusari[hdf5]"
        ) from error


class HDF5Serializer(Serializer):
    """Saves into a group of an HDF5 file.

    Args:
        group: The group, of h5py.
        compression: Level of gzip, 0 to 9; None: none.
    """

    def __init__(self, group: Any, compression: int | None = 4) -> None:
        _h5py()
        self.group = group
        self.compression = compression

    def __getitem__(self, key: str) -> HDF5Serializer:
        return type(self)(self.group.require_group(key.strip("/")), self.compression)

    def __call__(self, key: str, value: Any) -> Any:
        """Save ``value``; returns it.

        Raises:
            EntryTypeError: It is neither array, scalar, string nor None (also TypeError).
        """
        key = key.lstrip("/")
        if value is None:
            data: Any = _h5py().Empty("f")
        else:
            data = np.asarray(cuda.to_cpu(value) if cuda.is_cupy_array(value) else value)
            if data.dtype.hasobject:
                raise EntryTypeError(
                    f"{key!r} cannot be saved: expected an array, scalar, string or None. Actual: {type(value)}"
                )
            if data.dtype.kind == "U":  # HDF5 knows strings of any length
                data = str(data) if data.ndim == 0 else data.astype(_h5py().string_dtype())
        small = value is None or np.size(data) <= 1
        self.group.create_dataset(key, data=data, compression=None if small else self.compression)
        return value


class HDF5Deserializer(Deserializer):
    """Loads from a group of an HDF5 file.

    Args:
        group: The group, of h5py; None where it is missing.
        strict: Whether a missing value is an error; else the old one stays.
    """

    def __init__(self, group: Any, strict: bool = True) -> None:
        _h5py()
        self.group = group
        self.strict = strict

    def __getitem__(self, key: str) -> HDF5Deserializer:
        name = key.strip("/")
        if self.group is None or name not in self.group:
            if self.strict:
                raise MissingEntryError(self._missing(name))
            return type(self)(None, False)
        return type(self)(self.group[name], self.strict)

    def __call__(self, key: str, value: Any) -> Any:
        """Return the saved value; an array is filled in place.

        Raises:
            MissingEntryError: The entry is missing, and ``strict`` (also KeyError).
            EntryMismatchError: The shapes differ (also ValueError).
            EntryTypeError: The types differ (also TypeError).
        """
        key = key.lstrip("/")
        if self.group is None or key not in self.group:
            if self.strict:
                raise MissingEntryError(self._missing(key))
            return value
        dataset = self.group[key]
        if dataset.shape is None:
            return None
        text = _h5py().check_string_dtype(dataset.dtype) is not None
        saved = np.asarray(dataset.asstr()[()]).astype(np.str_) if text else np.asarray(dataset[()])
        if value is None:
            return saved
        if is_array(value):
            return fill(key, value, saved)
        return convert(key, type(value), saved)

    def _missing(self, key: str) -> str:
        place, names = ("/", []) if self.group is None else (self.group.name, list(self.group))
        return (f"{key!r} is to be loaded, but is not in the group {place!r}, which has: "
                f"{', '.join(names[:8]) or 'nothing'}. With strict=False missing values keep what they are.")


def save_hdf5(filename: Any, obj: Any, compression: int | None = 4) -> None:
    """Save an object into an HDF5 file, which is replaced.

    Args:
        filename: Path of the file.
        obj: What is saved: a link, optimizer, trainer…; or a dictionary of arrays.
        compression: Level of gzip, 0 to 9; None: none.

    Raises:
        ImportError: h5py is not installed (the extra ``hdf5``).
        OSError: The file cannot be written.
        EntryTypeError: Some value cannot be saved.
    """
    with _h5py().File(filename, "w") as file:
        serializer = HDF5Serializer(file, compression)
        if isinstance(obj, dict):
            for key, value in obj.items():
                serializer(key, value)
        else:
            serializer.save(obj)


def load_hdf5(filename: Any, obj: Any) -> None:
    """Load an object from an HDF5 file, such as :func:`save_hdf5` or Chainer writes.

    Args:
        filename: Path of the file.
        obj: The object whose values are replaced.

    Raises:
        ImportError: h5py is not installed (the extra ``hdf5``).
        OSError: The file cannot be opened.
        MissingEntryError, EntryMismatchError, EntryTypeError: A value is missing, or has another shape or type.
    """
    with _h5py().File(filename, "r") as file:
        HDF5Deserializer(file).load(obj)
