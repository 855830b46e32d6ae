"""NumPy on arguments: arithmetic of a traced call on given arrays is recorded as the functions that do the same.

In define-by-run ``0.5 * x`` of an array is an array, and so it is in a trace and in its replays; in between, the trace
knows it as the product that the compiler can fuse.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from kusari.ir import Arg

from ... import functions as F
from ...function_node import FunctionNode
from ...variable import Variable
from ..computed_numbers import computed_number
from ..errors import is_from_handler
from .captured import outside_value, owner

_UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.true_divide: operator.truediv,
    np.negative: operator.neg, np.power: operator.pow, np.absolute: F.absolute, np.square: F.square, np.sqrt: F.sqrt,
    np.exp: F.exp, np.expm1: F.expm1, np.log: F.log, np.log1p: F.log1p, np.tanh: F.tanh, np.sin: F.sin, np.cos: F.cos,
    np.maximum: F.maximum, np.minimum: F.minimum, np.matmul: operator.matmul, np.log2: F.log2, np.log10: F.log10,
    np.tan: F.tan, np.arctan: F.arctan, np.sinh: F.sinh, np.cosh: F.cosh, np.sign: F.sign, np.floor: F.floor,
    np.ceil: F.ceil,
}
_OF_INTEGERS = frozenset((np.add, np.subtract, np.multiply, np.negative))
_OF_NANS = frozenset((np.isnan, np.isinf, np.isfinite))
_OF_BOTH = frozenset((np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal))
_OF_BOOLEANS = {np.multiply: "logical_and", np.bitwise_and: "logical_and", np.logical_and: "logical_and",
                np.add: "logical_or", np.bitwise_or: "logical_or", np.logical_or: "logical_or",
                np.invert: "logical_not", np.logical_not: "logical_not"}
# Of each kind of dtype: ufuncs that functions of ours do, and the names of ufuncs with boolean results.
_OF_KINDS: dict[str, tuple[Set[Any], dict[Any, str]]] = {
    "f": (_UFUNCS.keys(), {u: u.__name__ for u in _OF_NANS | _OF_BOTH}),
    **dict.fromkeys("iu", (_OF_INTEGERS, {u: u.__name__ for u in _OF_BOTH})), "b": (frozenset(), _OF_BOOLEANS)}


class Compare(FunctionNode):
    """NumPy's ``fn`` of arrays of one dtype and Python numbers, which gives booleans; it has no gradient.

    Invariant: ``operands`` are the numbers, None in the places of inputs.
    """

    def __init__(self, fn: str, operands: tuple[int | float | None, ...]) -> None:
        super().__init__()
        self.fn = fn
        self.operands = operands

    @property
    def label(self) -> str:
        return self.fn

    def _with_numbers(self, inputs: tuple[Any, ...]) -> list[Any]:
        it = iter(inputs)
        return [next(it) if x is None else x for x in self.operands]

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return np.asarray(getattr(np, self.fn)(*self._with_numbers(inputs))),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (None,) * len(indexes)

    def lower(self, b: Any, *inputs: Any) -> tuple[Any, ...]:
        return b.call(self.fn, *self._with_numbers(inputs)),


class Duplicate(FunctionNode):
    """A copy by NumPy: equal elements in memory of their own, without a gradient."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[0].copy(),

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (None,) * len(indexes)

    def lower(self, b: Any, x: Any) -> tuple[Any, ...]:
        return b.map(Arg(0), x),  # which is nothing, unless ``x`` changes


def _compare(fn: str, inputs: tuple[Any, ...]) -> Callable[..., Any]:
    numbers = tuple([None if isinstance(x, np.ndarray) else x for x in inputs])
    return lambda *xs: Compare(fn, numbers).apply(tuple([x for x in xs if isinstance(x, Variable)]))[0]


def _axes(x: Any, *axes: Any) -> Any:
    return F.transpose(x, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None)


def _shaped(x: Any, *shape: Any) -> Any:
    return F.reshape(x, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)


def _flat(x: Any) -> Any:
    return F.reshape(x, (-1,))


def _mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    y = F.sum(x, axis, keepdims)
    return y / (x.size // max(y.size, 1))  # as NumPy divides: by the number of terms


METHODS: dict[str, Callable[..., Any]] = {
    "reshape": _shaped, "transpose": _axes, "swapaxes": F.swapaxes, "astype": F.cast, "__getitem__": F.get_item,
    "ravel": _flat, "flatten": _flat, "copy": F.identity, "squeeze": F.squeeze, "sum": F.sum, "mean": _mean,
    "max": F.max, "min": F.min, "cumsum": F.cumsum, "clip": F.clip,
    "argmax": lambda x, axis=None: F.cast(F.argmax(x, axis), np.intp),
    "argmin": lambda x, axis=None: F.cast(F.argmin(x, axis), np.intp),
}
_MOST_ARGUMENTS = {"ravel": 0, "flatten": 0, "copy": 0, "squeeze": 1, "sum": 1, "mean": 1, "max": 1, "min": 1,
                   "cumsum": 1, "clip": 2, "argmax": 1, "argmin": 1}
_OF_FLOATS = frozenset(("sum", "mean", "max", "min", "cumsum", "clip", "argmax", "argmin"))
_AS_METHODS = {np.amax: "max", np.amin: "min",
               **{getattr(np, name): name for name in (*_OF_FLOATS, "squeeze", "ravel")}}
_CONVERSIONS = {np.array, np.asarray, np.ascontiguousarray}
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.reshape: F.reshape, np.transpose: F.transpose, np.swapaxes: F.swapaxes, np.expand_dims: F.expand_dims,
    np.moveaxis: F.moveaxis, np.rollaxis: F.rollaxis, np.flip: F.flip, np.tile: F.tile, np.broadcast_to: F.broadcast_to,
}
_OF_SEQUENCES: dict[Any, Callable[..., Any]] = {
    np.concatenate: lambda xs, axis=0: F.concat(xs, axis), np.stack: F.stack, np.vstack: F.vstack, np.hstack: F.hstack,
}


def of_ufunc(tape: Any, ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    """Return the result of ``ufunc(*inputs)``, recorded; None if no function of ours does the same."""
    dtypes = {x.dtype for x in inputs if isinstance(x, np.ndarray)}
    operands = tuple([_number(x, dtypes) if isinstance(x, np.generic) else x for x in inputs])
    function = _function_of(ufunc, operands)
    return None if function is None else recorded(tape, function, lambda *_: ufunc(*inputs), operands)


def _number(scalar: Any, dtypes: set[Any]) -> Any:
    """The Python number with the effect of NumPy's scalar on arrays of one dtype; the scalar itself if none has it."""
    same = len(dtypes) == 1 and np.result_type(scalar.dtype, *dtypes) in dtypes
    return scalar.item() if same else scalar


def _function_of(ufunc: Any, inputs: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Return the function of ours for a ufunc on arrays and numbers; None if there is none."""
    if not all(isinstance(x, np.ndarray) or type(x) in (int, float) for x in inputs):
        return None
    dtypes = {x.dtype for x in inputs if isinstance(x, np.ndarray)}
    common = np.result_type(*dtypes, *(type(x)() for x in inputs if not isinstance(x, np.ndarray)))
    if ufunc is np.true_divide and common.kind in "biu":
        common = np.dtype(np.float64)
    if dtypes != {common} and {d.kind for d in dtypes} <= {"f", "i", "u", "b"}:
        alike = tuple([np.empty(0, common) if isinstance(x, np.ndarray) else x for x in inputs])
        function = _function_of(ufunc, alike)
        return None if function is None else lambda *xs: function(
            *[F.cast(x, common) if isinstance(x, Variable) else x for x in xs])
    return _function_of_kind(ufunc, dtypes.pop().kind, inputs) if len(dtypes) == 1 else None


def _function_of_kind(ufunc: Any, kind: str, inputs: tuple[Any, ...]) -> Callable[..., Any] | None:
    """Return the function of ours for a ufunc on arrays of one dtype, of ``kind``, and numbers."""
    arithmetic, named = _OF_KINDS.get(kind, (frozenset(), {}))
    if ufunc in arithmetic:
        return _UFUNCS[ufunc]
    name = named.get(ufunc)
    return None if name is None or ufunc in _OF_BOTH and not _fits(inputs) else _compare(name, inputs)


def _fits(inputs: tuple[Any, ...]) -> bool:
    """Whether the dtype of the arrays has the numbers among the operands."""
    dtype = next(x.dtype for x in inputs if isinstance(x, np.ndarray))
    if dtype.kind == "f":
        return True
    limits = np.iinfo(dtype)
    return all(isinstance(x, np.ndarray) or limits.min <= x <= limits.max for x in inputs)


def of_function(tape: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    """Return the result of NumPy's ``func(*args, **kwargs)``, recorded; None if no function of ours does the same."""
    kwargs = kwargs or {}
    if isinstance(func, np.ufunc):
        return of_ufunc(tape, func, args) if not kwargs and len(args) == func.nin else None
    if func in _CONVERSIONS and args and isinstance(args[0], np.ndarray):
        return of_conversion(tape, func.__name__, args[0], args[1:], kwargs)
    join = _OF_SEQUENCES.get(func)
    if join is not None and args and isinstance(args[0], (list, tuple)):
        return _of_sequence(tape, join, func, args[0], args[1:], kwargs)
    if func is np.dot and not kwargs and all(isinstance(x, np.ndarray) and x.ndim == 2 for x in args):
        return of_ufunc(tape, np.matmul, args)
    if args and isinstance(args[0], np.ndarray) and (method := _AS_METHODS.get(func)) is not None:
        return of_method(tape, method, args[0], args[1:], kwargs)
    function = _FUNCTIONS.get(func)
    if function is None or not args or kwargs or not is_plain(args[1:]):
        return None
    return recorded(tape, function, func, args)


def _of_sequence(tape: Any, join: Callable[..., Any], func: Any, xs: Sequence[Any], rest: tuple[Any, ...],
                 kwargs: dict[str, Any]) -> Any:
    """Return ``func(xs, *rest, **kwargs)`` of arrays, recorded as ``join`` of them."""
    if not (xs and all(isinstance(x, np.ndarray) for x in xs) and len({x.dtype for x in xs}) == 1
            and is_plain(rest) and kwargs.keys() <= {"axis"} and is_plain(tuple(kwargs.values()))):
        return None
    return recorded(tape, lambda *ys: join(ys, *rest, **kwargs), lambda *ys: func(ys, *rest, **kwargs), tuple(xs))


def _rows_in(key: Any) -> Any:
    """Return the array of integers in an index that has only whole slices before it; None of other indices."""
    *rest, rows = key if type(key) is tuple and key else (key,)
    is_rows = isinstance(rows, np.ndarray) and rows.dtype.kind == "i"
    return rows if is_rows and all([type(i) is slice and i == slice(None) for i in rest]) else None


def of_method(tape: Any, name: str, array: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    """Return the result of ``array.name(*args, **kwargs)``, recorded; None if no function of ours does the same."""
    kwargs = kwargs or {}
    if name == "dot" and len(args) == 1:
        return of_function(tape, np.dot, (array, *args), kwargs)
    if len(args) > _MOST_ARGUMENTS.get(name, len(args)) or (name in _OF_FLOATS and array.dtype.kind != "f"):
        return None
    if name == "__getitem__" and (rows := _rows_in(args[0])) is not None:
        rest = args[0][:-1] if type(args[0]) is tuple else ()
        return recorded(tape, lambda x, i: F.get_item(x, (*rest, i)), lambda x, i: x[(*rest, i)], (array, rows))
    if name == "astype" and kwargs.keys() == {"copy"} and len(args) == 1 and is_plain(args):
        if not kwargs["copy"] and np.dtype(args[0]) == array.dtype:
            return array if tape.knows_elements(array) else None
        kwargs = {}
    if name == "clip":
        if len(args) != 2 or kwargs or not all(type(x) in (int, float) for x in args):
            return None
    elif not is_plain(args) or not kwargs.keys() <= {"axis", "keepdims"} or not is_plain(tuple(kwargs.values())):
        return None
    return recorded(tape, lambda x, *rest: METHODS[name](x, *rest, **kwargs),
                     lambda x, *rest: getattr(x, name)(*rest, **kwargs), (array, *args))


def of_conversion(tape: Any, name: str, array: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of NumPy's function ``name`` on an array, recorded; None if no function of ours does it."""
    if len(args) > 1 or not kwargs.keys() <= {"dtype"} or (args and kwargs):
        return None
    dtype = args[0] if args else kwargs.get("dtype")
    if not is_plain(dtype):
        return None
    is_same = dtype is None or np.dtype(dtype) == array.dtype
    if is_same and name == "asarray":
        return array if tape.knows_elements(array) else None
    if not array.flags.c_contiguous:
        return None
    if not is_same:
        return of_method(tape, "astype", array, (dtype,))
    if name == "array":
        return of_method(tape, "copy", array, ())
    return array if tape.knows_elements(array) else None


def is_plain(tree: Any) -> bool:
    """Whether a value consists of numbers, slices, dtypes and tuples of them, on which a recorded call may depend."""
    if isinstance(tree, (tuple, list)):
        return all(map(is_plain, tree))
    if isinstance(tree, slice):
        return is_plain((tree.start, tree.stop, tree.step))
    return tree is None or tree is Ellipsis or isinstance(tree, (int, str, np.dtype, type))


def _has_value(tape: Any, array: Any) -> bool:
    return (tape.knows_elements(array) or tape.of_parameters.has(array) or tape.constants.value(tape, array) is not None
            or outside_value(tape, array) is not None)


def recorded(tape: Any, function: Callable[..., Any], original: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Apply ``function`` to the arrays of ``args``, all of which the tape must know, if its result is NumPy's."""
    if tape.fault is not None or not all(_has_value(tape, x) for x in args if isinstance(x, np.ndarray)):
        return None
    try:
        with np.errstate(all="ignore"):
            expected = original(*args)
    except Exception as error:
        if is_from_handler(error):
            raise
        return None  # NumPy itself will tell
    if type(expected) is not np.ndarray and (
            tape.observation is None or not isinstance(expected, (np.floating, np.integer))):
        return None
    try:
        with tape.written.by_numpy():
            operands = [Variable(x, requires_grad=False) if isinstance(x, np.ndarray) else x for x in args]
            found = function(*operands)._array
    except (TypeError, ValueError):
        return None  # the function takes other arguments
    same = found.dtype == expected.dtype and found.shape == expected.shape
    if not same or found.tobytes() != expected.tobytes():
        return None
    if type(expected) is not np.ndarray:
        return computed_number(expected, found, tape.numbers)
    given = [owner(x) for x in args if isinstance(x, np.ndarray)]
    if any(owner(expected) is memory for memory in given):
        return found if any(owner(found) is memory for memory in given) else None
    if any(owner(found) is memory for memory in given):  # where NumPy copies
        with tape.written.by_numpy():
            found = Duplicate().apply((Variable(found, requires_grad=False),))[0]._array
    tape.written.made(found)
    return found
