"""Arrays made of shapes, ranges, values and files."""
from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.cuda import is_of_cupy
from .. import device as _device
from ..apply import apply, device_of, plain, raw
from ..arrays import ndarray, shape_of
from ..dtypes import as_dtype, result_type
from ..errors import ChainerxError, DtypeError
from ..graph import Through
from .manipulation import broadcast_to, ravel, reshape, swapaxes, take
from .math import where

__all__ = [
    "arange", "array", "asanyarray", "asarray", "ascontiguousarray", "copy", "diag", "diagflat", "empty", "empty_like",
    "eye", "frombuffer", "from_dlpack", "fromfile", "fromfunction", "fromiter", "fromstring", "full", "full_like",
    "identity", "linspace", "loadtxt", "meshgrid", "ones", "ones_like", "to_numpy", "tri", "tril", "triu", "zeros",
    "zeros_like",
]

_FLOAT = np.dtype(np.float32)


def _made(make: Callable[[Any], Any], device: Any = None) -> ndarray:
    place = _device.get_device(device)
    with place.active():
        return ndarray.of(make(place.xp), place)


def _put(values: Any, device: Any) -> ndarray:
    """Return an array of NumPy's on a device; its type must be known there."""
    place = _device.get_device(device)
    as_dtype(values.dtype)
    return ndarray.of(place.put(values), place)


def empty(shape: Any, dtype: Any = None, device: Any = None) -> ndarray:
    """Return an array whose elements are not initialized.

    Args:
        shape (int or tuple of ints): Its shape.
        dtype: Its data type; None is float32.
        device (Device or str): Where it lies; None is the default device.
    """
    return ndarray(shape, _FLOAT if dtype is None else dtype, device)


def full(shape: Any, fill_value: Any, dtype: Any = None, device: Any = None) -> ndarray:
    """Return an array of one value.

    Args:
        shape (int or tuple of ints): Its shape.
        fill_value: The value, a number.
        dtype: Its data type; None is that of the value.
        device (Device or str): Where it lies; None is the default device.
    """
    value = raw(fill_value)
    kind = result_type(value) if dtype is None else as_dtype(dtype)
    return _made(lambda xp: xp.full(shape_of(shape), _number(value, kind), kind), device)


def _number(value: Any, dtype: Any) -> Any:
    return np.asarray(value).astype(dtype)[()] if np.isscalar(value) else value


def zeros(shape: Any, dtype: Any = None, device: Any = None) -> ndarray:
    """Return an array of zeros, see `full`."""
    return full(shape, 0, _FLOAT if dtype is None else dtype, device)


def ones(shape: Any, dtype: Any = None, device: Any = None) -> ndarray:
    """Return an array of ones, see `full`."""
    return full(shape, 1, _FLOAT if dtype is None else dtype, device)


def empty_like(a: ndarray, device: Any = None) -> ndarray:
    """Return an array like another one, whose elements are not initialized."""
    return empty(a.shape, a.dtype, device)


def full_like(a: ndarray, fill_value: Any, dtype: Any = None, device: Any = None) -> ndarray:
    """Return an array of one value, like another one."""
    return full(a.shape, fill_value, a.dtype if dtype is None else dtype, device)


def zeros_like(a: ndarray, device: Any = None) -> ndarray:
    """Return an array of zeros, like another one."""
    return zeros(a.shape, a.dtype, device)


def ones_like(a: ndarray, device: Any = None) -> ndarray:
    """Return an array of ones, like another one."""
    return ones(a.shape, a.dtype, device)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, device: Any = None) -> ndarray:
    """Return ones on a diagonal: an (N, M) array, with the ``k``-th diagonal."""
    kind = np.dtype(float) if dtype is None else as_dtype(dtype)
    return _made(lambda xp: xp.eye(N, M, k, kind), device)


def identity(n: int, dtype: Any = None, device: Any = None) -> ndarray:
    """Return the (n, n) matrix with ones on its diagonal."""
    if n < 0:
        raise ChainerxError(f"a matrix has no negative number of rows, {n}")
    return eye(n, dtype=dtype, device=device)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None, device: Any = None) -> ndarray:
    """Return ones on and below the ``k``-th diagonal of an (N, M) array."""
    kind = np.dtype(np.float32) if dtype is None else as_dtype(dtype)
    return _made(lambda xp: xp.tri(N, M, k, kind), device)


def arange(*args: Any, dtype: Any = None, device: Any = None, **bounds: Any) -> ndarray:
    """Return ``start``, ``start + step``, … below ``stop``.

    Args:
        args: ``stop``; or ``start``, ``stop`` and, possibly, ``step``, ``dtype`` and ``device``.
        dtype: Its data type; None is that of the numbers.
        device (Device or str): Where it lies; None is the default device.
    """
    start, stop, step, dtype, device = _range(args, dtype, device, bounds)
    if not step:
        raise ChainerxError("the step of a range is not 0")
    kind = result_type(start, stop, step) if dtype is None else as_dtype(dtype)
    if kind.kind == "b" and np.ceil((stop - start) / step) > 2:
        raise DtypeError(f"a range of booleans has at most 2 elements: {start} to {stop} is too long")
    return _made(lambda xp: xp.arange(start, stop, step, kind), device)


def _range(args: Any, dtype: Any, device: Any, bounds: dict[str, Any]) -> tuple[Any, ...]:
    names = ("stop",) if len(args) == 1 and "stop" not in bounds else ("start", "stop", "step", "dtype", "device")
    given = {"start": 0, "stop": None, "step": 1, "dtype": dtype, "device": device, **bounds,
             **dict(zip(names, args, strict=False))}
    if given["stop"] is None:
        given["start"], given["stop"] = 0, given["start"]
    for name in given.keys() - {"start", "stop", "step", "dtype", "device"}:
        raise TypeError(f"arange() got an unexpected argument {name!r}")
    return tuple(given[name] for name in ("start", "stop", "step", "dtype", "device"))


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None,
             device: Any = None) -> ndarray:  # fmt: skip
    """Return ``num`` numbers at equal distances, with ``stop`` as the last one if ``endpoint``."""
    if num < 0:
        raise ChainerxError(f"the number of elements is not negative: {num}")
    kind = None if dtype is None else as_dtype(dtype)
    return _made(lambda xp: xp.linspace(start, stop, num, endpoint).astype(kind or np.float64), device)


def array(object: Any, dtype: Any = None, copy: bool = True, device: Any = None) -> ndarray:
    """Return an array of numbers, of another array or of nested lists.

    Args:
        object: An array of ChainerX or NumPy, a number, or nested lists of them.
        dtype: Its data type; None is that of the numbers.
        copy (bool): Whether elements are copied where they need not be.
        device (Device or str): Where it lies; None is the device of a ChainerX array, else the default device.
    """
    if isinstance(object, ndarray):
        place = object.device if device is None else _device.get_device(device)
        found = object.to_device(place)
        return found.astype(object.dtype if dtype is None else dtype, copy=copy and found is object)
    values = raw(object)
    if is_of_cupy(type(values)):
        place = _device.get_device("cuda", int(values.device.id)) if device is None else _device.get_device(device)
        found = ndarray.of(place.put(values), place)
        return found.astype(found.dtype if dtype is None else dtype, copy=copy)
    kind = None if dtype is None else as_dtype(dtype)
    if not isinstance(values, np.ndarray):
        values = np.array([np.asarray(x) for x in values] if _of_arrays(values) else values)
        copy = False
        if values.dtype == object_dtype:
            raise TypeError(f"an array is made of numbers, not of {type(object).__name__}")
    if kind is not None or copy:
        values = values.astype(values.dtype if kind is None else kind, order="C" if copy else "K", copy=copy)
    return _put(values, device)


object_dtype = np.dtype(builtins.object)


def _of_arrays(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and any(isinstance(x, np.ndarray) for x in values)


def asarray(object: Any, dtype: Any = None, device: Any = None) -> ndarray:
    """Return an array, without copying what is one already, see `array`."""
    return array(object, dtype, False, device)


def asanyarray(a: Any, dtype: Any = None, device: Any = None) -> ndarray:
    """The same as `asarray`: there are no subclasses of arrays."""
    return asarray(a, dtype, device)


def ascontiguousarray(a: Any, dtype: Any = None, device: Any = None) -> ndarray:
    """Return an array of at least one axis whose elements lie one behind the other, copied only where they do not."""
    found = asarray(a, dtype, device)
    if not found.ndim:
        found = found.reshape((1,))
    return found if found.is_contiguous else found.copy()


def copy(a: ndarray) -> ndarray:
    """Return a copy; its gradient is that of the array."""
    return apply(lambda x: Through(lambda array: array.copy()).apply((x,))[0], a)


def to_numpy(array: ndarray, copy: bool = True) -> np.ndarray:
    """Return an array of NumPy's; with ``copy=False`` it shares the memory of one on ``native``."""
    if not isinstance(array, ndarray):
        raise TypeError(f"expected a ChainerX array, got {type(array).__name__}")
    found = array.device.context.get_device("native").put(array._elements)
    return found.copy() if copy and found is array._elements else found


def from_dlpack(x: Any) -> ndarray:
    """Return an array that shares the memory of an array of another library."""
    kind, number = x.__dlpack_device__()
    place = _device.get_device("cuda" if int(kind) == 2 else "native", int(number))  # 2 is CUDA, 1 the processor
    found = place.xp.from_dlpack(x)
    as_dtype(found.dtype)
    return ndarray.of(found, place)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0, device: Any = None) -> ndarray:
    """Return an array of one axis that shares the memory of a buffer, see `numpy.frombuffer`."""
    try:
        return _put(np.frombuffer(buffer, as_dtype(dtype), count, offset), device)
    except (ValueError, TypeError) as error:
        if isinstance(error, DtypeError) or not isinstance(error, ValueError):
            raise
        raise ChainerxError(str(error)) from error


def fromfile(file: Any, dtype: Any = float, count: int = -1, sep: str = "", device: Any = None) -> ndarray:
    """Return the numbers in a file, see `numpy.fromfile`."""
    return _put(np.fromfile(file, dtype=as_dtype(dtype), count=count, sep=sep), device)


def fromfunction(function: Callable[..., Any], shape: Any, **kwargs: Any) -> ndarray:
    """Return what a function of the coordinates gives, see `numpy.fromfunction`."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", float)
    return _put(np.asarray(raw(np.fromfunction(function, shape, dtype=as_dtype(dtype), **kwargs))), device)


def fromiter(iterable: Any, dtype: Any, count: int = -1, device: Any = None) -> ndarray:
    """Return the numbers of an iterable, see `numpy.fromiter`."""
    return _put(np.fromiter(iterable, as_dtype(dtype), count), device)


def fromstring(string: str, dtype: Any = float, count: int = -1, sep: str = "", device: Any = None) -> ndarray:
    """Return the numbers in a text, see `numpy.fromstring`."""
    return _put(np.fromstring(string, dtype=as_dtype(dtype), count=count, sep=sep), device)


def loadtxt(fname: Any, dtype: Any = float, device: Any = None, **kwargs: Any) -> ndarray:
    """Return the numbers in a file of text, see `numpy.loadtxt`."""
    return _put(np.loadtxt(fname, dtype=as_dtype(dtype), **kwargs), device)


def _picked(a: ndarray, pick: Callable[[Any, Any], Any]) -> ndarray:
    """Return elements of an array, and zeros: what ``pick`` does to the array and to its indices from 1."""
    xp = a.device.xp
    with a.device.active():
        index = pick(xp, xp.arange(1, a.size + 1).reshape(a.shape))
    if a._variable is None or not a.size:
        return plain(lambda x: pick(xp, x), a)
    at = ndarray.of(xp.maximum(index - 1, 0), a.device)
    found = take(ravel(a), at, 0)
    return where(ndarray.of(index > 0, a.device), found, zeros_like(found, a.device))


def diag(v: ndarray, k: int = 0, device: Any = None) -> ndarray:
    """Return the ``k``-th diagonal of a matrix, or the matrix that has a vector there."""
    return _picked(array(v, copy=False, device=device), lambda xp, x: xp.diag(x, k))


def diagflat(v: ndarray, k: int = 0, device: Any = None) -> ndarray:
    """Return the matrix that has all elements on its ``k``-th diagonal."""
    return _picked(array(v, copy=False, device=device), lambda xp, x: xp.diagflat(x, k))


def tril(m: ndarray, k: int = 0) -> ndarray:
    """Return an array with zeros above the ``k``-th diagonal."""
    return _picked(m, lambda xp, x: xp.tril(x, k))


def triu(m: ndarray, k: int = 0) -> ndarray:
    """Return an array with zeros below the ``k``-th diagonal."""
    return _picked(m, lambda xp, x: xp.triu(x, k))


def meshgrid(*xi: ndarray, indexing: str = "xy") -> list[ndarray]:
    """Return the coordinates of a grid, an array for each axis, see `numpy.meshgrid`."""
    if indexing not in ("xy", "ij"):
        raise ChainerxError(f"indexing is 'xy' or 'ij', not {indexing!r}")
    device_of(xi)
    shape = tuple([x.size for x in xi])
    grids = [broadcast_to(reshape(x, (1,) * i + (x.size,) + (1,) * (len(xi) - i - 1)), shape) for i, x in enumerate(xi)]
    return [copy(swapaxes(grid, 0, 1) if indexing == "xy" and len(xi) > 1 else grid) for grid in grids]
