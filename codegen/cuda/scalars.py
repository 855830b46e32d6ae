"""CUDA C spellings of scalar functions: one row per function, by kind of operands.

float16 is computed in float and rounded after every function, as NumPy does.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kusari.ir import CASTS, DType, Lit

from ..promotion import Kind, loop_types, spell_operands
from .helpers import Helpers

TYPES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long",
    "float16": "float", "float32": "float", "float64": "double",
}
_INFIX = {"add": "+", "subtract": "-", "multiply": "*", "true_divide": "/", "equal": "==", "not_equal": "!=",
          "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "bitwise_and": "&",
          "bitwise_or": "|", "bitwise_xor": "^"}
_FORMS = {
    "negative": "-{0}", "square": "{0} * {0}", "reciprocal": "1 / {0}",
    "maximum": "({0} >= {1} || {0} != {0} ? {0} : {1})", "minimum": "({0} <= {1} || {0} != {0} ? {0} : {1})",
    "where": "({0} ? {1} : {2})", "logical_and": "({0} && {1})", "logical_or": "({0} || {1})",
    "logical_xor": "({0} != {1})", "logical_not": "!{0}",
    "isnan": "{0} != {0}", "isinf": "isinf({0})", "isfinite": "isfinite({0})",
}
# Functions of the CUDA library; the float version has an f at its end.
_LIBRARY = {"absolute": "fabs", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
            "power": "pow",
            **{fn: fn for fn in ("exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh erf erfc "
                                 "sqrt floor ceil rint").split()}}
_OTHER = {
    **{(k, fn): "{0}" for k in "iub" for fn in ("floor", "ceil")},
    **{(k, "isnan"): "false" for k in "iub"}, **{(k, "isinf"): "false" for k in "iub"},
    **{(k, "isfinite"): "true" for k in "iub"},
    ("b", "add"): "({0} || {1})", ("b", "multiply"): "({0} && {1})", ("b", "maximum"): "({0} || {1})",
    ("b", "minimum"): "({0} && {1})", ("b", "absolute"): "{0}", ("u", "absolute"): "{0}",
    ("i", "absolute"): "({0} < 0 ? -{0} : {0})", ("i", "reciprocal"): "1.0 / {0}", ("u", "reciprocal"): "1.0 / {0}",
    ("i", "sign"): "({0} > 0) - ({0} < 0)", ("u", "sign"): "{0} > 0",
}
_HELPED = {"sign": "sign", "floor_divide": "floor_divide", "remainder": "remainder_"}


def type_name(dtype: DType) -> str:
    """The C type in which a value of ``dtype`` is computed."""
    if dtype.name not in TYPES:
        raise ValueError(f"expected a bool, integer or float dtype, got {dtype}")
    return TYPES[dtype.name]


def literal(value: bool | int | float, dtype: DType) -> str:
    """``value`` as a constant of ``dtype``."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind == "f":
        x = float(value)
        if dtype.itemsize < 8:
            with np.errstate(over="ignore"):
                x = float(dtype.type(x))
        if math.isnan(x):
            return "nanf(\"\")" if dtype.itemsize < 8 else "nan(\"\")"
        if math.isinf(x):
            infinity = "__int_as_float(0x7f800000)"   # a double when it meets one
            return infinity if x > 0 else f"(-{infinity})"
        text = f"{x!r}f" if dtype.itemsize < 8 else repr(x)
        return f"({text})" if text.startswith("-") else text
    n = int(value)
    if dtype == np.int64 and n == np.iinfo(np.int64).min:
        return "(-9223372036854775807LL - 1)"
    suffix = {("i", 8): "LL", ("u", 8): "ULL", ("u", 4): "U"}.get((dtype.kind, dtype.itemsize), "")
    text = f"{n}{suffix}"
    return f"({text})" if n < 0 else text


def cast(text: str, source: DType, target: DType, helpers: Helpers) -> str:
    """``text`` of dtype ``source`` as ``target``."""
    if source == target:
        return text
    if target.kind == "b":
        return f"({text} != 0)"
    if target == np.float16:
        return helpers.use("round_half" if source.itemsize < 8 or source.kind != "f" else "round_half_double", text)
    if source.kind == "f" and target.kind in "iu" and target.itemsize < 8:
        text = f"(long long){text}"
    return text if type_name(source) == type_name(target) else f"({type_name(target)})({text})"


def spell(fn: str, args: Sequence[str | Lit], kinds: Sequence[Kind], helpers: Helpers) -> str:
    """The expression of ``fn``; ``args`` are names of values of dtypes ``kinds``, or literals."""
    loop = loop_types(fn, tuple(kinds))
    out = loop[-1]
    operands = spell_operands(fn, args, kinds, loop, literal,
                              lambda text, source, target: cast(text, source, target, helpers))
    if fn in CASTS:
        return cast(operands[0], loop[0], out, helpers)
    text = _expression(fn, operands, loop, helpers)
    if out == np.float16:
        return helpers.use("round_half", text)
    return text if out.kind in "bf" else f"({type_name(out)})({text})"


def _expression(fn: str, operands: Sequence[str], loop: Sequence[DType], helpers: Helpers) -> str:
    kind = loop[0].kind
    if fn in _INFIX and loop[0] != loop[1]:   # int64 with uint64: compare the numbers
        if loop[0].kind == "u":
            operands, sign = operands[::-1], "0 {} "
        else:
            sign = ""
        order = helpers.use("order", *operands)
        return f"{sign.format(_INFIX[fn])}{order}" if sign else f"{order} {_INFIX[fn]} 0"
    if (kind, fn) in _OTHER:
        return _OTHER[kind, fn].format(*operands)
    if kind in "iu" and fn in ("floor_divide", "remainder", "power"):
        return helpers.use(f"{fn}_{'int' if kind == 'i' else 'unsigned'}", *operands)
    if fn in _FORMS:
        return _FORMS[fn].format(*operands)
    if fn in _INFIX:
        return f"{operands[0]} {_INFIX[fn]} {operands[1]}"
    if fn in _HELPED:
        return helpers.use(_HELPED[fn], *operands)
    single = "f" if loop[0].itemsize < 8 else ""
    return f"{_LIBRARY[fn]}{single}({', '.join(operands)})"
