"""LLVM IR text of ``cumsum`` and ``cumprod``: running totals, one element after the other as in NumPy."""
from __future__ import annotations

from math import prod

from kusari.ir import Kernel, Node

from ...native import SCANS
from ...target import Target
from ..text.array import Array
from ..text.emitter import Carried, Emitter, Index
from ..text.tiles import count_tiles, full_tiles, lanes_in, tiles_in
from ..text.types import value_type, vector

TOTAL_REGISTERS = 8  # of running totals


def scan_kernel(node: Node, target: Target) -> Kernel:
    """Return the kernel of ``cumsum`` or ``cumprod``, of a node that ``is_scan``."""
    em = Emitter(node.op.name, target)
    _Scan(em, node).write()
    size = node.output.tensor.size
    return Kernel("llvm", node.op.name, em.text(), 0, size, 2 * node.output.tensor.nbytes)


class _Scan:
    """Writes one kernel: of ``outer`` blocks of ``n`` lines of ``inner`` neighbours each.

    Lines of several neighbours are vectors, running totals in registers. If the axis is the last one, squares of
    as many rows as a vector has lanes are transposed, so that each row has a lane of its own.
    """

    def __init__(self, em: Emitter, node: Node) -> None:
        self.em = em
        shape, axis = node.output.shape, int(node.attrs["axis"])
        self.outer, self.n, self.inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1:])
        self.reverse = bool(node.attrs.get("reverse"))
        self.instruction = SCANS[node.op.name]
        dtype = node.output.tensor.dtype
        self.element, self.width = value_type(dtype), em.target.lanes(dtype.itemsize)
        self.source, self.target = (Array(em, self.element, self.width, em.slot(i)) for i in (0, 1))

    def write(self) -> None:
        """Threads share blocks, or rows, or columns."""
        em = self.em
        if not self.outer * self.n * self.inner:
            return
        if self.inner == 1 and self.width > 1:
            tiles = full_tiles(self.outer, self.width)
            for row, count in tiles_in(em, tiles, em.chunk(count_tiles(tiles))):
                self.rows(row, count)
            return
        tiles = full_tiles(self.inner, TOTAL_REGISTERS * self.width)
        by_blocks = self.outer >= count_tiles(tiles)
        part = None if by_blocks else em.chunk(count_tiles(tiles))
        for i in em.each(*(em.chunk(self.outer) if by_blocks else (0, self.outer))):
            start = i * (self.n * self.inner)
            for column, breadth in tiles_in(em, tiles, part):
                self.columns(start + column, breadth)

    def columns(self, start: Index, breadth: int) -> None:
        """``breadth`` neighbours of every line of a block, from element ``start`` on."""
        em, element, width = self.em, self.element, self.width

        def line(i: Index, totals: list[str]) -> list[str]:
            at = start + (self.n - 1 - i if self.reverse else i) * self.inner
            result: list[str] = []
            for j, valid in enumerate(lanes_in(breadth, width)):
                x = self.source.load(at + j * width, valid)
                # The first line is as it is: zero plus minus zero is zero.
                result.append(em.binary(self.instruction, element, width, totals[j], x) if totals else x)
                self.target.store(result[j], at + j * width, valid)
            return result
        first = line(0, [])
        totals = Carried([vector(element, width)] * len(first), first)
        for i in em.each(1, self.n, carried=totals):
            totals.values = line(i, totals.values)

    def rows(self, row: Index, count: int) -> None:
        """``count`` rows, square by square; each begins with the last sums of the one before."""
        em, width = self.em, self.width
        whole, rest = divmod(self.n, width)
        if em.target.any_size and not rest:  # then the last square is always there, and masked
            whole, rest = whole - 1, width
        start = row * self.n

        def square(i: Index, totals: list[str], breadth: int | None = None) -> list[str]:
            n = width if breadth is None else breadth
            at = self.n - n - i * width if self.reverse else i * width
            return [self.square(start + at, count, breadth, totals[0] if totals else "")]
        if not whole:
            square(0, [], rest)
            return
        totals = Carried([vector(self.element, width)], square(0, []))
        for i in em.each(1, em.size(whole), carried=totals):
            totals.values = square(i, totals.values)
        if rest:
            square(whole, totals.values, rest)

    def square(self, start: Index, count: int, breadth: int | None, total: str) -> str:
        """``breadth`` neighbours of ``count`` rows, or all; returns the totals so far, a lane for each row."""
        em, width = self.em, self.width
        places = [start + i * self.n for i in range(count)]
        columns = self.source.turned(places, breadth or width)
        if breadth is None or not em.target.any_size:
            for j in self.order(breadth or width):
                total = columns[j] = self.sum(total, columns[j])
        else:
            self.square_of_any(columns, breadth, total)
        for p, x in zip(places, em.transpose(self.element, columns), strict=False):
            self.target.store(x, p, breadth or width)
        return total

    def square_of_any(self, columns: list[str], breadth: int, before: str) -> None:
        """Running totals of all columns, of which the first ``breadth`` count: from the last of those on in reverse."""
        em, width, total = self.em, self.width, before
        ty, last = vector(self.element, width), em.size(breadth - 1)
        for j in self.order(width):
            x = columns[j]
            if not self.reverse or j == width - 1:
                total = self.sum(total, x)
            else:
                first = em.compare("eq", last, j)
                if before:
                    total = self.sum(em.value(f"select i1 {first}, {ty} {before}, {ty} {total}"), x)
                else:
                    total = em.value(f"select i1 {first}, {ty} {x}, {ty} {self.sum(total, x)}")
            columns[j] = total

    def order(self, n: int) -> range:
        """The order in which ``n`` columns are summed."""
        return range(n)[::-1] if self.reverse else range(n)

    def sum(self, total: str, x: str) -> str:
        """``total`` with one column more; the first is as it is."""
        return self.em.binary(self.instruction, self.element, self.width, total, x) if total else x
