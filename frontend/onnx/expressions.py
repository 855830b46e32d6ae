"""Expression trees as ONNX nodes: one row per scalar function, with NumPy's promotion made explicit."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kusari.ir import CASTS, Arg, Call, Expr, Lit, expr_dtype, walk

from .errors import NoForm

_BOOL = np.dtype(bool)
# ONNX Runtime has kernels for few integer types; the results are the same modulo the narrow type's range.
_WIDE = {"int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}


def wide(dtype: Any) -> np.dtype[Any]:
    """Return the dtype that arithmetic on ``dtype`` is done in."""
    return np.dtype(_WIDE.get(np.dtype(dtype).name, dtype))


def emit(g: Any, tree: Expr, names: tuple[str, ...]) -> str:
    """Emit ``tree`` over the named inputs; the result has their broadcast shape."""
    types = [g.type(n) for n in names]
    done: dict[Expr, Any] = {}
    for e in walk(tree):
        if isinstance(e, Arg):
            done[e] = names[e.index]
        elif isinstance(e, Lit):
            done[e] = e
        else:
            done[e] = _call(g, e.fn, [done[a] for a in e.args])
    result = done[tree]
    if isinstance(result, Lit):
        result = g.const(np.asarray(result.value))
    shape = np.broadcast_shapes(*(t.shape for t in types))
    if g.type(result).shape != shape:
        result = g.Expand(result, g.const(np.array(shape, np.int64)))
    return g.Identity(result) if result in names else result


def _call(g: Any, fn: str, operands: list[Any]) -> str:
    """Emit one scalar function of names and literals."""
    dtypes = tuple(g.type(x).dtype for x in operands if not isinstance(x, Lit))
    places = iter(range(len(operands)))
    shape = Call(fn, tuple(x if isinstance(x, Lit) else Arg(next(places)) for x in operands))
    dtype = expr_dtype(shape, dtypes)
    if not dtypes:
        # Literals alone: NumPy makes a scalar of it that is not weak any more.
        from kusari.ir import evaluate
        with np.errstate(all="ignore"):
            return g.const(np.asarray(evaluate(shape, []), dtype))
    if fn in CASTS:
        return g.cast(operands[0], dtype)
    if fn == "where":
        condition, *branches = operands
        a, b = (_as(g, x, dtype) for x in branches)
        return g.Where(_as(g, condition, _BOOL), a, b)
    if fn in _LOGICAL:
        return _LOGICAL[fn](g, *(_as(g, x, _BOOL) for x in operands))
    if fn in _COMPARISONS or fn in _TESTS:
        # Literals are weak: the common type is that of the sum.
        common = expr_dtype(Call("add", shape.args), dtypes) if len(operands) == 2 else dtypes[0]
        common = np.dtype("int32") if common == _BOOL else wide(common)
        return {**_COMPARISONS, **_TESTS}[fn](g, *(_as(g, x, common) for x in operands))
    if dtype == _BOOL:
        if fn not in _ON_BOOL:
            raise NoForm(f"{fn} of booleans has no ONNX form")
        return _LOGICAL[_ON_BOOL[fn]](g, *(_as(g, x, _BOOL) for x in operands))
    if fn not in _ARITHMETIC:
        raise NoForm(f"{fn} has no ONNX form")
    work = wide(dtype)
    return g.cast(_ARITHMETIC[fn](g, *(_as(g, x, work) for x in operands)), dtype)


def _as(g: Any, x: Any, dtype: Any) -> str:
    """Return an operand, literal or name, as ``dtype``."""
    if isinstance(x, Lit):
        return g.const(np.asarray(x.value).astype(dtype))
    return g.cast(x, dtype)


def _like(g: Any, x: str, value: float) -> str:
    return g.const(np.asarray(value, g.type(x).dtype))


def _is_float(g: Any, x: str) -> bool:
    return g.type(x).dtype.kind == "f"


def _plain(operator: str) -> Callable[..., str]:
    return lambda g, *xs: getattr(g, operator)(*xs)


def _choice(operator: str, better: str) -> Callable[..., str]:
    """Max and Min: of floats an operator; of integers, which old opsets and runtimes lack, a selection."""
    return lambda g, a, b: getattr(g, operator)(a, b) if _is_float(g, a) else g.Where(getattr(g, better)(a, b), a, b)


def _floor_divide(g: Any, a: str, b: str) -> str:
    if _is_float(g, a):
        return g.Floor(g.Div(a, b))
    zero, one = _like(g, a, 0), _like(g, a, 1)
    by_zero = g.Equal(b, zero)
    b = g.Where(by_zero, one, b)
    q = g.Div(a, b)  # rounds towards zero
    rest = g.Sub(a, g.Mul(q, b))
    low = g.And(g.Not(g.Equal(rest, zero)), g.Xor(g.Less(rest, zero), g.Less(b, zero)))
    return g.Where(by_zero, zero, g.Sub(q, g.Where(low, one, zero)))


def _remainder(g: Any, a: str, b: str) -> str:
    zero = _like(g, a, 0)
    if g.opset < 10:
        return g.Sub(a, g.Mul(_floor_divide(g, a, b), b))
    if not _is_float(g, a):
        by_zero = g.Equal(b, zero)
        b = g.Where(by_zero, _like(g, a, 1), b)
        return g.Where(by_zero, zero, g.Mod(a, b))
    m = g.Mod(a, b, fmod=1)
    return g.Where(g.And(g.Not(_equal(g, m, zero)), g.Xor(g.Less(m, zero), g.Less(b, zero))), g.Add(m, b), m)


def _rounded(g: Any, x: str) -> str:
    if g.opset >= 11:
        return g.Round(x)
    half = _like(g, x, 0.5)
    up = g.Floor(g.Add(x, half))
    halved = g.Mul(up, half)
    odd = g.Greater(g.Sub(halved, g.Floor(halved)), _like(g, x, 0.25))
    return g.Sub(up, g.Cast(g.And(g.Not(g.Less(g.Sub(up, x), half)), odd), to=g.type(x).dtype))


def _expm1(g: Any, x: str) -> str:
    # tanh(x / 2) (e^x + 1): exact near 0, where e^x - 1 cancels.
    return g.Mul(g.Tanh(g.Mul(x, _like(g, x, 0.5))), g.Add(g.Exp(x), _like(g, x, 1)))


def _log1p(g: Any, x: str) -> str:
    # log(u) x / (u - 1) with u = 1 + x as it was rounded; Goldberg, "What every computer scientist should know", 1991.
    one = _like(g, x, 1)
    u = g.Add(x, one)
    log = g.Log(u)
    near = g.Mul(log, g.Div(x, g.Sub(u, one)))
    return g.Where(_equal(g, u, one), x, g.Where(g.Greater(x, _like(g, x, 1e3)), log, near))


def _arctan2(g: Any, a: str, b: str) -> str:
    zero, pi, half = (_like(g, a, v) for v in (0, math.pi, math.pi / 2))
    angle = g.Atan(g.Div(a, b))
    left = g.Add(angle, g.Where(g.Less(a, zero), g.Neg(pi), pi))
    upright = g.Where(g.Less(a, zero), g.Neg(half), g.Where(g.Greater(a, zero), half, zero))
    return g.Where(g.Greater(b, zero), angle, g.Where(g.Less(b, zero), left, upright))


def _bitwise(name: str) -> Callable[..., str]:
    return lambda g, a, b: getattr(g, f"Bitwise{name}")(a, b)


_ARITHMETIC: dict[str, Callable[..., str]] = {
    "add": _plain("Add"), "subtract": _plain("Sub"), "multiply": _plain("Mul"), "true_divide": _plain("Div"),
    "negative": _plain("Neg"), "power": _plain("Pow"), "square": lambda g, x: g.Mul(x, x), "sqrt": _plain("Sqrt"),
    "reciprocal": lambda g, x: g.Reciprocal(x) if _is_float(g, x) else _floor_divide(g, _like(g, x, 1), x),
    "exp": _plain("Exp"), "exp2": lambda g, x: g.Pow(_like(g, x, 2), x), "expm1": _expm1,
    "log": _plain("Log"), "log1p": _log1p,
    "log2": lambda g, x: g.Mul(g.Log(x), _like(g, x, 1 / math.log(2))),
    "log10": lambda g, x: g.Mul(g.Log(x), _like(g, x, 1 / math.log(10))),
    "sin": _plain("Sin"), "cos": _plain("Cos"), "tan": _plain("Tan"), "arcsin": _plain("Asin"),
    "arccos": _plain("Acos"), "arctan": _plain("Atan"), "arctan2": _arctan2, "sinh": _plain("Sinh"),
    "cosh": _plain("Cosh"), "tanh": _plain("Tanh"), "erf": _plain("Erf"),
    "erfc": lambda g, x: g.Sub(_like(g, x, 1), g.Erf(x)), "absolute": _plain("Abs"), "sign": _plain("Sign"),
    "floor": lambda g, x: g.Floor(x) if _is_float(g, x) else x,
    "ceil": lambda g, x: g.Ceil(x) if _is_float(g, x) else x,
    "rint": lambda g, x: _rounded(g, x) if _is_float(g, x) else x,
    "floor_divide": _floor_divide, "remainder": _remainder,
    "maximum": _choice("Max", "Greater"), "minimum": _choice("Min", "Less"),
    "bitwise_and": _bitwise("And"), "bitwise_or": _bitwise("Or"), "bitwise_xor": _bitwise("Xor"),
}


def _equal(g: Any, a: str, b: str) -> str:
    return g.Equal(a, b)


def _or_equal(operator: str, strict: str) -> Callable[..., str]:
    return lambda g, a, b: getattr(g, operator)(a, b) if g.opset >= 16 else g.Or(
        getattr(g, strict)(a, b), _equal(g, a, b))


_COMPARISONS: dict[str, Callable[..., str]] = {
    "equal": _equal, "not_equal": lambda g, a, b: g.Not(_equal(g, a, b)), "less": _plain("Less"),
    "greater": _plain("Greater"), "less_equal": _or_equal("LessOrEqual", "Less"),
    "greater_equal": _or_equal("GreaterOrEqual", "Greater"),
}


def _is_nan(g: Any, x: str) -> str:
    return g.IsNaN(x) if _is_float(g, x) else g.Not(g.Equal(x, x))


def _is_inf(g: Any, x: str) -> str:
    return _equal(g, g.Abs(x), _like(g, x, math.inf)) if _is_float(g, x) else g.Not(g.Equal(x, x))


def _is_finite(g: Any, x: str) -> str:
    return _equal(g, g.Sub(x, x), _like(g, x, 0)) if _is_float(g, x) else g.Equal(x, x)


_TESTS: dict[str, Callable[..., str]] = {"isnan": _is_nan, "isinf": _is_inf, "isfinite": _is_finite}
_LOGICAL: dict[str, Callable[..., str]] = {
    "logical_and": _plain("And"), "logical_or": _plain("Or"), "logical_xor": _plain("Xor"),
    "logical_not": _plain("Not"),
}
_ON_BOOL = {"add": "logical_or", "multiply": "logical_and", "maximum": "logical_or", "minimum": "logical_and",
            "bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}
