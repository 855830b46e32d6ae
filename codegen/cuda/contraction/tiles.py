"""Contractions by tiles: the sizes of tiles, factors and their elements, and the work of threads on pieces of them."""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Protocol

from kusari.ir import DType
from kusari.ir.product import Rounding

from ..text.types import type_name

SIDE_THREADS = 16           # of a block's square of threads
BLOCK_THREADS = SIDE_THREADS * SIDE_THREADS
STEP_ELEMENTS = 16          # of the sums, between two barriers
STEP_WORDS = 16             # the same where tensor cores multiply words of one term or two
FULL_CARD_BLOCKS = 264      # two for each multiprocessor of a large card
LEAST_BLOCKS = 128          # of larger tiles, in place of more blocks of smaller ones
PACK_BYTES = 16             # that a thread reads at once
RESIDENT_BLOCKS = 2         # of a multiprocessor, but in double precision
MOST_PARTS = 64             # of a sum that blocks share
LEAST_PART_ELEMENTS = 128


@dataclass(frozen=True)
class Shape:
    """``batch`` products of ``m`` rows and ``n`` columns, sums of ``k`` terms each, ``step`` between two barriers.

    A tile has at least ``least`` rows and columns for each row and column of threads.
    """

    m: int
    n: int
    k: int
    batch: int
    step: int = STEP_ELEMENTS
    least: int = 1

    @property
    def results(self) -> int:
        """The number of sums."""
        return self.batch * self.m * self.n

    @property
    def kernels(self) -> int:
        """The number of kernels, one behind the other."""
        return 1 if self.parts == 1 else 2

    @property
    def per_thread(self) -> tuple[int, int]:
        """Rows and columns of sums that a thread keeps."""
        for rows, columns in ((8, 8), (4, 8), (4, 4), (2, 4), (2, 2)):
            if self.tiles(rows, columns) >= LEAST_BLOCKS:
                return rows, columns
        return self._narrow(self.m), self._narrow(self.n)

    def _narrow(self, extent: int) -> int:
        return max(self.least, 4 if extent > 2 * SIDE_THREADS else 2 if extent > SIDE_THREADS else 1)

    def tiles(self, rows: int, columns: int) -> int:
        """The number of tiles where a thread has so many rows and columns."""
        return -(-self.m // (rows * SIDE_THREADS)) * -(-self.n // (columns * SIDE_THREADS)) * self.batch

    @property
    def part_elements(self) -> int:
        """Terms of a part of a sum: whole steps, unless one part has all."""
        wanted = FULL_CARD_BLOCKS // max(1, self.tiles(*self.per_thread))
        parts = max(1, min(wanted, MOST_PARTS, self.k // LEAST_PART_ELEMENTS))
        return self.k if parts == 1 else -(-self.k // (parts * self.step)) * self.step

    @property
    def parts(self) -> int:
        """The blocks that share a tile."""
        return -(-self.k // self.part_elements) if self.k else 1


@dataclass(frozen=True)
class Factor:
    """Operand ``operand`` as a factor: ``element(line, k)`` is the text of an element within bounds.

    ``element`` writes the lines that this needs, by the names of the element's row or column and of its term.
    ``along_k``: whether neighbours in memory are neighbours along the sums, else along the lines. If ``width`` is more
    than 1, so many of them, the first one at a multiple of ``width``, lie at ``place(line, k)`` and behind it, and at
    a multiple of ``width`` elements. Elements in float32 may have to be ``rounded`` before they are multiplied.
    """

    operand: int
    dtype: DType
    along_k: bool
    element: Callable[[str, str], str]
    place: Callable[[str, str], str] | None = None
    width: int = 1
    rounded: Rounding = ""

    @property
    def terms(self) -> int:
        """How many terms are a word that tensor cores multiply; 0 if they do not."""
        return word_terms(self.dtype, self.rounded)

    def packed(self, most: int) -> int:
        """How many neighbours, at most ``most``, a thread reads at once."""
        return gcd(self.width, most, PACK_BYTES // self.dtype.itemsize) if self.place else 1


#: Writes the lines that store a result, by the names of its row, its column and itself.
Store = Callable[[str, str, str], None]


class Piece(Protocol):
    """A piece of a factor, which waits in registers until shared memory is free."""

    def fetch(self, start: str, last: str) -> None:
        """Read the next piece, terms from ``start`` on, zeros from ``last`` on, into registers."""

    def put(self) -> None:
        """Write the piece to shared memory."""


class Inner(ABC):
    """The work of the threads of a block on ``pieces`` of both factors, ``step`` terms at a time."""

    pieces: Sequence[Piece] = ()

    @abstractmethod
    def begin(self) -> None:
        """Declare sums and the pieces, behind the numbers of the tile."""

    def fetch(self, start: str, last: str) -> None:
        """Read the next pieces of both factors."""
        for piece in self.pieces:
            piece.fetch(start, last)

    def put(self) -> None:
        """Write both pieces to shared memory."""
        for piece in self.pieces:
            piece.put()

    @abstractmethod
    def multiply(self) -> None:
        """Add the products of the pieces in shared memory to the sums."""

    @abstractmethod
    def results(self, store: Store) -> None:
        """Store all sums within bounds."""


def is_half(dtype: DType) -> bool:
    """Whether products of elements are added up in float32."""
    return dtype.kind == "f" and dtype.itemsize == 2


def word_terms(dtype: DType, rounded: Rounding) -> int:
    """How many terms of factors in ``dtype`` are a word of tensor cores; 0 if these do not multiply them."""
    return 1 if rounded == "tf32" else 2 if rounded or is_half(dtype) else 0


def shape_for(m: int, n: int, k: int, batch: int, dtype: DType, rounded: Rounding = "") -> Shape:
    """The shape of products of factors in ``dtype``."""
    terms = word_terms(dtype, rounded)
    return Shape(m, n, k, batch, STEP_WORDS * terms, 2) if terms else Shape(m, n, k, batch)


def sum_type(dtype: DType) -> str:
    """The type of sums in ``dtype``: those of integers wrap around."""
    return type_name(dtype) if dtype.kind == "f" else "u64" if dtype.itemsize == 8 else "u32"


def sum_bytes(dtype: DType) -> int:
    """Bytes of a sum."""
    return 8 if dtype.itemsize == 8 else 4
