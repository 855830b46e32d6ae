"""Gradients of inputs that are NaN only because padding was multiplied by filters that are no finite numbers.

Sums run over all taps, also those whose windows do not exist: their terms are zero times a weight, NaN if that is
infinite or NaN. Such a sum is NaN; so sums that are NaN are computed again, one by one, of the taps that count. If all
is finite that is a comparison for each vector of results.
"""
from __future__ import annotations

from collections.abc import Sequence

from ...text.emitter import Emitter, Index
from ...text.tiles import full_tiles
from ...text.types import constants, vector
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


def any_unbounded(em: Emitter, element: str, width: int, array: str, size: int) -> str:
    """An i1: whether an element of an array is infinite or NaN."""
    tile, zero = Tile(em, element, width), em.splat(element, width, 0.0)
    sums = [zero] * 4   # additions that wait for each other take four cycles
    for t in full_tiles(size, len(sums) * width):
        def part(i: Index, sums: list[str], count: int = t.size) -> list[str]:
            xs = (em.load(element, width, em.gep(array, em.add(i, place), element), count - place)
                  for place in range(0, count, width))
            found = tile.add(xs, [zero], sums)   # NaN, once it is
            return found + sums[len(found):]
        sums = tile.sum(t.stop, part, sums, t.size, t.start)
    return any_nan(em, element, width, [[x] for x in sums], [width])


class FixUp:
    """Sums without the products of padding, one by one, and functions that recompute sums that are NaN.

    Tables of taps have pairs: the offset of a weight in the filters, and of its factor in a staged image.
    """

    def __init__(self, em: Emitter, g: Gathering, element: str, line: int = 0) -> None:
        self.em = em
        self.g = g
        self.element = element
        self.line = line
        self._fix_up: Emitter | None = None
        self._taps = ""

    def pieces(self, tile: str, images: str, filters: str, rows: Index, pieces: str, count: Index,
               taps: tuple[str, Index] | None = None) -> None:
        """Fix up the ``rows`` of a tile, of ``line`` elements each, whose columns are pieces of a panel.

        ``filters`` are those of its first row. ``taps`` are a table of pairs and their number, those of the only part
        for None.
        """
        if self._fix_up is None:
            self._fix_up = self._function()
        table, number = taps or self._only()
        self.em.call(self._fix_up, tile, images, filters, rows, pieces, count, table, number)

    def _only(self) -> tuple[str, Index]:
        part, = self.g.parts
        self._taps = self._taps or self.em.table("i64", [v for pair in part.taps for v in pair])
        return self._taps, len(part.taps)

    def _function(self) -> Emitter:
        em = self.em.function("mend", ["ptr %tile", "ptr %images", "ptr %filters", "i64 %rows", "ptr %pieces",
                                              "i64 %count", "ptr %taps", "i64 %number"])
        sample = self.g.depth * self.g.image.size

        @em.each(0, "%count")
        def piece(i: Index) -> None:
            entry = em.gep("%pieces", em.mul(i, PIECE_WORDS), "i64")
            start = em.entry(entry)
            column = em.entry(entry, 1)
            length = em.entry(entry, 2)
            before = em.mul(em.div(start, sample), sample)
            em.loop(0, length, 1, lambda j, _: self._column(
                em, em.gep("%tile", em.add(column, j), self.element), em.gep("%images", before, self.element),
                em.add(em.sub(start, before), j)), unroll=False)
        return em

    def _column(self, em: Emitter, tile: str, image: str, place: Index) -> None:
        """The rows of a column of a tile that are NaN, in the function ``mend``."""
        element = self.element

        @em.each(0, "%rows")
        def row(r: Index) -> None:
            spot = em.gep(tile, em.mul(r, self.line), element)
            filters = em.gep("%filters", em.mul(r, self.g.row_step), element)

            def again() -> None:
                em.store(element, 1, self._sum(em, image, place, filters, "%taps", "%number"), spot)
            em.when(_is_nan(em, element, em.load(element, 1, spot)), again)

    def total(self, image: str, place: Index, filters: str) -> str:
        """One sum, the window of which begins at ``place`` of the staged image."""
        return self._sum(self.em, image, place, filters, *self._only())

    def _sum(self, em: Emitter, image: str, place: Index, filters: str, taps: str, number: Index) -> str:
        """The sum over the taps that are no padding; once it is NaN it stays so."""
        element, g = self.element, self.g

        def tap(t: Index, sums: list[str]) -> list[str]:
            entry = em.gep(taps, em.mul(t, 2), "i64")
            at = em.add(place, em.entry(entry, 1))
            weights = em.gep(filters, em.entry(entry), element)
            near = em.gep(image, at, element)

            def channel(c: Index, sums: list[str]) -> list[str]:
                w = em.load(element, 1, em.gep(weights, em.mul(c, g.channel_step), element))
                x = em.load(element, 1, em.gep(near, em.mul(c, g.image.size), element))
                return Tile(em, element, 1).add([w], [x], sums)

            def channels() -> list[str]:
                return em.loop(0, g.depth, 1, channel, [(element, sums[0])], unroll=False, until=stop)
            return em.when(self._inside(em, at), channels, lambda: [sums[0]], [element])

        def stop(sums: list[str]) -> str:
            return _is_nan(em, element, sums[0])
        return em.loop(0, number, 1, tap, [(element, "0.0")], unroll=False, until=stop)[0]

    def _inside(self, em: Emitter, at: Index) -> str:
        """Whether a position of a channel holds an element, not padding."""
        found = "true"
        for axis, step in zip(self.g.image.axes, self.g.image.steps, strict=True):
            above = em.div(at, step)
            here = em.sub(above, em.mul(em.div(above, axis.length), axis.length))
            inside = axis.inside(axis.planes[0])
            for one in (em.compare("sge", here, inside.start), em.compare("slt", here, inside.stop)):
                found = em.value(f"and i1 {found}, {one}")
        return found


def _is_nan(em: Emitter, element: str, x: str) -> str:
    return em.value(f"fcmp uno {element} {x}, {x}")
