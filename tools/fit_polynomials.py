"""Prints the coefficients of ``codegen/llvm/scalar/polynomials.py``: interpolation at Chebyshev nodes, in 100 digits.

    python tools/fit_polynomials.py > codegen/llvm/scalar/polynomials.py

Interpolation at these nodes is within a small factor of the best polynomial of its degree. Each row gives a
function of the interval's variable whose value is the factor that stands in the formula of ``elementary.py``.
"""
from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal as D
from decimal import getcontext

getcontext().prec = 130
ROWS: list[tuple[str, str, int, D, D, Callable[[D], D]]] = []


def pi() -> D:
    """Machin's formula."""
    def arctan_inverse(n: int) -> D:
        total, term, k = D(0), D(1) / n, 0
        while abs(term) > D(10) ** -125:
            total += (term if k % 2 == 0 else -term) / (2 * k + 1)
            term /= n * n
            k += 1
        return total
    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


PI = pi()
LN2 = D(2).ln()


def series(first: D, ratio: Callable[[int], D]) -> D:
    """``first * (1 + ratio(1) * (1 + ratio(2) * …))`` until the terms vanish."""
    total, term, k = first, first, 0
    while abs(term) > D(10) ** -125:
        k += 1
        term *= ratio(k)
        total += term
    return total


def sin(x: D) -> D:
    return series(x, lambda k: -x * x / (2 * k * (2 * k + 1)))


def cos(x: D) -> D:
    return series(D(1), lambda k: -x * x / ((2 * k - 1) * (2 * k)))


def arctan(x: D) -> D:
    total, power, k = D(0), x, 0
    while abs(power) > D(10) ** -125:
        total += (power if k % 2 == 0 else -power) / (2 * k + 1)
        power *= x * x
        k += 1
    return total


def erf(x: D) -> D:
    return 2 / PI.sqrt() * (-x * x).exp() * series(x, lambda k: 2 * x * x / (2 * k + 1))


def fit(degree: int, lo: D, hi: D, f: Callable[[D], D]) -> list[D]:
    """Coefficients, constant first, of the polynomial through ``f`` at the Chebyshev nodes of ``[lo, hi]``."""
    n = degree + 1
    nodes = [(lo + hi) / 2 + (hi - lo) / 2 * cos(PI * (2 * i + 1) / (2 * n)) for i in range(n)]
    table = [f(x) for x in nodes]
    for order in range(1, n):                     # Newton's divided differences …
        for i in range(n - 1, order - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (nodes[i] - nodes[i - order])
    poly = [D(0)] * n
    for c, x in zip(reversed(table), reversed(nodes), strict=True):   # … multiplied out
        poly = [c - x * poly[0]] + [poly[i - 1] - x * poly[i] for i in range(1, n)]
    return poly


def row(name: str, meaning: str, degree: int, lo: D, hi: D, f: Callable[[D], D]) -> None:
    ROWS.append((name, meaning, degree, lo, hi, f))


def both(name: str, meaning: str, degrees: tuple[int, int], lo: D, hi: D, f: Callable[[D], D]) -> None:
    for bits, degree in zip((32, 64), degrees, strict=True):
        row(f"{name}_{bits}", meaning, degree, lo, hi, f)


HALF_LN2 = LN2 / 2 * D("1.001")
QUARTER_PI = (PI / 4 * D("1.001")) ** 2
ERFC_C = D(2)   # u = (x - 2) / (x + 2) maps [0, 10.2] onto [-1, 0.68]

both("EXP", "(exp(r) - 1 - r) / r², |r| <= ln(2)/2", (5, 11), -HALF_LN2, HALF_LN2,
     lambda r: (r.exp() - 1 - r) / r / r)
# The interval is not symmetric: a node at zero would divide zero by zero.
both("EXP2", "(2**r - 1) / r, |r| <= 1/2", (6, 12), D("-0.5"), D("0.501"), lambda r: ((r * LN2).exp() - 1) / r)
row("LOG_32", "(log(1 + f) - f + f²/2) / f³, 3/4 <= 1 + f <= 3/2", 8, D("-0.2505"), D("0.5005"),
    lambda f: ((1 + f).ln() - f + f * f / 2) / f ** 3)
row("LOG_64", "(2 atanh(s) / s - 2) / z with z = s², s = f / (2 + f)", 7, D(0), D("0.02945"),
    lambda z: (((1 + z.sqrt()) / (1 - z.sqrt())).ln() / z.sqrt() - 2) / z)
row("LOG_36", "the same to 36 bits, for results that are rounded to float32", 4, D(0), D("0.02945"),
    lambda z: (((1 + z.sqrt()) / (1 - z.sqrt())).ln() / z.sqrt() - 2) / z)
row("EXP2_36", "(2**r - 1) / r to 36 bits", 7, D("-0.501"), D("0.501"), lambda r: ((r * LN2).exp() - 1) / r)
row("LOG2_CUBIC_32", "(log2(1 + z) - (z - z²/2) / ln(2)) / z³, -0.04 <= z <= 1/16", 5, D("-0.0401"), D("0.0626"),
    lambda z: ((1 + z).ln() - z + z * z / 2) / z ** 3 / LN2)
both("SIN", "(sin(r) - r) / r³ of z = r², |r| <= pi/4", (3, 7), D(0), QUARTER_PI,
     lambda z: (sin(z.sqrt()) - z.sqrt()) / (z * z.sqrt()))
both("COS", "(cos(r) - 1 + r²/2) / r⁴ of z = r², |r| <= pi/4", (3, 6), D(0), QUARTER_PI,
     lambda z: (cos(z.sqrt()) - 1 + z / 2) / z ** 2)
both("ARCTAN", "(arctan(u) - u) / u³ of z = u², |u| <= sqrt(2) - 1", (4, 11), D(0), D("0.1717"),
     lambda z: (arctan(z.sqrt()) - z.sqrt()) / (z * z.sqrt()))
row("ERF_32", "erf(x) / x - 1 of z = x², |x| <= 0.875", 6, D(0), D("0.7657"), lambda z: erf(z.sqrt()) / z.sqrt() - 1)
row("ERF_TAIL_32", "-log(1 - erf(x)), 0.875 <= x <= 4", 11, D("0.874"), D("4.001"), lambda x: -(1 - erf(x)).ln())
row("ERFC_32", "exp(x²) erfc(x) (1 + 2 x) of u = (x - 2) / (x + 2), 0 <= x <= 10.2", 14, D(-1), D("0.673"),
    lambda u: (lambda x: (x * x).exp() * (1 - erf(x)) * (1 + 2 * x))(2 * (1 + u) / (1 - u)))


def erf_pieces() -> list[list[D]]:
    """For the sixteenths of [0, 4): ``erf(c) + r Q(r)`` with c = n/4, |r| <= 1/8; around zero ``r + r Q(r)``.

    Values of all pieces for one power of r stand together, the constant first, as they are looked up.
    """
    lo, hi = D("-0.1251"), D("0.1251")
    pieces = [[D(0), *fit(5, lo, hi, lambda r: erf(r) / r - 1)]]
    for n in range(1, 16):
        c = D(n) / 4
        at = erf(c)
        pieces.append([at, *fit(5, lo, hi, lambda r, c=c, at=at: (erf(c + r) - at) / r)])
    return [list(column) for column in zip(*pieces, strict=True)]


def reciprocals() -> list[D]:
    """For the sixteenths of the mantissas, of 3/4 to 3/2, the multiple of 1/32 nearest to the middle's reciprocal.

    Products with floats, less 1, are floats. Around 1 it is 1, so that the logarithm is exact there.
    """
    found: list[D] = []
    for i in range(16):
        middle = (1 + (D(i) + D("0.5")) / 16) / (1 if i < 8 else 2)
        found.append(D(1) if i in (0, 15) else (32 / middle).to_integral_value() / 32)
    return found


def quarters(values: list[D], indent: str) -> None:
    """Print sixteen numbers, four to a line."""
    for at in range(0, 16, 4):
        print(f"{indent}{', '.join(repr(float(c)) for c in values[at:at + 4])},")


def main() -> None:
    """Write the module."""
    print('"""Coefficients of the elementary functions, constant term first; '
          'written by ``tools/fit_polynomials.py``."""\nfrom math import log2')
    for name, meaning, degree, lo, hi, f in ROWS:
        print(f"\n# {meaning}")
        print(f"{name} = (")
        for c in fit(degree, lo, hi, f):
            print(f"    {float(c)!r},")
        print(")")
    print("\n# erf(n/4 + r), n = 0 ... 15, |r| <= 1/8: for each power of r the coefficients of the sixteen pieces")
    print("ERF_PIECES_32 = (")
    for column in erf_pieces():
        print("    (")
        quarters(column, "        ")
        print("    ),")
    print(")")
    print("\n# r about 1 / m, for sixteen intervals of the mantissa m in [3/4, 3/2)\nRECIPROCAL_32 = (")
    quarters(reciprocals(), "    ")
    print(")")
    # High parts are multiples of 2**-16, so that sums with exponents are floats.
    print("\n# -log2(r) in 16 bits behind the point, and the remainder")
    print("LOG2_HIGH_32 = tuple(round(-log2(r) * 65536) / 65536 for r in RECIPROCAL_32)")
    print("LOG2_LOW_32 = tuple(-log2(r) - high for r, high in zip(RECIPROCAL_32, LOG2_HIGH_32, strict=True))")


if __name__ == "__main__":
    main()
