"""Powers with real exponents."""
from __future__ import annotations

import math

from ..text.lanes import Lanes, horner, per_lane
from . import polynomials as p
from .elementary import exp2, log2, log2_by_table, round_bits, scale, scale_whole, split

# 1 / ln(2) to twice a double's precision.
_LOG2E_HI, _LOG2E_LO = 1.4426950408889634, 2.0355273740931033e-17


MOST_EXPONENT = 64  # of floats that are multiplied out: in double precision nothing overflows too early


def power_literal(x: Lanes, n: float) -> Lanes | None:
    """Powers that are a few multiplications, a square root or a reciprocal; None for others.

    Exponents of floats may be multiples of 1/2 up to ``MOST_EXPONENT``: computed in double precision, results are
    rounded once. Under a root minus infinity is infinity and minus zero is zero, as in ``pow``.
    """
    if n in (1.0, 2.0, 3.0, 4.0):
        square = x * x
        return {1.0: x, 2.0: square, 3.0: square * x, 4.0: square * square}[n]
    if n == -1.0:
        return x.like(1.0) / x
    if n == 0.5:
        return x.call("sqrt")  # NumPy's own choice: of minus infinity it is NaN
    size = abs(n)
    if x.element == "float":
        if not 0.0 < size <= MOST_EXPONENT or size * 2 != int(size * 2):
            return None
        y = x.cast("fpext", "double")
    elif size == 0.5:
        y = x
    else:
        return None
    root: Lanes | None = None
    if size != int(size):
        y = y.compare("oeq", -math.inf).choose(y.like(math.inf), y + 0.0)
        root = y.call("sqrt")
    if size >= 1.0:
        y = _multiplied(y, int(size))
        root = y if root is None else y * root
    assert root is not None
    result = root if n > 0 else root.like(1.0) / root
    return result.cast("fptrunc", "float") if x.element == "float" else result


def _multiplied(x: Lanes, n: int) -> Lanes:
    """``x**n`` for ``n >= 1`` by squares."""
    result: Lanes | None = None
    while True:
        if n & 1:
            result = x if result is None else result * x
        n >>= 1
        if not n:
            assert result is not None
            return result
        x = x * x


def power(x: Lanes, y: Lanes) -> Lanes:
    """``x**y`` as ``2**(y log2 |x|)``: floats in double precision, doubles with a logarithm in two parts.

    Doubles on targets without fused multiply-add call the C library.
    """
    single = x.element == "float"
    found = _power_by_table(x, y) if single else None
    if found is not None:
        return found
    if not single and not x.em.target.has_fma:
        return per_lane(x, "pow", y)
    size = x.call("fabs")
    if single:
        wide = y.cast("fpext", "double") * log2(size.cast("fpext", "double"), short=True)
        result = exp2(wide, short=True).cast("fptrunc", "float")
    else:
        result = _power(size, y)
    return _with_signs(x, y, result)


def _with_signs(x: Lanes, y: Lanes, result: Lanes) -> Lanes:
    """``x**y`` from ``|x|**y``."""
    size = x.call("fabs")
    whole = y.call("floor").compare("oeq", y)
    halved = y * 0.5
    odd = whole & halved.call("floor").compare("one", halved)
    result = (odd & x.bits().compare("slt", 0)).choose(-result, result)
    no_real = x.compare("olt", 0.0) & x.compare("ogt", -math.inf) & ~whole
    result = no_real.choose(result.like(math.nan), result)
    unit = size.compare("oeq", 1.0) & y.call("fabs").compare("oeq", math.inf)
    one = unit | y.compare("oeq", 0.0) | x.compare("oeq", 1.0)
    return one.choose(result.like(1.0), result)


def _power_by_table(x: Lanes, y: Lanes) -> Lanes | None:
    """Powers of floats by logarithms from tables; None without tables.

    The product is double precision's, as ``y`` multiplies the logarithm's error. Zeros, infinities, NaN and negative
    numbers take a branch of their own.
    """
    size = x.call("fabs")
    log = log2_by_table(size)
    if log is None:
        return None
    t = log * y.cast("fpext", "double")
    n = t.call("nearbyint")
    f = (t - n).cast("fptrunc", "float")
    result = scale_whole(horner(f, p.EXP2_32).fma(f, 1.0), n.cast("fptrunc", "float"))
    assert result is not None
    plain = x.compare("ogt", 0.0) & x.compare("olt", math.inf) & y.call("fabs").compare("olt", math.inf)
    return (~plain).if_any(lambda: _with_signs(x, y, _with_ends(size, y, result)), result)


def _with_ends(size: Lanes, y: Lanes, result: Lanes) -> Lanes:
    """Powers of zero and infinity, and to the power of infinity: zero or infinity."""
    end = size.compare("oeq", 0.0) | size.compare("oeq", math.inf) | y.call("fabs").compare("oeq", math.inf)
    up = ~(size.compare("ogt", 1.0) ^ y.compare("ogt", 0.0))
    result = end.choose(up.choose(size.like(math.inf), 0.0), result)
    return size.compare("uno", y).choose(result.like(math.nan), result)


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
