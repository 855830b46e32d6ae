"""Assertions about arrays of ChainerX and NumPy."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import ndarray
from ..routines.creation import to_numpy

__all__ = ["assert_allclose", "assert_allclose_ex", "assert_array_equal", "assert_array_equal_ex"]


def _plain(x: Any) -> Any:
    return to_numpy(x) if isinstance(x, ndarray) else x


def assert_allclose(x: Any, y: Any, rtol: float = 1e-7, atol: float = 0, equal_nan: bool = True, err_msg: str = "",
                    verbose: bool = True) -> None:  # fmt: skip
    """Raise AssertionError unless elements differ by little, see `numpy.testing.assert_allclose`."""
    np.testing.assert_allclose(_plain(x), _plain(y), rtol, atol, equal_nan, err_msg, verbose)


def assert_array_equal(x: Any, y: Any, err_msg: str = "", verbose: bool = True) -> None:
    """Raise AssertionError unless elements are equal."""
    np.testing.assert_array_equal(_plain(x), _plain(y), err_msg, verbose)


def assert_allclose_ex(x: Any, y: Any, rtol: float = 1e-7, atol: float = 0, equal_nan: bool = True, err_msg: str = "",
                       verbose: bool = True, *, dtype_check: bool | None = None, strides_check: bool | None = None,
                       **tolerances: float) -> None:  # fmt: skip
    """Raise AssertionError unless elements differ by little, and data types and strides are equal.

    Args:
        x: An array.
        y: What it should be.
        rtol (float): The relative tolerance.
        atol (float): The absolute tolerance.
        equal_nan (bool): Whether NaN is equal to NaN.
        err_msg (str): A text for the message.
        verbose (bool): Whether values are shown.
        dtype_check (bool): Whether data types are compared.
        strides_check (bool): Whether strides are; None is if data types are.
        tolerances: ``float16_rtol``, ``float32_atol`` and the like, for arrays of that type.
    """
    name = x.dtype.name
    assert_allclose(x, y, tolerances.get(f"{name}_rtol", rtol), tolerances.get(f"{name}_atol", atol), equal_nan,
                    err_msg, verbose)  # fmt: skip
    _compare_types(x, y, dtype_check, strides_check)


def assert_array_equal_ex(x: Any, y: Any, err_msg: str = "", verbose: bool = True, *, dtype_check: bool | None = None,
                          strides_check: bool | None = None) -> None:  # fmt: skip
    """Raise AssertionError unless elements, data types and strides are equal, see `assert_allclose_ex`."""
    assert_array_equal(x, y, err_msg, verbose)
    _compare_types(x, y, dtype_check, strides_check)


def _compare_types(x: Any, y: Any, dtype_check: bool | None, strides_check: bool | None) -> None:
    if dtype_check is False and strides_check:
        raise ValueError("strides can be compared only of arrays of one data type: dtype_check must not be False")
    arrays = (np.ndarray, ndarray)
    if not isinstance(x, arrays) or not isinstance(y, arrays) or dtype_check is False:
        return
    assert x.dtype == y.dtype, f"data types differ: {x.dtype} and {y.dtype}"
    if strides_check is not False:
        assert x.strides == y.strides, f"strides differ: {x.strides} and {y.strides}"
