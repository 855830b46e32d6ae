"""LLVM IR spellings of dtypes and constants."""
from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import numpy as np

from kusari.ir import DType

BOOL = np.dtype("bool")
F16 = np.dtype("float16")
F32 = np.dtype("float32")
F64 = np.dtype("float64")

_FLOATS = {2: "half", 4: "float", 8: "double"}
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


def value_type(dtype: DType) -> str:
    """Type of an element in a register: a bool is ``i1`` there."""
    if dtype.kind == "f" and dtype.itemsize in _FLOATS:
        return _FLOATS[dtype.itemsize]
    if dtype.kind in "iu":
        return f"i{8 * dtype.itemsize}"
    if dtype.kind == "b":
        return "i1"
    raise TypeError(f"expected a bool, integer or float dtype, got {dtype}")


def memory_type(dtype: DType) -> str:
    """Type of an element in memory: a bool is a byte there."""
    return "i8" if dtype.kind == "b" else value_type(dtype)


def size_of(element: str) -> int:
    """Bytes of an element in memory."""
    return {"half": 2, "float": 4, "double": 8, "ptr": 8}.get(element) or int(element[1:]) // 8


def vector(element: str, width: int) -> str:
    """``<width x element>``; a width of one is the scalar itself."""
    return element if width == 1 else f"<{width} x {element}>"


def suffix(element: str, width: int) -> str:
    """The overload suffix of an intrinsic, as in ``llvm.fma.v16f32``."""
    short = _SUFFIX.get(element, element)
    return short if width == 1 else f"v{width}{short}"


def constant(element: str, value: float | int | bool) -> str:
    """``value`` as a literal of ``element``; floats are written by their bits, so NaN, infinities and -0.0 survive."""
    if element == "i1":
        return "true" if value else "false"
    if element == "half":
        bits = int(np.array(value, np.float16).view(np.uint16))
        return f"0xH{bits:04X}"
    if element in ("float", "double"):
        with np.errstate(over="ignore"):
            x = float(np.float32(value)) if element == "float" else float(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', x))[0]:016X}"
    bits = int(element[1:])
    n = int(value) & ((1 << bits) - 1)
    return str(n - (1 << bits) if n >> (bits - 1) else n)


def constants(element: str, values: Sequence[float | int | bool]) -> str:
    """A literal vector (a scalar for one value)."""
    if len(values) == 1:
        return constant(element, values[0])
    return "<" + ", ".join(f"{element} {constant(element, v)}" for v in values) + ">"


def symbol_of(name: str, *facts: object) -> str:
    """The symbol of a kernel of which ``facts`` are all that its text depends on."""
    return f"{name}_{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"


def splat(element: str, width: int, value: float | int | bool) -> str:
    """A literal vector of ``width`` equal elements."""
    one = constant(element, value)
    return one if width == 1 else f"splat ({element} {one})"
