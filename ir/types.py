"""Types of values: the facts about a tensor that do not depend on its contents."""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

DType = np.dtype[Any]

_SHORT = {
    "float16": "f16", "float32": "f32", "float64": "f64", "bool": "b1",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "complex64": "c64", "complex128": "c128",
}
_LONG = {short: long for long, short in _SHORT.items()}


@dataclass(frozen=True)
class TensorType:
    """A dtype, a shape and a device; C order is part of the meaning of every value.

    >>> TensorType(np.dtype("float32"), (32, 10))
    f32[32,10]
    """

    dtype: DType
    shape: tuple[int, ...]
    device: str = "cpu"

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a contiguous buffer that holds it."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        place = "" if self.device == "cpu" else f"@{self.device}"
        return f"{_SHORT.get(self.dtype.name, self.dtype.name)}[{','.join(map(str, self.shape))}]{place}"


@dataclass(frozen=True)
class TokenType:
    """The type of a value that only orders effects or passes Python state from node to node."""

    def __repr__(self) -> str:
        return "token"


Type = TensorType | TokenType


def tensor_type(dtype: Any, shape: tuple[int, ...], device: str = "cpu") -> TensorType:
    """Return a ``TensorType`` from anything NumPy takes as a dtype."""
    return _tensor_type(np.dtype(dtype), tuple(shape), device)


@lru_cache(maxsize=4096)
def _tensor_type(dtype: np.dtype[Any], shape: tuple[int, ...], device: str) -> TensorType:
    return TensorType(dtype, tuple(map(int, shape)), device)


def parse_type(text: str) -> Type:
    """Return the type that prints as ``text``.

    >>> parse_type("i32[]")
    i32[]
    """
    if text == "token":
        return TokenType()
    body, _, device = text.partition("@")
    name, _, dims = body.partition("[")
    shape = tuple(int(n) for n in dims.rstrip("]").split(",") if n)
    return TensorType(np.dtype(_LONG.get(name, name)), shape, device or "cpu")
