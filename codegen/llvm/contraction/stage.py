"""The scratch memory of a thread, in parts that begin on cache lines of their own."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..text.emitter import Emitter

LINE_BYTES = 64  # a cache line


def whole_lines(elements: int, itemsize: int) -> int:
    """The elements of the cache lines that ``elements`` of ``itemsize`` bytes need."""
    return -(-elements * itemsize // LINE_BYTES) * LINE_BYTES // itemsize


def scratch_layout(itemsize: int, *sizes: int) -> list[int]:
    """Offsets of parts of ``sizes`` elements, and the whole size."""
    return [0, *accumulate(whole_lines(n, itemsize) for n in sizes)]


def thread_scratch(em: Emitter, slot: int, element: str, itemsize: int, sizes: Sequence[int]) -> tuple[list[str], int]:
    """Pointers to the parts of this thread's scratch, and the bytes that each thread needs."""
    *places, size = scratch_layout(itemsize, *sizes)
    own = em.gep(em.slot(slot), em.mul("%tid", size), element)
    return [em.gep(own, at, element) for at in places], size * itemsize
