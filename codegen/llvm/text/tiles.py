"""Ranges cut in tiles, and loops over them."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .emitter import Emitter, Index


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


def count_tiles(tiles: Sequence[Tiles]) -> int:
    """Number of tiles."""
    return sum(t.count for t in tiles)


def for_tiles(em: Emitter, tiles: Sequence[Tiles], part: tuple[Index, Index] | None,
              body: Callable[[Index, int], None]) -> None:
    """``body(start, size)`` for the tiles whose numbers are in ``part`` (all of them for None)."""
    for t in tiles:
        lo, hi = (t.first, t.first + t.count) if part is None else (
            em.max(part[0], t.first), em.min(part[1], t.first + t.count))

        @em.each(lo, hi)
        def turn(i: Index, t: Tiles = t) -> None:
            body(em.add(em.mul(em.sub(i, t.first), t.size), t.start), t.size)


def each_tile(em: Emitter, n: int, size: int) -> Callable[[Callable[[Index, int], None]], None]:
    """Decorator that writes the loops of ``f(start, size)`` over the ``full_tiles`` of a range, where ``f`` stands."""
    def write(body: Callable[[Index, int], None]) -> None:
        for t in full_tiles(n, size):
            em.loop(t.start, t.stop, t.size, lambda i, _, t=t: body(i, t.size), unroll=False)
    return write
