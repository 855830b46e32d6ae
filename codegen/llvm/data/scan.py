"""LLVM IR text of ``cumsum`` and ``cumprod``: running totals, one element after the other as in NumPy."""
from __future__ import annotations

from math import prod

from kusari.ir import Kernel, Node

from ...native import SCANS, is_scan
from ...target import Target
from ..text.emitter import Emitter, Index
from ..text.tiles import for_tiles, full_tiles
from ..text.types import value_type, vector

TOTAL_REGISTERS = 8  # of running totals


def scan_kernel(node: Node, target: Target) -> Kernel | None:
    """Return the kernel of ``cumsum`` or ``cumprod``; None for other nodes and dtypes it does not handle."""
    if not is_scan(node):
        return None
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
        self.dtype = node.output.tensor.dtype
        self.element = value_type(self.dtype)
        self.width = em.target.lanes(self.dtype.itemsize)
        self.source, self.target = em.slot(0), em.slot(1)

    def write(self) -> None:
        """Threads share blocks, or rows, or columns."""
        if not self.outer * self.n * self.inner:
            return
        if self.inner == 1 and self.width > 1:
            tiles = full_tiles(self.outer, self.width)
            part = self.em.chunk(sum(t.count for t in tiles))
            for_tiles(self.em, tiles, part, self.rows)
            return
        tiles = full_tiles(self.inner, TOTAL_REGISTERS * self.width)
        by_blocks = self.outer >= sum(t.count for t in tiles)
        part = None if by_blocks else self.em.chunk(sum(t.count for t in tiles))

        @self.em.each(*(self.em.chunk(self.outer) if by_blocks else (0, self.outer)))
        def block(i: Index) -> None:
            start = self.em.mul(i, self.n * self.inner)
            for_tiles(self.em, tiles, part, lambda column, breadth: self.columns(self.em.add(start, column), breadth))

    def columns(self, start: Index, breadth: int) -> None:
        """``breadth`` neighbours of every line of a block, from element ``start`` on."""
        em, element, width = self.em, self.element, self.width
        valid = [min(width, breadth - j) for j in range(0, breadth, width)]

        def line(i: Index, totals: list[str]) -> list[str]:
            at = em.add(start, em.mul(em.sub(self.n - 1, i) if self.reverse else i, self.inner))
            result: list[str] = []
            for j, v in enumerate(valid):
                x = em.load(element, width, em.gep(self.source, em.add(at, j * width), element), v)
                # The first line is as it is: zero plus minus zero is zero.
                result.append(em.binary(self.instruction, element, width, totals[j], x) if totals else x)
                em.store(element, width, result[j], em.gep(self.target, em.add(at, j * width), element), v)
            return result
        first = line(0, [])
        em.loop(1, self.n, 1, line, [(vector(element, width), x) for x in first], unroll=False)

    def rows(self, row: Index, count: int) -> None:
        """``count`` rows, square by square; each begins with the last sums of the one before."""
        em, width = self.em, self.width
        whole, rest = divmod(self.n, width)
        start = em.mul(row, self.n)
        ty = vector(self.element, width)

        def square(i: Index, totals: list[str], breadth: int = width) -> list[str]:
            at = em.sub(self.n - breadth, em.mul(i, width)) if self.reverse else em.mul(i, width)
            return [self.square(em.add(start, at), count, breadth, totals[0] if totals else "")]
        if not whole:
            square(0, [], rest)
            return
        totals = em.loop(1, whole, 1, square, [(ty, square(0, [])[0])], unroll=False)
        if rest:
            square(whole, totals, rest)

    def square(self, start: Index, count: int, breadth: int, total: str) -> str:
        """``breadth`` neighbours of ``count`` rows; returns the totals so far, a lane for each row."""
        em, element, width = self.em, self.element, self.width
        places = [em.add(start, i * self.n) for i in range(count)]
        lines = [em.load(element, width, em.gep(self.source, p, element), breadth) for p in places]
        columns = em.transpose(element, [*lines, *["zeroinitializer"] * (width - count)])
        for j in reversed(range(breadth)) if self.reverse else range(breadth):
            total = em.binary(self.instruction, element, width, total, columns[j]) if total else columns[j]
            columns[j] = total
        for p, x in zip(places, em.transpose(element, columns), strict=False):
            em.store(element, width, x, em.gep(self.target, p, element), breadth)
        return total
