"""Casts between dtypes."""
from __future__ import annotations

from typing import Any

import numpy as np

from ...configuration import config
from ...dtypes import get_dtype, mixed16
from ...elementwise import cast_body
from ...variable import Variable, as_variable
from ..math.identity import Identity


def cast(x: Any, typ: Any) -> Variable:
    """Cast an input to another dtype; gradients are cast back.

    Args:
        x: Input.
        typ: Anything that names a dtype.

    Returns:
        Variable: One of its own also where the dtype is the input's, unless no gradient will be asked for.
    """
    dtype = np.dtype(get_dtype(typ) if typ is mixed16 else typ)
    if x.dtype != dtype:
        return cast_body(dtype)(x)
    if config.enable_backprop and isinstance(x, Variable):
        return Identity().apply((x,))[0]
    return as_variable(x)
