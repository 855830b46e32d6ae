"""Products of float16 matrices: NumPy has no BLAS for them, and takes a hundred times as long as for float32."""
from __future__ import annotations

from typing import Any

import numpy as np


def are_half(a: Any, b: Any) -> bool:
    """Whether both are NumPy arrays of float16."""
    return type(a) is np.ndarray and type(b) is np.ndarray and a.dtype == np.float16 == b.dtype


def in_float32(function: Any, a: Any, b: Any) -> Any:
    """Apply a product to float16 matrices; like NumPy's own it is added up in float32 and rounded once."""
    with np.errstate(over="ignore"):  # which NumPy's own does not tell either
        return function(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)


def dot(a: Any, b: Any) -> Any:
    """The product of two matrices."""
    return in_float32(np.dot, a, b) if are_half(a, b) else a.dot(b)
