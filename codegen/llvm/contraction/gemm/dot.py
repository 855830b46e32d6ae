"""Products whose operands both run along k in memory: every element is a dot product of vectors."""
from __future__ import annotations

from collections.abc import Sequence

from ....target import Target
from ...text.array import Array
from ...text.tiles import count_tiles, each_tile, even_tiles, tiles_in
from ..epilogue import Epilogue, Finisher
from ..operand import Matrices
from ..tile import Tile
from ..writer import ProductWriter


def suits_dot(work: Matrices, target: Target) -> bool:
    """Whether dot products beat tiles of broadcast elements: packing B would cost more than it saves.

    Up to 16 rows that is so from a k on at which adding up the lanes takes less than packing: 5 rows, 800 columns, k of
    200: 9.7 in place of 28 us on one core with AVX-512, 10 rows 18.0 in place of 24.1, k of 100 11.5 and 12.1. With
    more rows, six columns of B should stay in the first-level cache while the rows of A pass.
    """
    width = target.lanes(work.dtype.itemsize)
    if work.a_k != 1 or work.b_k != 1 or work.k < width:
        return False
    if work.m <= 4:
        return True
    if work.n <= 12:
        return work.k >= 5 * width
    if work.m <= 16:
        return 3 * work.k >= 2 * work.m * width
    return 16 * width <= work.k and work.m <= 64 and 6 * work.k * work.dtype.itemsize <= target.l1_bytes


def room_for_sums(target: Target) -> int:
    """Registers for sums; the rest is for factors, which are products, too, without fused multiply-add."""
    return target.registers * 3 // 4 if target.has_fma else target.registers * 9 // 16


class Dot(ProductWriter):
    """Writes tiles of rows x columns of sums; needs ``a_k == b_k == 1`` and ``k`` of at least one vector."""

    def prepare(self) -> None:
        work, target = self.work, self.em.target
        rows = min(work.m, 4 if target.registers >= 32 else 3)
        columns = min(work.n, self.width, max(1, room_for_sums(target) // rows))
        if work.m <= 4 and work.b_column * self.size % 4096 == 0:
            columns = min(columns, 4)  # streams that far apart share the sets of the first-level cache
        self.row_tiles, self.column_tiles = even_tiles(work.m, rows), even_tiles(work.n, columns)
        self.finisher = Finisher(self.em, work, self.width, self.width, rows)

    def product(self, epilogue: Epilogue, a: Array, b: Array, split: bool) -> None:
        em, work = self.em, self.work
        by_rows = count_tiles(self.column_tiles) < 8 and count_tiles(self.row_tiles) > count_tiles(self.column_tiles)
        part = em.chunk(count_tiles(self.row_tiles if by_rows else self.column_tiles)) if split else None
        for column, breadth in tiles_in(em, self.column_tiles, None if by_rows else part):
            columns = b.at(em.mul(column, work.b_column))
            for row, height in tiles_in(em, self.row_tiles, part if by_rows else None):
                sums = dot_tile(self.tile, work, a.at(em.mul(row, work.a_row)), columns, height, breadth)
                rows = [lane_sums(self.tile, sums[at:at + breadth]) for at in range(0, len(sums), breadth)]
                self.finisher.finish(epilogue, rows, row, height, column, [breadth])


def dot_tile(tile: Tile, work: Matrices, a: Array, b: Array, height: int, breadth: int) -> list[str]:
    """Row by row the vectors whose lanes add up to the elements."""
    sums = tile.carried(tile.zeros(height, breadth))
    for p, valid in each_tile(tile.em, work.k, tile.width, sums):
        near = a.at(p)
        xs = [near.load(i * work.a_row, valid) for i in range(height)]
        for j in range(breadth):   # one vector of B at a time: the accumulators leave no room for more
            y = b.at(p).load(j * work.b_column, valid)
            sums.values[j::breadth] = tile.add(xs, [y], sums.values[j::breadth])
    return sums.values


def lane_sums(tile: Tile, sums: Sequence[str]) -> str:
    """A vector whose lane ``i`` is the sum of the lanes of ``sums[i]``: halves are swapped, then added."""
    em, element, width = tile.em, tile.element, tile.width
    rows = list(sums)
    step = width // 2
    while step:
        for i, x in enumerate(rows[:step]):
            other = rows[i + step] if i + step < len(rows) else "zeroinitializer"
            low = em.shuffle(element, width, x, other, [p if not p & step else width + p - step for p in range(width)])
            high = em.shuffle(element, width, x, other, [p + step if not p & step else width + p for p in range(width)])
            rows[i] = em.binary("fadd", element, width, low, high)
        step //= 2
    return rows[0]
