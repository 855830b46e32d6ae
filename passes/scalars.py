"""Identities of scalars that hold exactly: for NaN, infinities and both zeros as well."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from kusari.ir import CASTS, Arg, Call, DType, Expr, Lit, expr_dtype, fold

ScalarRule = Callable[[str, Sequence[Expr]], "Expr | None"]


def _is(e: Expr, value: float) -> bool:
    # The sign of a zero matters: x - 0 is x, x + 0 is not when x is -0.
    return isinstance(e, Lit) and not isinstance(e.value, bool) and repr(float(e.value)) == repr(float(value))


def times_one(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``x * 1 = 1 * x = x``"""
    if fn == "multiply":
        return args[0] if _is(args[1], 1) else args[1] if _is(args[0], 1) else None
    return None


def over_one(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``x / 1 = x``"""
    return args[0] if fn == "true_divide" and _is(args[1], 1) else None


def minus_zero(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``x - 0 = x``, ``x + (-0) = x``"""
    if fn == "subtract" and _is(args[1], 0.0) or fn == "add" and _is(args[1], -0.0):
        return args[0]
    return args[1] if fn == "add" and _is(args[0], -0.0) else None


def times_minus_one(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``x * -1 = -x``"""
    if fn == "multiply":
        x = args[0] if _is(args[1], -1) else args[1] if _is(args[0], -1) else None
        return None if x is None else Call("negative", (x,))
    return None


def minus_minus(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``-(-x) = x``"""
    inner = args[0]
    return inner.args[0] if fn == "negative" and isinstance(inner, Call) and inner.fn == "negative" else None


def plus_negative(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``x + (-y) = x - y``, ``x - (-y) = x + y``"""
    if fn not in ("add", "subtract") or not isinstance(args[1], Call) or args[1].fn != "negative":
        return None
    return Call("subtract" if fn == "add" else "add", (args[0], args[1].args[0]))


def power_one(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``x ** 1 = x``, ``x ** 2 = x²``"""
    if fn != "power":
        return None
    return args[0] if _is(args[1], 1) else Call("square", (args[0],)) if _is(args[1], 2) else None


def square_of_negative(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``(-x)² = x²``, ``|-x| = |x|``"""
    inner = args[0]
    if fn in ("square", "absolute") and isinstance(inner, Call) and inner.fn == "negative":
        return Call(fn, inner.args)
    return None


def where_same(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``where(c, x, x) = x``"""
    return args[1] if fn == "where" and args[1] == args[2] else None


def where_literal(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``where(True, x, y) = x``, ``where(False, x, y) = y``"""
    if fn != "where" or not isinstance(args[0], Lit):
        return None
    return args[1] if args[0].value else args[2]


def cast_of_cast(fn: str, args: Sequence[Expr]) -> Expr | None:
    """``float32(float32(x)) = float32(x)``"""
    inner = args[0]
    return inner if fn in CASTS and isinstance(inner, Call) and inner.fn == fn else None


SCALAR_RULES: tuple[ScalarRule, ...] = (
    times_one, over_one, minus_zero, times_minus_one, minus_minus, plus_negative, power_one, square_of_negative,
    where_same, where_literal, cast_of_cast,
)


def _same_dtype(shorter: Expr, e: Expr, dtypes: tuple[DType, ...]) -> bool:
    try:
        return expr_dtype(shorter, dtypes) == expr_dtype(e, dtypes)
    except TypeError:  # NumPy has no such function for that dtype: it multiplies a bool by -1, but does not negate it
        return False


@lru_cache(maxsize=4096)
def simplify(expr: Expr, dtypes: tuple[DType, ...]) -> Expr:
    """Return ``expr`` after ``SCALAR_RULES``; every subexpression keeps its dtype."""

    def leaf(e: Arg | Lit) -> Expr:
        return e

    def call(fn: str, args: Sequence[Expr]) -> Expr:
        e: Expr = Call(fn, tuple(args))
        if fn in CASTS and isinstance(args[0], Arg) and dtypes[args[0].index].name == fn.rstrip("_"):
            return args[0]  # already of that dtype
        while isinstance(e, Call):
            shorter: Expr | None = next((r for rule in SCALAR_RULES if (r := rule(e.fn, e.args)) is not None), None)
            # A Python number is weakly typed: as part of another expression it may behave differently.
            if shorter is None or isinstance(shorter, Lit) or not _same_dtype(shorter, e, dtypes):
                break
            e = shorter
        return e

    return fold(expr, leaf, call)
