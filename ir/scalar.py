"""The scalar functions that expression trees are made of: meaning and derivative, each in one row.

Names are NumPy's. A derivative row gives, for each operand, the factor by which the incoming gradient is
multiplied, as a function of ``(m, operands…, result)`` where ``m`` builds expressions (``m.exp(x)``, operators);
``None`` stands for a gradient that is zero everywhere it exists.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# By the number of operands: the type checker then knows the parameters of the lambdas below.
Derivative = (Callable[[Any, Any, Any], tuple[Any, ...]] | Callable[[Any, Any, Any, Any], tuple[Any, ...]]
              | Callable[[Any, Any, Any, Any, Any], tuple[Any, ...]])


@dataclass(frozen=True)
class Scalar:
    """One scalar function: ``apply(xp, *arrays)`` computes it, ``derivative`` builds its partial derivatives."""

    name: str
    arity: int
    apply: Callable[..., Any]
    derivative: Callable[..., tuple[Any, ...]] | None


def _special(name: str) -> Callable[..., Any]:
    """A function NumPy lacks: CuPy has it in ``cupyx.scipy.special``, for NumPy Python's ``math`` is vectorised."""
    plain = np.vectorize(getattr(math, name), otypes=[float])

    def apply(xp: Any, x: Any) -> Any:
        if xp is np:
            x = np.asarray(x)
            kind = x.dtype if x.dtype.kind == "f" else np.dtype("float64")
            return plain(x).astype(kind) if x.size else np.empty(x.shape, kind)
        import importlib
        return getattr(importlib.import_module("cupyx.scipy.special"), name)(x)
    return apply


SCALARS: dict[str, Scalar] = {}


def _row(name: str, arity: int, derivative: Derivative | None = None, apply: Callable[..., Any] | None = None) -> None:
    def plain(xp: Any, *xs: Any) -> Any:
        return getattr(xp, name)(*xs)
    SCALARS[name] = Scalar(name, arity, apply or plain, derivative)


_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)

_row("add", 2, lambda m, a, b, y: (1, 1))
_row("subtract", 2, lambda m, a, b, y: (1, -1))
_row("multiply", 2, lambda m, a, b, y: (b, a))
_row("true_divide", 2, lambda m, a, b, y: (1 / b, -y / b))
_row("negative", 1, lambda m, a, y: (-1,))
_row("power", 2, lambda m, a, b, y: (b * m.power(a, b - 1), y * m.log(a)))
_row("square", 1, lambda m, a, y: (2 * a,))
_row("sqrt", 1, lambda m, a, y: (0.5 / y,))
_row("reciprocal", 1, lambda m, a, y: (-(y * y),))
_row("exp", 1, lambda m, a, y: (y,))
_row("exp2", 1, lambda m, a, y: (y * math.log(2),))
_row("expm1", 1, lambda m, a, y: (y + 1,))
_row("log", 1, lambda m, a, y: (1 / a,))
_row("log2", 1, lambda m, a, y: (1 / (a * math.log(2)),))
_row("log10", 1, lambda m, a, y: (1 / (a * math.log(10)),))
_row("log1p", 1, lambda m, a, y: (1 / (a + 1),))
_row("sin", 1, lambda m, a, y: (m.cos(a),))
_row("cos", 1, lambda m, a, y: (-m.sin(a),))
_row("tan", 1, lambda m, a, y: (1 + y * y,))
_row("arcsin", 1, lambda m, a, y: (1 / m.sqrt(1 - a * a),))
_row("arccos", 1, lambda m, a, y: (-1 / m.sqrt(1 - a * a),))
_row("arctan", 1, lambda m, a, y: (1 / (1 + a * a),))
_row("arctan2", 2, lambda m, a, b, y: (b / (a * a + b * b), -a / (a * a + b * b)))
_row("sinh", 1, lambda m, a, y: (m.cosh(a),))
_row("cosh", 1, lambda m, a, y: (m.sinh(a),))
_row("tanh", 1, lambda m, a, y: (1 - y * y,))
_row("erf", 1, lambda m, a, y: (_TWO_OVER_SQRT_PI * m.exp(-(a * a)),), _special("erf"))
_row("erfc", 1, lambda m, a, y: (-_TWO_OVER_SQRT_PI * m.exp(-(a * a)),), _special("erfc"))
_row("absolute", 1, lambda m, a, y: (m.sign(a),))
_row("sign", 1)
_row("floor", 1)
_row("ceil", 1)
_row("rint", 1)
_row("floor_divide", 2)
_row("remainder", 2, lambda m, a, b, y: (1, -m.floor_divide(a, b)))
_row("maximum", 2, lambda m, a, b, y: (m.where(a >= b, 1, 0), m.where(a >= b, 0, 1)))
_row("minimum", 2, lambda m, a, b, y: (m.where(a <= b, 1, 0), m.where(a <= b, 0, 1)))
_row("where", 3, lambda m, c, a, b, y: (None, m.where(c, 1, 0), m.where(c, 0, 1)))
for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
              "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"):
    _row(_name, 2)
for _name in ("logical_not", "isnan", "isinf", "isfinite"):
    _row(_name, 1)


def _cast(name: str) -> Callable[..., Any]:
    def apply(xp: Any, x: Any) -> Any:
        return xp.asarray(x).astype(name)
    return apply


def cast_name(dtype: np.dtype[Any]) -> str:
    """Return the name of the scalar function that casts to ``dtype``."""
    return "bool_" if dtype.kind == "b" else dtype.name


CASTS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "bool_")
for _name in CASTS:
    _row(_name, 1, (lambda m, a, y: (1,)) if _name.startswith("float") else None, _cast(_name.rstrip("_")))
