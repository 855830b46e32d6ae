"""Telling arrays from other things, and turning scalars back into arrays."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy

from ..backends import cuda
from ..backends.chainerx import is_chainerx_array
from ..callsite import user_location
from ..errors import ArrayTypeError
from ..pytorch_keywords import explain

Function = TypeVar("Function", bound=Callable[..., Any])
AS_ARRAY = "Convert it first, for example with numpy.asarray(x, dtype=numpy.float32); labels with dtype=numpy.int32."
_NO_ARRAYS = {list: "a list", tuple: "a tuple", int: "a number", float: "a number", bool: "a truth value",
              type(None): "None"}


def force_array(x: Any, dtype: Any = None) -> Any:
    """Return `x` as an array: NumPy turns 0-dimensional results into scalars, this undoes it.

    Args:
        x: An array or a scalar.
        dtype: The data type of the result; None keeps it.

    Example:
        >>> force_array(numpy.float32(3))
        array(3., dtype=float32)
    """
    if type(x) is not numpy.ndarray and numpy.isscalar(x):
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


def for_arrays(fn: Function) -> Function:
    """Decorate a function of arrays: given a list or a number in place of one, it says so, and where."""
    @functools.wraps(fn)
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except AttributeError as error:
            if (better := no_array(error, fn.__name__)) is not None:
                raise better from None
            raise
        except TypeError as error:
            explain(error)
            raise
    return cast(Function, function)


def no_array(error: AttributeError, name: str) -> ArrayTypeError | None:
    """Return the error for a list or number of which code of ours wants an attribute of arrays; None for others."""
    if type(error.obj) not in _NO_ARRAYS or error.name not in ("ndim", "shape", "dtype", "array", "size"):
        return None
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None or not frame.tb_frame.f_globals.get("__name__", "").startswith("kusari."):
        return None
    return ArrayTypeError(f"{name} was given {_NO_ARRAYS[type(error.obj)]} in place of an array or a Variable.\n"
                          f"{AS_ARRAY}\nApplied at: {user_location()}")


def check_array(value: Any, what: str) -> None:
    """Raise `ArrayTypeError` unless `value` is an array; `what` names its use."""
    if not is_array(value):
        raise ArrayTypeError(
            f"{what} must be a numpy.ndarray, a cupy.ndarray or a chainerx.ndarray. Actual: {type(value)}. "
            "Convert it first, for example with numpy.asarray(value, dtype=numpy.float32)."
        )


def add_arrays(x: Any, y: Any) -> Any:
    """Return ``x + y`` as an array, also where both have no dimensions."""
    if type(x) is not numpy.ndarray and (device := cuda.away((x,))) is not None:
        with device:
            return x + y
    total = x + y
    return numpy.asarray(total) if isinstance(total, numpy.generic) else total


def contains_nan(array: Any) -> bool:
    """Return whether an array has a NaN; only floating point arrays can."""
    if array is None or array.dtype.kind not in "fc":
        return False
    with cuda.get_device_from_array(array):
        total = array.sum()  # NaN or infinite whenever something may be wrong, and no array of its own
        return not abs(float(total.real)) < numpy.inf and bool((array != array).any())
