"""The matrices of fast convolution with three taps, and how products with them are written.

``F(m, r)`` computes ``m`` neighbouring outputs of a filter of ``r`` taps with ``m + r - 1`` multiplications: with
``d`` the inputs and ``g`` the taps, ``y = A (G g * B d)``. The matrices follow from the values of polynomials at
``m + r - 2`` points and at infinity (Toom and Cook; Winograd). In two dimensions they are applied to both sides.

Which points are taken decides the rounding errors. For four outputs those in the literature, 0, ±1, ±2, lose five
times as much as the points here, 0, ±3/2, ±5/8: with them the errors are about those of sums in another order.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from ...text.types import splat

if TYPE_CHECKING:
    from ...text.emitter import Emitter

Matrix = tuple[tuple[Fraction, ...], ...]

POINTS: dict[int, tuple[Fraction, ...]] = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(3, 2), Fraction(-3, 2), Fraction(5, 8), Fraction(-5, 8)),
}
"""The finite points, by the number of outputs; all coefficients of ``B`` and ``A`` are exact in float32."""

STRIDED_POINTS: dict[int, tuple[Fraction, ...]] = {
    4: (Fraction(3, 2), Fraction(-3, 2), Fraction(1, 2), Fraction(-1, 2)),
}
"""The same for two taps; the errors are about those of sums in another order, with 0, ±1, 2 twice as large."""


@dataclass(frozen=True)
class Algebra:
    """``y = out (taps g * data d)`` in one dimension."""

    data: Matrix
    taps: Matrix
    out: Matrix


@lru_cache(maxsize=8)
def algebra(outputs: int, taps: int, points: tuple[Fraction, ...]) -> Algebra:
    """``F(outputs, taps)`` from ``outputs + taps - 2`` different points and infinity.

    The divisors of the interpolation stand with the taps; ``scaled_out`` moves them to the other side.
    """
    if len(points) != outputs + taps - 2 or len(set(points)) != len(points):
        raise ValueError(f"expected {outputs + taps - 2} different points, got {points}")
    rows = [_product([p for p in points if p != q]) + [Fraction(0)] for q in points] + [_product(points)]
    divisors = [_value(row, q) for row, q in zip(rows, points, strict=False)]
    powers = [[p ** k / f for k in range(taps)] for p, f in zip(points, divisors, strict=True)]
    last = [Fraction(k == taps - 1) for k in range(taps)]
    out = [[p ** k for p in points] + [Fraction(k == outputs - 1)] for k in range(outputs)]
    return Algebra(_matrix(rows), _matrix([*powers, last]), _matrix(out))


def forward_algebra(tile: int) -> Algebra:
    """Of convolution: tiles of ``tile`` outputs, three taps."""
    return algebra(tile, 3, POINTS[tile])


def strided_algebra(tile: int) -> Algebra:
    """Of the phases of convolution with strides of two: tiles of ``tile`` outputs, two taps."""
    return algebra(tile, 2, STRIDED_POINTS[tile])


def gradient_algebra(tile: int) -> Algebra:
    """Of the gradient of the weights: three outputs, and the ``tile`` gradients of a tile are the taps.

    There are many tiles and few weights, so the divisors stand with the output.
    """
    plain = algebra(3, tile, POINTS[tile])
    scale = [next(x for x in row if x) for row in plain.taps]
    taps = [[x / s for x in row] for row, s in zip(plain.taps, scale, strict=True)]
    out = [[x * s for x, s in zip(row, scale, strict=True)] for row in plain.out]
    return Algebra(plain.data, _matrix(taps), _matrix(out))


def _matrix(rows: Sequence[Sequence[Fraction]]) -> Matrix:
    return tuple(tuple(row) for row in rows)


def _product(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the polynomial with these roots, from the constant up."""
    result = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *result], [*(root * c for c in result), Fraction(0)]
        result = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return result


def _value(coefficients: Sequence[Fraction], x: Fraction) -> Fraction:
    return sum((c * x ** k for k, c in enumerate(coefficients)), Fraction(0))


Grid = list[list[str]]


class Transform:
    """Writes ``M X`` and ``M X Mᵀ`` on vectors of ``width`` float32.

    Rows and columns of points ``p`` and ``-p`` differ in signs only: common terms are computed once, which halves the
    arithmetic. Invariant: no term is left out because its value might be zero, so NaN and infinity arrive.
    """

    def __init__(self, em: Emitter, matrix: Matrix, width: int) -> None:
        self._em = em
        self._matrix = matrix
        self._width = width

    def both(self, grid: Grid) -> Grid:
        """``M X Mᵀ``."""
        columns = [self.one([row[j] for row in grid]) for j in range(len(grid[0]))]
        return [self.one([column[i] for column in columns]) for i in range(len(self._matrix))]

    def one(self, xs: Sequence[str]) -> list[str]:
        """``M x`` for a column of vectors."""
        rows: list[list[tuple[Fraction, str]]] = [[] for _ in self._matrix]
        taken: set[int] = set()
        for j, x in enumerate(xs):
            if j in taken:
                continue
            other = next((k for k in range(j + 1, len(xs)) if k not in taken and self._mirrored(j, k)), None)
            if other is None:
                for i, row in enumerate(self._matrix):
                    rows[i].append((row[j], x))
                continue
            taken.add(other)
            total = self._binary("fadd", x, xs[other])
            difference = self._binary("fsub", x, xs[other])
            for i, row in enumerate(self._matrix):
                rows[i].append((row[j], total if row[j] == row[other] else difference))
        return self._sums([[t for t in row if t[0]] for row in rows])

    def _mirrored(self, j: int, k: int) -> bool:
        """Whether columns ``j`` and ``k`` have equal elements but for signs, of both kinds."""
        pairs = [(row[j], row[k]) for row in self._matrix]
        return all(abs(a) == abs(b) for a, b in pairs) and len({a == b for a, b in pairs if a}) == 2

    def _sums(self, rows: Sequence[Sequence[tuple[Fraction, str]]]) -> list[str]:
        result: list[str | None] = [None] * len(rows)
        for i, row in enumerate(rows):
            if result[i] is not None:
                continue
            for k in range(i + 1, len(rows)):
                signs = [a == b for (a, _), (b, _) in zip(row, rows[k], strict=False)]
                same = len(row) == len(rows[k]) and all(
                    x == y and abs(a) == abs(b) for (a, x), (b, y) in zip(row, rows[k], strict=True))
                if result[k] is None and same and len(set(signs)) == 2:
                    even = self._sum([t for t, s in zip(row, signs, strict=True) if s])
                    odd = [t for t, s in zip(row, signs, strict=True) if not s]
                    lead = odd[0][0]
                    rest = self._sum([(c / lead, x) for c, x in odd])
                    result[i], result[k] = self._add(even, lead, rest), self._add(even, -lead, rest)
                    break
            else:
                result[i] = self._sum(row)
        return [x for x in result if x is not None]

    def _sum(self, terms: Sequence[tuple[Fraction, str]]) -> str:
        """The sum of ``c * x``, terms whose factor is one first."""
        ordered = sorted(terms, key=lambda t: (t[0] != 1, abs(t[0]) != 1))
        c, first = ordered[0]
        total = first if c == 1 else self._binary("fmul", first, self._splat(c))
        for c, x in ordered[1:]:
            total = self._add(total, c, x)
        return total

    def _add(self, total: str, c: Fraction, x: str) -> str:
        """``total + c x``."""
        if abs(c) == 1:
            return self._binary("fadd" if c == 1 else "fsub", total, x)
        return self._em.fma("float", self._width, x, self._splat(c), total)

    def _binary(self, op: str, a: str, b: str) -> str:
        return self._em.binary(op, "float", self._width, a, b)

    def _splat(self, c: Fraction) -> str:
        return splat("float", self._width, float(c))
