"""Reading and writing of ``.npz`` archives: all of it or nothing, and never a pickle."""

from __future__ import annotations

import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import EntryTypeError, SnapshotFormatError

__all__ = ["read", "write"]

_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, NotImplementedError, RuntimeError, KeyError,
)  # fmt: skip


def write(file: Any, arrays: Mapping[str, Any], compression: bool) -> None:
    """Write ``arrays`` to a path or file object.

    A path gets its new content in one step, after everything has been written to a file beside it.

    Raises:
        OSError: It cannot be written.
        EntryTypeError: An array holds objects.
    """
    if not isinstance(file, (str, os.PathLike)):
        _write_zip(file, arrays, compression)
        return
    path = os.path.realpath(os.fspath(file))
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "wb") as device:  # a pipe or a device cannot be replaced
            _write_zip(device, arrays, compression)
        return
    try:
        with _replacing(path) as stream:
            _write_zip(stream, arrays, compression)
    except OSError as error:
        reason = error.strerror or str(error)
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            reason = f"the folder {folder!r} does not exist"
        raise type(error)(error.errno, f"cannot save: {reason}", os.fspath(file)) from error


@contextmanager
def _replacing(path: str) -> Iterator[Any]:
    """A new file beside ``path`` that takes its place at the end, or vanishes if an exception comes."""
    if os.path.isdir(path):
        raise IsADirectoryError(21, "it is a folder", path)
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    # Not tempfile: the file is to have the permissions that any new file has.
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    stream = os.fdopen(os.open(temporary, flags, 0o666), "w+b")
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _write_zip(stream: Any, arrays: Mapping[str, Any], compression: bool) -> None:
    # numpy.savez would take names such as "file" for its own arguments.
    method = zipfile.ZIP_DEFLATED if compression else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", method, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as entry:
                _write_array(entry, np.asanyarray(array), name)


def _write_array(entry: Any, array: Any, name: str) -> None:
    if not array.dtype.hasobject:
        np.lib.format.write_array(entry, array, allow_pickle=False)
        return
    if array.shape != () or array[()] is not None:
        raise EntryTypeError(f"{name!r} cannot be saved: of objects only None can. Actual: {array!r}")
    # Chainer reads this with a NumPy that knows the module by its old name; in protocol 3 a name has no length.
    content = pickle.dumps(np.array(None), protocol=3).replace(b"numpy._core.", b"numpy.core.")
    np.lib.format.write_array_header_1_0(entry, np.lib.format.header_data_from_array_1_0(array))
    entry.write(content)


def read(file: Any, path: str = "") -> dict[str, Any]:
    """Return the arrays of a path or file object whose names start with ``path``.

    An array of objects stands for None, the only object that Chainer's layout knows: pickles are not read.

    Raises:
        OSError: The file cannot be opened.
        SnapshotFormatError: It is not a complete archive.
    """
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as stream:
            return _read(stream, os.fspath(file), path)
    return _read(file, getattr(file, "name", repr(file)), path)


def _read(stream: Any, name: Any, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(stream) as archive:
            for info in archive.infolist():
                key = info.filename.removesuffix(".npy")
                if key.startswith(path):
                    with archive.open(info) as entry:
                        found[key] = _read_array(entry)
    except _DAMAGE as error:
        raise SnapshotFormatError(
            f"{name!r} is not a complete .npz file ({error}). It may be truncated, damaged or of another format; "
            "nothing has been loaded."
        ) from error
    return found


def _read_array(entry: Any) -> Any:
    version = np.lib.format.read_magic(entry)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(entry)
    if dtype.hasobject:
        return np.array(None)
    data = entry.read()
    array = np.frombuffer(bytearray(data), dtype) if dtype.itemsize else np.empty(shape, dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
