"""Spellings of scalar functions: one row per function, by kind of operands.

float16 is computed in float and rounded after every function, as NumPy does.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kusari.ir import CASTS, Call, DType, Lit, evaluate

from ...promotion import Kind, loop_types, spell_operands
from ..text.helpers import Helpers
from ..text.library import LIBRARY
from ..text.types import F16, literal, type_name

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
_OTHER = {
    **{(k, fn): "{0}" for k in "iub" for fn in ("floor", "ceil")},
    **{(k, "isnan"): "false" for k in "iub"}, **{(k, "isinf"): "false" for k in "iub"},
    **{(k, "isfinite"): "true" for k in "iub"},
    ("b", "add"): "({0} || {1})", ("b", "multiply"): "({0} && {1})", ("b", "maximum"): "({0} || {1})",
    ("b", "minimum"): "({0} && {1})", ("b", "absolute"): "{0}", ("u", "absolute"): "{0}",
    ("i", "absolute"): "({0} < 0 ? -{0} : {0})", ("i", "reciprocal"): "1.0 / {0}", ("u", "reciprocal"): "1.0 / {0}",
    ("i", "sign"): "({0} > 0) - ({0} < 0)", ("u", "sign"): "{0} > 0",
}
_HELPED = frozenset(("sign", "floor_divide", "remainder"))


def cast(text: str, source: DType, target: DType, helpers: Helpers) -> str:
    """``text`` of dtype ``source`` as ``target``."""
    if source == target:
        return text
    if target.kind == "b":
        return f"({text} != 0)"
    if target == F16:
        if source == np.float64:
            return helpers.use("round_half", "f64", text)
        return helpers.use("round_half", "f32", text if type_name(source) == "f32" else f"(f32)({text})")
    if source.kind == "f" and target.kind in "iu" and target.itemsize < 8:
        text = f"(i64){text}"
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
    if out == F16:
        return helpers.use("round_half", "f32", text)
    return text if out.kind in "bf" else f"({type_name(out)})({text})"


def constant(fn: str, args: Sequence[Lit]) -> tuple[str, DType]:
    """A function of literals only: its text and the dtype NumPy gives it."""
    with np.errstate(all="ignore"):
        value = np.asarray(evaluate(Call(fn, tuple(args)), ()))
    return literal(value.item(), value.dtype), value.dtype


def _expression(fn: str, operands: Sequence[str], loop: Sequence[DType], helpers: Helpers) -> str:
    kind, own = loop[0].kind, type_name(loop[0])
    if fn in _INFIX and loop[0] != loop[1]:   # int64 with uint64: compare the numbers
        swapped = loop[0].kind == "u"
        order = helpers.use("order", "i64", *(operands[::-1] if swapped else operands))
        return f"0 {_INFIX[fn]} {order}" if swapped else f"{order} {_INFIX[fn]} 0"
    if (kind, fn) in _OTHER:
        return _OTHER[kind, fn].format(*operands)
    if kind in "iu" and fn in ("floor_divide", "remainder", "power"):
        return helpers.use(f"{fn}_{'int' if kind == 'i' else 'unsigned'}", own, *operands)
    if fn in _FORMS:
        return _FORMS[fn].format(*operands)
    if fn in _INFIX:
        return f"{operands[0]} {_INFIX[fn]} {operands[1]}"
    if fn in _HELPED:
        return helpers.use(fn, own, *operands)
    single = "f" if loop[0].itemsize < 8 else ""
    return f"{LIBRARY[fn]}{single}({', '.join(operands)})"
