"""Arrays to call models with: different in every element."""
from __future__ import annotations

from typing import Any

import numpy as np


def increasing(*shape: int, dtype: Any = np.float32) -> Any:
    """Return a monotonically increasing array around zero, in steps of 0.5 (of 1 for integers).

    Example:
        >>> increasing(2, 2)
        array([[-1. , -0.5],
               [ 0. ,  0.5]], dtype=float32)
    """
    n = int(np.prod(shape))
    steps = np.arange(n) - n // 2
    return (steps * (0.5 if np.dtype(dtype).kind == "f" else 1)).reshape(shape).astype(dtype)


def nonzero_increasing(*shape: int, dtype: Any = np.float32, bias: float = 1e-7) -> Any:
    """Return a monotonically increasing array without a zero: `increasing` with ``bias`` added.

    Raises:
        ValueError: ``dtype`` is no floating-point type.
    """
    return _float(increasing(*shape, dtype=dtype) + np.asarray(bias, _floating(dtype)), dtype)


def positive_increasing(*shape: int, dtype: Any = np.float32, bias: float = 1e-7) -> Any:
    """Return a monotonically increasing array of positive numbers, from ``bias`` on in steps of 0.5.

    Raises:
        ValueError: ``dtype`` is no floating-point type.
    """
    steps = (np.arange(int(np.prod(shape))) * 0.5).reshape(shape)
    return _float(steps.astype(dtype) + np.asarray(bias, _floating(dtype)), dtype)


def _floating(dtype: Any) -> Any:
    if np.dtype(dtype).kind != "f":
        raise ValueError(f"dtype must be a floating-point type, got {np.dtype(dtype)}")
    return dtype


def _float(x: Any, dtype: Any) -> Any:
    return np.asarray(x, dtype)
