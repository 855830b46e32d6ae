"""Serialization into NumPy's ``.npz`` files, in the layout of Chainer."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..backend import copyto
from ..backends import cuda
from ..errors import EntryMismatchError, EntryTypeError, MissingEntryError
from ..serializer import Deserializer, Serializer
from ..utils.arrays import is_array
from . import npz_file

__all__ = ["DictionarySerializer", "NpzDeserializer", "load_npz", "save_npz"]

IgnoreNames = str | Callable[[str], bool] | Iterable[str | Callable[[str], bool]] | None


class DictionarySerializer(Serializer):
    """Saves into a flat dictionary of arrays, whose keys are paths like ``predictor/l1/W``.

    Args:
        target: The dictionary; by default a new one.
        path: What all keys start with.

    Attributes:
        target: The dictionary.

    >>> serializer = kusari.serializers.DictionarySerializer()
    >>> serializer.save(L.Linear(3, 2))
    >>> sorted(serializer.target)
    ['W', 'b']
    """

    def __init__(self, target: dict[str, Any] | None = None, path: str = "") -> None:
        self.target: dict[str, Any] = {} if target is None else target
        self.path = path

    def __getitem__(self, key: str) -> DictionarySerializer:
        return type(self)(self.target, f"{self.path}{key.strip('/')}/")

    def __call__(self, key: str, value: Any) -> Any:
        """Save ``value``; returns it.

        Raises:
            EntryTypeError: It is neither array, scalar, string nor None (also TypeError).
        """
        array = np.asarray(cuda.to_cpu(value) if cuda.is_cupy_array(value) else value)
        key = self.path + key.lstrip("/")
        if array.dtype.hasobject and value is not None:
            raise EntryTypeError(
                f"{key!r} cannot be saved: expected an array, scalar, string or None. Actual: {type(value)}"
            )
        self.target[key] = array
        return value


class NpzDeserializer(Deserializer):
    """Loads from the arrays of an ``.npz`` file.

    Args:
        npz: ``numpy.load(...)``, or any mapping of names to arrays.
        path: What the keys to load start with.
        strict: Whether a missing value is an error; else the old one stays.
        ignore_names: Names of entries to skip, or functions that say whether to skip one.

    Raises:
        ValueError: ``ignore_names`` is something else.
    """

    def __init__(
        self, npz: Mapping[str, Any], path: str = "", strict: bool = True, ignore_names: IgnoreNames = None
    ) -> None:
        self.npz = npz
        self.path = path
        self.strict = strict
        if ignore_names is None:
            ignore_names = ()
        elif isinstance(ignore_names, str) or callable(ignore_names):
            ignore_names = (ignore_names,)
        elif not isinstance(ignore_names, (list, tuple, set, frozenset)):
            raise ValueError("ignore_names needs to be a callable, string or list of them.")
        self.ignore_names = list(ignore_names)
        if not all(isinstance(name, str) or callable(name) for name in self.ignore_names):
            raise ValueError("ignore_names needs to be a callable, string or list of them.")

    def __getitem__(self, key: str) -> NpzDeserializer:
        return type(self)(self.npz, f"{self.path}{key.strip('/')}/", self.strict, self.ignore_names)

    def __call__(self, key: str, value: Any) -> Any:
        """Return the saved value; an array is filled in place.

        Raises:
            MissingEntryError: The entry is missing, and ``strict`` (also KeyError).
            EntryMismatchError: The shapes differ (also ValueError).
            EntryTypeError: The types differ (also TypeError).
        """
        key = self.path + key.lstrip("/")
        if any(name == key if isinstance(name, str) else name(key) for name in self.ignore_names):
            return value
        if key not in self.npz:
            if not self.strict:
                return value
            raise MissingEntryError(self._missing(key))
        saved = self._saved(key)
        if saved.dtype.hasobject:
            return None
        if value is None:
            return saved.copy()  # a dictionary may be loaded into several objects
        if is_array(value):
            return fill(key, value, saved)
        return convert(key, type(value), saved)

    def _saved(self, key: str) -> Any:
        try:
            return np.asarray(self.npz[key])
        except ValueError as error:
            if "allow_pickle" in str(error):
                return np.array(None)  # numpy.load() reads objects only if told so
            raise

    def _missing(self, key: str) -> str:
        names = list(self.npz)
        shown = ", ".join(names[:8]) + (f", … ({len(names)} in all)" if len(names) > 8 else "")
        return (
            f"{key!r} is to be loaded, but is not a file in the archive, which has: {shown or 'nothing'}. "
            "With strict=False missing values keep what they are."
        )


def fill(key: str, value: Any, saved: Any) -> Any:
    """Fill an array with what was saved as ``key``, and return it."""
    if value.shape != saved.shape and not value.size == saved.size == 1:
        raise EntryMismatchError(
            f"{key!r} cannot be loaded: could not broadcast input array from shape {saved.shape} (saved) "
            f"into shape {value.shape} (expected)"
        )
    if not np.can_cast(saved.dtype, value.dtype, "same_kind"):
        raise EntryTypeError(
            f"{key!r} cannot be loaded: saved as {saved.dtype}, but an array of {value.dtype} is expected"
        )
    copyto(value, saved.reshape(value.shape).astype(value.dtype, copy=False))
    return value


def convert(key: str, kind: type, saved: Any) -> Any:
    """Return what was saved as ``key`` as a scalar, a string or another object of ``kind``."""
    if issubclass(kind, (str, bytes)):
        fits = saved.dtype.kind in "US"
    elif issubclass(kind, (numbers.Number, np.generic)):
        fits = np.can_cast(saved.dtype, kind, "safe") and saved.size == 1
    else:
        return kind(saved.tolist())
    if not fits:
        raise EntryTypeError(
            f"Cannot safely deserialize {key!r} from numpy array with dtype={saved.dtype} and shape {saved.shape} "
            f"into a variable of type {kind}."
        )
    return kind(saved.item())  # pyright: ignore[reportCallIssue]


def serialize(obj: Any) -> dict[str, Any]:
    """Return the state of an object as a flat dictionary of arrays."""
    serializer = DictionarySerializer()
    serializer.save(obj)
    return serializer.target


def save_npz(file: Any, obj: Any, compression: bool = True) -> None:
    """Save an object in NPZ format.

    A file given by its path is replaced in one step, when everything has been written: an error leaves the old one.

    Args:
        file: Path, or file object open for writing bytes.
        obj: What is saved: a link, optimizer, trainer…; or a dictionary of arrays.
        compression: Whether to compress.

    Raises:
        OSError: The file cannot be written.
        EntryTypeError: Some value cannot be saved.

    >>> model = L.Linear(3, 2)
    >>> kusari.serializers.save_npz("my.model", model)
    >>> other = L.Linear(3, 2)
    >>> kusari.serializers.load_npz("my.model", other)
    >>> (other.W.array == model.W.array).all()
    np.True_
    """
    npz_file.write(file, obj if isinstance(obj, dict) else serialize(obj), compression)


def load_npz(file: Any, obj: Any, path: str = "", strict: bool = True, ignore_names: IgnoreNames = None) -> None:
    """Load an object from a file in NPZ format, such as :func:`save_npz` or Chainer writes.

    Args:
        file: Path, or file object open for reading bytes.
        obj: The object whose values are replaced.
        path: The part of the file to load from, such as ``'updater/model:main/'``.
        strict: Whether a missing value is an error; else the old one stays.
        ignore_names: Names of entries to skip, or functions that say whether to skip one.

    Raises:
        OSError: The file cannot be opened.
        SnapshotFormatError: It is truncated, damaged or of another format; ``obj`` is as it was.
        MissingEntryError, EntryMismatchError, EntryTypeError: A value is missing, or has another shape or type.
    """
    path = path.lstrip("/")
    if path and not path.endswith("/"):
        path += "/"
    NpzDeserializer(npz_file.read(file, path), path, strict, ignore_names).load(obj)
