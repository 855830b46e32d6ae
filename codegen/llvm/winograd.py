"""Convolution with 3 x 3 taps at every position by Winograd's algorithm, as LLVM IR; also the input's gradient.

Two kernels, one after the other. The first transforms the weights to a matrix per point, in memory that all threads
share. In the second every thread takes rows of tiles; in blocks that stay in its second-level cache it transforms the
tiles, multiplies them by the matrices, point by point, and transforms the sums back.

Source: Lavin and Gray, `Fast Algorithms for Convolutional Neural Networks <https://arxiv.org/abs/1509.09308>`_, 2016.
"""
from __future__ import annotations

from dataclasses import dataclass

from kusari.ir import DType, Kernel, expr_dtype

from ..target import Target
from .emitter import Emitter, Index
from .given import given_kernel
from .types import F32
from .winograd_algebra import Algebra, forward_algebra, strided_algebra
from .winograd_output import Output, Results, ResultsForm
from .winograd_parts import (
    F,
    Filters,
    Product,
    Tiles,
    TilesForm,
    apart,
    clear,
    even_blocks,
    filter_numbers,
    filters_of,
    for_images,
    phase_table,
    scratch_layout,
    small_product,
    transform_function,
    transform_weights,
)
from .winograd_spec import Blocking, WinogradSpec, blocking, round_up, row_stride


def _weights_size(spec: WinogradSpec, block: Blocking) -> int:
    """Elements of the transformed weights: ``[point][panel][channel][map of the panel]``."""
    return spec.points * _weights_plane(spec, block)


def _weights_plane(spec: WinogradSpec, block: Blocking) -> int:
    """Elements between points; not a power of two, where all points would meet in one set of the caches."""
    return spec.channels * spec.phases * round_up(spec.maps, block.panel) + 16


def weights_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The first kernel transforms the weights; its slots are the weights and scratch.

    A thread takes some channels of some vectors of maps.
    """
    block = blocking(spec, target)
    strip = spec.channels * spec.phases * block.panel
    numbers = {**filter_numbers(spec), "units": -(-spec.maps // block.lanes) * spec.channels, "strip": strip,
               "plane": _weights_plane(spec, block), "phase": spec.channels * block.panel}
    size = 4 * _weights_size(spec, block)
    moved = 36 * spec.channels * spec.maps + size
    form = filters_of(spec, block.lanes), block.panel
    return given_kernel(f"winograd{spec.tile}_weights", form, target, 2, numbers,
                        lambda em: _write_weights(em, *form), shared=size, flops=moved, moved=moved)


def _write_weights(em: Emitter, filters: Filters, panel: int) -> None:
    weights, to = em.slot(0), em.slot(1)
    n = em.number

    def unit(u: Index, _: list[str]) -> None:
        group = em.div(u, n("channels"))
        channel = em.sub(u, em.mul(group, n("channels")))
        first = em.mul(group, filters.lanes)
        strip = em.div(first, panel)
        at = em.add(em.mul(strip, n("strip")), em.sub(first, em.mul(strip, panel)))
        place = em.gep(to, em.add(at, em.mul(channel, panel)), F)
        transform_weights(em, filters, weights, channel, first, place, n("plane"), n("phase"))
    em.loop(*em.chunk(n("units")), 1, unit, unroll=False)


@dataclass(frozen=True)
class ImagesForm:
    """What the text of the second kernel depends on: register tiles are ``rows x vectors``."""

    tile: int
    phases: int
    rows: int
    vectors: int
    tiles: TilesForm
    results: ResultsForm


def images_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The second kernel convolves with transformed weights and applies the epilogue.

    Its slots are the images, the operands, the outputs and scratch, as the first kernel left it.
    """
    block = blocking(spec, target)
    lanes, channels = block.lanes, round_up(spec.channels * spec.phases, block.group)
    spread = apart(block.most, block.group)
    tiles = Tiles(spec.channels, spec.height, spec.width, spec.pad[0], spec.pad[2], spec.step, spec.columns,
                  spec.extent, lanes, block.group, spread, channels * spread + 16,
                  spec.channels if spec.phases > 1 else 0)
    sums_stride = row_stride(spec.maps, lanes)
    results = Results(spec, lanes, sums_stride, block.most * sums_stride + 16)
    places = scratch_layout(tiles.window(min(block.tile_rows, spec.rows)), results.line, results.square,
                            spec.points * tiles.plane, spec.points * results.plane)
    shared = _weights_size(spec, block)
    full, rest = divmod(-(-spec.maps // lanes), block.vectors)
    numbers = {**tiles.numbers("tiles"), **results.numbers, "total": spec.batch * spec.rows, "rows": spec.rows,
               "most": block.tile_rows, "image": spec.channels * spec.height * spec.width, "maps": spec.maps,
               "panels": full, "rest": rest, "strip": spec.channels * spec.phases * block.panel,
               "plane": _weights_plane(spec, block), "shared": shared, "own": places[-1],
               **dict(zip(_PLACES, places[1:], strict=False))}
    form = ImagesForm(spec.tile, spec.phases, block.rows, block.vectors, tiles.form, results.form)
    out_types = output_types(form.results)
    pixels = spec.batch * spec.out_height * spec.out_width
    moved = 4 * (spec.batch * spec.channels * spec.height * spec.width + 9 * spec.channels * spec.maps)
    touched = (*out_types, *(o.dtype for o in spec.operands if o.column))
    moved += pixels * spec.maps * sum(d.itemsize for d in touched)
    return given_kernel(f"winograd{spec.tile}_images", form, target, 2 + len(spec.operands) + len(spec.exprs), numbers,
                        lambda em: _Images(em, form).write(), scratch=4 * places[-1], shared=4 * shared,
                        flops=2 * spec.batch * spec.rows * spec.columns * spec.products * spec.channels * spec.maps,
                        moved=moved)


_PLACES = ("line", "square", "data", "sums")  # what of a thread's scratch comes behind its window


def output_types(form: ResultsForm) -> list[DType]:
    """The dtypes of the outputs."""
    dtypes = (F32, *(dtype for dtype, _ in form.operands))
    return [expr_dtype(e, dtypes) for e in form.exprs]


def tiles_algebra(tile: int, phases: int) -> Algebra:
    """The matrices of a forward convolution."""
    return (forward_algebra if phases == 1 else strided_algebra)(tile)


class _Images:
    """Writes the second kernel. Invariant: ``window`` is zero where no image ever is, from the start on."""

    def __init__(self, em: Emitter, form: ImagesForm) -> None:
        self.em = em
        self.form = form
        self.lanes = form.tiles.lanes
        self.panel = form.vectors * self.lanes
        self.algebra = tiles_algebra(form.tile, form.phases)

    def write(self) -> None:
        em, form = self.em, self.form
        n = em.number
        transform = transform_function(em, "tiles", form.tiles, self.algebra.data)
        output = Output(em, form.results)
        multiply = self._multiply()
        reads, writes = len(form.results.operands), len(form.results.exprs)
        slots = [em.slot(i) for i in range(2 + reads + writes)]
        window = em.gep(slots[-1], em.add(em.mul("%tid", n("own")), n("shared")), F)
        line, turned, data, sums = (em.gep(window, n(name), F) for name in _PLACES)
        clear(em, window, n("line"))

        def work(first: Index, last: Index) -> None:
            def enter(image: Index, low: Index, high: Index, offset: Index) -> None:
                at = em.gep(slots[0], em.mul(image, n("image")), F)
                to = em.gep(data, em.mul(em.mul(offset, n("tiles.columns")), form.tiles.group), F)
                em.call(transform, [f"ptr {at}", f"ptr {window}", f"ptr {to}", f"i64 {low}", f"i64 {high}",
                                    "i64 0", f"i64 {n('tiles.channels')}"])

            def leave(image: Index, low: Index, high: Index, offset: Index) -> None:
                start = em.gep(sums, em.mul(em.mul(offset, n("out.columns")), n("out.stride")), F)
                output.call(em, start, line, turned, (low, high), (0, n("maps")), image, slots[1:1 + reads],
                            slots[1 + reads:-1], output_types(form.results))
            for_images(em, first, last, n("rows"), enter)
            tiles = em.div(em.add(em.mul(em.sub(last, first), n("tiles.columns")), form.rows - 1), form.rows)
            em.call(multiply, [f"ptr {data}", f"ptr {slots[-1]}", f"ptr {sums}", f"i64 {tiles}"])
            for_images(em, first, last, n("rows"), leave)
        even_blocks(em, n("total"), n("most"), work)

    def _multiply(self) -> Emitter:
        """A function: the products of all points, ``%tiles`` register tiles high; rows past the last are of no use."""
        form = self.form
        em = self.em.function("multiply", ["ptr %data", "ptr %weights", "ptr %sums", "i64 %tiles"])
        n, side = em.number, len(self.algebra.data)
        product = Product(form.tiles.group, 1, self.panel, self.lanes, n("out.stride"), self.lanes, n("tiles.spread"))
        phases = phase_table(em, form.phases, side, n("tiles.channels"))

        def point(k: Index, _: list[str]) -> None:
            data = em.gep("%data", em.mul(k, n("tiles.plane")), F)
            sums = em.gep("%sums", em.mul(k, n("out.plane")), F)
            weights = em.gep("%weights", em.mul(k, n("plane")), F)
            depth: Index = n("tiles.channels")
            if phases is not None:
                first, depth = phases(k)
                data = em.gep(data, em.mul(first, n("tiles.spread")), F)
                weights = em.gep(weights, em.mul(first, self.panel), F)

            def panel(p: Index, breadth: int) -> None:
                b = em.gep(weights, em.mul(p, n("strip")), F)
                c = em.gep(sums, em.mul(p, self.panel), F)

                def tile(i: Index, _: list[str]) -> None:
                    row = em.mul(i, form.rows)
                    a = em.gep(data, em.mul(row, form.tiles.group), F)
                    small_product(em, product, form.rows, breadth, depth, a, b,
                                  em.gep(c, em.mul(row, n("out.stride")), F), False)
                em.loop(0, "%tiles", 1, tile, unroll=False)
            em.loop(0, n("panels"), 1, lambda p, _: panel(p, form.vectors), unroll=False)
            if form.vectors > 1:  # one vector is left
                em.when(em.compare("ne", n("rest"), 0), lambda: panel(n("panels"), 1))
        em.loop(0, side * side, 1, point, unroll=False)
        return em
