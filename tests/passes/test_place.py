"""Blocks that live at the same time lie apart; large ones choose first where that takes less."""

from __future__ import annotations

import random

import pytest

from kusari.passes.place import LEAST_WASTE_BYTES, MANY_BLOCKS, Block, least, place

KB = 1 << 16


def apart(blocks: list[Block]) -> bool:
    return all(a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
               for i, a in enumerate(blocks) for b in blocks[:i] if a.born <= b.dies and b.born <= a.dies)


@pytest.mark.parametrize("seed", range(40))
def test_blocks_that_live_together_lie_apart(seed: int) -> None:
    draw = random.Random(seed)
    most = 9 if seed % 2 else 9000
    blocks = [Block(64 * draw.randrange(1, most), born, draw.choice([born, born + draw.randrange(30)]))
              for born in sorted(draw.randrange(60) for _ in range(50))]
    end = place(blocks)
    assert apart(blocks)
    assert max(b.offset + b.size for b in blocks) == end >= least(blocks)


def test_the_second_way_is_taken_where_the_first_wastes() -> None:
    """A small block in the way of the last one, which then goes behind everything."""
    blocks = [Block(4 * KB, 0, 1), Block(2 * KB, 1, 9), Block(6 * KB, 3, 9)]
    assert place(blocks) == least(blocks) == 8 * KB
    many = [*(Block(64, 0, 0) for _ in range(MANY_BLOCKS)), *blocks]
    assert place(many) > 8 * KB + LEAST_WASTE_BYTES  # its time grows with the square of their number
