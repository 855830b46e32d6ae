"""A vector value with operators, so that formulas read as formulas."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from .emitter import Emitter
from .types import splat, vector

_BITS = {"half": "i16", "float": "i32", "double": "i64"}
MANTISSA = {"float": 23, "double": 52}


class Lanes:
    """``width`` elements of LLVM type ``element`` held by the SSA value ``ssa``.

    Operators take another ``Lanes`` or a Python number. No fast-math flags: every operation rounds as written.
    """

    __slots__ = ("element", "em", "ssa", "width")

    def __init__(self, em: Emitter, element: str, width: int, ssa: str) -> None:
        self.em, self.element, self.width, self.ssa = em, element, width, ssa

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self.element in _BITS

    def like(self, value: float | int) -> Lanes:
        """A literal of the same type."""
        return Lanes(self.em, self.element, self.width, splat(self.element, self.width, value))

    def _other(self, x: Lanes | float | int) -> Lanes:
        return x if isinstance(x, Lanes) else self.like(x)

    def _make(self, ssa: str, element: str | None = None) -> Lanes:
        return Lanes(self.em, element or self.element, self.width, ssa)

    def op(self, name: str, other: Lanes | float | int) -> Lanes:
        """A two-operand instruction."""
        return self._make(self.em.binary(name, self.element, self.width, self.ssa, self._other(other).ssa))

    def __add__(self, other: Lanes | float | int) -> Lanes:
        return self.op("fadd" if self.is_float else "add", other)

    def __sub__(self, other: Lanes | float | int) -> Lanes:
        return self.op("fsub" if self.is_float else "sub", other)

    def __mul__(self, other: Lanes | float | int) -> Lanes:
        return self.op("fmul" if self.is_float else "mul", other)

    def __truediv__(self, other: Lanes | float | int) -> Lanes:
        return self.op("fdiv", other)

    def __and__(self, other: Lanes | float | int) -> Lanes:
        return self.op("and", other)

    def __or__(self, other: Lanes | float | int) -> Lanes:
        return self.op("or", other)

    def __xor__(self, other: Lanes | float | int) -> Lanes:
        return self.op("xor", other)

    def __neg__(self) -> Lanes:
        if not self.is_float:
            return self.like(0) - self
        return self._make(self.em.value(f"fneg {vector(self.element, self.width)} {self.ssa}"))

    def __invert__(self) -> Lanes:
        return self ^ -1 if self.element != "i1" else self ^ 1

    def fma(self, factor: Lanes | float, term: Lanes | float) -> Lanes:
        """``self * factor + term``."""
        a, b = self._other(factor).ssa, self._other(term).ssa
        return self._make(self.em.fma(self.element, self.width, self.ssa, a, b))

    def call(self, name: str, *others: Lanes | float | int) -> Lanes:
        """An intrinsic of this type, as ``sqrt`` or ``copysign``."""
        return self._make(self.em.intrinsic(name, self.element, self.width, self.ssa,
                                            *(self._other(x).ssa for x in others)))

    def compare(self, predicate: str, other: Lanes | float | int) -> Lanes:
        """``fcmp`` or ``icmp``; the result has elements ``i1``."""
        kind = "fcmp" if self.is_float else "icmp"
        ty = vector(self.element, self.width)
        return self._make(self.em.value(f"{kind} {predicate} {ty} {self.ssa}, {self._other(other).ssa}"), "i1")

    def choose(self, yes: Lanes, no: Lanes | float | int) -> Lanes:
        """``yes`` where this is set (elements ``i1``), else ``no``."""
        other = no if isinstance(no, Lanes) else yes.like(no)
        return yes._make(self.em.select(yes.element, yes.width, self.ssa, yes.ssa, other.ssa))

    def cast(self, op: str, element: str) -> Lanes:
        """A conversion instruction, as ``sitofp`` or ``zext``."""
        old, new = vector(self.element, self.width), vector(element, self.width)
        return self._make(self.em.value(f"{op} {old} {self.ssa} to {new}"), element)

    def bits(self) -> Lanes:
        """The bits of floats as integers."""
        return self.cast("bitcast", _BITS[self.element])

    def above(self, bound: float) -> Lanes:
        """The larger of this and a number; NaN stays NaN."""
        return self.like(bound).compare("ogt", self).choose(self.like(bound), self)

    def below(self, bound: float) -> Lanes:
        """The smaller of this and a number; NaN stays NaN."""
        return self.like(bound).compare("olt", self).choose(self.like(bound), self)

    def if_any(self, then: Callable[[], Lanes], otherwise: Lanes) -> Lanes:
        """``then()`` if any of these (``i1``) is set, else ``otherwise``: a branch."""
        (ssa,) = self.em.when(self.any(), lambda: [then().ssa], lambda: [otherwise.ssa],
                              [vector(otherwise.element, otherwise.width)])
        return otherwise._make(ssa)

    def any(self) -> str:
        """One i1: whether any element (``i1``) is set."""
        if self.width & (self.width - 1) == 0:
            return self.em.horizontal("or", "i1", self.width, self.ssa)
        parts = [self.em.lane("i1", self.width, self.ssa, i) for i in range(self.width)]
        return reduce(lambda a, b: self.em.binary("or", "i1", 1, a, b), parts)


def horner(x: Lanes, coefficients: Sequence[float]) -> Lanes:
    """The polynomial in ``x``, constant coefficient first."""
    result = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result.fma(x, c)
    return result


def per_lane(x: Lanes, symbol: str, *others: Lanes) -> Lanes:
    """A function of the C library, lane by lane in double precision."""
    em = x.em
    em.declare(f"double @{symbol}({', '.join(['double'] * (1 + len(others)))})")
    wide = [v if v.element == "double" else v.cast("fpext", "double") for v in (x, *others)]

    def one(i: int) -> str:
        parts = [v.ssa if x.width == 1 else em.lane("double", x.width, v.ssa, i) for v in wide]
        return em.value(f"call double @{symbol}({', '.join(f'double {p}' for p in parts)})")
    out = Lanes(em, "double", x.width, em.collect("double", x.width, map(one, range(x.width))))
    return out if x.element == "double" else out.cast("fptrunc", x.element)
