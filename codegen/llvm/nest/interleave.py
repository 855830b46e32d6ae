"""Interleaving of short rows: neighbours in memory become one vector per column, and back."""
from __future__ import annotations

from collections.abc import Sequence

from ..text.emitter import Emitter


def deinterleave(em: Emitter, element: str, width: int, vectors: Sequence[str]) -> list[str]:
    """The columns of rows of ``n`` elements from the ``n`` vectors that hold the rows one behind the other.

    Even numbers are halved: elements at even and at odd positions. Of an odd number of columns each is picked from all
    vectors, one after the other.
    """
    n = len(vectors)
    if n == 1:
        return list(vectors)
    if n % 2 == 0:
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        halves = [deinterleave(em, element, width, [em.shuffle(element, width, a, b, range(first, 2 * width, 2))
                                            for a, b in pairs]) for first in (0, 1)]
        return [x for pair in zip(*halves, strict=True) for x in pair]
    return [pick(em, element, width, vectors, [divmod(i * n + j, width) for i in range(width)]) for j in range(n)]


def interleave(em: Emitter, element: str, width: int, columns: Sequence[str]) -> list[str]:
    """The inverse of ``deinterleave``: columns of short rows as vectors that follow each other in memory."""
    n = len(columns)
    if n == 1:
        return list(columns)
    if n % 2 == 0:
        even, odd = (interleave(em, element, width, columns[first::2]) for first in (0, 1))
        result: list[str] = []
        for a, b in zip(even, odd, strict=True):
            for start in (0, width // 2):
                lanes = [start + i // 2 + (i % 2) * width for i in range(width)]
                result.append(em.shuffle(element, width, a, b, lanes))
        return result
    return [pick(em, element, width, columns, [(at % n, at // n) for at in range(k * width, (k + 1) * width)])
            for k in range(n)]


def pick(em: Emitter, element: str, width: int, vectors: Sequence[str], places: Sequence[tuple[int, int]]) -> str:
    """A vector of the lanes ``(vector, lane)``."""
    first, *others = sorted({at for at, _ in places})
    made, here = vectors[first], [lane if at == first else 0 for at, lane in places]
    for v in others:
        lanes = [width + lane if at == v else here[i] for i, (at, lane) in enumerate(places)]
        made, here = em.shuffle(element, width, made, vectors[v], lanes), list(range(width))
    return made if others else em.shuffle(element, width, made, "poison", here)
