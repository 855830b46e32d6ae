"""Sums, extrema, positions and tests of the elements along axes."""
from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ... import functions as F
from ..apply import apply, plain
from ..arrays import ndarray
from ..dtypes import floating
from ..errors import DimensionError
from .creation import zeros_like
from .math import exp, isnan, square, where

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "cumsum", "log_softmax", "logsumexp", "max",
    "mean", "min", "nanargmax", "nanargmin", "nansum", "softmax", "sum", "var",
]


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return axes as a tuple of numbers from 0; None is all.

    Raises:
        DimensionError: There is no such axis, or one is named twice.
    """
    if axis is None:
        return tuple(range(ndim))
    found = [operator.index(k) for k in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if [k for k in found if not -ndim <= k < ndim] or len({k % ndim for k in found}) < len(found):
        raise DimensionError(f"axis {axis} does not fit an array of {ndim} axes")
    return tuple(sorted([k % ndim for k in found]))


def sum(a: ndarray, axis: Any = None, keepdims: bool = False) -> ndarray:
    """Return the sum of elements; of booleans and integers in int64."""
    axes = axes_of(axis, a.ndim)
    if a.dtype.kind != "f":
        return plain(lambda x: x.sum(axes, keepdims=keepdims, dtype=np.int64), a)
    return apply(lambda x: F.sum(x, axes, keepdims) if axes else F.identity(x), a)


def nansum(a: ndarray, axis: Any = None, keepdims: bool = False) -> ndarray:
    """Return the sum of elements that are numbers."""
    if a.dtype.kind != "f":
        return sum(a, axis, keepdims)
    return sum(where(isnan(a), zeros_like(a, a.device), a), axis, keepdims)


def mean(a: ndarray, axis: Any = None, keepdims: bool = False) -> ndarray:
    """Return the mean of elements; of booleans and integers in float32."""
    axes = axes_of(axis, a.ndim)
    if not axes:
        return a.astype(floating(a.dtype))
    count = math.prod([a.shape[k] for k in axes])
    return apply(lambda x: F.sum(x, axes, keepdims) / float(count), a, dtype=floating(a.dtype))


def var(a: ndarray, axis: Any = None, keepdims: bool = False) -> ndarray:
    """Return the variance of elements, the mean of squares of differences from the mean."""
    return mean(square(a.astype(floating(a.dtype), copy=False) - mean(a, axis, True)), axis, keepdims)


def _extremum(name: str, function: Any) -> Any:
    def routine(a: ndarray, axis: Any = None, keepdims: bool = False) -> ndarray:
        axes = axes_of(axis, a.ndim)
        if not math.prod([a.shape[k] for k in axes]):
            raise DimensionError(f"the {name}imum of no elements, of an array of shape {a.shape}, is not defined")
        if not axes:
            return a.copy()
        if a.dtype.kind != "f":
            return plain(lambda x: getattr(x, name)(axes, keepdims=keepdims), a)
        return apply(lambda x: function(x, axes, keepdims), a)
    routine.__name__ = f"a{name}"
    routine.__doc__ = f"Return the {name}imum of elements."
    return routine


max = amax = _extremum("max", F.max)
min = amin = _extremum("min", F.min)


def _position(name: str) -> Any:
    def routine(a: ndarray, axis: int | None = None) -> ndarray:
        axes = axes_of(axis, a.ndim)
        if not math.prod([a.shape[k] for k in axes]):
            raise DimensionError(f"{name} of no elements, of an array of shape {a.shape}, is not defined")
        return plain(lambda x: getattr(np, name)(x, axis).astype(np.int64), a)
    routine.__name__ = name
    extremum = "largest" if name.endswith("max") else "smallest"
    rest = ", NaN aside" if name.startswith("nan") else ""
    routine.__doc__ = f"Return the index of the first of the {extremum} elements{rest}."
    return routine


argmax, argmin = _position("argmax"), _position("argmin")
nanargmax, nanargmin = _position("nanargmax"), _position("nanargmin")


def _test(name: str) -> Any:
    def routine(a: ndarray, axis: Any = None, keepdims: bool = False) -> ndarray:
        axes = axes_of(axis, a.ndim)
        return plain(lambda x: getattr(x.astype(bool), name)(axes, keepdims=keepdims), a)
    routine.__name__ = name
    routine.__doc__ = f"Return whether {name} of the elements are true, or not 0."
    return routine


all, any = _test("all"), _test("any")


def count_nonzero(a: ndarray, axis: Any = None) -> ndarray:
    """Return the number of elements that are not 0."""
    axes = axes_of(axis, a.ndim)
    return plain(lambda x: (x != 0).sum(axes, dtype=np.int64), a)


def cumsum(a: ndarray, axis: int | None = None) -> ndarray:
    """Return the sums of elements up to each; along one axis of all elements, if ``axis`` is None."""
    axes = axes_of(axis, a.ndim)
    k = None if axis is None else axes[0]
    if a.dtype.kind != "f":
        return plain(lambda x: x.cumsum(k, dtype=np.int64), a)
    return apply(lambda x: F.cumsum(x, k), a)


def logsumexp(x: ndarray, axis: Any = None, keepdims: bool = False) -> ndarray:
    """Return the logarithm of the sum of exponentials."""
    axes = axes_of(axis, x.ndim)
    shape = [1 if k in axes else n for k, n in enumerate(x.shape)]
    if not axes:
        return x.astype(floating(x.dtype))
    y = apply(lambda x: F.logsumexp(x, axes), x, dtype=floating(x.dtype))
    return y.reshape(shape) if keepdims else y


def log_softmax(x: ndarray, axis: Any = None) -> ndarray:
    """Return the logarithm of `softmax`; ``axis`` is 1 if there is none given."""
    axis = 1 if axis is None else axis
    real = x.astype(floating(x.dtype), copy=False)
    return real - logsumexp(real, axis, True)


def softmax(x: ndarray, axis: Any = None) -> ndarray:
    """Return exponentials divided by their sum; ``axis`` is 1 if there is none given."""
    axes = axes_of(1 if axis is None else axis, x.ndim)
    if len(axes) == 1:
        return apply(lambda x: F.softmax(x, axes[0]), x, dtype=floating(x.dtype))
    return exp(log_softmax(x, axes))
