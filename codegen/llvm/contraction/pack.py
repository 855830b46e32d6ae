"""Copies of a panel of B in the order in which the tiles read it: ``[k][panel columns]``."""
from __future__ import annotations

from ..text.emitter import Emitter, Index
from ..text.tiles import each_tile
from .operand import Matrices


def pack_rows(em: Emitter, work: Matrices, source: str, panel: str, depth: int, breadth: int, stride: int,
              width: int) -> None:
    """B's rows are contiguous: copy ``breadth`` columns of each; lanes past the edge become zero."""
    element = work.element

    @em.each(0, depth)
    def line(p: Index) -> None:
        row = em.gep(source, em.mul(p, work.b_k), element)
        place = em.gep(panel, em.mul(p, stride), element)
        for j in range(0, breadth, width):
            x = em.load(element, width, em.gep(row, j, element), breadth - j)
            em.store(element, width, x, em.gep(place, j, element))


def pack_transposed(em: Emitter, work: Matrices, source: str, panel: str, depth: int, breadth: int, stride: int,
                    width: int) -> None:
    """B's columns are contiguous (``b_k == 1``) or at any stride: square blocks are transposed in registers.

    The last block along k overlaps the one before, so that it is a whole one, too.
    """
    element = work.element
    lines = min(depth, width)

    def block(j: Index, p: Index, columns: int) -> None:
        start = em.gep(source, em.add(em.mul(j, work.b_column), em.mul(p, work.b_k)), element)
        rows = [em.read(work.dtype, width, start, r * work.b_column, work.b_k, lines) for r in range(columns)]
        rows += ["zeroinitializer"] * (width - columns)
        place = em.gep(panel, em.add(em.mul(p, stride), j), element)
        for r, x in enumerate(em.transpose(element, rows)[:lines]):
            em.store(element, width, x, em.gep(place, r * stride, element))

    def strip(j: Index, columns: int) -> None:
        @em.each(0, depth, width)
        def turn(i: Index) -> None:
            block(j, em.min(i, depth - lines), columns)

    @each_tile(em, breadth, width)
    def strips(j: Index, columns: int) -> None:
        strip(j, columns)
