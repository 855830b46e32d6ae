"""Trigonometry, rounding, comparison: elementwise mathematics."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from kusari.ir import SCALAR

from ...elementwise import elementwise
from ...symbolic import special
from ...variable import Variable


@elementwise("Sin", onnx="Sin", kind="f")
def sin(xp: Any, x: Any) -> Any:
    """Sine."""
    return xp.sin(x)


@elementwise("Cos", onnx="Cos", kind="f")
def cos(xp: Any, x: Any) -> Any:
    """Cosine."""
    return xp.cos(x)


@elementwise("Tan", onnx="Tan", kind="f")
def tan(xp: Any, x: Any) -> Any:
    """Tangent."""
    return xp.tan(x)


@elementwise("Arcsin", onnx="Asin", kind="f")
def arcsin(xp: Any, x: Any) -> Any:
    """Inverse sine."""
    return xp.arcsin(x)


@elementwise("Arccos", onnx="Acos", kind="f")
def arccos(xp: Any, x: Any) -> Any:
    """Inverse cosine."""
    return xp.arccos(x)


@elementwise("Arctan", onnx="Atan", kind="f")
def arctan(xp: Any, x: Any) -> Any:
    """Inverse tangent."""
    return xp.arctan(x)


@elementwise("Arctan2", kind="f")
def arctan2(xp: Any, x1: Any, x2: Any) -> Any:
    """Angle of the point ``(x2, x1)``: the inverse tangent of ``x1 / x2`` in the right quadrant."""
    return xp.arctan2(x1, x2)


@elementwise("Arctanh", onnx="Atanh", kind="f")
def arctanh(xp: Any, x: Any) -> Any:
    """Inverse hyperbolic tangent."""
    return (xp.log1p(x) - xp.log1p(-x)) * 0.5 if xp is SCALAR else xp.arctanh(x)


@arctanh.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return gy / (1 - x * x),


@elementwise("Sinh", onnx="Sinh", kind="f")
def sinh(xp: Any, x: Any) -> Any:
    """Hyperbolic sine."""
    return xp.sinh(x)


@elementwise("Cosh", onnx="Cosh", kind="f")
def cosh(xp: Any, x: Any) -> Any:
    """Hyperbolic cosine."""
    return xp.cosh(x)


@elementwise("Erf", onnx="Erf", kind="f")
def erf(xp: Any, x: Any) -> Any:
    """Error function."""
    return special(xp, "erf", x)


@elementwise("Erfc", kind="f")
def erfc(xp: Any, x: Any) -> Any:
    """Complementary error function, ``1 - erf(x)``, accurate where that is small."""
    return special(xp, "erfc", x)


@elementwise("Ndtr", kind="f", half=False)
def ndtr(xp: Any, x: Any) -> Any:
    """Cumulative distribution function of the standard normal distribution."""
    return special(xp, "erfc", x * -math.sqrt(0.5)) * 0.5


@elementwise("Sign", onnx="Sign")
def sign(xp: Any, x: Any) -> Any:
    """-1, 0 or 1; no gradient flows through it."""
    return xp.sign(x)


@elementwise("Floor", onnx="Floor")
def floor(xp: Any, x: Any) -> Any:
    """Greatest integer that is not greater; no gradient flows through it."""
    return xp.floor(x)


@elementwise("Ceil", onnx="Ceil")
def ceil(xp: Any, x: Any) -> Any:
    """Least integer that is not less; no gradient flows through it."""
    return xp.ceil(x)


@elementwise("Fix")
def fix(xp: Any, x: Any) -> Any:
    """Round towards zero; no gradient flows through it."""
    return xp.where(x >= 0, xp.floor(x), xp.ceil(x))


@elementwise("Fmod", onnx=lambda g, x, divisor: g.Mod(x, divisor, fmod=1), kind="f")
def fmod(xp: Any, x: Any, divisor: Any) -> Any:
    """Remainder of a division, with the sign of ``x``."""
    return xp.sign(x) * (abs(x) % abs(divisor)) if xp is SCALAR else xp.fmod(x, divisor)


@fmod.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, divisor: Any) -> Any:
    q = x / divisor
    return gy, -gy * xp.where(q >= 0, xp.floor(q), xp.ceil(q))


@elementwise("Maximum", onnx="Max", kind="f")
def maximum(xp: Any, x1: Any, x2: Any) -> Any:
    """The greater of two elements; where they are equal the gradient goes to the first."""
    return xp.maximum(x1, x2)


@elementwise("Minimum", onnx="Min", kind="f")
def minimum(xp: Any, x1: Any, x2: Any) -> Any:
    """The lesser of two elements; where they are equal the gradient goes to the first."""
    return xp.minimum(x1, x2)


def _clip_onnx(g: Any, x: str, x_min: float, x_max: float) -> Any:
    dtype = g.type(x).dtype
    return g.Clip(x, g.const(np.array(x_min, dtype)), g.const(np.array(x_max, dtype)))


@elementwise("Clip", onnx=_clip_onnx, kind="f")
def _clip(xp: Any, x: Any, x_min: float = 0.0, x_max: float = 1.0) -> Any:
    return xp.minimum(xp.maximum(x, x_min), x_max)


@_clip.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, x_min: float, x_max: float) -> Any:
    return xp.where(xp.logical_and(x >= x_min, x <= x_max), gy, 0),


def clip(x: Any, x_min: float | None, x_max: float | None) -> Variable:
    """Limit elements to ``[x_min, x_max]``.

    Args:
        x: Floating-point input.
        x_min: Least value, or None.
        x_max: Greatest value, or None.

    Raises:
        ValueError: Both are None, or ``x_min`` is not less than ``x_max``.
        InvalidType: ``x`` is not floating-point.
    """
    if x_min is None or x_max is None:
        if x_min is None and x_max is None:
            raise ValueError("x_min or x_max must be given")
        return minimum(x, x_max) if x_min is None else maximum(x, x_min)
    if x_min >= x_max:
        raise ValueError(f"x_min must be less than x_max, got {x_min} and {x_max}")
    return _clip(x, x_min, x_max)


@elementwise("SquaredError", kind="f=")
def squared_error(xp: Any, x0: Any, x1: Any) -> Any:
    """``(x0 - x1) ** 2`` of each pair of elements; raises ``InvalidType`` where the shapes differ."""
    return xp.square(x0 - x1)


@squared_error.gradient
def _(xp: Any, gy: Any, y: Any, x0: Any, x1: Any) -> Any:
    g = gy * (x0 - x1) * 2
    return g, -g


def squared_difference(x1: Any, x2: Any) -> Variable:
    """``(x1 - x2) ** 2`` of each pair of elements: another name of `squared_error`."""
    return squared_error(x1, x2)


@elementwise("AbsoluteError", kind="f=")
def absolute_error(xp: Any, x0: Any, x1: Any) -> Any:
    """``|x0 - x1|`` of each pair of elements; raises ``InvalidType`` where the shapes differ."""
    return abs(x0 - x1)


@elementwise("LinearInterpolate", kind="f=")
def linear_interpolate(xp: Any, p: Any, x: Any, y: Any) -> Any:
    """``p x + (1 - p) y``.

    Args:
        p: Floating-point weights.
        x: Value where the weight is 1.
        y: Value where it is 0.

    Raises:
        InvalidType: The three differ in shape or dtype, or are not floating-point.
    """
    return p * x + (1 - p) * y


@linear_interpolate.gradient
def _(xp: Any, gy: Any, z: Any, p: Any, x: Any, y: Any) -> Any:
    return gy * (x - y), gy * p, gy * (1 - p)
