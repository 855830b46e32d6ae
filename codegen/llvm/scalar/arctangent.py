"""Inverse trigonometric functions of float and double vectors."""
from __future__ import annotations

import math

from ..text.lanes import Lanes, horner
from . import polynomials as p

# pi = HI + LO, as the sum of two numbers of the type.
_PI_HI = {"float": 3.1415927410125732, "double": math.pi}
_PI_LO = {"float": -8.742278000372485e-08, "double": 1.2246467991473532e-16}
_TAN_EIGHTH_PI = math.sqrt(2) - 1   # tan(pi/8)


def _first_quadrant(y: Lanes, x: Lanes) -> tuple[Lanes, Lanes]:
    """The angle of ``(x, y)``, both at least 0, as a sum of a multiple of pi/4 and a remainder.

    One division serves all: the quotient is y/x, (y - x)/(y + x) or -x/y, at most tan(pi/8) in size.
    """
    near = y.compare("ole", x * _TAN_EIGHTH_PI)
    middle = y.compare("olt", x * (_TAN_EIGHTH_PI + 2.0))
    above = near.choose(y, middle.choose(y - x, -x))
    below = near.choose(x, middle.choose(y + x, y))
    u = above / below
    z = u * u
    series = horner(z, p.ARCTAN_32 if u.element == "float" else p.ARCTAN_64)
    hi, lo = _PI_HI[u.element], _PI_LO[u.element]
    base = near.choose(u.like(0.0), middle.choose(u.like(hi / 4), u.like(hi / 2)))
    rest = near.choose(u.like(0.0), middle.choose(u.like(lo / 4), u.like(lo / 2)))
    return base, u + (z * u).fma(series, rest)


def arctan(x: Lanes) -> Lanes:
    """Angle whose tangent is ``x``."""
    size = x.call("fabs")
    huge = 1e30
    base, rest = _first_quadrant(size.below(huge), size.like(1.0))
    return (base + rest).call("copysign", x)


def arctan2(y: Lanes, x: Lanes) -> Lanes:
    """Angle of the point ``(x, y)``; zeros and infinities of either sign as in C."""
    a, b = y.call("fabs"), x.call("fabs")
    endless = a.compare("oeq", math.inf) & b.compare("oeq", math.inf)
    a, b = endless.choose(a.like(1.0), a), endless.choose(b.like(1.0), b)
    limit = 1e37 if x.element == "float" else 1e307
    large = a.compare("ogt", limit) | b.compare("ogt", limit)   # the sum of both must not overflow
    a, b = large.choose(a * 0.125, a), large.choose(b * 0.125, b)
    b = (a.compare("oeq", 0.0) & b.compare("oeq", 0.0)).choose(b.like(1.0), b)
    base, rest = _first_quadrant(a, b)
    left = x.bits().compare("slt", 0)
    hi, lo = _PI_HI[x.element], _PI_LO[x.element]
    angle = left.choose((-base + hi) + (-rest + lo), base + rest)
    return angle.call("copysign", y)


def _other_leg(x: Lanes) -> Lanes:
    return ((-x + 1.0) * (x + 1.0)).call("sqrt")


def arcsin(x: Lanes) -> Lanes:
    """Angle whose sine is ``x``; NaN outside of [-1, 1]."""
    return arctan2(x, _other_leg(x))


def arccos(x: Lanes) -> Lanes:
    """Angle whose cosine is ``x``; NaN outside of [-1, 1]."""
    return arctan2(_other_leg(x), x)
