"""Names of types, constants, and elements of arrays."""
from __future__ import annotations

import math

import numpy as np

from kusari.ir import DType

F16, F32, F64 = np.dtype("float16"), np.dtype("float32"), np.dtype("float64")
BOOL = np.dtype("bool")

TYPES = {
    "bool": "bool", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "float16": "f32", "float32": "f32", "float64": "f64",
}


def type_name(dtype: DType) -> str:
    """The type in which a value of ``dtype`` is computed."""
    if dtype.name not in TYPES:
        raise ValueError(f"expected a bool, integer or float dtype, got {dtype}")
    return TYPES[dtype.name]


def storage_name(dtype: DType) -> str:
    """The type of an array's element: kernels take no pointers to bools, and halves are bits."""
    return {"b": "u8"}.get(dtype.kind, "u16" if dtype == F16 else type_name(dtype))


def loaded(dtype: DType, text: str) -> str:
    """The value of an element with the text ``text``."""
    if dtype == F16:
        return f"half_to_float({text})"
    return f"({text} != 0)" if dtype.kind == "b" else text


def stored(dtype: DType, text: str) -> str:
    """The element that holds a value."""
    return f"float_to_half({text})" if dtype == F16 else text


def literal(value: bool | int | float, dtype: DType) -> str:
    """``value`` as a constant of ``dtype``."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind == "f":
        return _float(float(value), dtype)
    n = int(value)
    if dtype == np.int64 and n == np.iinfo(np.int64).min:
        return "(-(i64)9223372036854775807 - 1)"
    if dtype.itemsize == 8:
        return f"({type_name(dtype)}){n}U" if dtype.kind == "u" else f"((i64){n})"
    text = f"{n}U" if dtype == np.uint32 else str(n)
    return f"({text})" if n < 0 else text


def _float(x: float, dtype: DType) -> str:
    if dtype.itemsize < 8:
        with np.errstate(over="ignore"):
            x = float(dtype.type(x))
    bits = 8 * max(dtype.itemsize, 4)
    if math.isnan(x):
        return f"NAN{bits}"
    if math.isinf(x):
        return f"INF{bits}" if x > 0 else f"(-INF{bits})"
    text = repr(x) if bits == 64 else f"{x!r}f"
    return f"({text})" if text.startswith("-") else text
