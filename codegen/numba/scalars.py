"""Python spellings of scalar functions for Numba: one row per function, by kind of operands."""
from __future__ import annotations

import math
from collections.abc import Sequence

from kusari.ir import CASTS, DType, Lit

from ..promotion import Kind, loop_types, spell_operands


class NoText(ValueError):
    """Numba has no such type or function on the CPU."""


INFIX = {"add": "+", "subtract": "-", "multiply": "*", "true_divide": "/", "equal": "==", "not_equal": "!=",
         "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "bitwise_and": "&", "bitwise_or": "|",
         "bitwise_xor": "^"}
_FORMS = {
    "negative": "-{0}", "square": "{0} * {0}", "absolute": "abs({0})",
    "maximum": "({0} if {0} >= {1} or {0} != {0} else {1})", "minimum": "({0} if {0} <= {1} or {0} != {0} else {1})",
    "where": "({1} if {0} else {2})", "logical_and": "({0} and {1})", "logical_or": "({0} or {1})",
    "logical_xor": "({0} != {1})", "logical_not": "(not {0})",
    "erf": "math.erf({0})", "erfc": "math.erfc({0})",
    "isnan": "{0} != {0}", "isfinite": "abs({0}) < math.inf", "isinf": "abs({0}) == math.inf",
}
# Kinds whose form differs from the one for floats: (kind, fn).
_OTHER = {
    **{(k, fn): "{0}" for k in "iub" for fn in ("floor", "ceil")},
    **{("b", fn): form for fn, form in {
        "add": "({0} or {1})", "multiply": "({0} and {1})", "maximum": "({0} or {1})", "minimum": "({0} and {1})",
        "absolute": "{0}"}.items()},
    **{(k, "isnan"): "False" for k in "iub"}, **{(k, "isinf"): "False" for k in "iub"},
    **{(k, "isfinite"): "True" for k in "iub"}, ("u", "absolute"): "{0}",
    ("i", "reciprocal"): "1.0 / {0}", ("u", "reciprocal"): "1.0 / {0}",
}


def type_name(dtype: DType) -> str:
    """The constructor of a scalar."""
    if dtype.kind == "f" and dtype.itemsize not in (4, 8) or dtype.kind not in "biuf":
        raise NoText(f"Numba computes no {dtype} on the CPU")
    return "bool_" if dtype.kind == "b" else dtype.name


def literal(value: bool | int | float, dtype: DType) -> str:
    """``value`` as a scalar of ``dtype``."""
    if dtype.kind == "b":
        return str(bool(value))
    if dtype.kind == "f" and not math.isfinite(value):
        text = "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf"
    else:
        text = repr(float(value)) if dtype.kind == "f" else repr(int(value))
    return f"{type_name(dtype)}({text})"


def cast(text: str, source: DType, target: DType) -> str:
    """``text`` of dtype ``source`` as ``target``."""
    if source == target:
        return text
    if target.kind == "b":
        return f"({text} != 0)"
    if source.kind == "f" and target.kind in "iu" and target.itemsize < 8:
        text = f"int64({text})"
    return f"{type_name(target)}({text})"


def spell(fn: str, args: Sequence[str | Lit], kinds: Sequence[Kind]) -> str:
    """The expression of ``fn``; ``args`` are names of values of dtypes ``kinds``, or literals."""
    loop = loop_types(fn, tuple(kinds))
    out = loop[-1]
    type_name(out)
    operands = spell_operands(fn, args, kinds, loop, literal, cast)
    if fn in CASTS:
        return cast(operands[0], loop[0], out)
    kind = loop[0].kind
    form = _OTHER.get((kind, fn)) or _FORMS.get(fn)
    if form is not None:
        text = form.format(*operands)
    elif fn in INFIX:
        text = f"{operands[0]} {INFIX[fn]} {operands[1]}"
    else:
        text = f"np.{fn}({', '.join(operands)})"
    return text if out.kind in "bf" and fn not in ("erf", "erfc") else f"{type_name(out)}({text})"
