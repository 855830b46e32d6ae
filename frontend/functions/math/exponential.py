"""Exponentials, logarithms and roots."""
from __future__ import annotations

from typing import Any

from ...elementwise import elementwise


@elementwise("Exp", onnx="Exp", kind="f")
def exp(xp: Any, x: Any) -> Any:
    """Exponential function."""
    return xp.exp(x)


@elementwise("Expm1", kind="f")
def expm1(xp: Any, x: Any) -> Any:
    """``exp(x) - 1``, accurate near 0."""
    return xp.expm1(x)


@elementwise("Log", onnx="Log", kind="f")
def log(xp: Any, x: Any) -> Any:
    """Natural logarithm."""
    return xp.log(x)


@elementwise("Log1p", kind="f")
def log1p(xp: Any, x: Any) -> Any:
    """``log(1 + x)``, accurate near 0."""
    return xp.log1p(x)


@elementwise("Log2", kind="f")
def log2(xp: Any, x: Any) -> Any:
    """Logarithm to base 2."""
    return xp.log2(x)


@elementwise("Log10", kind="f")
def log10(xp: Any, x: Any) -> Any:
    """Logarithm to base 10."""
    return xp.log10(x)


@elementwise("Sqrt", onnx="Sqrt", kind="f")
def sqrt(xp: Any, x: Any) -> Any:
    """Square root."""
    return xp.sqrt(x)


@elementwise("Rsqrt", kind="f")
def rsqrt(xp: Any, x: Any) -> Any:
    """``1 / sqrt(x)``."""
    return 1.0 / xp.sqrt(x)


@rsqrt.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return gy * (-0.5 * (y * y * y)),


@elementwise("Square", kind="f")
def square(xp: Any, x: Any) -> Any:
    """``x * x``."""
    return xp.square(x)
