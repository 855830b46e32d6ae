"""Functions of Variables, applied to arrays of ChainerX."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backends.cuda import is_of_cupy
from ..configuration import ConfigScope, config
from ..errors import InvalidType
from ..functions import cast
from ..variable import Variable
from . import arrays as _arrays
from .arrays import ndarray
from .device import get_default_device
from .dtypes import floating, rank_of, result_type
from .errors import ChainerxError, DeviceError, DimensionError, DtypeError
from .graph import Through, carrier, current, ids_behind, of_variable, recorded, stopped

__all__ = ["apply", "computed", "moved", "plain", "raw"]


def raw(x: Any) -> Any:
    """Return the array of NumPy or CuPy behind an array, and anything else as it is, also in tuples and lists."""
    if isinstance(x, ndarray):
        return x._elements
    if isinstance(x, (tuple, list)):
        return type(x)([raw(one) for one in x])
    return x


def arrays_in(xs: Sequence[Any]) -> list[ndarray]:
    """Return the arrays among arguments, also those in tuples and lists."""
    found: list[ndarray] = []
    for x in xs:
        if isinstance(x, ndarray):
            found.append(x)
        elif isinstance(x, (tuple, list)):
            found.extend(arrays_in(x))
        elif isinstance(x, np.ndarray) or is_of_cupy(type(x)):
            raise TypeError(f"expected a ChainerX array or a number, got {type(x)}: convert it with chainerx.array")
    return found


def device_of(xs: Sequence[Any]) -> Any:
    """Return the device of all arrays among arguments.

    Raises:
        DeviceError: They lie on several.
    """
    devices = {x.device: None for x in arrays_in(xs)}
    if len(devices) > 1:
        raise DeviceError(f"arrays lie on several devices: {', '.join(d.name for d in devices)}")
    return next(iter(devices), None) or get_default_device()


@contextmanager
def errors_of_chainerx() -> Iterator[None]:
    """Raise errors about shapes and types as ChainerX does."""
    try:
        yield
    except (ChainerxError, IndexError):
        raise
    except (InvalidType, ValueError) as error:
        if isinstance(error, InvalidType) and "dtype" in error.expect:
            raise DtypeError(str(error)) from error
        raise DimensionError(str(error)) from error


def _operand(x: Any, dtype: Any) -> Any:
    if isinstance(x, ndarray):
        variable = carrier(x)
        return variable if dtype is None or x.dtype == dtype else cast(variable, dtype)
    if isinstance(x, (tuple, list)):
        return type(x)([_operand(one, dtype) for one in x])
    return x if dtype is None or isinstance(x, str) or x is None else float(x)


def apply(function: Callable[..., Any], *xs: Any, dtype: Any = None) -> Any:
    """Return what a function of Variables makes of arrays, as arrays.

    Args:
        function: It takes Variables, numbers and sequences of them.
        xs: Arrays, numbers and sequences of them.
        dtype: The type that arrays are cast to, and numbers, for floating point; None leaves them.
    """
    device = device_of(xs)
    left = left_by(xs)
    with device.active(), errors_of_chainerx(), ConfigScope("enable_backprop", config.enable_backprop and (
            left is not None), config):
        operands = [_operand(x, dtype) for x in xs]
        return _faces(function(*operands), device, left, operands)


def left_by(xs: Sequence[Any]) -> frozenset[Any] | None:
    """Return the graphs of arrays in which nothing is recorded now; None where there are no others."""
    variables = [x._variable for x in arrays_in(xs) if x._variable is not None]
    if not variables:
        return None
    if not current.modes:
        return frozenset()
    ids = ids_behind([x.node for x in variables])
    left = frozenset([one for one in ids if not recorded(one)])
    return None if left == ids else left


def _faces(y: Any, device: Any, left: frozenset[Any] | None, operands: Sequence[Any]) -> Any:
    if isinstance(y, (tuple, list)):
        return type(y)([_faces(one, device, left, operands) for one in y])
    if not isinstance(y, Variable):
        return ndarray.of(device.put(y), device)
    if left is None:
        return ndarray.of(y._array, device)
    if any(y is x for x in operands):  # an array of its own, with a gradient of its own
        y, = Through(lambda x: x).apply((y,))
    return _outside(y, device, left)


def _outside(y: Variable, device: Any, left: frozenset[Any] | None) -> ndarray:
    """Return the array of a Variable, outside of the graphs in ``left``."""
    face = of_variable(y, device)
    return stopped(face, left) if left else face


def plain(function: Callable[..., Any], *xs: Any, dtype: Any = None, to: Any = None) -> Any:
    """Return what a function of NumPy's arrays makes of arrays; it has no gradient.

    Args:
        function: It takes arrays of NumPy or CuPy, numbers and sequences of them.
        xs: Arrays, numbers and sequences of them.
        dtype: The type that arrays and numbers are cast to; None leaves them.
        to: The type of the results; None leaves it.
    """
    device = device_of(xs)
    with device.active(), errors_of_chainerx():
        operands = [raw(x) for x in xs]
        if dtype is not None:
            operands = [_cast(x, dtype) for x in operands]
        return _plain_faces(function(*operands), device, to)


def _cast(x: Any, dtype: Any) -> Any:
    return type(x)([_cast(one, dtype) for one in x]) if isinstance(x, (tuple, list)) else (
        x if getattr(x, "dtype", None) == dtype else np.asarray(x).astype(dtype) if np.isscalar(x) else x.astype(dtype))


def _plain_faces(y: Any, device: Any, to: Any) -> Any:
    if isinstance(y, (tuple, list)):
        return type(y)([_plain_faces(one, device, to) for one in y])
    array = device.xp.asarray(y)
    return ndarray.of(array if to is None else array.astype(to, copy=False), device)


def computed(function: Callable[..., Any], other: Callable[..., Any], *xs: Any, real: bool = False) -> Any:
    """Return a function of arrays and numbers, in their common type.

    Args:
        function: It computes floating point, with a gradient.
        other: It computes booleans and integers.
        xs: Arrays, numbers and sequences of them.
        real: Whether it is a function of real numbers: others are cast first.
    """
    if not arrays_in(xs):
        raise TypeError("at least one operand must be a ChainerX array")
    dtype = result_type(*[one for x in xs for one in (x if isinstance(x, (tuple, list)) else (x,))])
    if real:
        dtype = floating(dtype)
    if rank_of(dtype) == 2:
        return apply(function, *xs, dtype=dtype)
    return plain(other, *xs, dtype=dtype)


def moved(array: ndarray, device: Any) -> ndarray:
    """Return an array on another device; its gradient comes back."""
    source = array.device

    def put(x: Any) -> Any:
        placed = device.put(x)
        return placed.copy() if placed is x else placed

    left = left_by((array,))
    if left is None:
        return ndarray.of(put(array._elements), device)
    y, = Through(put, lambda gy: _sent_back(gy, device, source)).apply((carrier(array),))
    return _outside(y, device, left)


def _sent_back(gy: Variable, device: Any, source: Any) -> Variable:
    return Through(source.put, lambda g: _sent_back(g, source, device)).apply((gy,))[0]


_arrays.apply = sys.modules[__name__]
