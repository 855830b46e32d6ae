"""Pieces of the Winograd kernels: images to transformed tiles, small products, squares transposed in registers."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...text.emitter import Emitter, Index
from ..tile import Factors, Tile
from .algebra import Grid, Matrix, Transform, forward_algebra
from .phases import PHASES, phases_at, phases_of_taps, phases_of_tile
from .spec import WinogradSpec

F = "float"


@dataclass(frozen=True)
class Source:
    """Images whose tiles are transformed by ``matrix``, and the layout of the results.

    A tile is as wide as ``matrix``; neighbours are ``step`` apart, ``columns`` of them in a row. ``top`` and ``left``
    are zeros around the image. Vector ``v`` of the channels of ``(point, tile)`` is at
    ``v * group + point * plane + tile * stride`` in the result; in the last one, lanes without a channel have any
    value. ``block`` channels (whole vectors) have their phases one after the other, if there are any.
    """

    channels: int
    height: int
    width: int
    top: int
    left: int
    step: int
    columns: int
    matrix: Matrix
    stride: int
    plane: int
    group: int
    lanes: int
    block: int = 0

    @property
    def extent(self) -> int:
        """Pixels along an axis of a tile: as many as ``matrix`` has columns; with phases, two for each but the last."""
        return 2 * len(self.matrix[0]) - 1 if self.block else len(self.matrix[0])

    @property
    def breadth(self) -> int:
        """Pixels of a padded row."""
        return (self.columns - 1) * self.step + self.extent

    def window(self, tile_rows: int) -> int:
        """Elements of the buffer for ``tile_rows`` rows of tiles of one vector of channels."""
        return ((tile_rows - 1) * self.step + self.extent) * self.breadth * self.lanes


def square(lanes: int, extent: int) -> int:
    """The side of the squares in which pixels and channels are transposed: no wider than a row of pixels needs."""
    side = 2
    while side < min(lanes, extent):
        side *= 2
    return min(side, lanes)


def transform_function(em: Emitter, name: str, source: Source) -> Emitter:
    """A function that transforms the rows of tiles from ``%first`` to ``%last`` of the image at ``%image``.

    Of its channels it takes those from ``%low`` to ``%high``. ``%window`` is a buffer of ``source.window`` elements,
    all zero at first; ``%to`` is the address of tile ``%first``.
    """
    inner = em.function(
        name, ["ptr %image", "ptr %window", "ptr %to", "i64 %first", "i64 %last", "i64 %low", "i64 %high"])
    count = inner.sub("%last", "%first")
    top = inner.mul("%first", source.step)
    lines = inner.add(inner.mul(count, source.step), source.extent - source.step)

    @inner.each("%low", "%high", source.lanes)
    def channels(c: Index) -> None:
        _fill_window(inner, source, c, top, lines)
        to = inner.gep("%to", inner.mul(c, source.group // source.lanes), F)
        if source.block:  # of the blocks before this one there are all phases
            to = inner.gep(to, inner.mul(inner.div(c, source.block), (len(PHASES) - 1) * source.block), F)
        transform = Transform(inner, source.matrix, source.lanes)

        def tile(y: Index, x: Index) -> None:
            at = inner.add(inner.mul(y, source.step * source.breadth), inner.mul(x, source.step))
            start = inner.gep("%window", inner.mul(at, source.lanes), F)
            place = inner.gep(to, inner.mul(inner.add(inner.mul(y, source.columns), x), source.stride), F)
            size = source.extent
            grid = [[inner.load(F, source.lanes, inner.gep(start, (i * source.breadth + j) * source.lanes, F))
                     for j in range(size)] for i in range(size)]
            if source.block:
                phases = phases_of_tile(inner, source.step // 2, source.lanes, grid)
                store_phases(inner, source.lanes, phases, place, source.plane, source.block)
            else:
                store_points(inner, source.lanes, transform.both(grid), place, source.plane)
        inner.loop(0, count, 1, lambda y, _: inner.loop(
            0, source.columns, 1, lambda x, _: tile(y, x), unroll=False), unroll=False)
    return inner


def store_points(em: Emitter, lanes: int, grid: Grid, place: str, plane: int) -> None:
    """Write a transformed tile, each point to its plane."""
    for k, x in enumerate(x for row in grid for x in row):
        em.store(F, lanes, x, em.gep(place, k * plane, F))


def store_phases(em: Emitter, lanes: int, phases: list[list[tuple[int, str]]], place: str, plane: int,
                 step: int) -> None:
    """Write a tile transformed phase by phase, ``step`` elements between phases."""
    for number, points in enumerate(phases):
        for k, x in points:
            em.store(F, lanes, x, em.gep(place, k * plane + number * step, F))


def phase_table(em: Emitter, spec: WinogradSpec, block: int) -> Callable[[Index], tuple[str, str]] | None:
    """Of point ``k``: the first row of the factor, and the number of rows, if phases have ``block`` rows each."""
    if spec.phases == 1:
        return None
    table = em.table("i64", [n * block for at in phases_at(spec.side) for n in at])

    def rows(k: Index) -> tuple[str, str]:
        entry = em.gep(table, em.mul(k, 2), "i64")
        return em.entry(entry), em.entry(entry, 1)
    return rows


def _fill_window(em: Emitter, source: Source, c: Index, top: Index, lines: Index) -> None:
    """Copy rows of one vector of channels, pixel by pixel; rows outside of the image are zero.

    The zeros left and right of the image are never written.
    """
    lanes, breadth, size = source.lanes, source.breadth, source.height * source.width
    side = square(lanes, source.width)
    whole = source.channels % lanes == 0
    planes = [] if whole else [
        em.gep("%image", em.mul(em.min(em.add(c, q), source.channels - 1), size), F) for q in range(lanes)]
    base = em.gep("%image", em.mul(c, size), F) if whole else ""

    @em.each(0, lines)
    def line(r: Index) -> None:
        row = em.sub(em.add(top, r), source.top)
        start = em.gep("%window", em.mul(em.add(em.mul(r, breadth), source.left), lanes), F)

        def pixels(x: Index, valid: int | None) -> None:
            at = em.add(em.mul(row, source.width), x)
            here = em.gep(base, at, F) if whole else ""
            place = em.gep(start, em.mul(x, lanes), F)
            for part in range(0, lanes, side):
                starts = [em.gep(here, q * size, F) if whole else em.gep(planes[q], at, F)
                          for q in range(part, part + side)]
                rows = [em.load(F, side, p, valid) for p in starts]
                for i, y in enumerate(em.transpose(F, rows)[:valid]):
                    em.store(F, side, y, em.gep(place, i * lanes + part, F))

        def copy() -> None:
            if source.width < side:
                pixels(0, source.width)
            else:  # the last square may overlap the one before
                em.loop(0, source.width, side, lambda x, _: pixels(em.min(x, source.width - side), None), unroll=False)
        em.when(em.compare("ult", row, source.height), copy, lambda: em.clear(start, 4 * source.width * lanes))


def transform_weights(em: Emitter, spec: WinogradSpec, lanes: int, weights: str, channel: Index, first: Index,
                      place: str, plane: int, step: int = 0) -> None:
    """Transform the taps of ``channel`` for the output channels from ``first``; point ``k`` is at ``k * plane``.

    Lanes past the last output channel have the values of the last one. Phases are ``step`` elements apart.
    """
    between_maps, between_channels = (9, spec.maps * 9) if spec.transposed else (spec.channels * 9, 9)
    base = em.gep(weights, em.mul(channel, between_channels), F)
    taps = _taps(em, base, [em.mul(em.min(em.add(first, q), spec.maps - 1), between_maps) for q in range(lanes)])
    if spec.transposed:
        taps.reverse()
    grid = [taps[i:i + 3] for i in (0, 3, 6)]
    if spec.phases > 1:
        store_phases(em, lanes, phases_of_taps(em, spec.tile, lanes, grid), place, plane, step)
        return
    transform = Transform(em, forward_algebra(spec.tile).taps, lanes)
    store_points(em, lanes, transform.both(grid), place, plane)


def _taps(em: Emitter, base: str, rows: list[Index]) -> list[str]:
    """Nine vectors: tap ``t`` of the filters that start at ``rows``."""
    lanes = len(rows)
    starts = [em.gep(base, r, F) for r in rows]
    taps: list[str] = []
    while len(taps) < 9:
        at = len(taps)
        if 9 - at == 1 and lanes > 2:
            taps.append(em.collect(F, lanes, (em.load(F, 1, em.gep(p, at, F)) for p in starts)))
        else:
            valid = min(lanes, 9 - at)
            taps += em.transpose(F, [em.load(F, lanes, em.gep(p, at, F), valid) for p in starts])[:valid]
    return taps


@dataclass(frozen=True)
class Product:
    """Strides of ``C += A B`` in registers: A is read element by element, B and C by vectors."""

    a_row: int
    a_k: int
    b_k: int
    b_vector: int
    c_row: int
    lanes: int


def small_product(em: Emitter, work: Product, rows: int, vectors: int, depth: Index, a: str, b: str, c: str,
                  add: bool, ahead: Callable[[Index], None] | None = None) -> None:
    """``rows`` x ``vectors`` of C, set or (``add``) added to; ``ahead`` writes further work of a step."""
    tile = Tile(em, F, work.lanes)
    places = [em.gep(c, i * work.c_row + j * work.lanes, F) for i in range(rows) for j in range(vectors)]
    initial = [em.load(F, work.lanes, p) for p in places] if add else tile.zeros(len(places))
    sums = tile.product(Factors(a, work.a_k, [i * work.a_row for i in range(rows)], True),
                        Factors(b, work.b_k, [j * work.b_vector for j in range(vectors)]), depth, initial, ahead)
    for p, x in zip(places, sums, strict=True):
        em.store(F, work.lanes, x, p)


def for_images(em: Emitter, first: Index, last: Index, rows: int,
               body: Callable[[Index, Index, Index, Index], None]) -> None:
    """``body(image, from, to, offset)`` for the images with the rows of tiles ``first`` … ``last - 1``."""

    @em.each(em.div(first, rows), em.add(em.div(em.sub(last, 1), rows), 1))
    def image(n: Index) -> None:
        start = em.mul(n, rows)
        low, high = em.max(first, start), em.min(last, em.add(start, rows))
        body(n, em.sub(low, start), em.sub(high, start), em.sub(low, first))


def even_blocks(em: Emitter, total: int, most: int, body: Callable[[Index, Index], None]) -> None:
    """``body(first, last)`` for this thread's part of ``range(total)``, in equal pieces of at most ``most``."""
    lo, hi = em.chunk(total)
    count = em.div(em.add(em.sub(hi, lo), most - 1), most)
    step = em.div(em.add(em.sub(hi, lo), em.sub(em.max(count, 1), 1)), em.max(count, 1))
    em.loop(lo, hi, step, lambda first, _: body(first, em.min(em.add(first, step), hi)), unroll=False)
