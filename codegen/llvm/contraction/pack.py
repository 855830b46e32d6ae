"""Copies of a panel of B in the order in which the tiles read it: ``[k][panel columns]``."""
from __future__ import annotations

from ..text.array import Array
from ..text.squares import squares_function
from ..text.tiles import each_tile
from .operand import Matrices


def pack(work: Matrices, source: Array, panel: Array, depth: int, breadth: int, stride: int) -> None:
    """Copy ``breadth`` columns of ``depth`` rows; lanes past the edge hold zeros, or for any size the last column.

    Where B's rows are contiguous vectors are copied, else square blocks are transposed in registers; the last block
    along k overlaps the one before, so that it is a whole one, too.
    """
    em, width = source.em, source.width
    lines = min(depth, width)
    if work.b_column == 1:
        for p in em.each(0, depth):
            row, place = source.at(p * work.b_k), panel.at(p * stride)
            for j in range(0, breadth, width):
                place.store(row.load(j, breadth - j), j)
        return
    any_size = em.target.any_size  # then all tiles have as many columns: the last one is there several times
    for j, columns in each_tile(em, breadth, width, last=any_size):
        if lines == width > 1 == work.b_k and not any_size:
            em.call(squares_function(em.target, source.element, width, columns), source.at(j * work.b_column),
                    panel.at(j), depth, work.b_column, stride, 1, stride)
            continue
        for i in em.each(0, depth, width):
            p = em.min(i, depth - lines)
            start = source.at(j * work.b_column + p * work.b_k)
            rows = [em.read(work.dtype, width, f"{start}", min(r, columns - 1) * work.b_column, work.b_k, lines)
                    for r in range(width if any_size else columns)]
            place = panel.at(p * stride + j)
            turned = em.transpose(source.element, rows + ["zeroinitializer"] * (width - len(rows)))
            for r, x in enumerate(turned[:lines]):
                place.store(x, r * stride)
