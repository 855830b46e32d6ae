"""One row per scalar function, dtype kind and arity: the text for operands of the loop's own types."""
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..text.lanes import Lanes, per_lane
from ..text.types import F64
from . import arctangent, elementary
from .casts import convert
from .integers import floor_divide_int, power_int, remainder_int
from .powers import power

# Largest errors in ulp, (float32, float64); the tests hold every function to them over dense samples. Functions that
# call the C library (erf and erfc of doubles) have glibc's.
ULP: dict[str, tuple[float, float]] = {
    "exp": (1.0, 1.0), "exp2": (1.25, 1.25), "expm1": (1.5, 2.0),
    "log": (1.0, 1.0), "log2": (0.75, 1.75), "log10": (0.75, 1.75), "log1p": (1.5, 1.5),
    "tanh": (2.5, 2.5), "sin": (1.5, 2.0), "cos": (1.5, 2.0), "erf": (1.25, 1.0), "erfc": (0.75, 1.0),
    "power": (1.0, 1.75), "sqrt": (0.5, 0.5), "sinh": (2.0, 2.25), "cosh": (1.5, 1.5), "tan": (3.25, 3.25),
    "arcsin": (2.25, 2.25), "arccos": (2.25, 2.25), "arctan": (1.75, 2.0), "arctan2": (2.0, 2.0),
}

Unary = Callable[[Lanes], Lanes]
Binary = Callable[[Lanes, Lanes], Lanes]


def _contract(op: str, a: Lanes, b: Lanes) -> Lanes:
    """Sums and products may become multiply-adds; differences may not (``a*a - b*b`` must not go below zero)."""
    return Lanes(a.em, a.element, a.width, a.em.binary(f"{op} contract", a.element, a.width, a.ssa, b.ssa))


def _extreme(predicate: str) -> Callable[[Lanes, Lanes], Lanes]:
    def emit(a: Lanes, b: Lanes) -> Lanes:
        if b.ssa.startswith("%") or b.ssa == b.like(math.nan).ssa:
            return a.compare("uno", a).choose(a, a.compare(predicate, b).choose(a, b))
        return b.compare(predicate, a).choose(b, a)   # a number as a literal: one instruction
    return emit


def _sign(x: Lanes) -> Lanes:
    one = x.compare("olt", 0.0).choose(x.like(-1.0), x)
    one = x.compare("ogt", 0.0).choose(x.like(1.0), one)
    return x.compare("oeq", 0.0).choose(x.like(0.0), one)


def _divmod(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """Quotient and remainder with the divisor's sign, adjusted as Python and NumPy do."""
    rest = per_lane(a, "fmod", b)
    quotient = (a - rest) / b
    other = rest.compare("one", 0.0) & (rest.compare("olt", 0.0) ^ b.compare("olt", 0.0))
    quotient = other.choose(quotient - 1.0, quotient)
    modulus = other.choose(rest + b, rest)
    modulus = rest.compare("oeq", 0.0).choose(rest.like(0.0).call("copysign", b), modulus)
    whole = quotient.call("floor")
    whole = (quotient - whole).compare("ogt", 0.5).choose(whole + 1.0, whole)
    whole = quotient.compare("oeq", 0.0).choose(quotient.like(0.0).call("copysign", a / b), whole)
    by_zero = b.compare("oeq", 0.0)
    return by_zero.choose(a / b, whole), by_zero.choose(rest, modulus)


def _int_extreme(name: str) -> Callable[[bool, Lanes, Lanes], Lanes]:
    return lambda unsigned, a, b: a.call(f"{'u' if unsigned else 's'}{name}", b)


def _int_reciprocal(unsigned: bool, a: Lanes) -> Lanes:
    dtype = np.dtype(f"{'u' if unsigned else ''}int{a.element[1:]}")
    wide = convert(a, dtype, F64)
    return convert(wide.like(1.0) / wide, F64, dtype)


def _int_sign(unsigned: bool, a: Lanes) -> Lanes:
    positive = a.compare("ne" if unsigned else "sgt", 0).choose(a.like(1), 0)
    return positive if unsigned else a.compare("slt", 0).choose(a.like(-1), positive)


FLOAT_UNARY: dict[str, Unary] = {
    "negative": lambda a: -a, "square": lambda a: _contract("fmul", a, a), "sqrt": lambda a: a.call("sqrt"),
    "reciprocal": lambda a: a.like(1.0) / a, "absolute": lambda a: a.call("fabs"), "sign": _sign,
    "floor": lambda a: a.call("floor"), "ceil": lambda a: a.call("ceil"), "rint": lambda a: a.call("nearbyint"),
    "isnan": lambda a: a.compare("uno", a), "isinf": lambda a: a.call("fabs").compare("oeq", math.inf),
    "isfinite": lambda a: a.call("fabs").compare("olt", math.inf),
    "exp": elementary.exp, "exp2": elementary.exp2, "expm1": elementary.expm1, "log": elementary.log,
    "log2": elementary.log2, "log10": elementary.log10, "log1p": elementary.log1p, "sin": elementary.sin,
    "cos": elementary.cos, "tan": elementary.tan, "sinh": elementary.sinh, "cosh": elementary.cosh,
    "tanh": elementary.tanh, "erf": elementary.erf, "erfc": elementary.erfc,
    "arcsin": arctangent.arcsin, "arccos": arctangent.arccos, "arctan": arctangent.arctan,
}
FLOAT_BINARY: dict[str, Binary] = {
    "add": lambda a, b: _contract("fadd", a, b), "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: _contract("fmul", a, b), "true_divide": lambda a, b: a / b,
    "floor_divide": lambda a, b: _divmod(a, b)[0], "remainder": lambda a, b: _divmod(a, b)[1],
    "maximum": _extreme("ogt"), "minimum": _extreme("olt"),
    "power": power, "arctan2": arctangent.arctan2,
}
BOOL_UNARY: dict[str, Unary] = {
    "absolute": lambda a: a, "floor": lambda a: a, "ceil": lambda a: a, "logical_not": lambda a: ~a,
    "isnan": lambda a: a ^ a, "isinf": lambda a: a ^ a, "isfinite": lambda a: ~(a ^ a),
}
BOOL_BINARY: dict[str, Binary] = {
    "add": lambda a, b: a | b, "multiply": lambda a, b: a & b, "maximum": lambda a, b: a | b,
    "minimum": lambda a, b: a & b, "logical_and": lambda a, b: a & b, "logical_or": lambda a, b: a | b,
    "logical_xor": lambda a, b: a ^ b, "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
}
# The first argument of integer rows is whether the operands are unsigned.
INTEGER_UNARY: dict[str, Callable[[bool, Lanes], Lanes]] = {
    "negative": lambda u, a: -a, "square": lambda u, a: a * a, "reciprocal": _int_reciprocal,
    "absolute": lambda u, a: a if u else a.compare("slt", 0).choose(-a, a), "sign": _int_sign,
    "floor": lambda u, a: a, "ceil": lambda u, a: a, "isnan": lambda u, a: a.compare("ne", a),
    "isinf": lambda u, a: a.compare("ne", a), "isfinite": lambda u, a: a.compare("eq", a),
}
INTEGER_BINARY: dict[str, Callable[[bool, Lanes, Lanes], Lanes]] = {
    "add": lambda u, a, b: a + b, "subtract": lambda u, a, b: a - b, "multiply": lambda u, a, b: a * b,
    "floor_divide": floor_divide_int, "remainder": remainder_int, "power": power_int,
    "maximum": _int_extreme("max"), "minimum": _int_extreme("min"),
    "bitwise_and": lambda u, a, b: a & b, "bitwise_or": lambda u, a, b: a | b, "bitwise_xor": lambda u, a, b: a ^ b,
}
