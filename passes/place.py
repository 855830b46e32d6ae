"""Placement: the offsets of an arena's blocks, which may share bytes if their lifetimes do not overlap.

Blocks are placed as they are born, by best fit, and if that wastes bytes, the largest ones first.
"""
from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

WASTE_SHARE = 1 / 32         # of the smallest possible arena: more is worth another order of placement
LEAST_WASTE_BYTES = 1 << 16  # the same in bytes
MANY_BLOCKS = 400            # with more only one order is tried: the time of others grows with the square


@dataclass(eq=False)
class Block:
    """``size`` bytes that are taken from step ``born`` to step ``dies``, both included, at ``offset`` once placed."""

    size: int
    born: int
    dies: float = inf
    offset: int = 0


class _Space:
    """A growing block with holes: best fit, neighbours joined."""

    def __init__(self) -> None:
        self.end = 0
        self._holes: list[tuple[int, int]] = []  # (offset, size), sorted

    def take(self, size: int) -> int:
        """Return the offset of ``size`` bytes: the smallest hole that holds them, or the end."""
        best = min((hole for hole in self._holes if hole[1] >= size), key=lambda hole: hole[1], default=None)
        if best is not None:
            self._holes.remove(best)
            if best[1] > size:
                insort(self._holes, (best[0] + size, best[1] - size))
            return best[0]
        start = self.end
        if self._holes and sum(self._holes[-1]) == self.end:
            start = self._holes.pop()[0]
        self.end = start + size
        return start

    def give(self, offset: int, size: int) -> None:
        """Free the bytes."""
        before = next((hole for hole in self._holes if sum(hole) == offset), None)
        after = next((hole for hole in self._holes if hole[0] == offset + size), None)
        if before is not None:
            self._holes.remove(before)
            offset, size = before[0], before[1] + size
        if after is not None:
            self._holes.remove(after)
            size += after[1]
        insort(self._holes, (offset, size))


def _in_order(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Offsets as blocks are born, and the end of the last one: bytes freed last, in a cache still, are used first."""
    space = _Space()
    offsets: list[int] = []
    alive: list[tuple[float, int]] = []  # (dies, block), sorted
    for i, block in enumerate(blocks):
        while alive and alive[0][0] < block.born:
            gone = alive.pop(0)[1]
            space.give(offsets[gone], blocks[gone].size)
        offsets.append(space.take(block.size))
        insort(alive, (block.dies, i))
    return offsets, space.end


def _by_weight(blocks: Sequence[Block], weight: Callable[[Block], float]) -> tuple[list[int], int]:
    """Offsets when heavy blocks choose first: each as low as possible among blocks that are alive at the same time.

    Source: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020), greedy by size.
    """
    offsets = [0] * len(blocks)
    placed: list[tuple[int, int, int, float]] = []  # (offset, end, born, dies), sorted
    end = 0
    for i in sorted(range(len(blocks)), key=lambda i: (-weight(blocks[i]), i)):
        block = blocks[i]
        born, dies, size = block.born, block.dies, block.size
        at = 0
        for start, stop, first, last in placed:
            if first <= dies and born <= last:
                if start - at >= size:
                    break
                at = max(at, stop)
        offsets[i] = at
        end = max(end, at + size)
        insort(placed, (at, at + size, born, dies))
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


def _size(block: Block) -> float:
    return block.size


def _volume(block: Block) -> float:
    """Size times lifetime: large, short-lived blocks such as scratch of kernels pack closer in this order."""
    return block.size * (block.dies - block.born + 1)


def place(blocks: Sequence[Block]) -> int:
    """Give offsets to the blocks, which come as they are born; returns the end of the last one."""
    offsets, end = _in_order(blocks)
    bound = least(blocks)
    for weight in (_size, _volume):
        if end - bound > max(LEAST_WASTE_BYTES, bound * WASTE_SHARE) and len(blocks) <= MANY_BLOCKS:
            other, smaller = _by_weight(blocks, weight)
            if smaller < end:
                offsets, end = other, smaller
    for block, offset in zip(blocks, offsets, strict=True):
        block.offset = offset
    return end
