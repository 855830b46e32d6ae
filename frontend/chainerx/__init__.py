"""ChainerX: arrays with devices and gradients, a face on Variables.

    >>> import kusari.chainerx as chx
    >>> x = chx.array([[0, 1, 2], [3, 4, 5]], dtype=chx.float32).require_grad()
    >>> y = chx.tanh(x).sum()
    >>> y.backward()
    >>> x.grad.device, x.grad.shape
    (native:0, (2, 3))

Arrays on ``native`` devices are NumPy's, those on ``cuda`` devices CuPy's; what is computed with them is computed by
`kusari.functions`, and recorded in their graph (decision 19 in the documentation).
"""
from __future__ import annotations

import builtins
from typing import Any

from numpy import (
    bool_,
    dtype,
    e,
    euler_gamma,
    float16,
    float32,
    float64,
    inf,
    int8,
    int16,
    int32,
    int64,
    nan,
    newaxis,
    pi,
    uint8,
)

from . import linalg, random
from . import variables as _variables  # noqa: F401 (functions of Variables find it)
from .arrays import AnyGraph, anygraph, ndarray
from .check import check_backward, check_double_backward
from .device import (
    Backend,
    BackpropId,
    Context,
    Device,
    context_scope,
    get_backend,
    get_default_context,
    get_default_device,
    get_device,
    get_global_default_context,
    set_default_context,
    set_default_device,
    set_global_default_context,
    using_device,
)
from .dtypes import all_dtypes
from .errors import (
    BackendError,
    ChainerxError,
    ContextError,
    DeviceError,
    DimensionError,
    DtypeError,
    GradientCheckError,
    GradientError,
    NotImplementedError,
)
from .graph import (
    BackpropScope,
    backprop_scope,
    backward,
    force_backprop_mode,
    grad,
    is_backprop_required,
    no_backprop_mode,
)
from .routines import FUNCTIONS

bool, float, int = builtins.bool, builtins.float, builtins.int
Inf = Infinity = PINF = infty = inf
NAN = NaN = nan
NINF = -inf
NZERO, PZERO = -0.0, 0.0

globals().update(FUNCTIONS)

__all__ = [
    "AnyGraph", "BackendError", "BackpropId", "BackpropScope", "Backend", "ChainerxError", "Context", "ContextError",
    "Device", "DeviceError", "DimensionError", "DtypeError", "GradientCheckError", "GradientError", "Inf", "Infinity",
    "NAN", "NINF", "NZERO", "NaN", "NotImplementedError", "PINF", "PZERO", "all_dtypes", "anygraph",
    "backprop_scope", "backward", "bool", "bool_", "check_backward", "check_double_backward", "context_scope", "dtype",
    "e", "euler_gamma", "float", "float16", "float32", "float64", "force_backprop_mode", "get_backend",
    "get_default_context", "get_default_device", "get_device", "get_global_default_context", "grad", "inf", "infty",
    "int", "int16", "int32", "int64", "int8", "is_available", "is_backprop_required", "linalg", "nan", "ndarray",
    "newaxis", "no_backprop_mode", "pi", "random", "set_default_context", "set_default_device",
    "set_global_default_context", "uint8", "using_device",
]  # fmt: skip
__all__ += [*FUNCTIONS]


def is_available() -> builtins.bool:
    """Return True."""
    return True


def _to_cupy(array: ndarray) -> Any:
    """Return the array of CuPy behind one on a ``cuda`` device, without copying it."""
    if array.device.backend.name != "cuda":
        raise BackendError(f"an array on {array.device} is not one of CuPy's; use chainerx.to_numpy")
    return array._elements
