"""Elementary functions of float and double vectors, from our own polynomials.

``scalars.ULP`` gives their largest errors. NaN, infinities, zeros of both signs and denormals come out as NumPy's.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from ..text.lanes import MANTISSA, Lanes, horner, per_lane
from ..text.types import constants, vector
from . import polynomials as p

_BIAS = {"float": 127, "double": 1023}
_EXPONENT = {"float": 8, "double": 11}


def _pick(x: Lanes, single: tuple[float, ...], double: tuple[float, ...]) -> tuple[float, ...]:
    return single if x.element == "float" else double


# ln(2) = HI + LO; HI has so few bits that its products with exponents are exact.
_LN2_HI = {"float": 0.693115234375, "double": 0.6931471805592082}
_LN2_LO = {"float": 3.1946184945309415e-05, "double": 7.371002565167799e-13}


def round_bits(t: Lanes) -> tuple[Lanes, Lanes]:
    """``t`` rounded to an integer, as a float and as bits, by adding a number whose last place counts ones.

    Unlike a conversion this is defined for NaN. Needs ``|t|`` below half of that number.
    """
    magic = 1.5 * 2.0 ** MANTISSA[t.element]
    moved = t + magic
    return moved - magic, moved.bits() - t.like(magic).bits()


def _two_to(n: Lanes, element: str) -> Lanes:
    """``2**n`` for integers in the range of normal numbers."""
    shifted = (n + _BIAS[element]).op("shl", MANTISSA[element])
    return shifted.cast("bitcast", element)


def scale(y: Lanes, n: Lanes) -> Lanes:
    """``y * 2**n`` where the result may be a denormal or infinite: in two steps."""
    first = n.op("ashr", 1)
    return y * _two_to(first, y.element) * _two_to(n - first, y.element)


def _by_register(name: str, xs: Sequence[Lanes], tail: str) -> Lanes | None:
    """An AVX-512 instruction on whole registers, ``@llvm.x86.avx512.{name}`` of ``xs`` and further arguments.

    In ``name`` a letter is left out for the precision.

    Narrower vectors fill a part of a register; one of ``xs`` that fills a register serves all parts of wider ones. None
    without such an instruction.
    """
    first, width = xs[0], xs[-1].width
    lanes = {"float": 16, "double": 8}[first.element]
    if first.em.target.name != "avx512" or (width > lanes and (width % lanes or width & (width - 1))):
        return None
    em, types = first.em, [vector(x.element, lanes) for x in xs]
    symbol = f"@llvm.x86.avx512.{name.format('s' if lanes == 16 else 'd')}.512"
    more = [a for a in tail.split(", ") if a]
    kinds = [types[0] if a == "zeroinitializer" else a.split(" ")[0] for a in more]
    em.declare(f"{types[0]} {symbol}({', '.join([*types, *kinds])})")
    rest = [f"{types[0]} {a}" if a == "zeroinitializer" else a for a in more]

    def part(x: Lanes, at: int) -> str:
        if x.width == lanes:
            return x.ssa
        if x.width == 1:
            return em.broadcast(x.element, lanes, x.ssa)
        return em.shuffle(x.element, x.width, x.ssa, "poison", [at + i % x.width for i in range(lanes)])
    found: list[str] = []
    for at in range(0, width, lanes):
        values = [f"{ty} {part(x, at)}" for ty, x in zip(types, xs, strict=True)]
        found.append(em.value(f"call {types[0]} {symbol}({', '.join([*values, *rest])})"))
    if width == 1:
        return Lanes(em, first.element, 1, em.lane(first.element, lanes, found[0], 0))
    if width < lanes:
        return Lanes(em, first.element, width, em.shuffle(first.element, lanes, found[0], "poison", range(width)))
    while len(found) > 1:
        half = width // len(found)
        found = [em.shuffle(first.element, half, a, b, range(2 * half))
                 for a, b in zip(found[::2], found[1::2], strict=True)]
    return Lanes(em, first.element, width, found[0])


def scale_whole(y: Lanes, n: Lanes) -> Lanes | None:
    """``y * 2**n`` for floats ``n`` in one instruction; None without one."""
    return _by_register("mask.scalef.p{}", (y, n), f"zeroinitializer, i{16 if y.element == 'float' else 8} -1, i32 4")


def _from_table(table: Sequence[float], index: Lanes) -> Lanes | None:
    """``table[index]`` of sixteen floats, by the last four bits of integers; None if that is no instruction."""
    return _by_register("permvar.{}f", (Lanes(index.em, "float", 16, constants("float", table)), index), "")


def _exp_parts(x: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """``n``, its bits, and ``expm1(x - n ln 2)``."""
    n, bits = round_bits(x * math.log2(math.e))
    r = n.fma(-_LN2_HI[x.element], x)
    r = n.fma(-_LN2_LO[x.element], r)
    q = horner(r, _pick(x, p.EXP_32, p.EXP_64))
    return n, bits, (r * r).fma(q, r)


def exp(x: Lanes) -> Lanes:
    """``e**x``."""
    lo, hi = (-104.0, 89.0) if x.element == "float" else (-746.0, 710.0)
    n, bits, e = _exp_parts(x.above(lo).below(hi))
    return scale_whole(e + 1.0, n) or scale(e + 1.0, bits)


def exp2(x: Lanes, short: bool = False) -> Lanes:
    """``2**x``; ``short`` if the result will be rounded to float32."""
    lo, hi = (-151.0, 129.0) if x.element == "float" else (-1076.0, 1025.0)
    x = x.above(lo).below(hi)
    n, bits = round_bits(x)
    r = x - n
    coefficients = p.EXP2_36 if short else _pick(x, p.EXP2_32, p.EXP2_64)
    return scale(horner(r, coefficients).fma(r, 1.0), bits)


def expm1(x: Lanes) -> Lanes:
    """``e**x - 1``."""
    lo, hi = (-30.0, 89.0) if x.element == "float" else (-50.0, 710.0)
    _, n, e = _exp_parts(x.above(lo).below(hi))
    half = _two_to(n - 1, x.element)
    scaled = half.fma(e, half - 0.5) * 2.0
    result = n.compare("eq", 0).choose(e, scaled)
    return x.call("fabs").compare("olt", 2.0 ** -(MANTISSA[x.element] + 2)).choose(x, result)


_LEAST = {"float": 0.75, "double": math.sqrt(0.5)}  # of the mantissas that logarithms are taken of


def split(x: Lanes) -> tuple[Lanes, Lanes]:
    """``k`` and ``m`` with ``x = m 2**k`` and ``m`` around 1; for positive finite ``x``."""
    mantissa = MANTISSA[x.element]
    tiny = x.compare("olt", 2.0 ** (2 - _BIAS[x.element]))
    lift = mantissa + 2
    bits = tiny.choose(x * 2.0 ** lift, x).bits()
    shifted = bits - x.like(_LEAST[x.element]).bits()
    k = shifted.op("ashr", mantissa)
    m = (bits - k.op("shl", mantissa)).cast("bitcast", x.element)
    return tiny.choose(k - lift, k), m


def _split_whole(x: Lanes) -> tuple[Lanes, Lanes] | None:
    """As ``split``, ``k`` as a float, in four instructions; None without them.

    They are defined for all numbers: of zero and infinity ``k`` is infinite and ``m`` is 1, of negative numbers and NaN
    ``m`` is NaN, so that logarithms come out right.
    """
    if x.element != "float":
        return None
    ends = "zeroinitializer, i16 -1, i32 4"
    m = _by_register("mask.getmant.p{}", (x,), f"i32 11, {ends}")   # in [3/4, 3/2), NaN for negative numbers
    if m is None:
        return None
    k, own = (_by_register("mask.getexp.p{}", (v,), ends) for v in (x, m))
    assert k is not None and own is not None
    return k - own, m


def _log_fraction(f: Lanes, k: Lanes | None, short: bool = False) -> Lanes:
    """``log(1 + f) + k ln 2``."""
    half_square = f * f * 0.5
    if f.element == "float":
        tail = horner(f, p.LOG_32) * f * (f * f)
        if k is None:
            return f - (half_square - tail)
        return k.fma(_LN2_HI["float"], f - (half_square - k.fma(_LN2_LO["float"], tail)))
    s = f / (f + 2.0)
    z = s * s
    correction = s * (half_square + z * horner(z, p.LOG_36 if short else p.LOG_64))
    if k is None:
        return f - (half_square - correction)
    return k.fma(_LN2_HI["double"], f - (half_square - k.fma(_LN2_LO["double"], correction)))


def _log_ends(x: Lanes, result: Lanes) -> Lanes:
    """The result for infinity, zero, negative numbers and NaN."""
    result = x.compare("oeq", math.inf).choose(x, result)
    result = x.compare("oeq", 0.0).choose(x.like(-math.inf), result)
    return x.compare("ult", 0.0).choose(x.like(math.nan), result)


def log(x: Lanes) -> Lanes:
    """Natural logarithm."""
    whole = _split_whole(x)
    if whole is not None:
        return _log_fraction(whole[1] - 1.0, whole[0])
    k, m = split(x)
    return _log_ends(x, _log_fraction(m - 1.0, k.cast("sitofp", x.element)))


def _log_other(x: Lanes, high: float, low: float, per_e: float, short: bool = False) -> Lanes:
    """``k * (high + low) + log(m) * per_e`` in double precision; products with ``high`` are exact."""
    short = short or x.element == "float"
    wide = x.cast("fpext", "double") if x.element == "float" else x
    k, m = split(wide)
    f = _log_fraction(m - 1.0, None, short)
    k = k.cast("sitofp", "double")
    result = _log_ends(wide, k.fma(high, k.fma(low, f * per_e)))
    return result.cast("fptrunc", "float") if x.element == "float" else result


def log2_by_table(x: Lanes) -> Lanes | None:
    """Logarithm to base 2 of floats as doubles, of which 36 bits are right; None without a table in a register.

    ``m`` is the mantissa and ``r`` a number of few bits about ``1 / m``, so that ``z = m r - 1`` is exact: the result
    is ``k - log2(r) + log2(1 + z)``. All terms but the cubic ones are added up in double precision.
    """
    whole = _split_whole(x)
    if whole is None:
        return None
    k, m = whole
    index = m.bits().op("lshr", 19)
    r, high, low = (_from_table(t, index) for t in (p.RECIPROCAL_32, p.LOG2_HIGH_32, p.LOG2_LOW_32))
    assert r is not None and high is not None and low is not None
    z = m.fma(r, -1.0)
    wide = z.cast("fpext", "double")
    cubic = (z * z * z).fma(horner(z, p.LOG2_CUBIC_32), low).cast("fpext", "double")
    log2_e = math.log2(math.e)
    return wide.fma(wide.fma(-0.5 * log2_e, log2_e), cubic) + (k + high).cast("fpext", "double")


def log2(x: Lanes, short: bool = False) -> Lanes:
    """Logarithm to base 2; ``short`` if the result will be rounded to float32."""
    found = log2_by_table(x)
    if found is not None:
        return found.cast("fptrunc", "float")
    return _log_other(x, 1.0, 0.0, math.log2(math.e), short)


def log10(x: Lanes) -> Lanes:
    """Logarithm to base 10."""
    found = log2_by_table(x)
    if found is not None:
        return (found * math.log10(2)).cast("fptrunc", "float")
    return _log_other(x, 0.30102999566361177, 3.694239077158931e-13, math.log10(math.e))


def log1p(x: Lanes) -> Lanes:
    """``log(1 + x)``: the logarithm of the rounded sum, and a correction for the rounding."""
    u = x + 1.0
    above = x.above(1.0)
    lost = x.below(1.0) - (u - above)
    if x.element == "float":   # in the fraction itself
        whole = _split_whole(u)
        if whole is not None:
            k, m = whole
            scaled = scale_whole(lost, -k.above(-64.0))
            assert scaled is not None
            result = x.compare("oeq", math.inf).choose(x, _log_fraction((m - 1.0) + scaled, k))
        else:
            bits, m = split(u)
            scaled = lost * _two_to((-bits).call("smax", -64), "float")   # next to nothing where it matters
            result = _log_ends(u, _log_fraction((m - 1.0) + scaled, bits.cast("sitofp", "float")))
        return result.call("copysign", x)
    k, m = split(u)
    kf = k.cast("sitofp", x.element)
    result = _log_fraction(m - 1.0, kf) + lost / u
    result = _log_ends(u, result)
    return x.call("fabs").compare("olt", 2.0 ** -(MANTISSA[x.element] + 2)).choose(x, result)


def tanh(x: Lanes) -> Lanes:
    """Hyperbolic tangent, ``e / (e + 1)`` with ``e = expm1(2 |x|) / 2``.

    Some cases of ``expm1`` are left out: the argument is neither negative nor large, and unless it is small its error
    hardly shows in the quotient.
    """
    size = x.call("fabs").below(10.0 if x.element == "float" else 22.0)
    n, bits = round_bits(size * (2 * math.log2(math.e)))
    if x.element == "float":
        r = n.fma(-math.log(2) / 2, size)
    else:
        r = n.fma(-_LN2_HI["double"] / 2, size)
        r = n.fma(-_LN2_LO["double"] / 2, r)
    q = horner(r, [c * 2 ** (i + 1) for i, c in enumerate(_pick(x, p.EXP_32, p.EXP_64))])
    power = _two_to(bits, x.element)
    e = power.fma((r * r).fma(q, r), power.fma(0.5, -0.5))
    return (e / (e + 1.0)).call("copysign", x)


def _quarter_turns(x: Lanes) -> tuple[Lanes, Lanes]:
    """``n`` (bits) and ``x - n pi/2``, exact enough for ``|x| < 10**6``; floats are reduced in double precision."""
    wide = x.cast("fpext", "double") if x.element == "float" else x
    n, bits = round_bits(wide * (2 / math.pi))
    r = n.fma(-_PI_A, wide)
    r = n.fma(-_PI_B, r)
    r = n.fma(-_PI_C, r)
    if x.element == "float":
        return bits.cast("trunc", "i32"), r.cast("fptrunc", "float")
    return bits, r


# pi/2 = A + B + C, of 33, 33 and 53 bits: products with n < 2**20 are exact.
_PI_A, _PI_B, _PI_C = 1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21


def _sine_cosine(r: Lanes) -> tuple[Lanes, Lanes]:
    """Sine and cosine for ``|r| <= pi/4``."""
    z = r * r
    sine = horner(z, _pick(r, p.SIN_32, p.SIN_64)).fma(z * r, r)
    cosine = (z * z).fma(horner(z, _pick(r, p.COS_32, p.COS_64)), z.fma(-0.5, 1.0))
    return sine, cosine


def _far(x: Lanes, y: Lanes, symbol: str) -> Lanes:
    """``y``, but the C library's result for arguments of a million and more, if there are any."""
    far = x.call("fabs").compare("uge", 1e6)
    return far.if_any(lambda: far.choose(per_lane(x, symbol), y), y)


def _trigonometric(x: Lanes, shift: int, symbol: str) -> Lanes:
    """``sin(x + shift pi/2)``; floats are reduced in their own precision if all of them are below ``_NEAR_RADIANS``."""
    if x.element == "double" or not x.em.target.has_fma:
        return _far(x, _turned(x, *_quarter_turns(x), shift), symbol)
    n, bits = round_bits(x * (2 / math.pi))
    r = x
    for part in _HALF_PI_32:
        r = n.fma(-part, r)
    y = _turned(x, bits, r, shift)
    far = x.call("fabs").compare("uge", _NEAR_RADIANS)
    return far.if_any(lambda: _far(x, _turned(x, *_quarter_turns(x), shift), symbol), y)


# pi/2 in three floats. For |x| < _NEAR_RADIANS the difference of x and multiples of the first one is exact.
_HALF_PI_32 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_NEAR_RADIANS = 8192.0


def _turned(x: Lanes, n: Lanes, r: Lanes, shift: int) -> Lanes:
    """Sine of ``r`` and ``n + shift`` quarter turns."""
    n = n + shift if shift else n
    sine, cosine = _sine_cosine(r)
    y = (n & 1).compare("ne", 0).choose(cosine, sine)
    sign = (n & 2).op("shl", MANTISSA[x.element] + _EXPONENT[x.element] - 1)
    y = (y.bits() ^ sign).cast("bitcast", x.element)
    return y if shift else x.compare("oeq", 0.0).choose(x, y)


def sin(x: Lanes) -> Lanes:
    """Sine; arguments of a million and more go to the C library."""
    return _trigonometric(x, 0, "sin")


def cos(x: Lanes) -> Lanes:
    """Cosine; arguments of a million and more go to the C library."""
    return _trigonometric(x, 1, "cos")


def tan(x: Lanes) -> Lanes:
    """Tangent; arguments of a million and more go to the C library."""
    n, r = _quarter_turns(x)
    sine, cosine = _sine_cosine(r)
    odd = (n & 1).compare("ne", 0)
    y = odd.choose(cosine, sine) / odd.choose(-sine, cosine)
    return _far(x, x.compare("oeq", 0.0).choose(x, y), "tan")


def _half_exp(x: Lanes) -> tuple[Lanes, Lanes]:
    """``e**x / 2``, which overflows later than ``e**x``, and ``expm1(x)`` for small ``x >= 0``."""
    lo, hi = (-104.0, 90.0) if x.element == "float" else (-746.0, 711.0)
    _, n, e = _exp_parts(x.above(lo).below(hi))
    small = n.compare("eq", 0).choose(e, _two_to(n & 7, x.element).fma(e, _two_to(n & 7, x.element) - 1.0))
    return scale(e + 1.0, n - 1), small


def sinh(x: Lanes) -> Lanes:
    """Hyperbolic sine."""
    size = x.call("fabs")
    half, e = _half_exp(size)
    near = (e + e / (e + 1.0)) * 0.5
    y = size.compare("olt", 1.0).choose(near, half - half.like(0.25) / half)
    y = size.compare("olt", 2.0 ** -(MANTISSA[x.element] // 2 + 1)).choose(size, y)
    return y.call("copysign", x)


def cosh(x: Lanes) -> Lanes:
    """Hyperbolic cosine."""
    half, _ = _half_exp(x.call("fabs"))
    return half + half.like(0.25) / half


def erf(x: Lanes) -> Lanes:
    """Error function: ``x (1 + P(x²))`` near zero, ``1 - exp(-Q(|x|))`` further out; or sixteen pieces, from tables."""
    if x.element == "double":
        return per_lane(x, "erf")
    return _erf_in_pieces(x) or _erf_in_two(x)


def _erf_in_pieces(x: Lanes) -> Lanes | None:
    """The variant with a register as a table of sixteen coefficients: half of the instructions. None without one."""
    size = x.call("fabs")
    n, bits = round_bits(size * 4.0)
    pieces = [_from_table(column, bits) for column in p.ERF_PIECES_32]
    r = n.fma(-0.25, size)
    q: Lanes | None = None
    for c in reversed(pieces[1:]):
        if c is None:
            return None
        q = c if q is None else q.fma(r, c)
    start = pieces[0]
    assert start is not None and q is not None
    y = q.fma(r, size.compare("olt", 0.125).choose(size, start))
    return size.compare("oge", 3.875).choose(y.like(1.0), y).call("copysign", x)


def _erf_in_two(x: Lanes) -> Lanes:
    size = x.call("fabs").below(4.0)
    z = size * size
    near = horner(z, p.ERF_32).fma(x, x)
    far = (-exp(-horner(size, p.ERF_TAIL_32)) + 1.0).call("copysign", x)
    return size.compare("olt", 0.875).choose(near, far)


def erfc(x: Lanes) -> Lanes:
    """Complementary error function; floats in double precision, ``exp(-x²) R(x) / (1 + 2 x)``."""
    if x.element == "double":
        return per_lane(x, "erfc")
    wide = x.cast("fpext", "double")
    size = wide.call("fabs").below(10.2)
    u = (size - 2.0) / (size + 2.0)
    y = exp(-(size * size)) * horner(u, p.ERFC_32) / size.fma(2.0, 1.0)
    return wide.compare("olt", 0.0).choose(-y + 2.0, y).cast("fptrunc", "float")
