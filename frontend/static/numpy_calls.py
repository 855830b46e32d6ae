"""NumPy on arguments: what a traced call computes with given arrays is recorded as the functions that do the same.

In define-by-run ``0.5 * x`` of an array is an array, and so it is in a trace and in its replays; in between, the trace
knows it as the product that the compiler can fuse.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import functions as F
from ..variable import Variable

_UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.true_divide: operator.truediv,
    np.negative: operator.neg, np.power: operator.pow, np.absolute: F.absolute, np.square: F.square, np.sqrt: F.sqrt,
    np.exp: F.exp, np.expm1: F.expm1, np.log: F.log, np.log1p: F.log1p, np.tanh: F.tanh, np.sin: F.sin, np.cos: F.cos,
    np.maximum: F.maximum, np.minimum: F.minimum, np.matmul: operator.matmul,
}


def _axes(x: Any, *axes: Any) -> Any:
    return F.transpose(x, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None)


def _shaped(x: Any, *shape: Any) -> Any:
    return F.reshape(x, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)


METHODS: dict[str, Callable[..., Any]] = {
    "reshape": _shaped, "transpose": _axes, "swapaxes": F.swapaxes, "astype": F.cast, "__getitem__": F.get_item,
}
ATTRIBUTES: dict[str, Callable[..., Any]] = {"T": F.transpose}
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.reshape: F.reshape, np.transpose: F.transpose, np.swapaxes: F.swapaxes, np.expand_dims: F.expand_dims,
}


def of_ufunc(tape: Any, ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    """Return the array that ``ufunc(*inputs)`` is, recorded; None where no function does the same."""
    function = _UFUNCS.get(ufunc)
    if function is None or not all(isinstance(x, np.ndarray) or type(x) in (int, float) for x in inputs):
        return None
    kinds = {x.dtype for x in inputs if isinstance(x, np.ndarray)}
    if len(kinds) != 1 or kinds.pop().kind != "f":
        return None
    return _recorded(tape, function, ufunc, inputs)


def of_function(tape: Any, func: Any, args: tuple[Any, ...]) -> Any:
    """Return the array that NumPy's ``func(*args)`` is, recorded; None where no function does the same."""
    function = _FUNCTIONS.get(func)
    return None if function is None or not args or not _is_plain(args[1:]) else _recorded(tape, function, func, args)


def of_method(tape: Any, name: str, array: Any, args: tuple[Any, ...]) -> Any:
    """Return the array that ``array.name(*args)`` is, recorded; None where no function does the same."""
    if not _is_plain(args):
        return None
    return _recorded(tape, METHODS[name], lambda x, *rest: getattr(x, name)(*rest), (array, *args))


def of_attribute(tape: Any, name: str, array: Any) -> Any:
    """Return the array that ``array.name`` is, recorded."""
    return _recorded(tape, ATTRIBUTES[name], lambda x: getattr(x, name), (array,))


def _is_plain(tree: Any) -> bool:
    """Whether numbers, slices, dtypes and tuples of them are all there is: what a call may depend on for good."""
    if isinstance(tree, (tuple, list)):
        return all(map(_is_plain, tree))
    if isinstance(tree, slice):
        return _is_plain((tree.start, tree.stop, tree.step))
    return tree is None or tree is Ellipsis or isinstance(tree, (int, str, np.dtype, type))


def _recorded(tape: Any, function: Callable[..., Any], original: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Apply ``function`` to the arrays of ``args``, all of which the tape must know, if it gives what NumPy gives."""
    if tape.fault is not None or not all(tape.knows_elements(x) for x in args if isinstance(x, np.ndarray)):
        return None
    try:
        with np.errstate(all="ignore"):
            expected = original(*args)
    except Exception:
        return None  # NumPy itself will tell
    if type(expected) is not np.ndarray:
        return None
    found = function(*[Variable(x, requires_grad=False) if isinstance(x, np.ndarray) else x for x in args])._array
    same = found.dtype == expected.dtype and found.shape == expected.shape
    return found if same and found.tobytes() == expected.tobytes() else None
