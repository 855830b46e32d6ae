"""Special functions, as expressions of elementary ones: they fuse, differentiate and export like all others."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...elementwise import elementwise
from ...symbolic import special
from ...utils import type_check
from ...variable import Variable, as_variable


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Coefficients of falling powers."""
    y: Any = coefficients[0]
    for c in coefficients[1:]:
        y = y * x + c
    return y


_Pair = tuple[Sequence[float], Sequence[float]]


def _scaled(exponent: int, numerator: Sequence[float], denominator: Sequence[float]) -> _Pair:
    """The same ratio of smaller polynomials, which do not overflow in float16: times a power of 2, which is exact."""
    return [math.ldexp(c, -exponent) for c in numerator], [math.ldexp(c, -exponent) for c in denominator]


# -- the scaled complementary error function ------------------------------------------------------------------------

# Rational approximations with relative errors near 1e-16: W. J. Cody, "Rational Chebyshev approximations for the error
# function", Mathematics of Computation 23 (1969). Numerators and denominators, for |x| up to 0.46875, up to 4, above.
_SMALL = ((1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2,
           3.20937758913846947e3),
          (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3))
_MIDDLE = _scaled(
    11,
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
     3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3))
_LARGE = ((1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
           1.60837851487422766e-2, 6.58749161529837803e-4),
          (1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2,
           2.33520497626869185e-3))


def _ratio(x: Any, pair: _Pair) -> Any:
    return _polynomial(x, pair[0]) / _polynomial(x, pair[1])


def _erfcx(xp: Any, x: Any) -> Any:
    a = abs(x)
    near, middle = xp.minimum(a, 0.46875), xp.minimum(xp.maximum(a, 0.46875), 4.0)
    square = near * near
    small = xp.exp(square) * (1 - near * _ratio(square, _SMALL))
    inverse = 1 / xp.maximum(a, 4.0)
    z = inverse * inverse
    large = inverse * (1 / math.sqrt(math.pi) - z * _ratio(z, _LARGE))
    y = xp.where(a <= 0.46875, small, xp.where(a <= 4.0, _ratio(middle, _MIDDLE), large))
    left = xp.minimum(x, 0.0)
    return xp.where(x < 0, 2 * xp.exp(left * left) - y, y)


@elementwise("ErfCx", kind="f", half=False)
def erfcx(xp: Any, x: Any) -> Any:
    """Scaled complementary error function, ``exp(x * x) * erfc(x)``, which does not vanish for large x.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.erfcx(np.array([0, 100], "f")).array.round(6)
    array([1.      , 0.005642], dtype=float32)
    """
    return _erfcx(xp, x)


@erfcx.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return gy * (2 * (x * y) - 2 / math.sqrt(math.pi)),


@elementwise("LogNdtr", kind="f", half=False)
def log_ndtr(xp: Any, x: Any) -> Any:
    """Logarithm of the cumulative distribution function of the standard normal distribution.

    It is accurate where the function itself vanishes or is next to 1.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.log_ndtr(np.array([-10, 0], "f")).array.round(3)
    array([-53.231,  -0.693], dtype=float32)
    """
    left, right = xp.minimum(x, 0.0), xp.maximum(x, 0.0)
    low = xp.log(_erfcx(xp, left * -math.sqrt(0.5)) * 0.5) - left * left * 0.5
    return xp.where(x < 0, low, xp.log1p(special(xp, "erfc", right * math.sqrt(0.5)) * -0.5))


@log_ndtr.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    # The density over the distribution: exp(-x * x / 2 - y) / sqrt(2 pi), where its parts do not cancel.
    left, right = xp.minimum(x, 0.0), xp.maximum(x, 0.0)
    low = math.sqrt(2 / math.pi) / _erfcx(xp, left * -math.sqrt(0.5))
    high = xp.exp(right * right * -0.5 - xp.maximum(y, -1.0)) * (1 / math.sqrt(2 * math.pi))  # y >= log(0.5) there
    return gy * xp.where(x < 0, low, high),


# -- inverses of the normal distribution ----------------------------------------------------------------------------

# Relative errors near 1e-16: M. J. Wichura, "Algorithm AS 241: The percentage points of the normal distribution",
# Applied Statistics 37 (1988). For probabilities in the middle; for tails; and for far tails.
_CENTRE = _scaled(
    17,
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0))
_TAIL = ((7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258,
          3.64784832476320460504, 5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734),
         (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
          6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187, 1.0))
_FAR = ((2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
         2.96560571828504891230e-1, 1.78482653991729133580, 5.46378491116411436990, 6.65790464350110377720),
        (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
         1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0))


def _quantile(xp: Any, q: Any, tail: Any) -> Any:
    """The point of the standard normal distribution below which there is ``q + 0.5``; ``tail`` is 0.5 - abs(q)."""
    middle = abs(q) <= 0.425
    centre = q * _ratio(0.180625 - xp.where(middle, q * q, 0.0), _CENTRE)
    r = xp.sqrt(-xp.log(xp.where(xp.logical_or(middle, tail <= 0), 0.5, tail)))
    near, far = xp.minimum(r, 5.0) - 1.6, xp.minimum(xp.maximum(r, 5.0), 30.0) - 5.0
    outside = xp.where(tail == 0, math.inf, xp.where(r <= 5.0, _ratio(near, _TAIL), _ratio(far, _FAR)))
    return xp.where(middle, centre, xp.where(tail < 0, math.nan, xp.where(q < 0, -outside, outside)))


@elementwise("Ndtri", kind="f", half=False)
def ndtri(xp: Any, x: Any) -> Any:
    """Quantile function of the standard normal distribution, the inverse of `ndtr`.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.ndtri(np.array([0, 0.5, 0.975], "f")).array.round(4)
    array([-inf, 0.  , 1.96], dtype=float32)
    """
    return _quantile(xp, x - 0.5, xp.minimum(x, 1 - x))


@ndtri.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return gy * xp.exp(y * y * 0.5) * math.sqrt(2 * math.pi),


@elementwise("ErfInv", kind="f", half=False)
def erfinv(xp: Any, x: Any) -> Any:
    """Inverse of the error function.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.erf(F.erfinv(np.array([-0.5, 0.9], "f"))).array.round(4)
    array([-0.5,  0.9], dtype=float32)
    """
    return _quantile(xp, x * 0.5, 0.5 - abs(x) * 0.5) * math.sqrt(0.5)


@erfinv.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return gy * xp.exp(y * y) * (math.sqrt(math.pi) / 2),


@elementwise("ErfcInv", kind="f", half=False)
def erfcinv(xp: Any, x: Any) -> Any:
    """Inverse of the complementary error function, accurate where that is small.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.erfcinv(np.array([1e-20, 1, 2], "f")).array.round(4)
    array([6.6016, 0.    ,   -inf], dtype=float32)
    """
    return _quantile(xp, (1 - x) * 0.5, xp.minimum(x, 2 - x) * 0.5) * math.sqrt(0.5)


@erfcinv.gradient
def _(xp: Any, gy: Any, y: Any, x: Any) -> Any:
    return gy * xp.exp(y * y) * (-math.sqrt(math.pi) / 2),


# -- the gamma function and its relatives, computed in float64 whatever the dtype -------------------------------------

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_SHIFT = 8  # below it, arguments are moved up by this much


def _factor(xp: Any, x: Any) -> Any:
    """``x (x + 1) … (x + 7)``."""
    y = x
    for k in range(1, _SHIFT):
        y = y * (x + k)
    return y


def _lgamma_positive(xp: Any, x: Any) -> Any:
    """Stirling's series, of arguments that are large enough."""
    small = x < _SHIFT
    z = xp.where(small, x + _SHIFT, x)
    inverse = 1 / z
    series = inverse * _polynomial(inverse * inverse, [
        _BERNOULLI[k - 1] / (2 * k * (2 * k - 1)) for k in range(8, 0, -1)])
    y = (z - 0.5) * xp.log(z) - z + (0.5 * math.log(2 * math.pi)) + series
    return y - xp.where(small, xp.log(_factor(xp, xp.where(small, x, 1.0))), 0.0)


def _fraction(xp: Any, x: Any) -> Any:
    """The distance to the nearest integer, signed: sines of multiples of pi are accurate through it."""
    return x - xp.rint(x)


@elementwise("LGamma", kind="f")
def _lgamma(xp: Any, x: Any, dtype: str = "float64") -> Any:
    x = x.astype("float64")
    infinite = xp.isinf(x)
    x = xp.where(infinite, 1.0, x)
    mirrored = x < 0.5
    y = _lgamma_positive(xp, xp.where(mirrored, 1 - x, x))
    sine = abs(xp.sin(_fraction(xp, xp.where(mirrored, x, 0.5)) * math.pi))
    pole = sine == 0
    y = xp.where(mirrored, math.log(math.pi) - xp.log(xp.where(pole, 1.0, sine)) - y, y)
    return xp.where(xp.logical_or(infinite, pole), math.inf, y).astype(dtype)


def _digamma_of(xp: Any, x: Any) -> Any:
    mirrored = x < 0.5
    z = xp.where(mirrored, 1 - x, x)
    y = 0.0
    small = z < _SHIFT
    for k in range(_SHIFT):
        y = y - xp.where(small, 1 / (xp.where(small, z, 1.0) + k), 0.0)
    z = xp.where(small, z + _SHIFT, z)
    inverse = 1 / z
    square = inverse * inverse
    y = y + xp.log(z) - 0.5 * inverse - square * _polynomial(square, [
        _BERNOULLI[k - 1] / (2 * k) for k in range(8, 0, -1)])
    angle = _fraction(xp, xp.where(mirrored, x, 0.25)) * math.pi
    pole = xp.logical_and(mirrored, angle == 0)
    y = y - xp.where(mirrored, math.pi * xp.cos(angle) / xp.sin(xp.where(pole, 1.0, angle)), 0.0)
    return xp.where(pole, xp.where(x == 0, -math.inf, math.nan), y)


@_lgamma.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, dtype: str) -> Any:
    return gy * _digamma_of(xp, x.astype("float64")).astype(dtype),


@elementwise("DiGamma", kind="f")
def _digamma(xp: Any, x: Any, dtype: str = "float64") -> Any:
    return _digamma_of(xp, x.astype("float64")).astype(dtype)


@_digamma.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, dtype: str) -> Any:
    x = x.astype("float64")
    mirrored = x < 0.5
    angle = _fraction(xp, xp.where(mirrored, x, 0.5)) * math.pi
    z = _zeta_of(xp, 2.0, xp.where(mirrored, 1 - x, x))
    return gy * xp.where(mirrored, xp.square(math.pi / xp.sin(angle)) - z, z).astype(dtype),


_TERMS = 10  # added one by one before the integral takes over


def _zeta_of(xp: Any, s: Any, q: Any) -> Any:
    """The sum of ``(q + k) ** -s`` for positive q: terms, an integral, and Euler and Maclaurin's corrections."""
    y: Any = q ** -s
    for k in range(1, _TERMS):
        y = y + (q + k) ** -s
    a = q + _TERMS
    power = a ** -s
    inverse = 1 / (a * a)
    y = y + power * a / (s - 1) + 0.5 * power
    term = power * s / a
    for k in range(1, len(_BERNOULLI) + 1):
        y = y + term * (_BERNOULLI[k - 1] / math.factorial(2 * k))
        term = term * ((s + (2 * k - 1)) * (s + 2 * k)) * inverse
    return y


@elementwise("Zeta", kind="f")
def _zeta(xp: Any, x: Any, q: Any, dtype: str = "float64") -> Any:
    x, q = x.astype("float64"), q.astype("float64")
    s, below = xp.maximum(x, 1 + 1e-9), xp.maximum(xp.ceil(-q), 0.0)
    y = xp.where(q > 0, _zeta_of(xp, s, xp.where(q > 0, q, 1.0)), math.nan)
    y = xp.where(xp.logical_and(q <= 0, below == -q), math.inf, y)
    return xp.where(x > 1, y, xp.where(x == 1, math.inf, math.nan)).astype(dtype)


@_zeta.gradient
def _(xp: Any, gy: Any, y: Any, x: Any, q: Any, dtype: str) -> Any:
    s = x.astype("float64")
    return None, gy * (-s * _zeta_of(xp, s + 1, q.astype("float64"))).astype(dtype)


@elementwise("PolyGamma")
def _polygamma(xp: Any, n: Any, x: Any, dtype: str = "float64") -> Any:
    n, x = n.astype("float64"), x.astype("float64")
    y = _signed_factorial(xp, n) * _zeta_of(xp, xp.maximum(n + 1, 2.0), xp.where(x > 0, x, math.nan))
    return xp.where(n == 0, _digamma_of(xp, x), y).astype(dtype)


def _signed_factorial(xp: Any, n: Any) -> Any:
    sign = 1 - 2 * xp.floor(n * 0.5 + 0.5) + 2 * xp.floor(n * 0.5)  # of (-1) ** n
    return -sign * xp.rint(xp.exp(_lgamma_positive(xp, n + 1)))


@_polygamma.gradient
def _(xp: Any, gy: Any, y: Any, n: Any, x: Any, dtype: str) -> Any:
    n, x = n.astype("float64"), x.astype("float64")
    steep = -(n + 1) * _signed_factorial(xp, n) * _zeta_of(xp, n + 2, xp.where(x > 0, x, math.nan))
    return None, gy * steep.astype(dtype)


def lgamma(x: Any) -> Variable:
    """Logarithm of the absolute value of the gamma function.

    Args:
        x: Floating-point input.

    Raises:
        InvalidType: ``x`` is not floating-point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> np.exp(F.lgamma(np.array([1, 5], "f")).array).round(4)
    array([ 1., 24.], dtype=float32)
    """
    x = as_variable(x)
    return _lgamma(x, dtype=x.dtype.name)


def digamma(x: Any) -> Variable:
    """Derivative of the logarithm of the gamma function.

    Args:
        x: Floating-point input.

    Raises:
        InvalidType: ``x`` is not floating-point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.digamma(np.array([1], "f")).array.round(4)
    array([-0.5772], dtype=float32)
    """
    x = as_variable(x)
    return _digamma(x, dtype=x.dtype.name)


def polygamma(n: Any, x: Any) -> Variable:
    """Derivative number ``n`` of `digamma`.

    Args:
        n: Integers of at least 0.
        x: Floating-point input that broadcasts with ``n``; NaN comes out where it is not positive, except of `digamma`.

    Raises:
        InvalidType: ``n`` holds no integers, or ``x`` is not floating-point.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.polygamma(np.array([1], "i"), np.array([1], "f")).array.round(4)
    array([1.6449], dtype=float32)
    """
    n, x = as_variable(n), as_variable(x)
    for name, v, kind in (("n", n, "i"), ("x", x, "f")):
        if v.dtype.kind != kind:
            raise type_check.InvalidType(f"{name}.dtype.kind == {kind}", f"{v.dtype.kind} != {kind}",
                                         "\nInvalid operation is performed in: PolyGamma (Forward)")
    return _polygamma(n, x, dtype=x.dtype.name)


def zeta(x: Any, q: Any) -> Variable:
    """Hurwitz' zeta function, the sum of ``1 / (q + k) ** x`` over ``k = 0, 1, …``.

    Args:
        x: Floating-point exponents, greater than 1; no gradient flows to them.
        q: Floating-point, positive.

    Returns:
        Variable: NaN where ``x`` is less than 1 or ``q`` negative; infinite where the sum is.

    Raises:
        InvalidType: An input is not floating-point, or the shapes or dtypes do not fit.

    >>> import numpy as np
    >>> import kusari.functions as F
    >>> F.zeta(np.array([2, 2], "f"), np.array([1, 2], "f")).array.round(4)
    array([1.6449, 0.6449], dtype=float32)
    """
    x, q = as_variable(x), as_variable(q)
    return _zeta(x, q, dtype=q.dtype.name)
