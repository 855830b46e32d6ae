"""The gradient of the weights of a convolution with 3 x 3 taps by Winograd's algorithm, as LLVM IR.

A tile of the gradient at the output is a filter over the tile of the image, with three outputs each way. Its
transform times that of the image's tile, summed over all tiles, is the transform of the gradient. There are two ways
to share the work among threads (``GradientBlocking``), both with two kernels, one after the other.
"""
from __future__ import annotations

from dataclasses import dataclass

from kusari.ir import Kernel

from ..target import Target
from .emitter import Emitter, Index
from .given import given_kernel
from .winograd_algebra import Transform, gradient_algebra
from .winograd_parts import (
    F,
    Product,
    Tiles,
    TilesForm,
    clear,
    even_blocks,
    for_images,
    scratch_layout,
    small_product,
    transform_function,
)
from .winograd_spec import GradientBlocking, WinogradSpec, gradient_blocking, round_up


@dataclass(frozen=True)
class _Plan:
    """How a gradient lies in memory.

    Transformed tiles are at ``[vector of channels][point][tile][lane]``, sums at ``[panel of maps][rows of
    channels][point][row][map of the panel]``, so that what is computed together is together. Of the scratch memory
    ``shared`` are the places of both kinds of tiles if one thread owns a weight, and ``own`` for each thread a window
    for either, sums, a square, and else the tiles.
    """

    data: Tiles
    taps: Tiles
    row_tiles: int
    panels: int
    unit: int
    shared: list[int]
    own: list[int]


def _planned(spec: WinogradSpec, block: GradientBlocking) -> _Plan:
    lanes = block.lanes
    tiles = (spec.batch * spec.rows if block.owned else block.tile_rows) * spec.columns
    plane = tiles * lanes + 16
    spread = spec.points * plane // lanes
    extents = (len(m[0]) for m in (gradient_algebra(spec.tile).data, gradient_algebra(spec.tile).taps))
    data, taps = (
        Tiles(channels, height, width, top, left, spec.tile, spec.columns, extent, lanes, lanes, spread, plane)
        for extent, (channels, height, width, top, left) in zip(extents, (
            (spec.channels, spec.height, spec.width, spec.pad[0], spec.pad[2]),
            (spec.maps, spec.out_height, spec.out_width, 0, 0)), strict=True))
    row_tiles, panels = -(-spec.channels // block.rows), -(-spec.maps // block.panel)
    unit = spec.points * block.rows * block.panel
    rows = min(block.tile_rows, spec.rows)
    windows = (data.window(rows), taps.window(rows))
    group = spec.points * plane
    transformed = (group * -(-spec.channels // lanes), group * panels * block.vectors)
    square = round_up(9, lanes) * lanes
    if block.owned:
        return _Plan(data, taps, row_tiles, panels, unit, scratch_layout(*transformed),
                     scratch_layout(*windows, unit, square))
    return _Plan(data, taps, row_tiles, panels, unit, [0],
                 scratch_layout(*windows, row_tiles * panels * unit, square, *transformed))


@dataclass(frozen=True)
class GradientForm:
    """What the texts depend on: register tiles of ``rows`` channels x ``vectors`` of maps, how threads share."""

    tile: int
    lanes: int
    rows: int
    vectors: int
    owned: bool
    data: TilesForm | None = None
    taps: TilesForm | None = None

    @property
    def points(self) -> int:
        """Points of a tile."""
        return (self.tile + 2) ** 2

    @property
    def panel(self) -> int:
        """Maps of a register tile."""
        return self.vectors * self.lanes


def _numbers(spec: WinogradSpec, block: GradientBlocking, plan: _Plan) -> dict[str, int]:
    """What both kernels are called with."""
    return {"channels": spec.channels, "maps": spec.maps, "row_tiles": plan.row_tiles, "panels": plan.panels,
            "units": plan.row_tiles * plan.panels, "plane": plan.data.plane, "group": spec.points * plan.data.plane,
            "shared": plan.shared[-1], "own": plan.own[-1],
            "sums": plan.own[2], "square": plan.own[3], "tiles": spec.batch * spec.rows * spec.columns,
            "data": (plan.shared if block.owned else plan.own[4:])[0],
            "taps": (plan.shared if block.owned else plan.own[4:])[1]}


def _flops(spec: WinogradSpec) -> int:
    return 2 * spec.batch * spec.rows * spec.columns * spec.points * spec.channels * spec.maps


def tiles_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The first kernel transforms the tiles, and sums up their products unless that is left to the second kernel.

    Its slots are the images, the gradients at the output and scratch.
    """
    block = gradient_blocking(spec, target)
    plan = _planned(spec, block)
    sizes = spec.channels * spec.height * spec.width, spec.maps * spec.out_height * spec.out_width
    numbers = {**_numbers(spec, block, plan), **plan.data.numbers("images"), **plan.taps.numbers("filters"),
               "total": spec.batch * spec.rows, "rows": spec.rows, "most": block.tile_rows, "image": sizes[0],
               "filter": sizes[1], "window": plan.own[1]}
    form = GradientForm(spec.tile, block.lanes, block.rows, block.vectors, block.owned, plan.data.form, plan.taps.form)
    moved = 4 * (spec.batch * sum(sizes) + plan.shared[-1])
    return given_kernel(f"winograd{spec.tile}_gradient", form, target, 3, numbers,
                        lambda em: _Gradient(em, form).first(), scratch=4 * plan.own[-1], shared=4 * plan.shared[-1],
                        flops=0 if block.owned else _flops(spec), moved=moved)


def sums_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The second kernel transforms sums to gradients; before that it makes the sums, or adds up those of all threads.

    Its slots are the gradient of the weights and scratch, as the first kernel left it.
    """
    block = gradient_blocking(spec, target)
    plan = _planned(spec, block)
    form = GradientForm(spec.tile, block.lanes, block.rows, block.vectors, block.owned)
    moved = 36 * spec.channels * spec.maps + 4 * plan.unit * plan.row_tiles * plan.panels
    return given_kernel(f"winograd{spec.tile}_weights_gradient", form, target, 2, _numbers(spec, block, plan),
                        lambda em: _Gradient(em, form).second(), scratch=4 * plan.own[-1], shared=4 * plan.shared[-1],
                        flops=_flops(spec) if block.owned else 0, moved=moved)


class _Gradient:
    """Writes both kernels."""

    def __init__(self, em: Emitter, form: GradientForm) -> None:
        self.em = em
        self.form = form
        self.algebra = gradient_algebra(form.tile)
        self.unit = form.points * form.rows * form.panel

    def _scratch(self, slot: int) -> tuple[str, str]:
        """Pointers to the whole scratch and to the part of this thread."""
        em = self.em
        scratch = em.slot(slot)
        return scratch, em.gep(scratch, em.add(em.mul("%tid", em.number("own")), em.number("shared")), F)

    def first(self) -> None:
        """The first kernel."""
        em, form, n = self.em, self.form, self.em.number
        assert form.data is not None and form.taps is not None
        functions = (transform_function(em, "images", form.data, self.algebra.data),
                     transform_function(em, "filters", form.taps, self.algebra.taps))
        arrays = em.slot(0), em.slot(1)
        scratch, own = self._scratch(2)
        windows = own, em.gep(own, n("window"), F)
        sums = em.gep(own, n("sums"), F)
        places = [em.gep(scratch if form.owned else own, n(name), F) for name in ("data", "taps")]
        clear(em, own, n("sums"))
        multiply = None
        if not form.owned:
            clear(em, sums, em.sub(n("square"), n("sums")))
            multiply = self._multiply()

        def work(first: Index, last: Index) -> None:
            def enter(image: Index, low: Index, high: Index, offset: Index) -> None:
                start = em.add(offset, first) if form.owned else offset
                for function, array, size, window, to, maps in zip(
                        functions, arrays, ("image", "filter"), windows, places, ("channels", "maps"), strict=True):
                    at = em.gep(array, em.mul(image, n(size)), F)
                    place = em.gep(to, em.mul(em.mul(start, n("images.columns")), form.lanes), F)
                    em.call(function, [f"ptr {at}", f"ptr {window}", f"ptr {place}", f"i64 {low}", f"i64 {high}",
                                       "i64 0", f"i64 {n(maps)}"])
            for_images(em, first, last, n("rows"), enter)
            if multiply is not None:
                depth = em.mul(em.sub(last, first), n("images.columns"))
                em.call(multiply, [f"ptr {places[0]}", f"ptr {places[1]}", f"ptr {sums}", f"i64 {depth}"])
        even_blocks(em, n("total"), n("most"), work)

    def _multiply(self) -> Emitter:
        """A function that adds the products of ``%depth`` tiles to all sums."""
        inner = self.em.function("multiply", ["ptr %data", "ptr %taps", "ptr %sums", "i64 %depth"])
        n = inner.number

        def panel(p: Index, _: list[str]) -> None:
            def rows(r: Index, _: list[str]) -> None:
                place = inner.gep("%sums", inner.mul(inner.add(inner.mul(p, n("row_tiles")), r), self.unit), F)
                self._products(inner, p, r, place, "%data", "%taps", "%depth", True)
            inner.loop(0, n("row_tiles"), 1, rows, unroll=False)
        inner.loop(0, n("panels"), 1, panel, unroll=False)
        return inner

    def _products(self, em: Emitter, p: Index, r: Index, place: str, data: str, taps: str, depth: Index,
                  add: bool) -> None:
        """The products of all points for panel ``p`` and row tile ``r``."""
        form = self.form
        per_vector = form.lanes // form.rows
        vector = em.div(r, per_vector)
        lane = em.mul(em.sub(r, em.mul(vector, per_vector)), form.rows)
        a = em.gep(data, em.add(em.mul(vector, em.number("group")), lane), F)
        b = em.gep(taps, em.mul(em.mul(p, form.vectors), em.number("group")), F)
        product = Product(1, form.lanes, form.lanes, em.number("group"), form.panel, form.lanes)

        def point(k: Index, _: list[str]) -> None:
            at = em.gep(place, em.mul(k, form.rows * form.panel), F)
            offset = em.mul(k, em.number("plane"))
            small_product(em, product, form.rows, form.vectors, depth, em.gep(a, offset, F), em.gep(b, offset, F), at,
                          add)
        em.loop(0, form.points, 1, point, unroll=False)

    def second(self) -> None:
        """The second kernel."""
        em, form, n = self.em, self.form, self.em.number
        to = em.slot(0)
        scratch, own = self._scratch(1)
        finish = self._finish()
        square = em.gep(own, n("square"), F)

        def unit(u: Index, _: list[str]) -> None:
            p = em.div(u, n("row_tiles"))
            r = em.sub(u, em.mul(p, n("row_tiles")))
            if form.owned:
                sums = em.gep(own, n("sums"), F)
                data, taps = (em.gep(scratch, n(name), F) for name in ("data", "taps"))
                self._products(em, p, r, sums, data, taps, n("tiles"), False)
            else:
                sums = em.gep(scratch, em.add(em.mul(u, self.unit), n("sums")), F)
                self._add_up(sums)
            em.call(finish, [f"ptr {sums}", f"ptr {square}", f"ptr {to}",
                             f"i64 {em.mul(r, form.rows)}", f"i64 {em.mul(p, form.panel)}"])
        em.loop(*em.chunk(n("units")), 1, unit, unroll=False)

    def _add_up(self, sums: str) -> None:
        """Add the sums of the other threads to those of the first one."""
        em, lanes = self.em, self.form.lanes

        def thread(t: Index, _: list[str]) -> None:
            other = em.gep(sums, em.mul(t, em.number("own")), F)

            def vector(i: Index, _: list[str]) -> None:
                place = em.gep(sums, i, F)
                x = em.load(F, lanes, em.gep(other, i, F))
                em.store(F, lanes, em.binary("fadd", F, lanes, em.load(F, lanes, place), x), place)
            em.loop(0, self.unit, lanes, vector, unroll=False)
        em.loop(1, "%nth", 1, thread, unroll=False)

    def _finish(self) -> Emitter:
        """A function that transforms the sums of a register tile and stores weights."""
        form = self.form
        lanes, panel = form.lanes, form.panel
        inner = self.em.function("finish", ["ptr %sums", "ptr %square", "ptr %to", "i64 %channel", "i64 %map"])
        n = inner.number
        size = form.tile + 2
        transform = Transform(inner, self.algebra.out, lanes)
        stride = round_up(9, lanes)

        def row(i: Index, _: list[str]) -> None:
            def vector(j: Index, _: list[str]) -> None:
                first = inner.add("%map", inner.mul(j, lanes))
                start = inner.gep("%sums", inner.add(inner.mul(i, panel), inner.mul(j, lanes)), F)

                values = [inner.load(F, lanes, inner.gep(start, k * form.rows * panel, F)) for k in range(form.points)]
                taps = [x for line in transform.both([values[k:k + size] for k in range(0, form.points, size)])
                        for x in line]
                for at in range(0, 9, lanes):
                    part = taps[at:at + lanes]
                    turned = inner.transpose(F, [*part, *[part[0]] * (lanes - len(part))])
                    for q, x in enumerate(turned):
                        inner.store(F, lanes, x, inner.gep("%square", q * stride + at, F))

                def store(q: Index, _: list[str]) -> None:
                    source = inner.gep("%square", inner.mul(q, stride), F)
                    at = inner.add(inner.mul(inner.add(first, q), n("channels")), inner.add("%channel", i))
                    place = inner.gep("%to", inner.mul(at, 9), F)
                    for k in range(0, 9, lanes):
                        x = inner.load(F, lanes, inner.gep(source, k, F))
                        inner.store(F, lanes, x, inner.gep(place, k, F), 9 - k)
                inner.loop(0, inner.min(lanes, inner.sub(n("maps"), first)), 1, store, unroll=False)
            vectors = inner.min(form.vectors, inner.div(inner.add(inner.sub(n("maps"), "%map"), lanes - 1), lanes))
            inner.loop(0, vectors, 1, vector, unroll=False)
        inner.loop(0, inner.min(form.rows, inner.sub(n("channels"), "%channel")), 1, row, unroll=False)
        return inner
