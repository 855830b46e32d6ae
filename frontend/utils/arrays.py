"""Telling arrays from other things, and turning scalars back into arrays."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from ..backends import cuda
from ..backends.chainerx import is_chainerx_array
from ..errors import ArrayTypeError


def force_array(x: Any, dtype: Any = None) -> Any:
    """Return `x` as an array: NumPy turns 0-dimensional results into scalars, this undoes it.

    Args:
        x: An array or a scalar.
        dtype: The data type of the result; None keeps it.

    Example:
        >>> force_array(numpy.float32(3))
        array(3., dtype=float32)
    """
    if numpy.isscalar(x):
        return numpy.array(x) if dtype is None else numpy.array(x, dtype)
    return x if dtype is None else x.astype(dtype, copy=False)


def force_type(dtype: Any, value: Any) -> Any:
    """Return `value` converted to `dtype` where it is a scalar or an array of another data type."""
    if numpy.isscalar(value):
        return numpy.dtype(dtype).type(value)
    return value if value.dtype == dtype else value.astype(dtype, copy=False)


def size_of_shape(shape: Sequence[int]) -> int:
    """Return the number of elements of an array of that shape."""
    return math.prod(shape)


def sum_to(x: Any, shape: Sequence[int]) -> Any:
    """Return an array summed up to a shape that broadcasts to its own.

    Example:
        >>> sum_to(numpy.ones((2, 3)), (1, 3))
        array([[2., 2., 2.]])
    """
    lead = x.ndim - len(shape)
    axes = tuple([i for i in range(x.ndim) if i < lead or shape[i - lead] == 1])
    return x.sum(axes, keepdims=True).reshape(shape) if axes else x


def is_array(value: Any) -> bool:
    """Return whether `value` is an array of NumPy, CuPy or ChainerX."""
    return isinstance(value, numpy.ndarray) or cuda.is_cupy_array(value) or is_chainerx_array(value)


def check_array(value: Any, what: str) -> None:
    """Raise `ArrayTypeError` unless `value` is an array; `what` names its use."""
    if not is_array(value):
        raise ArrayTypeError(
            f"{what} must be a numpy.ndarray, a cupy.ndarray or a chainerx.ndarray. Actual: {type(value)}. "
            "Convert it first, for example with numpy.asarray(value, dtype=numpy.float32)."
        )


def add_arrays(x: Any, y: Any) -> Any:
    """Return ``x + y`` as an array, also where both have no dimensions."""
    total = x + y
    return numpy.asarray(total) if isinstance(total, numpy.generic) else total
