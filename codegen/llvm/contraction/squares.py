"""Transposed squares, as functions that kernels share, and the addresses of such functions."""
from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, repeat

from ...target import Target
from ..text.array import Array
from ..text.emitter import Emitter, Index


def sources(first: Array, count: int, step: Index, group: int = 4) -> list[Array]:
    """``count`` places to read that lie ``step`` elements apart.

    Within a ``group`` they are its first place and a multiple, which processors add when they load.
    """
    starts = targets(first, -(-count // group), step * group)
    return [starts[k // group].at(step * (k % group)) for k in range(count)]


def targets(first: Array, count: int, step: Index) -> list[Array]:
    """``count`` places to write that lie ``step`` elements apart, each a sum: stores of one address are quicker."""
    return list(accumulate(repeat(step, count - 1), Array.at, initial=first))


@lru_cache(maxsize=64)
def squares_function(target: Target, element: str, width: int, lines: int) -> Emitter:
    """A function that turns ``lines`` lines of ``%depth`` elements, ``%line`` apart, to ``width`` columns of a panel.

    Of that ``%stride`` elements are a row. Columns without a line are zeros. The last square of ``width`` elements of a
    line, as many as there are at least, may overlap the one before.
    """
    em = Emitter(f"squares{lines}", target, ["ptr %from", "ptr %to", "i64 %depth", "i64 %line", "i64 %stride"])
    source, panel = (Array(em, element, width, p) for p in ("%from", "%to"))
    depth, line, stride = em.numbers
    for i in em.each(0, depth, width):
        p = em.min(i, depth - width)
        rows = [place.load() for place in sources(source.at(p), lines, line)]
        turned = em.transpose(element, rows + ["zeroinitializer"] * (width - lines))
        for x, place in zip(turned, targets(panel.at(p * stride), width, stride), strict=True):
            place.store(x)
    return em.finished()
