"""Arrays that share memory: schedules write some arrays while they read others."""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ...backends.cuda import is_cupy_array


def has_address(x: Any) -> bool:
    """Whether something is an array of NumPy's or CuPy's."""
    return isinstance(x, np.ndarray) or is_cupy_array(x)


def address_of(array: Any) -> int:
    """Return the address of the first element, in the memory of the host or of a card; no two devices share any."""
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def is_writable(array: Any) -> bool:
    """Whether an array may be written to; one of a card is not where it repeats elements."""
    return array.flags.writeable if isinstance(array, np.ndarray) else not repeats(array)


def bounds(array: Any) -> tuple[int, int]:
    """Return the address of an array's first byte, and that behind its last one."""
    if isinstance(array, np.ndarray):
        return byte_bounds(array)
    start = end = address_of(array)
    for n, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            start += (n - 1) * stride
        else:
            end += (n - 1) * stride
    return start, end + array.itemsize


class Spans:
    """The memory of some arrays. Invariant: sorted by its first byte; ``ends`` are the last ones so far."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        found = sorted(bounds(a) for a in arrays if a.size)
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
        start, end = bounds(array)
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
