"""Products whose operands both run along k in memory: every element is a dot product of vectors."""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from kusari.ir.costs import CLASH_RATIO, LANE_CYCLES, LOAD_CYCLES, PAGE_BYTES

from ....target import Target
from ...text.array import Array
from ...text.tiles import count_tiles, each_tile, even_tiles, tiles_in
from ..cycles import read_cycles
from ..epilogue import Epilogue, Finisher
from ..operand import Matrices
from ..tile import Tile
from ..writer import ProductWriter


class DotShape(NamedTuple):
    """Tiles are at most ``rows`` x ``columns`` sums, each a vector whose lanes are added up in the end."""

    rows: int
    columns: int
    cycles: float


def suits(work: Matrices, target: Target) -> bool:
    """Whether both operands run along k, for one vector at least."""
    return work.a_k == work.b_k == 1 and work.k >= target.lanes(work.dtype.itemsize)


def choose(work: Matrices, target: Target) -> DotShape:
    """Return the tile that registers have room for."""
    size = work.dtype.itemsize
    width = target.lanes(size)
    rows = min(work.m, 4 if target.registers >= 32 else 3)
    columns = min(work.n, width, max(1, room_for_sums(target) // rows))
    clash = work.b_column * size % PAGE_BYTES == 0
    if work.m <= 4 and clash:
        columns = min(columns, 4)
    row_tiles, column_tiles = even_tiles(work.m, rows), even_tiles(work.n, columns)
    steps = -(-work.k // width)
    products = adding = 0.0
    for r, c in itertools.product(row_tiles, column_tiles):
        products += r.count * c.count * steps * dot_cycles(r.size, c.size)
        adding += r.count * c.count * LANE_CYCLES * lane_steps(width, r.size * c.size, c.size)
    if clash and work.m > 4:
        products *= CLASH_RATIO
    cycles = max(products, read_cycles(work, target)) + adding
    if (work.m + columns) * work.k * size > target.l1_bytes:  # A is read again for each tile of columns
        cycles += LOAD_CYCLES / 2 * steps * work.m * count_tiles(column_tiles)
    return DotShape(rows, columns, cycles)


def dot_cycles(height: int, breadth: int) -> float:
    """Cycles of a step of a tile: two multiply-adds and two loads in each, a latency of four."""
    return max(height * breadth / 2, (height + breadth) / 2, 4)


def lane_steps(width: int, count: int, each: int) -> int:
    """Steps of `lane_sums` for ``count`` sums, with the shuffles that part groups of ``each``."""
    steps, together = 0, each * (width // each)
    for at in range(0, count, together):
        group = min(together, count - at)
        steps += group // each - 1
        step = width // 2
        while step:
            group = min(step, group)
            steps, step = steps + group, step // 2
    return steps


def room_for_sums(target: Target) -> int:
    """Registers for sums; the rest is for factors, which are products, too, without fused multiply-add."""
    return target.registers * 3 // 4 if target.has_fma else target.registers * 9 // 16


class Dot(ProductWriter[DotShape]):
    """Writes tiles of rows x columns of sums; needs ``a_k == b_k == 1`` and ``k`` of at least one vector."""

    def prepare(self) -> None:
        work, shape = self.work, self.plan
        self.row_tiles, self.column_tiles = even_tiles(work.m, shape.rows), even_tiles(work.n, shape.columns)
        self.finisher = Finisher(self.em, work, self.width, self.width, shape.rows)

    def product(self, epilogue: Epilogue, a: Array, b: Array, split: bool) -> None:
        em, work = self.em, self.work
        by_rows = count_tiles(self.column_tiles) < 8 and count_tiles(self.row_tiles) > count_tiles(self.column_tiles)
        part = em.chunk(count_tiles(self.row_tiles if by_rows else self.column_tiles)) if split else None
        for column, breadth in tiles_in(em, self.column_tiles, None if by_rows else part):
            columns = b.at(column * work.b_column)
            for row, height in tiles_in(em, self.row_tiles, part if by_rows else None):
                sums = dot_tile(self.tile, work, a.at(row * work.a_row), columns, height, breadth)
                rows = lane_sums(self.tile, sums, breadth)
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


def lane_sums(tile: Tile, sums: Sequence[str], each: int) -> list[str]:
    """Vectors whose first ``each`` lanes are the sums of the lanes of so many vectors after each other.

    As many as a vector has lanes are added up together.
    """
    em, width = tile.em, tile.width
    together = each * (width // each)
    found: list[str] = []
    for at in range(0, len(sums), together):
        group = sums[at:at + together]
        x = _joint_sums(tile, group)
        found += [em.shuffle(tile.element, width, x, x, [(first + p) % width for p in range(width)]) if first else x
                  for first in range(0, len(group), each)]
    return found


def _joint_sums(tile: Tile, sums: Sequence[str]) -> str:
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
