"""Products whose operands both run along k in memory: every element is a dot product of vectors."""
from __future__ import annotations

from ....target import Target
from ...text.emitter import Emitter, Index
from ...text.tiles import count_tiles, even_tiles, for_tiles
from ..epilogue import Epilogue, Finisher, for_batch, is_heavy
from ..operand import Matrices
from ..tile import Tile


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


def write_dot(em: Emitter, work: Matrices) -> None:
    """Tiles of ``rows x columns`` accumulators; needs ``a_k == b_k == 1`` and ``k`` of at least one vector."""
    width = em.target.lanes(work.dtype.itemsize)
    registers = em.target.registers
    room = registers * 3 // 4 if em.target.has_fma else registers * 9 // 16
    rows = min(work.m, 4 if registers >= 32 else 3)
    columns = min(work.n, width, max(1, room // rows))
    if work.m <= 4 and work.b_column * work.dtype.itemsize % 4096 == 0:
        columns = min(columns, 4)  # streams that far apart share the sets of the first-level cache
    row_tiles, column_tiles = even_tiles(work.m, rows), even_tiles(work.n, columns)
    finisher = Finisher(em, work, width, width) if is_heavy(work.exprs) else None
    buffer = em.value(f"alloca [{rows * width} x {work.element}], align 64", "tile") if finisher else ""
    by_rows = count_tiles(column_tiles) < 8 and count_tiles(row_tiles) > count_tiles(column_tiles)

    def product(epilogue: Epilogue, a: str, b: str, split: bool) -> None:
        part = em.chunk(count_tiles(row_tiles if by_rows else column_tiles)) if split else None

        def strip(column: Index, breadth: int) -> None:
            b_tile = em.gep(b, em.mul(column, work.b_column), work.element)

            def tile(row: Index, height: int) -> None:
                a_tile = em.gep(a, em.mul(row, work.a_row), work.element)
                sums = dot_tile(em, work, a_tile, b_tile, height, breadth, width)
                for i in range(height):
                    x = lane_sums(em, work.element, sums[i * breadth:(i + 1) * breadth], width)
                    if finisher:
                        em.store(work.element, width, x, em.gep(buffer, i * width, work.element))
                    else:
                        epilogue.store(x, em.add(row, i), column, width, breadth)
                if finisher:
                    finisher.call(epilogue, buffer, row, height, column, 1, breadth)
            for_tiles(em, row_tiles, part if by_rows else None, tile)
        for_tiles(em, column_tiles, None if by_rows else part, strip)
    for_batch(em, work, product)


def dot_tile(em: Emitter, work: Matrices, a: str, b: str, height: int, breadth: int, width: int) -> list[str]:
    """Row by row the vectors whose lanes add up to the elements."""
    element, tile = work.element, Tile(em, work.element, width)

    def step(p: Index, sums: list[str], valid: int | None = None) -> list[str]:
        xs = [em.load(element, width, em.gep(em.gep(a, p, element), i * work.a_row, element), valid)
              for i in range(height)]
        result = list(sums)
        for j in range(breadth):   # one vector of B at a time: the accumulators leave no room for more
            y = em.load(element, width, em.gep(em.gep(b, p, element), j * work.b_column, element), valid)
            result[j::breadth] = tile.add(xs, [y], result[j::breadth])
        return result
    full = work.k // width * width
    sums = tile.sum(full, step, tile.zeros(height, breadth), width)
    return step(full, sums, work.k - full) if full < work.k else sums


def lane_sums(em: Emitter, element: str, sums: list[str], width: int) -> str:
    """A vector whose lane ``i`` is the sum of the lanes of ``sums[i]``: halves are swapped, then added."""
    rows: list[str | None] = [*sums, *[None] * (width - len(sums))]
    step = width // 2
    while step:
        for i in range(step):
            x, y = rows[i], rows[i + step]
            if x is None:
                continue
            other = y or "zeroinitializer"
            low = em.shuffle(element, width, x, other, [p if not p & step else width + p - step for p in range(width)])
            high = em.shuffle(element, width, x, other, [p + step if not p & step else width + p for p in range(width)])
            rows[i] = em.binary("fadd", element, width, low, high)
        step //= 2
    result = rows[0]
    assert result is not None
    return result
