"""Register tiles: sums of products that stay in registers along a contraction. All multiply-adds of sums are here."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..text.emitter import Emitter, Index
from ..text.types import vector

Step = Callable[[Index, list[str]], list[str]]


@dataclass(frozen=True)
class Factors:
    """One operand of a tile: factor ``i`` of step ``p`` is ``p * step + offsets[i]`` elements after ``pointer``.

    It is a vector, of which ``valid[i]`` elements are read (all for None), or under ``broadcast`` an element copied to
    all lanes.
    """

    pointer: str
    step: Index
    offsets: Sequence[int]
    broadcast: bool = False
    valid: Sequence[int | None] | None = None


@dataclass(frozen=True)
class Tile:
    """Sums of vectors of ``width`` elements: a list of a few rows of a few vectors each, row by row."""

    em: Emitter
    element: str
    width: int

    @property
    def type(self) -> str:
        """LLVM type of a sum."""
        return vector(self.element, self.width)

    def add(self, rows: Iterable[str], columns: Sequence[str], sums: Sequence[str]) -> list[str]:
        """``sums`` plus the products of each row's factor and each column's.

        The factors of ``rows`` may be written one by one, each right before its products: so few registers hold them.
        """
        result: list[str] = []
        for x in rows:
            result += [self.em.fma(self.element, self.width, x, y, sums[len(result) + j])
                       for j, y in enumerate(columns)]
        return result

    def sum(self, depth: Index, step: Step, initial: Sequence[str], by: int = 1, start: Index = 0) -> list[str]:
        """The sums after ``step`` at all of ``range(start, depth, by)``."""
        return self.em.loop(start, depth, by, step, [(self.type, x) for x in initial], unroll=False)

    def product(self, rows: Factors, columns: Factors, depth: Index, initial: Sequence[str],
                ahead: Callable[[Index], None] | None = None) -> list[str]:
        """The sums over ``depth`` steps; ``ahead`` writes further work of a step."""
        def step(p: Index, sums: list[str]) -> list[str]:
            if ahead is not None:
                ahead(p)
            return self.add_step(rows, columns, p, sums)
        return self.sum(depth, step, initial)

    def add_step(self, rows: Factors, columns: Factors, p: Index, sums: Sequence[str]) -> list[str]:
        """``sums`` plus the products of step ``p``."""
        ys = list(self.factors(columns, p))
        return self.add(self.factors(rows, p), ys, sums)

    def factors(self, operand: Factors, p: Index = 0) -> Iterator[str]:
        """The factors of step ``p``, each read when it is asked for."""
        em, element = self.em, self.element
        start = em.gep(operand.pointer, em.mul(p, operand.step), element)
        for i, offset in enumerate(operand.offsets):
            place = em.gep(start, offset, element)
            if operand.broadcast:
                yield em.broadcast(element, self.width, em.load(element, 1, place))
            else:
                yield em.load(element, self.width, place, operand.valid[i] if operand.valid else None)

    def zeros(self, rows: int, vectors: int = 1) -> list[str]:
        """A tile of zeros."""
        return ["zeroinitializer"] * (rows * vectors)

    def neighbours(self, count: int) -> list[int]:
        """The offsets of ``count`` vectors behind each other."""
        return [j * self.width for j in range(count)]

    def load(self, place: str, stride: int, rows: int, vectors: int) -> list[str]:
        """A tile from rows of ``stride`` elements in memory."""
        offsets = [i * stride + at for i in range(rows) for at in self.neighbours(vectors)]
        return list(self.factors(Factors(place, 0, offsets)))

    def store(self, sums: Sequence[str], place: str, stride: int, vectors: int) -> None:
        """Store a tile in rows of ``stride`` elements."""
        em = self.em
        for k, x in enumerate(sums):
            at = k // vectors * stride + k % vectors * self.width
            em.store(self.element, self.width, x, em.gep(place, at, self.element))
