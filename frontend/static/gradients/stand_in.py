"""Stand-ins for the arrays of values while gradients are derived: of the right type, in next to no memory."""
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from kusari.ir import common_shape


class StandIn(np.ndarray):
    """An array of equal elements that share one place in memory; functions of such arrays are computed for one element.

    Invariant: shapes, dtypes and, as long as ``writes`` does not grow, elements are what NumPy gives for ordinary
    arrays (matrix products: but for their rounding). Writing to one is counted: it is left out, or gives another
    array. Other operations that do not work on them raise. In both cases, use ordinary arrays if elements matter.
    """

    writes = 0  # of all arrays

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        everywhere = kwargs.get("where", True) is True
        if everywhere and method == "__call__" and all(isinstance(x, StandIn) for x in out or ()):
            uniform = _of_elements(ufunc, inputs, out, kwargs)
            if uniform is not None:
                return uniform
        if method == "reduce" and out is None and everywhere and _is_uniform(*inputs):
            return _reduced(ufunc, _ordinary(inputs[0]), **kwargs)
        given = [_ordinary(x) for x in inputs]
        if out is not None and len(out) == 1 and isinstance(out[0], StandIn) and not out[0].flags.writeable:
            StandIn.writes += 1
            result = getattr(ufunc, method)(*given, **kwargs)
            return np.array(np.broadcast_to(result, out[0].shape), out[0].dtype)
        if out is not None:
            kwargs["out"] = tuple(_ordinary(x) for x in out)
        return getattr(ufunc, method)(*given, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.dot and len(args) == 2 and not kwargs and isinstance(args[0], StandIn):
            return args[0].dot(args[1])
        if func is np.where and len(args) == 3 and _is_uniform(*args):
            return _spread(np.where(*map(_element, args)), _common_shape(args), None)
        return super().__array_function__(func, types, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, StandIn) and found.size and not _is_uniform(found) and _is_uniform(self):
            return _spread(_element(found), found.shape, None)  # picked by arrays of indices: equal elements again
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.flags.writeable:
            super().__setitem__(key, value)
        else:
            StandIn.writes += 1

    def instead(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """The result of a function of which it reports shape and dtype only."""
        StandIn.writes += 1
        return stand_in(shape, 1, dtype)

    def dot(self, b: Any, out: Any = None) -> Any:
        """The matrix product; as NumPy's."""
        product = _product(self, b) if out is None and self.ndim == 2 and _is_uniform(self, b) else None
        return _ordinary(self).dot(_ordinary(b), out=out) if product is None else product

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """A copy in another dtype; as NumPy's."""
        if _is_uniform(self):
            return _spread(_ordinary(_element(self)).astype(dtype), self.shape, None)
        return super().astype(dtype, *args, **kwargs)


def stand_in(shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
    """Return an array of ``value`` whose size does not matter."""
    return _repeated(_single(value, np.dtype(dtype)), shape)


@functools.lru_cache(maxsize=64)
def _single(value: Any, dtype: Any) -> Any:
    return np.full((), value, dtype)


def _repeated(element: Any, shape: tuple[int, ...]) -> Any:
    """An array that has one element's place in memory everywhere."""
    found = np.ndarray.__new__(StandIn, shape, element.dtype, element, 0, (0,) * len(shape))
    found.flags.writeable = False
    return found


def _is_uniform(*arrays: Any) -> bool:
    """Whether all elements of every array are one place in memory; numbers are that, too."""
    for x in arrays:
        if isinstance(x, np.ndarray):
            if not x.size or any(x.strides) and any(s for s, n in zip(x.strides, x.shape, strict=True) if n > 1):
                return False
        elif not isinstance(x, (bool, int, float, complex, np.generic)):
            return False
    return True


def _element(x: Any) -> Any:
    """The one element, with as many dimensions as ``x`` has."""
    return _ordinary(x)[(slice(0, 1),) * x.ndim] if isinstance(x, np.ndarray) else x


def _ordinary(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, StandIn) else x


def _spread(element: Any, shape: tuple[int, ...], out: Any) -> Any:
    """``element`` in every place of ``shape``; a result for ``out`` takes its place instead of being written to it."""
    if out is None and shape == ():
        return element  # NumPy gives scalars, too
    if out is not None:
        StandIn.writes += 1
        element, shape = np.asarray(element).astype(out.dtype, copy=False), out.shape
    if element.size != 1 or element.dtype.hasobject:
        return np.broadcast_to(element, shape).view(StandIn)
    return _repeated(element, shape)


def _of_elements(ufunc: Any, inputs: tuple[Any, ...], out: tuple[Any, ...] | None, kwargs: dict[str, Any]) -> Any:
    """``ufunc`` of arrays of equal elements: one result stands for all. None where that is not known."""
    if not _is_uniform(*inputs, *(out or ())):
        return None
    if ufunc is np.matmul and out is None and not kwargs:
        return _product(*inputs)
    if ufunc.signature is not None or ufunc.nout != 1:
        return None
    return _spread(ufunc(*map(_element, inputs), **kwargs), _common_shape(inputs), None if out is None else out[0])


def _common_shape(xs: Sequence[Any]) -> tuple[int, ...]:
    return common_shape(*[x.shape if isinstance(x, np.ndarray) else () for x in xs])


def _reduced(ufunc: Any, x: Any, axis: Any = 0, **kwargs: Any) -> Any:
    """``ufunc.reduce`` of an array of equal elements: one result stands for all."""
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    reduced = {a % x.ndim for a in axes}
    line = x[tuple([slice(None) if i in reduced else slice(0, 1) for i in range(x.ndim)])]
    keepdims = kwargs.get("keepdims", False)
    shape = tuple([1 if i in reduced else n for i, n in enumerate(x.shape) if keepdims or i not in reduced])
    return _spread(ufunc.reduce(line, axis=axis, **kwargs), shape, None)


def _product(a: Any, b: Any) -> Any:
    """The matrix product of two matrices, or of two stacks of equally many; None for others."""
    if np.ndim(a) < 2 or np.ndim(a) != np.ndim(b) or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return None
    element = _element(a) * _element(b)
    return _spread(element * element.dtype.type(a.shape[-1]), (*a.shape[:-1], b.shape[-1]), None)
