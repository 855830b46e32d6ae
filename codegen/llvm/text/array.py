"""Elements in memory by their address."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .emitter import Emitter, Index
from .types import size_of


class Array(NamedTuple):
    """The elements from ``pointer`` on, of LLVM type ``element``; vectors hold ``width`` of them."""

    em: Emitter
    element: str
    width: int
    pointer: str

    def __str__(self) -> str:
        """The address, as an operand of an instruction or a call."""
        return self.pointer

    def at(self, index: Index) -> Array:
        """The elements from number ``index`` on."""
        return Array(self.em, self.element, self.width, self.em.gep(self.pointer, index, self.element))

    def load(self, index: Index = 0, valid: int | None = None) -> str:
        """A vector of neighbours; only the first ``valid`` are read, the others are zero."""
        return self.em.load(self.element, self.width, self.em.gep(self.pointer, index, self.element), valid)

    def store(self, x: str, index: Index = 0, valid: int | None = None) -> None:
        """Write a vector of neighbours, or only the first ``valid``."""
        self.em.store(self.element, self.width, x, self.em.gep(self.pointer, index, self.element), valid)

    def one(self, index: Index = 0) -> str:
        """A single element."""
        return self.em.load(self.element, 1, self.em.gep(self.pointer, index, self.element))

    def put(self, x: str, index: Index = 0) -> None:
        """Write a single element."""
        self.em.store(self.element, 1, x, self.em.gep(self.pointer, index, self.element))

    def spread(self, index: Index = 0) -> str:
        """A vector of copies of an element."""
        return self.em.broadcast(self.element, self.width, self.one(index))

    def clear(self, count: Index, begin: Index = 0) -> None:
        """Write zeros to ``count`` elements from number ``begin`` on."""
        size = count * size_of(self.element)
        self.em.clear(self.em.gep(self.pointer, begin, self.element), size)

    def turned(self, places: Sequence[Index], valid: int | None = None) -> list[str]:
        """The vectors at up to ``width`` ``places`` as columns: vector ``k`` has element ``k`` of each, then zeros."""
        rows = [self.load(place, valid) for place in places]
        return self.em.transpose(self.element, [*rows, *["zeroinitializer"] * (self.width - len(rows))])
