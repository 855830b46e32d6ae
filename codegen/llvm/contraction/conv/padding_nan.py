"""Gradients of inputs that are NaN only because padding was multiplied by filters that are no finite numbers.

Sums run over all taps, also those whose windows do not exist: their terms are zero times a weight, NaN if that is
infinite or NaN. Such a sum is NaN; so sums that are NaN are computed again, one by one, of the taps that count. If all
is finite that is a comparison for each vector of results.
"""
from __future__ import annotations

from collections.abc import Sequence

from ...text.array import Array
from ...text.emitter import Carried, Emitter, Index
from ...text.tiles import each_tile
from ...text.types import constants, splat, vector
from ..tile import Tile
from .geometry import Gathering, Part
from .stage import PIECE_WORDS


def meets_padding(g: Gathering) -> bool:
    """Whether a result is summed over positions that are padding."""
    return any(_beyond(g, part, offset) for part in g.parts for _, offset in part.taps)


def _beyond(g: Gathering, part: Part, offset: int) -> bool:
    """Whether a tap of some result of a part is padding."""
    for axis, step, extent in zip(g.image.axes, g.image.steps, part.extents, strict=True):
        first, inside = offset // step % axis.length, axis.inside(axis.planes[0])
        if first < inside.start or first + extent > inside.stop:
            return True
    return False


def any_nan(em: Emitter, element: str, width: int, rows: Sequence[Sequence[str]], valid: Sequence[int]) -> str:
    """An i1: whether one of the sums ``rows[i][j]`` is NaN, of whose lanes the first ``valid[j]`` count."""
    ty, bits = vector(element, width), vector("i1", width)
    found = ""
    for j, count in enumerate(valid):
        column = [row[j] for row in rows]
        column += column[:len(column) % 2]
        here = ""
        for a, b in zip(column[::2], column[1::2], strict=True):
            one = em.value(f"fcmp uno {ty} {a}, {b}")
            here = em.value(f"or {bits} {here}, {one}") if here else one
        if count < width:
            here = em.value(f"and {bits} {here}, {constants('i1', [i < count for i in range(width)])}")
        found = em.value(f"or {bits} {found}, {here}") if found else here
    if width == 1:
        return found
    whole = em.value(f"bitcast {bits} {found} to i{width}")
    return em.value(f"icmp ne i{width} {whole}, 0")


def any_unbounded(array: Array, size: int) -> str:
    """An i1: whether an element of an array is infinite or NaN."""
    em, element, width = array.em, array.element, array.width
    tile, zero = Tile(em, element, width), splat(element, width, 0.0)
    sums = tile.carried([zero] * 4)   # additions that wait for each other take four cycles
    for i, count in each_tile(em, size, 4 * width, sums):
        xs = (array.load(i + place, count - place) for place in range(0, count, width))
        found = tile.add(xs, [zero], sums.values)   # NaN, once it is
        sums.values[:len(found)] = found
    return any_nan(em, element, width, [[x] for x in sums.values], [width])


class FixUp:
    """Sums without the products of padding, one by one, and functions that recompute sums that are NaN.

    Tables of taps have pairs: the offset of a weight in the filters, and of its factor in a staged image.
    """

    def __init__(self, em: Emitter, g: Gathering, element: str, line: int = 0) -> None:
        self.em, self.g, self.element, self.line = em, g, element, line
        self._fix_up: Emitter | None = None

    def pieces(self, tile: Array, images: Array, filters: Array, rows: Index, pieces: Array, count: Index,
               taps: tuple[str, Index] | None = None) -> None:
        """Fix up the ``rows`` of a tile, of ``line`` elements each, whose columns are pieces of a panel.

        ``filters`` are those of its first row. ``taps`` are a table of pairs and their number, those of the only part
        for None.
        """
        if self._fix_up is None:
            self._fix_up = self._function()
        self.em.call(self._fix_up, tile, images, filters, rows, pieces, count, *(taps or self._only()))

    def _only(self) -> tuple[str, Index]:
        part, = self.g.parts
        return self.em.table("i64", [word for tap in part.taps for word in tap]), len(part.taps)

    def _function(self) -> Emitter:
        em = self.em.function("mend", ["ptr %tile", "ptr %images", "ptr %filters", "i64 %rows", "ptr %pieces",
                                       "i64 %count", "ptr %taps", "i64 %number"])
        tile, images, filters = (Array(em, self.element, 1, p) for p in ("%tile", "%images", "%filters"))
        rows, count, number = em.numbers
        sample = self.g.depth * self.g.image.size
        for start, column, length in em.rows("%pieces", count, PIECE_WORDS):
            block, inside = em.divmod(start, sample)
            image = images.at(block * sample)
            for j in em.each(0, length):
                line, place = tile.at(column + j), inside + j
                for r in em.each(0, rows):
                    spot, weights = line.at(r * self.line), filters.at(r * self.g.row_step)
                    with em.only(_is_nan(em, self.element, spot.one())):
                        spot.put(self._sum(image, place, weights, "%taps", number))
        return em

    def total(self, image: Array, place: Index, filters: Array) -> str:
        """One sum, the window of which begins at ``place`` of the staged image."""
        return self._sum(image, place, filters, *self._only())

    def _sum(self, image: Array, place: Index, filters: Array, taps: str, number: Index) -> str:
        """The sum over the taps that are no padding; once it is NaN it stays so."""
        em, element, g = image.em, self.element, self.g
        sums = Carried([element], ["0.0"])

        def stop(sums: list[str]) -> str:
            return _is_nan(em, element, sums[0])

        def channels() -> list[str]:
            for c in em.each(0, g.depth, carried=sums, until=stop):
                w, x = weights.one(c * g.channel_step), near.one(c * g.image.size)
                sums.values = Tile(em, element, 1).add([w], [x], sums.values)
            return sums.values
        for t in em.each(0, number, carried=sums, until=stop):
            weight, offset = em.row(taps, t, 2)
            at, before = place + offset, sums.values
            weights, near = filters.at(weight), image.at(at)
            sums.values = em.when(self._inside(em, at), channels, lambda before=before: before, [element])
        return sums.values[0]

    def _inside(self, em: Emitter, at: Index) -> str:
        """Whether a position of a channel holds an element, not padding."""
        found = "true"
        for axis, step in zip(self.g.image.axes, self.g.image.steps, strict=True):
            _, here = em.divmod(at // step, axis.length)
            inside = axis.inside(axis.planes[0])
            for one in (em.compare("sge", here, inside.start), em.compare("slt", here, inside.stop)):
                found = em.value(f"and i1 {found}, {one}")
        return found


def _is_nan(em: Emitter, element: str, x: str) -> str:
    return em.value(f"fcmp uno {element} {x}, {x}")
