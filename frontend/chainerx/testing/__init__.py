"""Helpers for tests of programs that use ChainerX."""
from __future__ import annotations

from typing import Any

import numpy as np

from .. import device as _device
from ..arrays import ndarray
from . import array, dtypes, helper
from .array import assert_allclose, assert_allclose_ex, assert_array_equal, assert_array_equal_ex
from .dtypes import (
    all_dtypes,
    float_dtypes,
    integral_dtypes,
    nonfloat_dtypes,
    numeric_dtypes,
    parametrize_dtype_specifier,
    signed_dtypes,
    signed_integral_dtypes,
    unsigned_dtypes,
)
from .helper import ignore, numpy_chainerx_allclose, numpy_chainerx_array_equal

__all__ = [
    "all_dtypes", "array", "assert_allclose", "assert_allclose_ex", "assert_array_equal", "assert_array_equal_ex",
    "dtypes", "float_dtypes", "helper", "ignore", "integral_dtypes", "nonfloat_dtypes", "numeric_dtypes",
    "numpy_chainerx_allclose", "numpy_chainerx_array_equal", "parametrize_dtype_specifier", "signed_dtypes",
    "signed_integral_dtypes", "unsigned_dtypes",
]


def _fromnumpy(array: np.ndarray, keepstrides: bool = False, device: Any = None) -> ndarray:
    """Return an array that shares the memory of one of NumPy's, with its strides if ``keepstrides``."""
    place = _device.get_device(device)
    return ndarray.of(place.put(array if keepstrides else np.ascontiguousarray(array)), place)
