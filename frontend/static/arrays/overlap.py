"""Arrays that share memory: schedules write some arrays while they read others."""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from numpy.lib.array_utils import byte_bounds


class Spans:
    """The memory of some arrays. Invariant: sorted by its first byte; ``ends`` are the last ones so far."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        found = sorted(byte_bounds(a) for a in arrays if a.size)
        self.starts = [start for start, _ in found]
        self.ends: list[int] = []
        self.disjoint = True  # among themselves
        last = 0
        for start, end in found:
            self.disjoint = self.disjoint and start >= last
            last = max(last, end)
            self.ends.append(last)

    def touch(self, array: Any) -> bool:
        """Whether ``array`` may share memory with one of them."""
        if not array.size:
            return False
        start, end = byte_bounds(array)
        before = bisect_left(self.starts, end)  # so many begin before it ends
        return before > 0 and self.ends[before - 1] > start


def repeats(array: Any) -> bool:
    """Whether elements of an array may lie in the same memory; False says that none do.

    >>> repeats(np.broadcast_to(np.zeros(1), (3,))), repeats(np.zeros((3, 4)).T[::2])
    (True, False)
    """
    end = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < end:
            return True
        end += stride * (n - 1)
    return False
