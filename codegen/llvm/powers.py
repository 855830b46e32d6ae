"""Powers with real exponents."""
from __future__ import annotations

import math

from . import polynomials as p
from .elementary import exp2, log2, round_bits, scale, split
from .lanes import Lanes, horner, per_lane

# 1 / ln(2) to twice a double's precision.
_LOG2E_HI, _LOG2E_LO = 1.4426950408889634, 2.0355273740931033e-17


def power(x: Lanes, y: Lanes) -> Lanes:
    """``x**y`` as ``2**(y log2 |x|)``: floats in double precision, doubles with a logarithm in two parts.

    Doubles on targets without fused multiply-add call the C library.
    """
    single = x.element == "float"
    if not single and not x.em.target.has_fma:
        return per_lane(x, "pow", y)
    base, exponent = (x.cast("fpext", "double"), y.cast("fpext", "double")) if single else (x, y)
    size = base.call("fabs")
    result = exp2(exponent * log2(size, short=True), short=True) if single else _power(size, exponent)
    whole = exponent.call("floor").compare("oeq", exponent)
    halved = exponent * 0.5
    odd = whole & halved.call("floor").compare("one", halved)
    negative = base.bits().compare("slt", 0)
    result = (odd & negative).choose(-result, result)
    no_real = base.compare("olt", 0.0) & base.compare("ogt", -math.inf) & ~whole
    unit = size.compare("oeq", 1.0) & exponent.call("fabs").compare("oeq", math.inf)
    result = no_real.choose(result.like(math.nan), result)
    one = unit | exponent.compare("oeq", 0.0) | base.compare("oeq", 1.0)
    result = one.choose(result.like(1.0), result)
    return result.cast("fptrunc", "float") if single else result


def _power(size: Lanes, exponent: Lanes) -> Lanes:
    """``size**exponent`` for doubles ``size >= 0``; 1 to the power of infinity is left to the caller."""
    hi, lo = _log2_parts(size)
    product = exponent * hi
    error = exponent.fma(lo, exponent.fma(hi, -product))
    error = product.call("fabs").compare("olt", 2000.0).choose(error, 0.0)
    near = product.above(-1100.0).below(1100.0)
    n, bits = round_bits(near)
    r = (near - n) + error
    return scale(horner(r, p.EXP2_64).fma(r, 1.0), bits)


def _log2_parts(x: Lanes) -> tuple[Lanes, Lanes]:
    """``log2(x)`` as a sum of two doubles; needs fused multiply-add."""
    k, m = split(x)
    f, g = m - 1.0, m + 1.0
    lost = m - (g - 1.0)
    s = f / g
    s_lo = ((-s).fma(g, f) - s * lost) / g          # s + s_lo = f / (m + 1)
    z = s * s
    tail = s_lo * 2.0 + s * z * horner(z, p.LOG_64)  # log(m) = 2 s + tail
    twice = s * 2.0
    high = twice * _LOG2E_HI
    low = twice.fma(_LOG2E_HI, -high) + twice.fma(_LOG2E_LO, tail * _LOG2E_HI)
    k = k.cast("sitofp", "double")
    total = k + high
    low = ((k - total) + high) + low
    hi = total + low
    lo = (total - hi) + low
    for at, value in ((0.0, -math.inf), (math.inf, math.inf)):
        end = x.compare("oeq", at)
        hi, lo = end.choose(x.like(value), hi), end.choose(x.like(0.0), lo)
    nan = x.compare("uno", x)
    return nan.choose(x, hi), lo
