"""Casts between dtypes."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import get_dtype, mixed16
from ...elementwise import cast_body
from ...variable import Variable, as_variable


def cast(x: Any, typ: Any) -> Variable:
    """Cast an input to another dtype; gradients are cast back.

    Args:
        x: Input.
        typ: Anything that names a dtype.
    """
    dtype = np.dtype(get_dtype(typ) if typ is mixed16 else typ)
    return as_variable(x) if x.dtype == dtype else cast_body(dtype)(x)
