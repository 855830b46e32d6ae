"""Contractions by tiles: a block computes a tile of a product, of which each thread keeps a few sums in registers.

Pieces of both factors pass through shared memory. Where there are few tiles and long sums, blocks share the sums of a
tile; a second kernel adds their parts in order and applies the epilogue.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kusari.ir import DType, Kernel

from ..text.kernel import KernelText
from ..text.types import type_name

SIDE_THREADS = 16           # of a block's square of threads
BLOCK_THREADS = SIDE_THREADS * SIDE_THREADS
STEP_ELEMENTS = 16          # of the sums, between two barriers
FULL_CARD_BLOCKS = 264      # two for each multiprocessor of a large card
LEAST_BLOCKS = 128          # of larger tiles, in place of more blocks of smaller ones
PACK_ELEMENTS = 4           # of a factor that a thread reads at once
RESIDENT_BLOCKS = 2         # of a multiprocessor, in single precision
MOST_PARTS = 64             # of a sum that blocks share
LEAST_PART_ELEMENTS = 128


@dataclass(frozen=True)
class Shape:
    """``batch`` products of ``m`` rows and ``n`` columns, sums of ``k`` terms each.

    ``a_along_k``, ``b_along_k``: whether neighbours in memory of a factor are neighbours along the sums.
    """

    m: int
    n: int
    k: int
    batch: int
    a_along_k: bool
    b_along_k: bool

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
        return (4 if self.m > 2 * SIDE_THREADS else 2 if self.m > SIDE_THREADS else 1,
                4 if self.n > 2 * SIDE_THREADS else 2 if self.n > SIDE_THREADS else 1)

    def tiles(self, rows: int, columns: int) -> int:
        """The number of tiles where a thread has so many rows and columns."""
        return -(-self.m // (rows * SIDE_THREADS)) * -(-self.n // (columns * SIDE_THREADS)) * self.batch

    @property
    def parts(self) -> int:
        """The blocks that share a tile."""
        wanted = FULL_CARD_BLOCKS // max(1, self.tiles(*self.per_thread))
        return max(1, min(wanted, MOST_PARTS, self.k // LEAST_PART_ELEMENTS))


#: Writes the lines that an element of a factor needs, by the names of its two numbers; returns its text.
Element = Callable[[str, str], str]
#: Writes the lines that store a result, by the names of its row, its column and itself.
Store = Callable[[str, str, str], None]


def text_of(symbol: str, dtype: DType, operands: Sequence[DType], index: str) -> KernelText:
    """An empty kernel of products in ``dtype``."""
    resident = RESIDENT_BLOCKS if dtype.itemsize == 4 else 1
    return KernelText(symbol, BLOCK_THREADS, operands, index, resident=resident)


def write_tiles(text: KernelText, shape: Shape, dtype: DType, a: Element, b: Element, store: Store) -> int:
    """Write a kernel of ``BLOCK_THREADS``; returns the number of its blocks.

    ``a(row, k)`` and ``b(k, column)`` are elements within bounds of the product with the number ``batch``;
    ``store(row, column, sum)`` writes what becomes of a sum, in a part of it ``part``, if there are several.
    """
    if not shape.results:
        return 0
    rows, columns = (_Packs(extent) for extent in shape.per_thread)
    parts, type_ = shape.parts, type_name(dtype)
    down, across = -(-shape.m // rows.side), -(-shape.n // columns.side)
    left, right = (_shared(text, packs, dtype) for packs in (rows, columns))
    text.line(f"const int y = THREAD / {SIDE_THREADS}, x = THREAD % {SIDE_THREADS};")
    text.line(f"const {text.index} row0 = BLOCK / {across} % {down} * {rows.side}, "
              f"column0 = BLOCK % {across} * {columns.side};")
    text.line(f"const {text.index} batch = BLOCK / {across * down}{f' % {shape.batch}' if parts > 1 else ''};")
    first, last = "0", str(shape.k)
    if parts > 1:
        each = -(-shape.k // parts)
        text.line(f"const int part = BLOCK / {across * down * shape.batch};")
        text.line(f"const {text.index} first = part * ({text.index}){each};")
        text.line(f"const {text.index} last = first + {each} < {shape.k} ? first + {each} : {shape.k};")
        first, last = "first", "last"
    count = rows.extent * columns.extent
    text.line(f"{type_} sums[{count}];")
    text.line(f"UNROLL for (int i = 0; i < {count}; ++i) sums[i] = 0;")
    both = (f"UNROLL for (int i = 0; i < {rows.extent}; ++i) "
            f"UNROLL for (int j = 0; j < {columns.extent}; ++j)")
    pieces = (_Piece(text, "row", rows, shape.m, shape.a_along_k, lambda row, k: a(row, k), type_, left),
              _Piece(text, "column", columns, shape.n, shape.b_along_k, lambda column, k: b(k, column), type_, right))
    for piece in pieces:
        piece.fetch(first, last)
    with text.block(f"for ({text.index} k0 = {first}; k0 < {last}; k0 += {STEP_ELEMENTS})"):
        for piece in pieces:
            piece.put()
        text.line("BARRIER;")
        for piece in pieces:
            piece.fetch(f"k0 + {STEP_ELEMENTS}", last)
        single = "f" if type_ == "f32" else ""
        with text.block(f"UNROLL for (int k = 0; k < {STEP_ELEMENTS}; ++k)"):
            for name, array, packs, place in (("one", left, rows, "y"), ("other", right, columns, "x")):
                text.line(f"{text.pack(dtype, packs.width)} {name}[{packs.count}];")
                text.line(f"UNROLL for (int i = 0; i < {packs.count}; ++i) "
                          f"{name}[i] = {array}[k * {packs.stride} + {place} + i * {SIDE_THREADS}];")
            text.line(f"{both} sums[i * {columns.extent} + j] = fma{single}({rows.element('one', 'i')}, "
                      f"{columns.element('other', 'j')}, sums[i * {columns.extent} + j]);")
        text.line("BARRIER;")
    with text.block(both):
        text.line(f"const {text.index} row = row0 + {rows.place('y', 'i')};")
        text.line(f"const {text.index} column = column0 + {columns.place('x', 'j')};")
        with text.block(f"if (row < {shape.m} && column < {shape.n})"):
            store("row", "column", f"sums[i * {columns.extent} + j]")
    return down * across * shape.batch * parts


@dataclass(frozen=True)
class _Packs:
    """Rows or columns of a tile: ``extent`` for each thread, in packs of neighbours, which are read at once."""

    extent: int

    @property
    def width(self) -> int:
        """Elements of a pack."""
        return min(self.extent, PACK_ELEMENTS)

    @property
    def count(self) -> int:
        """Packs of a thread."""
        return self.extent // self.width

    @property
    def side(self) -> int:
        """Elements of a tile."""
        return self.extent * SIDE_THREADS

    @property
    def stride(self) -> int:
        """Packs between neighbours along the sums in shared memory; one more than there are, for its banks."""
        return self.count * SIDE_THREADS + 1

    def element(self, array: str, number: str) -> str:
        """An element of a thread's packs."""
        return f"{array}[{number} / {self.width}].at[{number} % {self.width}]"

    def place(self, thread: str, number: str) -> str:
        """The place in the tile of an element of a thread."""
        pack = f"({thread} + {number} / {self.width} * {SIDE_THREADS})"
        return f"{pack} * {self.width} + {number} % {self.width}"


def _shared(text: KernelText, packs: _Packs, dtype: DType) -> str:
    return text.shared(text.pack(dtype, packs.width), STEP_ELEMENTS * packs.stride)


class _Piece:
    """A piece of a factor: it waits in registers while the one before is used, and then goes to shared memory.

    Neighbouring threads read neighbours in memory. A thread keeps its place along the faster axis: what depends on that
    alone is computed once, outside of all loops.
    """

    def __init__(self, text: KernelText, name: str, packs: _Packs, end: int, along_k: bool, element: Element,
                 type_: str, array: str) -> None:
        self.text, self.name, self.packs, self.end = text, name, packs, end
        self.element, self.type, self.array = element, type_, array
        inner = STEP_ELEMENTS if along_k else packs.side
        fast, slow = f"THREAD % {inner}", f"THREAD / {inner} + i * {BLOCK_THREADS // inner}"
        self.near, self.step = (slow, fast) if along_k else (fast, slow)
        self.count = packs.side * STEP_ELEMENTS // BLOCK_THREADS
        self.waiting = text.name("waiting")
        text.line(f"{type_} {self.waiting}[{self.count}];")

    def fetch(self, start: str, last: str) -> None:
        """Read this thread's elements from ``start`` on; zeros from ``last`` on."""
        text, name = self.text, self.name
        with text.block(f"UNROLL for (int i = 0; i < {self.count}; ++i)"):
            text.line(f"const {text.index} {name} = {name}0 + ({self.near}), k = {start} + ({self.step});")
            text.line(f"{self.type} element = 0;")
            with text.block(f"if ({name} < {self.end} && k < {last})"):
                text.line(f"element = {self.element(name, 'k')};")
            text.line(f"{self.waiting}[i] = element;")

    def put(self) -> None:
        """Write the elements to shared memory."""
        text, width = self.text, self.packs.width
        with text.block(f"UNROLL for (int i = 0; i < {self.count}; ++i)"):
            text.line(f"const int near = {self.near};")
            text.line(f"{self.array}[({self.step}) * {self.packs.stride} + near / {width}].at[near % {width}] = "
                      f"{self.waiting}[i];")


def parts_kernel(text: KernelText, partial: str, shape: Shape, dtype: DType, store: Store) -> Kernel:
    """The second kernel: it adds up the parts of each sum, in order, and stores the results."""
    type_, results = type_name(dtype), shape.results
    text.line(f"const {text.index} u = BLOCK * ({text.index}){BLOCK_THREADS} + THREAD;")
    with text.block(f"if (u < {results})"):
        text.line(f"const {text.index} batch = u / {shape.m * shape.n}, row = u / {shape.n} % {shape.m}, "
                  f"column = u % {shape.n};")
        text.line(f"{type_} sum = 0;")
        with text.block(f"for (int part = 0; part < {shape.parts}; ++part)"):
            text.line(f"sum += {partial}[part * ({text.index}){results} + u];")
        store("row", "column", "sum")
    size = shape.parts * results * dtype.itemsize
    return text.kernel(-(-results // BLOCK_THREADS), shape.parts * results, size + results * dtype.itemsize, size)
