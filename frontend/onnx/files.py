"""Models as files: one, or above protobuf's limit two, a model and beside it the data of its arrays."""
from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
from collections.abc import Callable
from typing import Any

from ..serializers.npz_file import _replacing
from .errors import ExportError, ExportFileError
from .versions import require_onnx

LIMIT = 2**31 - 2**20  # protobuf's limit for one message, less room for the nodes
ALIGNMENT = 2**16      # of arrays in the data file: pages of any system, so that they can be mapped into memory
_INLINE = 1024         # smaller arrays, shapes among them, stay in the model


def add_tensor(graph: Any, name: str, array: Any) -> None:
    """Append an initializer; in place, as protobuf copies no message that is above its limit."""
    kind = require_onnx().helper.np_dtype_to_tensor_dtype(array.dtype)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    graph.initializer.add(name=name, data_type=kind, dims=array.shape).raw_data = little.tobytes()


def size_of(model: Any) -> int:
    """Return how many bytes the arrays of a model take."""
    dtype_of = require_onnx().helper.tensor_dtype_to_np_dtype
    return sum(dtype_of(t.data_type).itemsize * math.prod(t.dims) for t in model.graph.initializer)


def without_arrays(model: Any, keep: Callable[[Any], bool], stand_in: Callable[[Any, Any], None]) -> Any:
    """Return a copy of a model in which ``stand_in(graph, tensor)`` is called for each initializer not to ``keep``.

    Nothing large is copied.
    """
    onnx = require_onnx()
    light = onnx.ModelProto()
    for source, target, skipped in ((model, light, "graph"), (model.graph, light.graph, "initializer")):
        for field, value in source.ListFields():
            if field.name == skipped:
                continue
            if isinstance(value, (str, int, float, bytes)):
                setattr(target, field.name, value)
            else:
                getattr(target, field.name).MergeFrom(value)
    for t in model.graph.initializer:
        if keep(t):
            light.graph.initializer.append(t)
        else:
            stand_in(light.graph, t)
    return light


def save(model: Any, file: Any, text: bool = False, limit: int | None = None) -> None:
    """Write a model to a path (in one step) or a binary file object; raises ``ExportFileError``.

    A model whose arrays take more than ``limit`` bytes has them in a second file, ``NAME.DIGEST.data``: a new one for
    new data, so that at any time the model that stands there has the data that belong to it.
    """
    limit = LIMIT if limit is None else min(limit, LIMIT)
    size = size_of(model)
    if not isinstance(file, (str, bytes, os.PathLike)):
        if size > limit:
            raise ExportError(f"the model holds {size:,} bytes of parameters and constants, and one stream at most "
                              f"{limit:,}; give a path, beside which a second file takes the data, or pass "
                              "export_params=False and keep them elsewhere")
        if not callable(getattr(file, "write", None)):
            raise ExportFileError(f"filename must be a path or a binary file object, got {type(file).__name__}")
        try:
            file.write(model.SerializeToString(deterministic=True))
        except TypeError as error:
            raise ExportFileError(f"the file object takes no bytes ({error}); open it in binary mode") from None
        return
    path = os.fspath(file)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    data = _save_arrays(model, path) if size > limit else None
    try:
        write(path, (data[1] if data else model).SerializeToString(deterministic=True))
        if text:
            write(f"{path}.txt", str(data[1] if data else model).encode())
    except BaseException:
        if data is not None and data[2]:
            os.unlink(data[0])
        raise
    _forget(path, None if data is None else data[0])


def _save_arrays(model: Any, path: str) -> tuple[str, Any, bool]:
    """Write the data file; returns its path, a model that refers to it, and whether the file is new."""
    onnx = require_onnx()
    digest = hashlib.sha256()
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for t in model.graph.initializer:
        data = t.raw_data
        if len(data) >= _INLINE:
            digest.update(data)
            start = -(-end // ALIGNMENT) * ALIGNMENT
            places[t.name] = start, len(data)
            end = start + len(data)
    location = f"{os.path.realpath(path)}.{digest.hexdigest()[:12]}.data"

    def refer(graph: Any, t: Any) -> None:
        made = graph.initializer.add(name=t.name, data_type=t.data_type, dims=t.dims,
                                     data_location=onnx.TensorProto.EXTERNAL)
        offset, length = places[t.name]
        for key, value in (("location", os.path.basename(location)), ("offset", offset), ("length", length)):
            made.external_data.add(key=key, value=str(value))
    light = without_arrays(model, lambda t: t.name not in places, refer)
    new = not os.path.exists(location)
    with _named(path), _replacing(location) as stream:
        for t in model.graph.initializer:
            if t.name in places:
                stream.seek(places[t.name][0])
                stream.write(t.raw_data)
    return location, light, new


def _forget(path: str, current: str | None) -> None:
    """Remove the data of models that stood at ``path`` before."""
    folder, name = os.path.split(os.path.realpath(path))
    data = re.compile(rf"{re.escape(name)}\.[0-9a-f]{{12}}\.data")
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            if data.fullmatch(entry) and entry != os.path.basename(current or ""):
                os.unlink(os.path.join(folder, entry))


def write(path: str, data: bytes) -> None:
    """Write a file in one step; raises ``ExportFileError``."""
    with _named(path), _replacing(os.path.realpath(path)) as stream:
        stream.write(data)


@contextlib.contextmanager
def _named(path: str) -> Any:
    """Context in which what the system says is said of ``path``."""
    try:
        yield
    except OSError as error:
        folder = os.path.dirname(os.path.realpath(path))
        reason = error.strerror or str(error) if os.path.isdir(folder) else f"the folder {folder!r} does not exist"
        raise ExportFileError(error.errno, f"cannot write the ONNX file: {reason}", path) from error
