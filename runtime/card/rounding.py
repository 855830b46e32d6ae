"""The rounding of factors in float32 before they are multiplied: CuPy's setting."""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from kusari.ir.product import Rounding

from .kernels import cupy

#: CuPy's COMPUTE_TYPE_BF16 and COMPUTE_TYPE_TF32.
_OF_COMPUTE_TYPE: dict[int, Rounding] = {6: "bf16", 7: "tf32"}
_SINGLE: Any = np.dtype(np.float32)


def rounding() -> Rounding:
    """Return the type that ``cupy._core.set_compute_type`` has for float32, or ``CUPY_TF32=1`` until it is called."""
    try:
        return _OF_COMPUTE_TYPE.get(cupy()._core.get_compute_type(_SINGLE), "")
    except AttributeError:  # another CuPy
        return "" if os.environ.get("CUPY_TF32", "0") in ("", "0") else "tf32"
