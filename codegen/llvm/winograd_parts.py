"""Pieces of the Winograd kernels: images to transformed tiles, small products, squares turned in registers."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .emitter import Emitter, Index
from .types import vector
from .winograd_algebra import Grid, Matrix, Transform, forward_algebra
from .winograd_phases import PHASES, phases_at, phases_of_taps, phases_of_tile
from .winograd_spec import WinogradSpec, round_up

F = "float"


@dataclass(frozen=True)
class Tiles:
    """Images whose tiles are transformed, and where the results go.

    A tile is ``extent`` pixels wide; neighbours are ``step`` apart, ``columns`` of them in a row. ``top`` and ``left``
    are zeros around the image. Group ``g`` of ``group`` channels (whole vectors) of ``(point, tile)`` is at ``(g *
    spread + tile) * group + point * plane`` in the result; lanes without a channel have any value. ``block`` channels
    (whole groups) have their phases one after the other, if there are any.
    """

    channels: int
    height: int
    width: int
    top: int
    left: int
    step: int
    columns: int
    extent: int
    lanes: int
    group: int
    spread: int
    plane: int
    block: int = 0

    @property
    def breadth(self) -> int:
        """Pixels of a padded row."""
        return (self.columns - 1) * self.step + self.extent

    def window(self, tile_rows: int) -> int:
        """Elements of the buffer for ``tile_rows`` rows of tiles of one vector of channels."""
        return ((tile_rows - 1) * self.step + self.extent) * self.breadth * self.lanes

    @property
    def form(self) -> TilesForm:
        """What the text depends on."""
        side = square(self.lanes, self.width)
        return TilesForm(self.step, self.extent, self.lanes, self.group, side, self.width if self.width < side else 0,
                         self.block > 0)

    def numbers(self, name: str) -> dict[str, int]:
        """What a kernel is called with."""
        found = {"channels": self.channels, "height": self.height, "width": self.width, "top": self.top,
                 "left": self.left, "columns": self.columns, "breadth": self.breadth, "spread": self.spread,
                 "plane": self.plane}
        if self.block:
            found |= {"block": self.block, "phase": self.block * self.spread}
        return {f"{name}.{key}": n for key, n in found.items()}


@dataclass(frozen=True)
class TilesForm:
    """What the text that transforms tiles depends on.

    ``narrow`` is the width of images that are narrower than ``side``.
    """

    step: int
    extent: int
    lanes: int
    group: int
    side: int
    narrow: int
    phases: bool


def apart(tiles: int, group: int) -> int:
    """Tiles between groups of channels for ``tiles`` of them: no whole pages, which would meet in few cache sets."""
    return tiles + (4 * tiles * group % 4096 == 0)


def square(lanes: int, extent: int) -> int:
    """The side of the squares in which pixels and channels change places: no wider than a row of pixels needs."""
    side = 2
    while side < min(lanes, extent):
        side *= 2
    return min(side, lanes)


def transform_function(em: Emitter, name: str, form: TilesForm, matrix: Matrix) -> Emitter:
    """A function that transforms the rows of tiles from ``%first`` to ``%last`` of the image at ``%image``.

    Of its channels it takes those from ``%low`` to ``%high``. ``%window`` is a buffer of ``Tiles.window`` elements,
    all zero at first; ``%to`` is where tile ``%first`` goes. The numbers are those of ``name``.
    """
    inner = em.function(
        name, ["ptr %image", "ptr %window", "ptr %to", "i64 %first", "i64 %last", "i64 %low", "i64 %high"])
    lanes, size = form.lanes, form.extent

    def n(key: str) -> str:
        return inner.number(f"{name}.{key}")
    count = inner.sub("%last", "%first")
    top = inner.sub(inner.mul("%first", form.step), n("top"))
    lines = inner.add(inner.mul(count, form.step), form.extent - form.step)

    def channels(c: Index, _: list[str]) -> None:
        whole = inner.compare("sle", inner.add(c, lanes), n("channels"))
        inner.when(whole, lambda: _fill_window(inner, form, n, c, top, lines, True),
                   lambda: _fill_window(inner, form, n, c, top, lines, False))
        within = inner.value(f"and i64 {c}, {form.group - 1}") if form.group > lanes else 0
        to = inner.gep("%to", inner.add(inner.mul(inner.sub(c, within), n("spread")), within), F)
        if form.phases:  # of the blocks before this one there are all phases
            to = inner.gep(to, inner.mul(inner.div(c, n("block")), inner.mul(n("phase"), len(PHASES) - 1)), F)
        transform = Transform(inner, matrix, lanes)

        def tile(y: Index, x: Index) -> None:
            at = inner.add(inner.mul(inner.mul(y, form.step), n("breadth")), inner.mul(x, form.step))
            start = inner.gep("%window", inner.mul(at, lanes), F)
            place = inner.gep(to, inner.mul(inner.add(inner.mul(y, n("columns")), x), form.group), F)
            grid = [[inner.load(F, lanes, inner.gep(line, j * lanes, F)) for j in range(size)]
                    for line in pointers(inner, start, inner.mul(n("breadth"), lanes), size)]
            if form.phases:
                phases = phases_of_tile(inner, form.step // 2, lanes, grid)
                store_phases(inner, lanes, phases, place, n("plane"), n("phase"))
            else:
                store_points(inner, lanes, transform.both(grid), place, n("plane"))
        inner.loop(0, count, 1, lambda y, _: inner.loop(
            0, n("columns"), 1, lambda x, _: tile(y, x), unroll=False), unroll=False)
    inner.loop("%low", "%high", lanes, channels, unroll=False)
    return inner


def pointers(em: Emitter, first: str, step: Index, count: int) -> list[str]:
    """``count`` pointers, ``step`` elements apart."""
    found = [first]
    while len(found) < count:
        found.append(em.gep(found[-1], step, F))
    return found


def store_points(em: Emitter, lanes: int, grid: Grid, place: str, plane: Index) -> None:
    """Write a transformed tile, each point to its plane."""
    values = [x for row in grid for x in row]
    for x, p in zip(values, pointers(em, place, plane, len(values)), strict=True):
        em.store(F, lanes, x, p)


def store_phases(em: Emitter, lanes: int, phases: list[list[tuple[int, str]]], place: str, plane: Index,
                 step: Index) -> None:
    """Write a tile transformed phase by phase, ``step`` elements between phases."""
    offsets = [em.mul(number, step) for number in range(len(phases))]
    of_point: dict[int, list[tuple[int, str]]] = {}
    for number, points in enumerate(phases):
        for k, x in points:
            of_point.setdefault(k, []).append((number, x))
    for k, here in enumerate(pointers(em, place, plane, len(of_point))):
        for number, x in of_point[k]:
            em.store(F, lanes, x, em.gep(here, offsets[number], F))


def phase_table(em: Emitter, phases: int, side: int, block: Index) -> Callable[[Index], tuple[Index, Index]] | None:
    """Of point ``k``: the first row of what is multiplied, and how many, where phases have ``block`` rows each."""
    if phases == 1:
        return None
    table = em.table("i64", [n for at in phases_at(side) for n in at])

    def rows(k: Index) -> tuple[Index, Index]:
        entry = em.gep(table, em.mul(k, 2), "i64")
        first, count = em.load("i64", 1, entry), em.load("i64", 1, em.gep(entry, 1, "i64"))
        return em.mul(first, block), em.mul(count, block)
    return rows


def _fill_window(em: Emitter, form: TilesForm, n: Callable[[str], str], c: Index, top: Index, lines: Index,
                 whole: bool) -> None:
    """Copy rows of one vector of channels, ``whole`` or not, pixel by pixel; rows outside of the image are zero.

    The zeros left and right of the image are never written.
    """
    lanes, side = form.lanes, form.side
    size = em.mul(n("height"), n("width"))
    last = "" if whole else em.sub(n("channels"), 1)
    planes = [] if whole else [
        em.gep("%image", em.mul(em.min(em.add(c, q), last), size), F) for q in range(lanes)]
    base = em.gep("%image", em.mul(c, size), F) if whole else ""

    def line(r: Index, _: list[str]) -> None:
        row = em.add(top, r)
        start = em.gep("%window", em.mul(em.add(em.mul(r, n("breadth")), n("left")), lanes), F)

        def pixels(x: Index, valid: int | None) -> None:
            at = em.add(em.mul(row, n("width")), x)
            place = em.gep(start, em.mul(x, lanes), F)
            starts = (pointers(em, em.gep(base, at, F), size, lanes) if whole
                      else [em.gep(p, at, F) for p in planes])
            for part in range(0, lanes, side):
                rows = [em.load(F, side, p, valid) for p in starts[part:part + side]]
                for i, y in enumerate(em.transpose(F, rows)[:valid]):
                    em.store(F, side, y, em.gep(place, i * lanes + part, F))

        def copy() -> None:
            if form.narrow:
                pixels(0, form.narrow)
            else:  # the last square may overlap the one before
                end = em.sub(n("width"), side)
                em.loop(0, n("width"), side, lambda x, _: pixels(em.min(x, end), None), unroll=False)
        em.when(em.compare("ult", row, n("height")), copy, lambda: clear(em, start, em.mul(n("width"), lanes)))
    em.loop(0, lines, 1, line, unroll=False)


@dataclass(frozen=True)
class Filters:
    """How the taps of filters are transformed: what the text depends on."""

    tile: int
    transposed: bool
    phases: bool
    lanes: int


def filters_of(spec: WinogradSpec, lanes: int) -> Filters:
    """Those of a convolution."""
    return Filters(spec.tile, spec.transposed, spec.phases > 1, lanes)


def filter_numbers(spec: WinogradSpec) -> dict[str, int]:
    """What kernels are called with that transform filters: how many, and elements between the taps of two of them."""
    between = (9, 9 * spec.maps) if spec.transposed else (9 * spec.channels, 9)
    return {"channels": spec.channels, "maps": spec.maps, "map": between[0], "channel": between[1]}


def transform_weights(em: Emitter, form: Filters, weights: str, channel: Index, first: Index, place: str, plane: Index,
                      step: Index = 0) -> None:
    """Transform the taps of ``channel`` for the vector of maps from ``first``: point ``k`` goes to ``k * plane``.

    Lanes past the last map have those of the last one. Phases are ``step`` elements apart.
    """
    lanes = form.lanes
    base = em.gep(weights, em.mul(channel, em.number("channel")), F)
    last = em.sub(em.number("maps"), 1)
    taps = _taps(em, base, [em.mul(em.min(em.add(first, q), last), em.number("map")) for q in range(lanes)])
    if form.transposed:
        taps.reverse()
    grid = [taps[i:i + 3] for i in (0, 3, 6)]
    if form.phases:
        store_phases(em, lanes, phases_of_taps(em, form.tile, lanes, grid), place, plane, step)
        return
    transform = Transform(em, forward_algebra(form.tile).taps, lanes)
    store_points(em, lanes, transform.both(grid), place, plane)


def _taps(em: Emitter, base: str, rows: list[Index]) -> list[str]:
    """Nine vectors: tap ``t`` of the filters that start at ``rows``."""
    lanes = len(rows)
    starts = [em.gep(base, r, F) for r in rows]
    taps: list[str] = []
    while len(taps) < 9:
        at = len(taps)
        if 9 - at == 1 and lanes > 2:
            x = "poison"
            for lane, p in enumerate(starts):
                one = em.load(F, 1, em.gep(p, at, F))
                x = em.value(f"insertelement <{lanes} x float> {x}, float {one}, i64 {lane}")
            taps.append(x)
        else:
            valid = min(lanes, 9 - at)
            taps += em.transpose(F, [em.load(F, lanes, em.gep(p, at, F), valid) for p in starts])[:valid]
    return taps


def clear(em: Emitter, pointer: str, count: Index) -> None:
    """Write ``count`` zeros."""
    em.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    em.line(f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 0, i64 {em.mul(count, 4)}, i1 false)")


@dataclass(frozen=True)
class Product:
    """Strides of ``C += A B`` in registers: A is read element by element, B and C by vectors.

    Where A has a ``spread``, its columns come in groups as long as a row, so many rows apart.
    """

    a_row: int
    a_k: int
    b_k: int
    b_vector: Index
    c_row: Index
    lanes: int
    spread: Index = 0


def small_product(em: Emitter, work: Product, rows: int, vectors: int, depth: Index, a: str, b: str, c: str,
                  add: bool, ahead: Callable[[Index], None] | None = None) -> None:
    """``rows`` x ``vectors`` of C, set or (``add``) added to; ``ahead`` writes what else a step has time for."""
    lanes, ty = work.lanes, vector(F, work.lanes)

    def places() -> list[str]:
        return [em.gep(p, j * lanes, F) for p in pointers(em, c, work.c_row, rows) for j in range(vectors)]
    initial = [em.load(F, lanes, p) for p in places()] if add else ["zeroinitializer"] * (rows * vectors)

    def step(k: Index, sums: list[str], a: str, b: str) -> list[str]:
        line = pointers(em, em.gep(b, em.mul(k, work.b_k), F), work.b_vector, vectors)
        ys = [em.load(F, lanes, p) for p in line]
        column = em.gep(a, em.mul(k, work.a_k), F)
        result: list[str] = []
        for i in range(rows):
            x = em.broadcast(F, lanes, em.load(F, 1, em.gep(column, i * work.a_row, F)))
            result += [em.fma(F, lanes, x, y, sums[i * vectors + j]) for j, y in enumerate(ys)]
        return result

    def several(first: Index, sums: list[str]) -> list[str]:
        count = em.min(work.a_row, em.sub(depth, first))
        left = em.gep(a, em.mul(first, work.spread), F)
        right = em.gep(b, em.mul(first, work.b_k), F)

        def one(k: Index, sums: list[str]) -> list[str]:
            if ahead is not None:
                ahead(em.add(first, k))
            return step(k, sums, left, right)
        return em.loop(0, count, 1, one, [(ty, x) for x in sums], unroll=False)
    turns = [(ty, x) for x in initial]
    if work.spread:
        sums = em.loop(0, depth, work.a_row, several, turns, unroll=False)
    else:
        sums = em.loop(0, depth, 1, lambda k, sums: step(k, sums, a, b), turns, unroll=False)
    for p, x in zip(places(), sums, strict=True):
        em.store(F, lanes, x, p)


def for_images(em: Emitter, first: Index, last: Index, rows: Index,
               body: Callable[[Index, Index, Index, Index], None]) -> None:
    """``body(image, from, to, offset)`` for the images that rows of tiles ``first`` … ``last - 1`` are in."""

    def image(n: Index, _: list[str]) -> None:
        start = em.mul(n, rows)
        low, high = em.max(first, start), em.min(last, em.add(start, rows))
        body(n, em.sub(low, start), em.sub(high, start), em.sub(low, first))
    em.loop(em.div(first, rows), em.add(em.div(em.sub(last, 1), rows), 1), 1, image, unroll=False)


def even_blocks(em: Emitter, total: Index, most: Index, body: Callable[[Index, Index], None]) -> None:
    """``body(first, last)`` for this thread's part of ``range(total)``, in equal pieces of at most ``most``."""
    lo, hi = em.chunk(total)
    count = em.div(em.add(em.sub(hi, lo), em.sub(most, 1)), most)
    step = em.div(em.add(em.sub(hi, lo), em.sub(em.max(count, 1), 1)), em.max(count, 1))
    em.loop(lo, hi, step, lambda first, _: body(first, em.min(em.add(first, step), hi)), unroll=False)


def scratch_layout(*sizes: int) -> list[int]:
    """Offsets of parts of ``sizes`` floats, on cache lines of their own, and the whole size."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + round_up(size, 16))
    return offsets
