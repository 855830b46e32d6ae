"""Placement: the offsets of an arena's blocks, which may share bytes if their lifetimes do not overlap.

Blocks are placed as they are born, by best fit, and if that wastes bytes, the largest ones first.
"""
from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

WASTE_SHARE = 1 / 32         # of the smallest possible arena: more is worth another order of placement
LEAST_WASTE_BYTES = 1 << 16  # the same in bytes
MANY_BLOCKS = 1000           # with more only one order is tried: the time of others grows with the square


@dataclass(eq=False)
class Block:
    """``size`` bytes that are taken from step ``born`` to step ``dies``, both included, at ``offset`` once placed."""

    size: int
    born: int
    dies: float = inf
    offset: int = 0


def _offsets(blocks: Sequence[Block], order: Sequence[int], best: bool) -> tuple[list[int], int]:
    """Offsets of blocks that choose in ``order``, and the end of the last one: each between those placed before it.

    It takes the smallest gap that holds it, or the lowest, among blocks that are alive at the same time. In the order
    of birth blocks that have died are forgotten.
    """
    offsets = [0] * len(blocks)
    placed: list[tuple[int, int, int, float]] = []  # (offset, end, born, dies), sorted
    end = 0
    for i in order:
        born, dies, size = blocks[i].born, blocks[i].dies, blocks[i].size
        if best:
            placed = [other for other in placed if other[3] >= born]
        at, least_gap = 0, inf
        found = -1
        for start, stop, first, last in placed:
            if best or first <= dies and born <= last:
                if size <= start - at < least_gap:
                    found, least_gap = at, start - at
                    if not best:
                        break
                if stop > at:
                    at = stop
        if found < 0 or best and size <= end - at < least_gap:
            found = at
        offsets[i] = found
        end = max(end, found + size)
        insort(placed, (found, found + size, born, dies))
    return offsets, end


def least(blocks: Sequence[Block]) -> int:
    """Return the most bytes that are taken at any one time: no arena can be smaller."""
    change: dict[float, int] = {}
    for block in blocks:
        change[block.born] = change.get(block.born, 0) + block.size
        change[block.dies + 1] = change.get(block.dies + 1, 0) - block.size
    most = now = 0
    for step in sorted(change):
        now += change[step]
        most = max(most, now)
    return most


def place(blocks: Sequence[Block]) -> int:
    """Give offsets to the blocks, which come as they are born; returns the end of the last one.

    In that order bytes freed last, in a cache still, are used first. Source of the others: Pisarchyk and Lee,
    "Efficient Memory Management for Deep Neural Net Inference" (2020), greedy by size.
    """
    offsets, end = _offsets(blocks, range(len(blocks)), True)
    bound = least(blocks)
    sizes: list[float] = [b.size for b in blocks]
    volumes = [b.size * (b.dies - b.born + 1) for b in blocks]  # so large, short-lived scratch of kernels packs closer
    for weights in (sizes, volumes):
        if end - bound > max(LEAST_WASTE_BYTES, bound * WASTE_SHARE) and len(blocks) <= MANY_BLOCKS:
            heavy = sorted(range(len(blocks)), key=lambda i: (-weights[i], i))
            other, smaller = _offsets(blocks, heavy, False)
            if smaller < end:
                offsets, end = other, smaller
    for block, offset in zip(blocks, offsets, strict=True):
        block.offset = offset
    return end
