"""Parameters stored in half the bytes: as float16 or bfloat16, and cast back where the graph begins."""
from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .errors import ExportError, OpsetError
from .trace import roots
from .versions import require_onnx

_SINCE = {"float16": 9, "bfloat16": 13}  # the first opset that casts from it


def checked_dtype(dtype: Any, opset: int) -> Any:
    """Return the NumPy dtype of ``param_dtype``, None for None; raises ``ExportError`` for what is none."""
    if dtype is None:
        return None
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype
    if name not in _SINCE:
        raise ExportError(f"param_dtype must be 'float16' or 'bfloat16', got {dtype!r}; leave it out to store "
                          "parameters as they are")
    if opset < _SINCE[name]:
        raise OpsetError(f"{name} can be cast from opset {_SINCE[name]} on, got {opset}")
    return np.dtype("float16") if name == "float16" else np.dtype(importlib.import_module("ml_dtypes").bfloat16)


def narrowed(model: Any, names: set[str], dtype: Any) -> None:
    """Store the float32 initializers of these names as ``dtype``, with a Cast behind each."""
    onnx = require_onnx()
    casts: list[Any] = []
    wide: dict[str, str] = {}
    for t in model.graph.initializer:
        if t.name not in names or t.data_type != onnx.TensorProto.FLOAT:
            continue
        array = onnx.numpy_helper.to_array(t)
        with np.errstate(over="ignore"):
            narrow = array.astype(dtype)
        if not np.isfinite(narrow.astype(np.float32)).all() and np.isfinite(array).all():
            raise ExportError(f"{t.name} has values up to {np.abs(array).max():.3g}, too great for {dtype.name}; "
                              "use param_dtype='bfloat16' or none")
        t.data_type = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        t.raw_data = narrow.tobytes()
        wide[t.name] = f"{t.name}/float32"
        casts.append(onnx.helper.make_node("Cast", [t.name], [wide[t.name]], name=f"{t.name}/Cast",
                                           to=onnx.TensorProto.FLOAT))
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(wide[t.name], onnx.TensorProto.FLOAT, t.dims))
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            if name in wide:
                node.input[i] = wide[name]
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


@contextmanager
def rounded(model: Any, dtype: Any) -> Iterator[None]:
    """Context in which the model's float32 parameters have the values that they are stored with."""
    before = [(p, p._array) for root in roots(model) for p in root.params()
              if dtype is not None and p._array is not None and p._array.dtype == np.float32]
    try:
        for p, array in before:
            p.array = p.device.send(p.device.xp.asarray(_rounded(array, dtype)))
        yield
    finally:
        for p, array in before:
            p.array = array


def _rounded(array: Any, dtype: Any) -> Any:
    from ..backends import cuda
    with np.errstate(over="ignore"):
        return cuda.to_cpu(array).astype(dtype).astype(np.float32)
