"""Register tiles: sums of products that stay in registers along a contraction. All multiply-adds of sums are here."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ..text.array import Array
from ..text.emitter import Carried, Emitter, Index
from ..text.types import vector


class Factors(NamedTuple):
    """One operand of a tile: factor ``i`` of step ``p`` is at ``p * step + offsets[i]`` of ``array``.

    It is a vector, of which ``valid[i]`` elements are read (all for None), or under ``broadcast`` an element copied to
    all lanes.
    """

    array: Array
    step: Index
    offsets: Sequence[int]
    broadcast: bool = False
    valid: Sequence[int | None] | None = None

    def at(self, p: Index = 0) -> Iterator[str]:
        """The factors of step ``p``, each read when it is asked for."""
        start = self.array.at(p * self.step)
        for i, offset in enumerate(self.offsets):
            yield start.spread(offset) if self.broadcast else start.load(offset, self.valid[i] if self.valid else None)


class Tile(NamedTuple):
    """Sums of vectors of ``width`` elements: a list of a few rows of a few vectors each, row by row."""

    em: Emitter
    element: str
    width: int

    def add(self, rows: Iterable[str], columns: Sequence[str], sums: Sequence[str]) -> list[str]:
        """``sums`` plus the products of each row's factor and each column's.

        The factors of ``rows`` may be written one by one, each right before its products: so few registers hold them.
        """
        result: list[str] = []
        for x in rows:
            result += [self.em.fma(self.element, self.width, x, y, sums[len(result) + j])
                       for j, y in enumerate(columns)]
        return result

    def carried(self, sums: Sequence[str]) -> Carried:
        """Sums that a loop carries."""
        return Carried([vector(self.element, self.width)] * len(sums), list(sums))

    def product(self, rows: Factors, columns: Factors, depth: Index, initial: Sequence[str],
                ahead: Callable[[Index], None] | None = None) -> list[str]:
        """The sums over ``depth`` steps; ``ahead`` writes further work of a step."""
        sums = self.carried(initial)
        for p in self.em.each(0, depth, carried=sums):
            if ahead is not None:
                ahead(p)
            sums.values = self.add_step(rows, columns, p, sums.values)
        return sums.values

    def multiply(self, rows: Factors, columns: Factors, depth: Index, place: Array, stride: int, add: bool,
                 ahead: Callable[[Index], None] | None = None) -> None:
        """Store a ``product``, or add it to the sums there, in rows of ``stride`` elements."""
        height, vectors = len(rows.offsets), len(columns.offsets)
        initial = self.load(place, stride, height, vectors) if add else self.zeros(height, vectors)
        self.store(self.product(rows, columns, depth, initial, ahead), place, stride, vectors)

    def add_step(self, rows: Factors, columns: Factors, p: Index, sums: Sequence[str]) -> list[str]:
        """``sums`` plus the products of step ``p``."""
        ys = list(columns.at(p))
        return self.add(rows.at(p), ys, sums)

    def zeros(self, rows: int, vectors: int = 1) -> list[str]:
        """A tile of zeros."""
        return ["zeroinitializer"] * (rows * vectors)

    def neighbours(self, count: int) -> list[int]:
        """The offsets of ``count`` vectors behind each other."""
        return [j * self.width for j in range(count)]

    def load(self, place: Array, stride: int, rows: int, vectors: int) -> list[str]:
        """A tile from rows of ``stride`` elements in memory."""
        return [place.load(i * stride + at) for i in range(rows) for at in self.neighbours(vectors)]

    def store(self, sums: Iterable[str], place: Array, stride: int, vectors: int) -> None:
        """Store a tile in rows of ``stride`` elements."""
        for k, x in enumerate(sums):
            place.store(x, k // vectors * stride + k % vectors * self.width)
