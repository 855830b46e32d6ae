"""Data types: those there are, and which of them operations on several have.

An operation has the kind of its highest operand, booleans before integers before floating point, and among operands of
that kind NumPy's type. A Python number has a kind but no size: beside arrays of a lower kind it has the default type.
"""
from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .errors import DtypeError

__all__ = ["all_dtypes", "as_dtype", "floating", "rank_of", "result_type"]

all_dtypes = (np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.float16, np.float32, np.float64)
_KNOWN = frozenset(map(np.dtype, all_dtypes))
_RANKS = {"b": 0, "i": 1, "u": 1, "f": 2}
_DEFAULTS = (np.dtype(np.bool_), np.dtype(np.int32), np.dtype(np.float32))


def as_dtype(dtype: Any) -> Any:
    """Return a NumPy dtype.

    Raises:
        DtypeError: Arrays cannot have this one.
    """
    try:
        found = np.dtype("bool" if dtype == "bool_" else dtype)
    except TypeError as error:
        raise DtypeError(f"there is no data type {dtype!r}") from error
    if found not in _KNOWN:
        raise DtypeError(f"arrays of {found} are not supported; there are {', '.join(d.__name__ for d in all_dtypes)}")
    return found


def rank_of(dtype: Any) -> int:
    """Return 0 for booleans, 1 for integers, 2 for floating point."""
    return _RANKS[dtype.kind]


def result_type(*operands: Any) -> Any:
    """Return the data type of an operation on arrays, data types and numbers."""
    dtypes: list[Any] = []
    scalar = -1
    for x in operands:
        dtype = x if isinstance(x, np.dtype) else None if isinstance(x, np.generic) else getattr(x, "dtype", None)
        if dtype is not None:
            dtypes.append(dtype)
        else:
            scalar = max(scalar, scalar_rank(x))
    if not dtypes:
        return _DEFAULTS[scalar]
    rank = max(map(rank_of, dtypes))
    if scalar > rank:
        return _DEFAULTS[scalar]
    return functools.reduce(np.promote_types, [dtype for dtype in dtypes if rank_of(dtype) == rank])


def scalar_rank(x: Any) -> int:
    """Return the rank of a number of Python's or NumPy's."""
    if isinstance(x, (bool, np.bool_)):
        return 0
    if isinstance(x, (int, np.integer)):
        return 1
    if isinstance(x, (float, np.floating)):
        return 2
    raise TypeError(f"expected a ChainerX array or a number, got {type(x).__name__}")


def floating(dtype: Any) -> Any:
    """Return the type of functions of real numbers: that of floating point arguments, else the default."""
    return dtype if dtype.kind == "f" else _DEFAULTS[2]
