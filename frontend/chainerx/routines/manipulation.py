"""Arrays reshaped, rearranged, joined, cut and indexed."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import functions as F
from ..apply import apply, computed, device_of, plain, raw
from ..arrays import ndarray
from ..dtypes import as_dtype, result_type
from ..errors import ChainerxError, DeviceError, DimensionError
from ..graph import Through

__all__ = [
    "astype", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_to", "concatenate", "copyto", "dsplit",
    "dstack", "expand_dims", "flatten", "flip", "fliplr", "flipud", "getitem", "hsplit", "hstack", "moveaxis",
    "nonzero", "ravel", "repeat", "reshape", "rollaxis", "setitem", "split", "squeeze", "stack", "swapaxes", "take",
    "transpose", "view", "vsplit", "vstack",
]


def _either(function: Callable[..., Any], other: Callable[..., Any], *xs: Any) -> Any:
    """Apply a function that leaves the types of arrays: booleans and integers have no gradient."""
    first = xs[0][0] if isinstance(xs[0], (tuple, list)) else xs[0]
    return apply(function, *xs) if first.dtype.kind == "f" else plain(other, *xs)


def _axes(axes: Any) -> Any:
    return axes if axes is None else tuple(axes) if isinstance(axes, (tuple, list)) else (operator.index(axes),)


def _shape_of(args: Sequence[Any]) -> tuple[int, ...]:
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    return tuple([operator.index(n) for n in args])


def reshape(a: ndarray, *newshape: Any) -> ndarray:
    """Return the same elements in another shape, of which one number may be -1."""
    if not newshape:
        raise TypeError("reshape needs a shape, () for an array without axes")
    shape = _shape_of(newshape)
    return _either(lambda x: F.reshape(x, shape), lambda x: x.reshape(shape), a)


def ravel(a: ndarray) -> ndarray:
    """Return the elements along one axis."""
    return reshape(a, (a.size,))


def flatten(a: ndarray) -> ndarray:
    """Return a copy of the elements along one axis."""
    return ravel(a).copy()


def transpose(a: ndarray, *axes: Any) -> ndarray:
    """Return an array with its axes permuted; reversed, if no order is given."""
    order = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes or None
    if order is not None:
        order = _shape_of(order)
        if len(order) != a.ndim or {k % max(a.ndim, 1) for k in order} != set(range(a.ndim)) or any(
                not -a.ndim <= k < a.ndim for k in order):  # fmt: skip
            raise DimensionError(f"axes {order} are no order of the {a.ndim} axes of the array")
    return _either(lambda x: F.transpose(x, order), lambda x: x.transpose(order), a)


def _axis(axis: Any, ndim: int) -> int:
    found = operator.index(axis)
    if not -ndim <= found < ndim:
        raise DimensionError(f"axis {axis} is out of bounds for an array of {ndim} axes")
    return found % ndim


def swapaxes(a: ndarray, axis1: int, axis2: int) -> ndarray:
    """Return an array with two axes exchanged."""
    order = list(range(a.ndim))
    i, j = _axis(axis1, a.ndim), _axis(axis2, a.ndim)
    order[i], order[j] = order[j], order[i]
    return transpose(a, order)


def moveaxis(a: ndarray, source: Any, destination: Any) -> ndarray:
    """Return an array with axes moved to other places; the others keep their order."""
    origins = [_axis(k, a.ndim) for k in _axes(source)]
    targets = [_axis(k, a.ndim) for k in _axes(destination)]
    if len(origins) != len(targets) or len(set(origins)) < len(origins) or len(set(targets)) < len(targets):
        raise DimensionError(f"axes {source} cannot be moved to {destination}")
    order = [k for k in range(a.ndim) if k not in origins]
    for target, origin in sorted(zip(targets, origins, strict=True)):
        order.insert(target, origin)
    return transpose(a, order)


def rollaxis(a: ndarray, axis: int, start: int = 0) -> ndarray:
    """Return an array with one axis moved before another."""
    k = _axis(axis, a.ndim)
    before = start + a.ndim if start < 0 else start
    if not 0 <= before <= a.ndim:
        raise DimensionError(f"start {start} is out of bounds for an array of {a.ndim} axes")
    return moveaxis(a, k, before - (k < before))


def squeeze(a: ndarray, axis: Any = None) -> ndarray:
    """Return an array without its axes of length 1, or without those given."""
    if axis is not None:
        axis = tuple([_axis(k, a.ndim) for k in _axes(axis)])
        if len(set(axis)) < len(axis) or any(a.shape[k] != 1 for k in axis):
            raise DimensionError(f"axes {axis} of shape {a.shape} are not all of length 1, each given once")
    kept = [n for k, n in enumerate(a.shape) if (n != 1 if axis is None else k not in axis)]
    return reshape(a, kept)


def expand_dims(a: ndarray, axis: int) -> ndarray:
    """Return an array with a new axis of length 1."""
    k = _axis(axis, a.ndim + 1)
    return getitem(a, (slice(None),) * k + (None,))


def broadcast_to(array: ndarray, shape: Any) -> ndarray:
    """Return an array repeated to a shape, without copying it."""
    target = _shape_of((shape,) if isinstance(shape, (tuple, list)) else (shape,))
    return _either(lambda x: F.broadcast_to(x, target), lambda x: np.broadcast_to(x, target), array)


def broadcast_arrays(*arrays: ndarray) -> list[ndarray]:
    """Return arrays repeated to their common shape."""
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    return [broadcast_to(x, shape) for x in arrays]


def _joined(arrays: Sequence[ndarray]) -> list[ndarray]:
    if not len(arrays):
        raise DimensionError("there is no array to join")
    device_of(list(arrays))
    dtype = result_type(*arrays)
    return [x.astype(dtype, copy=False) for x in arrays]


def concatenate(arrays: Sequence[ndarray], axis: int | None = 0) -> ndarray:
    """Return arrays joined along an axis; along one axis of all elements, if it is None."""
    xs = _joined(arrays)
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    k = _axis(axis, xs[0].ndim)
    if any(x.ndim != xs[0].ndim or x.shape[:k] + x.shape[k + 1:] != xs[0].shape[:k] + xs[0].shape[k + 1:] for x in xs):
        raise DimensionError(f"shapes {', '.join(str(x.shape) for x in xs)} cannot be joined along axis {k}")
    return _either(lambda xs: F.concat(xs, k), lambda xs: np.concatenate(xs, k), xs)


def stack(arrays: Sequence[ndarray], axis: int = 0) -> ndarray:
    """Return arrays of one shape joined along a new axis."""
    xs = _joined(arrays)
    if any(x.shape != xs[0].shape for x in xs):
        raise DimensionError(f"shapes {', '.join(str(x.shape) for x in xs)} are not equal")
    k = _axis(axis, xs[0].ndim + 1)
    return concatenate([expand_dims(x, k) for x in xs], k)


def atleast_2d(x: ndarray) -> ndarray:
    """Return an array with at least two axes."""
    return x if x.ndim >= 2 else reshape(x, (1, x.size))


def atleast_3d(x: ndarray) -> ndarray:
    """Return an array with at least three axes."""
    return x if x.ndim >= 3 else reshape(x, (*x.shape, 1) if x.ndim == 2 else (1, x.size, 1))


def hstack(arrays: Sequence[ndarray]) -> ndarray:
    """Return arrays joined along the second axis; along the first, if they have only that."""
    xs = [x if x.ndim else reshape(x, (1,)) for x in arrays]
    return concatenate(xs, 0 if not xs or xs[0].ndim == 1 else 1)


def vstack(arrays: Sequence[ndarray]) -> ndarray:
    """Return arrays joined along the first axis, rows one below the other."""
    return concatenate([atleast_2d(x) for x in arrays], 0)


def dstack(arrays: Sequence[ndarray]) -> ndarray:
    """Return arrays joined along the third axis."""
    return concatenate([atleast_3d(x) for x in arrays], 2)


def split(ary: ndarray, indices_or_sections: Any, axis: int = 0) -> list[ndarray]:
    """Return the parts of an array: so many of one length, or those between indices."""
    k = _axis(axis, ary.ndim)
    n = ary.shape[k]
    if np.ndim(indices_or_sections) == 0:
        count = int(indices_or_sections)
        if count < 1 or count != indices_or_sections or n % count:
            raise DimensionError(f"an axis of length {n} has no {indices_or_sections} parts of one length")
        cuts = list(range(0, n, n // count or 1))[1:] if n else [0] * (count - 1)
    else:
        cuts = [operator.index(i) for i in indices_or_sections]
    bounds = zip([0, *cuts], [*cuts, n], strict=True)
    return [getitem(ary, (slice(None),) * k + (slice(*one),)) for one in bounds]


def _split_along(axis: int, least: int) -> Callable[[ndarray, Any], list[ndarray]]:
    def parts(ary: ndarray, indices_or_sections: Any) -> list[ndarray]:
        if ary.ndim < least:
            raise DimensionError(f"the array needs {least} axes or more, not {ary.ndim}")
        return split(ary, indices_or_sections, min(axis, ary.ndim - 1))
    parts.__doc__ = f"Return the parts of an array along axis {axis}, see `split`."
    return parts


vsplit, hsplit, dsplit = _split_along(0, 2), _split_along(1, 1), _split_along(2, 3)


def repeat(a: ndarray, repeats: Any, axis: int | None = None) -> ndarray:
    """Return an array with each element repeated; along one axis of all elements, if ``axis`` is None."""
    if axis is None:
        a, axis = ravel(a), 0
    k = _axis(axis, a.ndim)
    counts = int(repeats) if isinstance(repeats, (int, np.integer)) else tuple([int(n) for n in repeats])
    if np.min(counts, initial=0) < 0:
        raise DimensionError("elements cannot be repeated a negative number of times")
    repeated = _either(lambda x: F.repeat(x, counts, k), lambda x: x.repeat(counts, k), a)
    return repeated if repeated.is_contiguous else repeated.copy()  # of each element once, it is the array itself


def flip(m: ndarray, axes: Any = None) -> ndarray:
    """Return an array with the order of elements reversed along axes; along all, if there are none given."""
    chosen = range(m.ndim) if axes is None else [_axis(k, m.ndim) for k in _axes(axes)]
    return getitem(m, tuple([slice(None, None, -1) if k in chosen else slice(None) for k in range(m.ndim)]))


def _flip_along(axis: int) -> Callable[[ndarray], ndarray]:
    def flipped(m: ndarray) -> ndarray:
        if m.ndim <= axis:
            raise DimensionError(f"the array needs {axis + 1} axes or more, not {m.ndim}")
        return flip(m, axis)
    flipped.__doc__ = f"Return an array with the order of elements reversed along axis {axis}."
    return flipped


flipud, fliplr = _flip_along(0), _flip_along(1)


def getitem(a: ndarray, key: Any) -> ndarray:
    """Return the elements at indices: integers, slices, None, an ellipsis, or arrays of integers or booleans."""
    place = _key(key)
    if isinstance(place, tuple) and not place:
        return view(a)
    return _either(lambda x: F.get_item(x, place), operator.itemgetter(place), a)


def _key(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple([_key(one) for one in key])
    found = raw(key)
    if isinstance(found, np.ndarray) and found.ndim == 0 and found.dtype.kind in "iu":
        return int(found)
    return int(found) if isinstance(found, np.integer) else found


def setitem(a: ndarray, key: Any, value: Any) -> None:
    """Set elements; the array must not be part of a graph, nor may the new ones.

    Raises:
        ChainerxError: It is, or they are.
    """
    for x in (a, value):
        if isinstance(x, ndarray) and x._variable is not None:
            raise ChainerxError("elements of an array cannot be changed while it is part of a graph; "
                                "use x.as_grad_stopped() if you know that no gradient needs them")
    if isinstance(value, ndarray) and value.device is not a.device:
        raise DeviceError(f"elements on {value.device} cannot be put into an array on {a.device}")
    with a.device.active():
        a._elements[_key(key)] = raw(value)


def take(a: ndarray, indices: Any, axis: int | None = None, mode: str | None = None) -> ndarray:
    """Return the elements at indices along an axis.

    Args:
        a (ndarray): The array.
        indices: An array or a list of integers.
        axis (int): The axis; None is one axis of all elements.
        mode (str): What is done about indices out of bounds, ``raise``, ``wrap`` or ``clip``; None is ``wrap``.
    """
    if axis is None:
        a, axis = ravel(a), 0
    k = _axis(axis, a.ndim)
    n = a.shape[k]
    at = np.asarray(indices) if not isinstance(indices, ndarray) else indices._elements
    if at.dtype.kind not in "iu":
        raise IndexError(f"indices are integers, not {at.dtype}")
    at = at.astype(np.int64)
    if mode not in (None, "raise", "wrap", "clip"):
        raise ValueError(f"mode is 'raise', 'wrap' or 'clip', not {mode!r}")
    if mode == "raise" and at.size and (int(at.min()) < -n or int(at.max()) >= n):
        raise IndexError(f"an index is out of bounds for an axis of length {n}")
    at = at.clip(0, n - 1) if mode == "clip" else at % max(n, 1)
    return _either(lambda x: F.get_item(x, (slice(None),) * k + (at,)), lambda x: x.take(at, k), a)


def nonzero(a: ndarray) -> tuple[ndarray, ...]:
    """Return the indices of elements that are not 0, an array for each axis."""
    return plain(lambda x: tuple(x.nonzero()), a)


def astype(a: ndarray, dtype: Any, copy: bool = True) -> ndarray:
    """Return an array in another data type; the array itself where it has that already, and ``copy`` is False."""
    kind = as_dtype(dtype)
    if kind == a.dtype:
        return a.copy() if copy else a
    if kind.kind == a.dtype.kind == "f":
        return apply(lambda x: F.cast(x, kind), a)
    return plain(lambda x: x.astype(kind), a)


def view(a: ndarray) -> ndarray:
    """Return an array of the same elements; its gradient is that of the array."""
    return ndarray.of(a._elements, a.device) if a._variable is None else apply(
        lambda x: Through(lambda array: array[...]).apply((x,))[0], a)


def copyto(dst: ndarray, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    """Copy elements into an array.

    Args:
        dst (ndarray): The array to change; it must not be part of a graph.
        src: An array or a number.
        casting (str): Which data types fit, as in `numpy.copyto`.
        where (ndarray): Booleans that say which elements; None is all.
    """
    source = computed(lambda x: x, lambda x: x, src) if isinstance(src, ndarray) else src
    if dst._variable is not None:
        raise ChainerxError("elements of an array cannot be changed while it is part of a graph")
    with dst.device.active():
        mask: dict[str, Any] = {} if where is None else {"where": raw(where)}
        np.copyto(dst._elements, raw(source), casting=casting, **mask)  # type: ignore[call-overload]
