"""Names that NumPy has removed, put back for programs that were written for an older one.

Nothing of Kusari's uses them.  docs/numpy.md lists these and other changes of NumPy, and the ways out.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from .utils.type_check import InvalidType

__all__ = ["PAGE", "explained", "put_back", "take_away"]

PAGE = "docs/numpy.md"

# The old names by their values; a name that this NumPy has is left as it is.
_VALUES: dict[str, Any] = {
    # Types of Python's, removed in 1.24.
    "bool": bool, "complex": complex, "float": float, "int": int, "long": int, "object": object, "str": str,
    "unicode": str, "bool8": np.bool_, "object0": np.object_,
    # Second names of NumPy's types and constants, removed in 2.0.
    "cfloat": np.complex128, "clongfloat": np.clongdouble, "complex_": np.complex128, "float_": np.float64,
    "longcomplex": np.clongdouble, "longfloat": np.longdouble, "singlecomplex": np.complex64, "string_": np.bytes_,
    "unicode_": np.str_,
    "Inf": np.inf, "Infinity": np.inf, "NINF": -np.inf, "NZERO": -0.0, "NaN": np.nan, "PINF": np.inf, "PZERO": 0.0,
    "infty": np.inf,
    # Second names of functions.
    "alltrue": np.all, "cumproduct": np.cumprod, "mat": np.asmatrix, "product": np.prod, "round_": np.round,
    "row_stack": np.vstack, "sometrue": np.any,
    # Moved in 2.0.
    **{name: getattr(np.exceptions, name) for name in (
        "AxisError", "ComplexWarning", "ModuleDeprecationWarning", "RankWarning", "TooHardError",
        "VisibleDeprecationWarning") if hasattr(np.exceptions, name)},
}  # fmt: skip


def _asfarray(a: Any, dtype: Any = np.float64) -> np.ndarray:
    """Return an array of floating-point numbers."""
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def _asscalar(a: Any) -> Any:
    """Return the only element of an array."""
    return a.item()


def _in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> np.ndarray:
    """Return for each element of the flattened first array whether it is in the second."""
    return np.isin(np.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


def _msort(a: Any) -> np.ndarray:
    """Return an array sorted along its first axis."""
    return np.sort(a, axis=0)


def _trapz(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """Return the integral along an axis by the trapezoidal rule."""
    return np.trapezoid(y, x, dx, axis)


_VALUES.update(asfarray=_asfarray, asscalar=_asscalar, in1d=_in1d, msort=_msort, trapz=_trapz)
_put: list[str] = []


def put_back() -> None:
    """Give ``numpy`` the names it lacks."""
    for name, value in _VALUES.items():
        if name not in vars(np):
            setattr(np, name, value)
            _put.append(name)


def take_away() -> None:
    """Undo `put_back`."""
    while _put:
        delattr(np, _put.pop())


# Errors of old programs by a part of their messages, with the change of NumPy's behind them.
_CHANGES: tuple[tuple[type[Exception], str, str], ...] = (
    (TypeError, "only 0-dimensional arrays can be converted",
     "NumPy 2.4 and later refuse float() and int() of an array with axes, even of one element: write x.item(), or "
     "use NumPy below 2.4"),
    (OverflowError, "out of bounds for",
     "since NumPy 2 a Python number does not change the type of an array it meets: convert the array first"),
    (AttributeError, "module 'numpy' has no attribute",
     "NumPy has removed this name, and it is not among those that are put back"),
    (AttributeError, "was removed in the NumPy 2.0 release",
     "NumPy has removed this name, and it is not among those that are put back"),
    (InvalidType, "float64",
     "if a float64 is not meant here: since NumPy 2 a np.float64 number times a float32 array is a float64 array; "
     "make it a Python number, float(x)"),
)  # fmt: skip


def explained(error: BaseException) -> str | None:
    """Return a line about the change of NumPy's that a program of Chainer's time has run into, or None."""
    for kind, part, change in _CHANGES:
        if isinstance(error, kind) and part in str(error):
            return f"{change} ({PAGE})."
    return None
