"""Integer division and powers with NumPy's results, which the hardware lacks."""
from __future__ import annotations

from ..text.lanes import Lanes


def _divide(unsigned: bool, a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """Quotient and remainder rounded down; division by zero gives 0, the smallest integer over -1 itself."""
    zero = b.compare("eq", 0)
    if unsigned:
        safe = zero.choose(b.like(1), b)
        quotient = a.op("udiv", safe)
        rest = a - quotient * safe
    else:
        minus = b.compare("eq", -1)
        safe = (zero | minus).choose(b.like(1), b)
        quotient = a.op("sdiv", safe)
        rest = a - quotient * safe
        other = rest.compare("ne", 0) & (rest ^ b).compare("slt", 0)
        quotient = other.choose(quotient - 1, quotient)
        rest = other.choose(rest + b, rest)
        quotient = minus.choose(-a, quotient)
    return zero.choose(quotient.like(0), quotient), zero.choose(rest.like(0), rest)


def floor_divide_int(unsigned: bool, a: Lanes, b: Lanes) -> Lanes:
    """``a // b``."""
    return _divide(unsigned, a, b)[0]


def remainder_int(unsigned: bool, a: Lanes, b: Lanes) -> Lanes:
    """``a % b``."""
    return _divide(unsigned, a, b)[1]


def power_int(unsigned: bool, a: Lanes, b: Lanes) -> Lanes:
    """``a ** b`` modulo the integer's range, by squaring; one turn per bit of the exponent."""
    bits = int(a.element[1:])
    result = a.like(1)
    for i in range(bits if unsigned else bits - 1):
        set_ = (b & (1 << i)).compare("ne", 0)
        result = set_.choose(result * a, result)
        a = a * a
    return result
