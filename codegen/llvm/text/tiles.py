"""Ranges cut in tiles, and loops over them."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .emitter import Carried, Emitter, Index


@dataclass(frozen=True)
class Tiles:
    """``count`` neighbouring tiles of ``size`` rows (or columns), the first one, number ``first``, at ``start``."""

    first: int
    count: int
    start: int
    size: int

    @property
    def stop(self) -> int:
        """The end of the last tile."""
        return self.start + self.count * self.size


def even_tiles(n: int, largest: int) -> list[Tiles]:
    """``n`` cut in the fewest tiles, whose sizes differ by at most one."""
    if n == 0:
        return []
    count = -(-n // largest)
    size, longer = divmod(n, count)
    tiles = [Tiles(0, longer, 0, size + 1), Tiles(longer, count - longer, longer * (size + 1), size)]
    return [t for t in tiles if t.count]


def full_tiles(n: int, size: int) -> list[Tiles]:
    """``n`` cut in tiles of ``size``, the last one shorter."""
    full, rest = divmod(n, size)
    tiles = [Tiles(0, full, 0, size), Tiles(full, 1, full * size, rest)]
    return [t for t in tiles if t.count and t.size]


def lanes_in(n: int, width: int) -> list[int]:
    """The number of elements in each vector of a run of ``n``."""
    return [min(width, n - j) for j in range(0, n, width)]


def count_tiles(tiles: Sequence[Tiles]) -> int:
    """Number of tiles."""
    return sum(t.count for t in tiles)


def tiles_in(em: Emitter, tiles: Sequence[Tiles], part: tuple[Index, Index] | None = None,
             ) -> Iterator[tuple[Index, int]]:
    """Loops over the tiles whose numbers are in ``part`` (all of them for None): begin and size of each."""
    for t in tiles:
        lo, hi = (t.first, t.first + t.count) if part is None else (
            em.max(part[0], t.first), em.min(part[1], t.first + t.count))
        for i in em.each(lo, hi):
            yield (i - t.first) * t.size + t.start, t.size


def each_tile(em: Emitter, n: int, size: int, carried: Carried | None = None, last: bool = False,
              ) -> Iterator[tuple[Index, int]]:
    """Loops over the ``full_tiles`` of a range: begin and size of each; the ``last`` one may be apart from the others.
    """
    whole = (n - 1) // size * size
    for t in [*full_tiles(whole, size), Tiles(whole // size, 1, whole, n - whole)] if last else full_tiles(n, size):
        for i in em.each(t.start, t.stop, t.size, carried):
            yield i, t.size


def each_run(em: Emitter, lo: Index, hi: Index, width: int) -> Iterator[tuple[Index, int, int | None]]:
    """Loops over the vectors of a range: begin, width and valid lanes; unknown ends are done element by element."""
    if isinstance(lo, int) and isinstance(hi, int):
        whole = lo + (hi - lo) // width * width
        yield from ((i, width, None) for i in em.each(lo, whole, width))
        if whole < hi:
            yield whole, width, hi - whole
        return
    stop = lo + em.max(hi - lo, 0) // width * width
    yield from ((i, width, None) for i in em.each(lo, stop, width))
    yield from ((i, 1, None) for i in em.each(stop, hi))


def each_vector(em: Emitter, extents: Sequence[int], steps: Sequence[int], width: int,
                carried: Carried | None = None) -> Iterator[tuple[Index, Index, int]]:
    """Loops over the vectors of rows of ``extents``: the offset as in ``each_index``, the number, valid lanes."""
    *outer, breadth = extents
    for base, row in each_index(em, outer, steps, carried):
        start = row * breadth
        for q, valid in each_tile(em, breadth, width, carried):
            yield base + q, start + q, valid


def each_index(em: Emitter, extents: Sequence[int], steps: Sequence[int], carried: Carried | None = None,
               offset: Index = 0, number: Index = 0) -> Iterator[tuple[Index, Index]]:
    """Nested loops over ``extents``: the offset, where a step along an axis is ``steps``, and the number in C order."""
    if not extents:
        yield offset, number
        return
    for i in em.each(0, extents[0], carried=carried):
        yield from each_index(em, extents[1:], steps[1:], carried, offset + i * steps[0], number * extents[0] + i)
