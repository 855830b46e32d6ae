"""Copies of a panel of B in the order in which the tiles read it: ``[k][panel columns]``."""
from __future__ import annotations

from .emitter import Emitter, Index
from .gemm_parts import Matrices


def pack_rows(em: Emitter, work: Matrices, source: str, panel: str, depth: int, breadth: int, stride: int,
              width: int) -> None:
    """B's rows are contiguous: copy ``breadth`` columns of each; lanes past the edge become zero."""
    element = work.element

    def line(p: Index, _: list[str]) -> None:
        row = em.gep(source, em.mul(p, work.b_k), element)
        place = em.gep(panel, em.mul(p, stride), element)
        for j in range(0, breadth, width):
            x = em.load(element, width, em.gep(row, j, element), breadth - j)
            em.store(element, width, x, em.gep(place, j, element))
    em.loop(0, depth, 1, line)


def pack_transposed(em: Emitter, work: Matrices, source: str, panel: str, depth: int, breadth: int, stride: int,
                    width: int) -> None:
    """B's columns are contiguous (``b_k == 1``) or at any stride: square blocks are transposed in registers."""
    element = work.element

    def block(p: Index, lines: int) -> None:
        for j in range(0, breadth, width):
            rows: list[str] = []
            for r in range(width):
                if j + r >= breadth:
                    rows.append("zeroinitializer")
                    continue
                at = em.add((j + r) * work.b_column, em.mul(p, work.b_k))
                rows.append(em.read(work.dtype, width, source, at, work.b_k, lines))
            for r, x in enumerate(transpose(em, element, rows)[:lines]):
                place = em.gep(panel, em.add(em.mul(em.add(p, r), stride), j), element)
                em.store(element, width, x, place)
    full = depth // width * width
    em.loop(0, full, width, lambda p, _: block(p, width))
    if full < depth:
        block(full, depth - full)


def transpose(em: Emitter, element: str, rows: list[str]) -> list[str]:
    """The transposed square: at each step halves of pairs of rows change places."""
    width = len(rows)
    step = width // 2
    while step:
        result = list(rows)
        for i in range(width):
            if i & step:
                continue
            x, y = rows[i], rows[i | step]
            low = [p if not p & step else width + p - step for p in range(width)]
            high = [p + step if not p & step else width + p for p in range(width)]
            result[i] = em.shuffle(element, width, x, y, low)
            result[i | step] = em.shuffle(element, width, x, y, high)
        rows = result
        step //= 2
    return rows
