"""How each scalar function of ``kusari.ir.SCALARS`` is emitted for vectors of any dtype and width.

Operands are converted to the types of the loop NumPy 2 would choose (Python literals are weak), the function is
applied, and the result has the loop's output type. float16 is computed in float32 and rounded after every function.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kusari.ir import CASTS, Arg, Call, DType, Expr, Lit, evaluate, walk

from ...promotion import loop_types
from ..text.emitter import Emitter
from ..text.lanes import Lanes
from ..text.types import BOOL, F16, splat, value_type
from .casts import as_bool, convert, float_to_half, half_to_float
from .powers import power_literal
from .scalars import BOOL_BINARY, BOOL_UNARY, FLOAT_BINARY, FLOAT_UNARY, INTEGER_BINARY, INTEGER_UNARY

Typed = tuple[Lanes | int | float | bool, DType | type]  # a value and its dtype, or a literal and its Python type


def emit_expr(em: Emitter, expr: Expr, args: Sequence[str], dtypes: Sequence[DType], width: int) -> tuple[str, DType]:
    """Write ``expr`` on vectors ``args`` (bools as ``i1``) and return the result and its dtype.

    Invariant: the dtype equals ``kusari.ir.expr_dtype(expr, dtypes)``.
    """
    return emit_exprs(em, (expr,), args, dtypes, width)[0]


def emit_exprs(em: Emitter, exprs: Sequence[Expr], args: Sequence[str], dtypes: Sequence[DType],
               width: int) -> list[tuple[str, DType]]:
    """As ``emit_expr`` for several results; a subtree they share is written once."""
    done: dict[Expr, Typed] = {}
    results: list[tuple[str, DType]] = []
    for expr in exprs:
        for e in walk(expr):
            if e in done:
                continue
            if isinstance(e, Arg):
                dtype = np.dtype(dtypes[e.index])
                done[e] = Lanes(em, value_type(dtype), width, args[e.index]), dtype
            elif isinstance(e, Lit):
                done[e] = e.value, type(e.value)
            else:
                done[e] = _call(em, e, [done[a] for a in e.args], width)
        value, kind = done[expr]
        if not isinstance(value, Lanes):
            value, kind = _typed_literal(em, value, width)
        assert isinstance(kind, np.dtype)
        results.append((value.ssa, kind))
    return results


def _typed_literal(em: Emitter, value: Any, width: int) -> tuple[Lanes, DType]:
    """A scalar alone has the dtype NumPy gives it."""
    dtype = np.asarray(value).dtype
    element = value_type(dtype)
    return Lanes(em, element, width, splat(element, width, value)), dtype


def _call(em: Emitter, e: Call, operands: list[Typed], width: int) -> Typed:
    if not any(isinstance(v, Lanes) for v, _ in operands):
        with np.errstate(all="ignore"):
            return _typed_literal(em, evaluate(e, ()), width)
    kinds = tuple(k for _, k in operands)
    loop = loop_types(e.fn, kinds)
    if e.fn in _COMPARE:
        verdict = _out_of_range(e.fn, operands, loop)
        if verdict is not None:
            return Lanes(em, "i1", width, splat("i1", width, verdict)), BOOL
    if e.fn == "power" and isinstance(operands[1][0], (int, float)) and loop[-1].kind == "f":
        x = _widen(_operand(em, operands[0], loop[0], width))
        y = power_literal(x, float(operands[1][0]))
        if y is not None:
            return _narrow(y, loop[-1]), loop[-1]
    values = [_operand(em, v, dtype, width) for v, dtype in zip(operands, loop, strict=False)]
    return apply(e.fn, values, loop), loop[-1]


def _operand(em: Emitter, operand: Typed, dtype: DType, width: int) -> Lanes:
    """``operand`` as ``dtype``."""
    value, kind = operand
    if isinstance(value, Lanes):
        assert isinstance(kind, np.dtype)
        return convert(value, kind, dtype)
    return Lanes(em, value_type(dtype), width, splat(value_type(dtype), width, value))


_COMPARE: dict[str, tuple[str, str, Callable[[Any, Any], bool]]] = {
    "equal": ("oeq", "eq", operator.eq), "not_equal": ("une", "ne", operator.ne),
    "less": ("olt", "lt", operator.lt), "less_equal": ("ole", "le", operator.le),
    "greater": ("ogt", "gt", operator.gt), "greater_equal": ("oge", "ge", operator.ge),
}


def _out_of_range(fn: str, operands: Sequence[Typed], loop: tuple[DType, ...]) -> bool | None:
    """The result of comparing with an integer literal that the other operand's dtype cannot hold."""
    sides: list[int] = [0, 0]
    found = False
    for i, ((value, _), dtype) in enumerate(zip(operands, loop, strict=False)):
        if type(value) is int and dtype.kind in "iu":
            info = np.iinfo(dtype)
            if not info.min <= value <= info.max:
                sides[i], found = (1 if value > 0 else -1), True
    return _COMPARE[fn][2](*sides) if found else None


def apply(fn: str, xs: Sequence[Lanes], loop: Sequence[DType]) -> Lanes:
    """``fn`` on operands that have the loop's types already."""
    out = loop[-1]
    if fn in CASTS:
        return convert(xs[0], loop[0], out)
    if fn in _COMPARE:
        return _compare(fn, xs, loop)
    if fn == "where":
        return xs[0].choose(xs[1], xs[2])
    if fn.startswith("logical_"):
        xs, kind = [as_bool(x) for x in xs], "b"
    else:
        kind = loop[0].kind
    if kind == "f":
        xs = [_widen(x) for x in xs]
        return _narrow(FLOAT_UNARY[fn](*xs) if len(xs) == 1 else FLOAT_BINARY[fn](*xs), out)
    if kind == "b":
        return BOOL_UNARY[fn](*xs) if len(xs) == 1 else BOOL_BINARY[fn](*xs)
    unsigned = kind == "u"
    return INTEGER_UNARY[fn](unsigned, *xs) if len(xs) == 1 else INTEGER_BINARY[fn](unsigned, *xs)


def _widen(x: Lanes) -> Lanes:
    return half_to_float(x) if x.element == "half" else x


def _narrow(x: Lanes, dtype: DType) -> Lanes:
    return float_to_half(x) if dtype == F16 and x.element == "float" else x


def _compare(fn: str, xs: Sequence[Lanes], loop: Sequence[DType]) -> Lanes:
    ordered, suffix, _ = _COMPARE[fn]
    a, b = map(_widen, xs)
    if a.is_float:
        return a.compare(ordered, b)
    if loop[0] != loop[1]:   # int64 with uint64: NumPy compares the numbers
        a, b = (x.cast("sext" if d.kind == "i" else "zext", "i128") for x, d in zip((a, b), loop, strict=False))
        return a.compare(suffix if suffix in ("eq", "ne") else f"s{suffix}", b)
    if suffix not in ("eq", "ne"):
        suffix = f"{'s' if loop[0].kind == 'i' else 'u'}{suffix}"
    return a.compare(suffix, b)
