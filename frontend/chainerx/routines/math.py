"""Elementwise functions: arithmetic, functions of real numbers, comparisons, logic, bits."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import functions as F
from ...elementwise import Body, Elementwise
from ...utils.arrays import force_array
from ...variable import Variable
from ..apply import apply, arrays_in, computed, plain
from ..arrays import ndarray
from ..dtypes import as_dtype, floating, rank_of, result_type
from ..errors import DtypeError

__all__ = [
    "abs", "absolute", "add", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "bitwise_and",
    "bitwise_or", "bitwise_xor", "ceil", "clip", "copysign", "cos", "cosh", "divide", "equal", "erf", "exp", "exp2",
    "expm1", "fabs", "fix", "floor", "floor_divide", "fmod", "greater", "greater_equal", "isfinite", "isinf", "isnan",
    "left_shift", "less", "less_equal", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or",
    "logical_xor", "maximum", "minimum", "mod", "multiply", "negative", "not_equal", "power", "reciprocal",
    "remainder", "right_shift", "sign", "sin", "sinh", "sqrt", "square", "squared_difference", "subtract", "tan",
    "tanh", "true_divide", "where",
]


def _named(function: Callable[..., Any], name: str, text: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def _real(name: str, text: str, function: Callable[[Variable], Variable]) -> Any:
    """A function of real numbers; booleans and integers become float32."""
    def routine(x: Any) -> ndarray:
        _check(x)
        return computed(function, function, x, real=True)
    return _named(routine, name, f"Return {text}, elementwise.")


def _check(x: Any) -> None:
    if not isinstance(x, ndarray):
        raise TypeError(f"expected a ChainerX array, got {type(x).__name__}")


def _check_numbers(name: str, x: Any) -> None:
    _check(x)
    if x.dtype.kind == "b":
        raise DtypeError(f"{name} of booleans is not defined")


def _check_unmixed(name: str, *xs: Any) -> None:
    if len({x.dtype.kind == "b" for x in xs if isinstance(x, ndarray)}) > 1:
        raise DtypeError(f"{name} of booleans and numbers is not defined")


def _arithmetic(name: str, text: str, function: Callable[..., Any], other: Callable[..., Any] | None = None,
                booleans: bool = True, real: bool = False, mixed: bool = True) -> Any:  # fmt: skip
    """An operation on two arrays, or an array and a number; ``mixed`` with one array of booleans and one of numbers."""
    def routine(x1: Any, x2: Any) -> ndarray:
        dtype = result_type(x1, x2)
        if dtype.kind == "b" and not booleans:
            raise DtypeError(f"{name} of booleans is not defined")
        if not mixed:
            _check_unmixed(name, x1, x2)
        return computed(function, other or getattr(np, name), x1, x2, real=real)
    return _named(routine, name, f"Return {text}, elementwise.")


def _comparison(name: str, text: str, mixed: bool = False) -> Any:
    def routine(x1: Any, x2: Any) -> ndarray:
        if not mixed:
            _check_unmixed(name, x1, x2)
        return plain(getattr(np, name), x1, x2, dtype=result_type(x1, x2))
    return _named(routine, name, f"Return whether {text}, elementwise.")


def _test(name: str, text: str) -> Any:
    def routine(x: Any) -> ndarray:
        _check(x)
        return plain(getattr(np, name), x)
    return _named(routine, name, f"Return whether {text}, elementwise.")


def _bits(name: str, text: str) -> Any:
    def routine(x1: Any, x2: Any) -> ndarray:
        dtype = result_type(x1, x2)
        if rank_of(dtype) == 2:
            raise DtypeError(f"{name} of {dtype} is not defined")
        return plain(getattr(np, name), x1, x2, dtype=dtype)
    return _named(routine, name, f"Return {text}, bit by bit.")


def _shift(name: str, text: str) -> Any:
    def routine(x1: Any, x2: Any) -> ndarray:
        dtype = result_type(x1)
        if rank_of(dtype) != 1 or rank_of(result_type(x2)) != 1:
            raise DtypeError(f"{name} of {dtype} by {result_type(x2)} is not defined")
        return plain(getattr(np, name), x1, x2, dtype=dtype)
    return _named(routine, name, f"Return {text}, in the type of x1.")


exp = _real("exp", "e to the power of x", F.exp)
exp2 = _real("exp2", "2 to the power of x", lambda x: 2.0 ** x)
expm1 = _real("expm1", "e to the power of x, minus 1", F.expm1)
log = _real("log", "the natural logarithm", F.log)
log10 = _real("log10", "the logarithm to base 10", F.log10)
log2 = _real("log2", "the logarithm to base 2", F.log2)
log1p = _real("log1p", "the natural logarithm of 1 + x", F.log1p)
sqrt = _real("sqrt", "the square root", F.sqrt)
reciprocal = _real("reciprocal", "1 / x", lambda x: 1.0 / x)
erf = _real("erf", "the error function", F.erf)
sin = _real("sin", "the sine", F.sin)
cos = _real("cos", "the cosine", F.cos)
tan = _real("tan", "the tangent", F.tan)
arcsin = _real("arcsin", "the inverse sine", F.arcsin)
arccos = _real("arccos", "the inverse cosine", F.arccos)
arctan = _real("arctan", "the inverse tangent", F.arctan)
sinh = _real("sinh", "the hyperbolic sine", F.sinh)
cosh = _real("cosh", "the hyperbolic cosine", F.cosh)
tanh = _real("tanh", "the hyperbolic tangent", F.tanh)
fabs = _real("fabs", "the absolute value", F.absolute)


def _inverse(name: str, rule: Callable[..., Any]) -> Callable[[Variable], Variable]:
    """A function of which `kusari.functions` has none: NumPy's, with a formula for the gradient."""
    body = Body(name, 1, lambda xp, x: getattr(xp, name)(x), rule=rule)
    return lambda x: Elementwise(body).apply((x,))[0]


arcsinh = _real("arcsinh", "the inverse hyperbolic sine", _inverse(
    "arcsinh", lambda xp, gy, y, x: (gy / xp.sqrt(x * x + 1.0),)))
arccosh = _real("arccosh", "the inverse hyperbolic cosine", _inverse(
    "arccosh", lambda xp, gy, y, x: (gy / xp.sqrt(x * x - 1.0),)))


def _add(x: Any, y: Any) -> Any: return x + y
def _subtract(x: Any, y: Any) -> Any: return x - y
def _multiply(x: Any, y: Any) -> Any: return x * y
def _divide(x: Any, y: Any) -> Any: return x / y
def _power(x: Any, y: Any) -> Any: return x ** y
def _floor_divide(x: Any, y: Any) -> Any: return x // y


def _mod(x: Any, y: Any) -> Any:
    # The quotient has no gradient: that of the divisor is its negative.
    quotient = force_array(np.floor_divide(_of(x), _of(y)))
    return x - y * Variable(quotient, requires_grad=False)


def _fmod(x: Any, y: Any) -> Any:
    quotient = force_array(np.trunc(_of(x) / _of(y)))
    return x - y * Variable(quotient.astype(_dtype(x, y)), requires_grad=False)


def _of(x: Any) -> Any:
    return x.array if isinstance(x, Variable) else x


def _dtype(*xs: Any) -> Any:
    return next(x.dtype for x in xs if isinstance(x, Variable))


add = _arithmetic("add", "x1 + x2", _add)
subtract = _arithmetic("subtract", "x1 - x2", _subtract, booleans=False)
multiply = _arithmetic("multiply", "x1 * x2", _multiply)
divide = true_divide = _arithmetic("divide", "x1 / x2", _divide, real=True)
floor_divide = _arithmetic("floor_divide", "the largest integer not above x1 / x2", _floor_divide, booleans=False)
power = _arithmetic("power", "x1 to the power of x2", _power, booleans=False)
mod = remainder = _arithmetic("remainder", "the rest of x1 / x2, with the sign of x2", _mod, booleans=False)
fmod = _arithmetic("fmod", "the rest of x1 / x2, with the sign of x1", _fmod, booleans=False)
arctan2 = _arithmetic("arctan2", "the angle of the point (x2, x1)", F.arctan2, real=True)


def _between(first: bool) -> Callable[[Any, Any], Any]:
    function, compare = (F.maximum, np.greater_equal) if first else (F.minimum, np.less_equal)

    def routine(x: Any, y: Any) -> Any:
        if isinstance(x, Variable) and isinstance(y, Variable):
            return function(x, y)
        variable, number = (x, y) if isinstance(x, Variable) else (y, x)
        other = Variable(np.full_like(variable.array, number), requires_grad=False)
        return F.where(force_array(compare(variable.array, number)), variable, other)
    return routine


maximum = _arithmetic("maximum", "the larger one", _between(True), mixed=False)
minimum = _arithmetic("minimum", "the smaller one", _between(False), mixed=False)

bitwise_and = _bits("bitwise_and", "x1 and x2")
bitwise_or = _bits("bitwise_or", "x1 or x2")
bitwise_xor = _bits("bitwise_xor", "either x1 or x2")
left_shift = _shift("left_shift", "x1 shifted to the left")
right_shift = _shift("right_shift", "x1 shifted to the right")

equal = _comparison("equal", "x1 == x2")
not_equal = _comparison("not_equal", "x1 != x2")
greater = _comparison("greater", "x1 > x2")
greater_equal = _comparison("greater_equal", "x1 >= x2")
less = _comparison("less", "x1 < x2")
less_equal = _comparison("less_equal", "x1 <= x2")
logical_and = _comparison("logical_and", "x1 and x2 are true", mixed=True)
logical_or = _comparison("logical_or", "x1 or x2 is true", mixed=True)
logical_xor = _comparison("logical_xor", "either x1 or x2 is true", mixed=True)
logical_not = _test("logical_not", "x is false")
isnan = _test("isnan", "x is not a number")
isinf = _test("isinf", "x is infinite")
isfinite = _test("isfinite", "x is neither infinite nor NaN")


def _rounded(name: str, text: str) -> Any:
    def routine(x: Any) -> ndarray:
        _check(x)
        return plain(getattr(np, name), x, dtype=floating(x.dtype))
    return _named(routine, name, f"Return {text}, elementwise; it has no gradient.")


ceil = _rounded("ceil", "the smallest integer not below x")
floor = _rounded("floor", "the largest integer not above x")
fix = _rounded("fix", "the integer part")


def negative(x: ndarray) -> ndarray:
    """Return -x, elementwise.

    Raises:
        DtypeError: It is an array of booleans.
    """
    _check_numbers("negative", x)
    return computed(operator.neg, np.negative, x)


def absolute(x: ndarray) -> ndarray:
    """Return the absolute value, elementwise."""
    _check(x)
    return computed(F.absolute, np.absolute, x)


def sign(x: ndarray) -> ndarray:
    """Return -1, 0 or 1, elementwise; it has no gradient.

    Raises:
        DtypeError: It is an array of booleans.
    """
    _check_numbers("sign", x)
    return plain(np.sign, x)


def square(x: ndarray) -> ndarray:
    """Return the square, elementwise.

    Raises:
        DtypeError: It is an array of booleans.
    """
    _check_numbers("square", x)
    return computed(F.square, np.square, x)


def squared_difference(x1: ndarray, x2: ndarray) -> ndarray:
    """Return the square of x1 - x2, elementwise."""
    return square(subtract(x1, x2))


def copysign(x1: ndarray, x2: ndarray) -> ndarray:
    """Return x1 with the sign of x2, elementwise; it has no gradient."""
    return plain(np.copysign, x1, x2, dtype=floating(result_type(x1, x2)))


def clip(a: ndarray, a_min: Any, a_max: Any) -> ndarray:
    """Return values limited to an interval; gradients pass inside of it.

    Args:
        a (ndarray): The array.
        a_min: The lower bound, or None.
        a_max: The upper bound, or None.

    Raises:
        ValueError: Both are None.
    """
    if a_min is None and a_max is None:
        raise ValueError("clip needs a_min or a_max")
    if a_min is not None:
        a = maximum(a, a_min)
    return a if a_max is None else minimum(a, a_max)


def where(condition: ndarray, x: Any, y: Any) -> ndarray:
    """Return elements of ``x`` where a condition holds, elsewhere of ``y``.

    Args:
        condition (ndarray): Booleans, or numbers that are not 0.
        x: An array or a number.
        y: An array or a number.
    """
    dtype = result_type(x, y)
    if dtype.kind != "f" or not arrays_in((x, y)):
        return plain(lambda c, x, y: np.where(c.astype(bool), x, y), condition, x, y, to=dtype)
    cond = condition.astype(as_dtype("bool"))
    return apply(lambda x, y: _where(cond._elements, x, y, dtype), x, y, dtype=dtype)


def _where(condition: Any, x: Any, y: Any, dtype: Any) -> Variable:
    x, y = (one if isinstance(one, Variable) else np.asarray(one, dtype) for one in (x, y))
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    return F.where(np.broadcast_to(condition, shape), F.broadcast_to(x, shape), F.broadcast_to(y, shape))


abs = absolute
