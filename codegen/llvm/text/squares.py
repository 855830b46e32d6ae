"""Transposed squares, as functions that kernels share, and the addresses of such functions."""
from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, repeat

from ...target import Target
from .array import Array
from .emitter import Emitter, Index


def sources(first: Array, count: int, step: Index, group: int = 4) -> list[Array]:
    """``count`` places to read that lie ``step`` elements apart.

    Within a ``group`` they are its first place and a multiple, which processors add when they load.
    """
    starts = targets(first, -(-count // group), step * group)
    return [starts[k // group].at(step * (k % group)) for k in range(count)]


def targets(first: Array, count: int, step: Index) -> list[Array]:
    """``count`` places to write that lie ``step`` elements apart, each a sum: stores at one address take less time."""
    return list(accumulate(repeat(step, count - 1), Array.at, initial=first))


@lru_cache(maxsize=64)
def squares_function(target: Target, element: str, width: int, lines: int) -> Emitter:
    """A function that transposes squares of ``width`` elements of ``lines`` lines; others are zeros.

    Lines lie ``%line`` elements apart, columns ``%column``. The next element is ``%from_step`` further, and that of the
    columns ``%to_step``; there are ``%count``, at least ``width``. The last square may overlap the one before.
    """
    em = Emitter(f"squares{lines}", target, ["ptr %from", "ptr %to", "i64 %count", "i64 %line", "i64 %column",
                                             "i64 %from_step", "i64 %to_step"])
    source, to = (Array(em, element, width, p) for p in ("%from", "%to"))
    count, line, column, from_step, to_step = em.numbers
    for i in em.each(0, count, width):
        p = em.min(i, count - width)
        rows = [place.load() for place in sources(source.at(p * from_step), lines, line)]
        turned = em.transpose(element, rows + ["zeroinitializer"] * (width - lines))
        for x, place in zip(turned, targets(to.at(p * to_step), width, column), strict=True):
            place.store(x)
    return em.finished()
