"""Indices in texts: Python computes with known ones, instructions with the others."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .emitter import Emitter


class I64:
    """An i64 that is known when the kernel runs, held by the SSA value ``ssa``.

    Its operators write instructions, but none for what changes nothing. Operands of a division are not negative.
    """

    __slots__ = ("em", "ssa")

    def __init__(self, em: Emitter, ssa: str) -> None:
        self.em, self.ssa = em, ssa

    def __str__(self) -> str:
        return self.ssa

    def __add__(self, other: Index) -> Index:
        return self if other == 0 else self.em.i64(f"add nsw i64 {self}, {other}")

    __radd__ = __add__

    def __sub__(self, other: Index) -> Index:
        return self if other == 0 else self.em.i64(f"sub nsw i64 {self}, {other}")

    def __rsub__(self, other: int) -> Index:
        return self.em.i64(f"sub nsw i64 {other}, {self}")

    def __mul__(self, other: Index) -> Index:
        return 0 if other == 0 else self if other == 1 else self.em.i64(f"mul nsw i64 {self}, {other}")

    __rmul__ = __mul__

    def __floordiv__(self, other: Index) -> Index:
        return self if other == 1 else self.em.i64(f"udiv i64 {self}, {other}")

    def __rfloordiv__(self, other: int) -> Index:
        return self.em.i64(f"udiv i64 {other}, {self}")


Index = int | I64
