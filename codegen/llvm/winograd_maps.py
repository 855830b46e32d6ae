"""The same convolutions as in ``winograd``, for few tiles and many weights: threads share the maps.

Two kernels, one after the other. The first transforms all tiles, to memory that all threads share. In the second
every thread takes panels of maps: it transforms their weights into its second-level cache, multiplies, and transforms
the sums back. So transformed weights, which are larger than the weights, never pass from one processor to another.
"""
from __future__ import annotations

from dataclasses import dataclass

from kusari.ir import Kernel

from ..target import Target
from .emitter import Emitter, Index
from .given import given_kernel
from .winograd import output_types, tiles_algebra
from .winograd_output import Output, Results, ResultsForm
from .winograd_parts import (
    F,
    Filters,
    Product,
    Tiles,
    TilesForm,
    apart,
    clear,
    filter_numbers,
    filters_of,
    for_images,
    phase_table,
    scratch_layout,
    small_product,
    transform_function,
    transform_weights,
)
from .winograd_spec import MapsBlocking, WinogradSpec, maps_blocking, round_up


def _tiles(spec: WinogradSpec, block: MapsBlocking) -> Tiles:
    """Transformed tiles, at the start of the scratch memory; register tiles reach beyond the last one."""
    lanes, channels = block.lanes, round_up(spec.channels * spec.phases, block.group)
    spread = apart(spec.batch * spec.rows * spec.columns + block.rows, block.group)
    return Tiles(spec.channels, spec.height, spec.width, spec.pad[0], spec.pad[2], spec.step, spec.columns, spec.extent,
                 lanes, block.group, spread, channels * spread + 16, block.chunk if spec.phases > 1 else 0)


def shared_tiles_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The first kernel transforms the tiles; its slots are the images and scratch."""
    block = maps_blocking(spec, target)
    tiles = _tiles(spec, block)
    size, shared = round_up(tiles.window(block.window_rows), 16), round_up(spec.points * tiles.plane, 16)
    groups, parts = -(-spec.channels // block.lanes), -(-spec.rows // block.window_rows)
    numbers = {**tiles.numbers("tiles"), "window": size, "shared": shared, "groups": groups, "parts": parts,
               "units": spec.batch * groups * parts, "window_rows": block.window_rows, "rows": spec.rows,
               "image": spec.channels * spec.height * spec.width}
    form = tiles.form
    moved = 4 * (spec.batch * spec.channels * spec.height * spec.width + shared)
    return given_kernel(f"winograd{spec.tile}_tiles", (spec.tile, spec.phases, form), target, 2, numbers,
                        lambda em: _write_tiles(em, spec.tile, spec.phases, form),
                        scratch=4 * size, shared=4 * shared, flops=moved, moved=moved)


def _write_tiles(em: Emitter, tile: int, phases: int, form: TilesForm) -> None:
    """Threads share vectors of channels of some rows of tiles of an image."""
    image, scratch = em.slot(0), em.slot(1)
    n, lanes = em.number, form.lanes
    window = em.gep(scratch, em.add(em.mul("%tid", n("window")), n("shared")), F)
    transform = transform_function(em, "tiles", form, tiles_algebra(tile, phases).data)
    clear(em, window, n("window"))

    def unit(u: Index, _: list[str]) -> None:
        above = em.div(u, n("parts"))
        first = em.mul(em.sub(u, em.mul(above, n("parts"))), n("window_rows"))
        number = em.div(above, n("groups"))
        low = em.mul(em.sub(above, em.mul(number, n("groups"))), lanes)
        at = em.gep(image, em.mul(number, n("image")), F)
        place = em.mul(em.mul(em.add(em.mul(number, n("rows")), first), n("tiles.columns")), form.group)
        em.call(transform, [
            f"ptr {at}", f"ptr {window}", f"ptr {em.gep(scratch, place, F)}", f"i64 {first}",
            f"i64 {em.min(em.add(first, n('window_rows')), n('rows'))}", f"i64 {low}",
            f"i64 {em.min(em.add(low, lanes), n('tiles.channels'))}"])
    em.loop(*em.chunk(n("units")), 1, unit, unroll=False)


@dataclass(frozen=True)
class MapsForm:
    """What the text of the second kernel depends on.

    Register tiles are ``rows x vectors``. ``several``: weights are transformed in chunks of channels. Weights of
    ``each`` maps are fetched for every register tile.
    """

    tile: int
    phases: int
    rows: int
    vectors: int
    group: int
    several: bool
    each: int
    filters: Filters
    results: ResultsForm


def maps_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The second kernel multiplies and applies the epilogue.

    Its slots are the weights, the operands, the outputs and scratch, as the first kernel left it.
    """
    block = maps_blocking(spec, target)
    tiles = _tiles(spec, block)
    lanes, panel, total = block.lanes, block.panel, spec.batch * spec.rows
    most = round_up(block.tile_rows * spec.columns, block.rows)
    results = Results(spec, lanes, panel, most * panel + 16)
    plane = block.chunk * spec.phases * panel + 16
    places = scratch_layout(spec.points * plane, spec.points * results.plane, results.line, results.square)
    shared = round_up(spec.points * tiles.plane, 16)
    turns = -(-block.tile_rows * spec.columns // block.rows)
    each = -(-panel // (spec.points * turns)) if spec.phases == 1 else 0
    numbers = {**filter_numbers(spec), **results.numbers, "spread": tiles.spread, "data": tiles.plane,
               "columns": spec.columns, "rows": spec.rows, "total": total, "tile_rows": block.tile_rows,
               "most": most // block.rows, "chunk": block.chunk, "plane": plane, "phase": block.chunk * panel,
               "panels": -(-spec.maps // panel), "turns": turns, "shared": shared, "own": places[-1],
               **dict(zip(_PLACES, places[1:], strict=False))}
    form = MapsForm(spec.tile, spec.phases, block.rows, block.vectors, block.group, block.chunks > 1, each,
                    filters_of(spec, lanes), results.form)
    pixels = spec.batch * spec.out_height * spec.out_width
    moved = 4 * (shared + 9 * spec.channels * spec.maps)
    touched = (*output_types(form.results), *(o.dtype for o in spec.operands if o.column))
    moved += pixels * spec.maps * sum(d.itemsize for d in touched)
    return given_kernel(f"winograd{spec.tile}_maps", form, target, 2 + len(spec.operands) + len(spec.exprs), numbers,
                        lambda em: _Maps(em, form).write(), scratch=4 * places[-1], shared=4 * shared,
                        flops=2 * total * spec.columns * spec.products * spec.channels * spec.maps, moved=moved)


_PLACES = ("sums", "line", "square")  # what of a thread's scratch comes behind its transformed weights


class _Maps:
    """Writes the second kernel: threads share panels of maps."""

    def __init__(self, em: Emitter, form: MapsForm) -> None:
        self.em = em
        self.form = form
        self.lanes = form.filters.lanes
        self.panel = form.vectors * self.lanes
        self.side = len(tiles_algebra(form.tile, form.phases).data)

    def write(self) -> None:
        em, form, panel = self.em, self.form, self.panel
        n = em.number
        output = Output(em, form.results)
        reads, writes = len(form.results.operands), len(form.results.exprs)
        slots = [em.slot(i) for i in range(2 + reads + writes)]
        weights = em.gep(slots[-1], em.add(em.mul("%tid", n("own")), n("shared")), F)
        sums, line, turned = (em.gep(weights, n(name), F) for name in _PLACES)
        transform = self._transform()
        multiply = self._multiply()

        def products(low: Index, channel: Index, first: Index, tiles: Index, fresh: bool) -> None:
            """Those of a chunk of channels and of ``tiles`` register tiles from row of tiles ``first``."""
            count = em.min(n("chunk"), em.sub(n("channels"), channel))
            if fresh:
                em.call(transform, [f"ptr {slots[0]}", f"ptr {weights}", f"i64 {low}", f"i64 {channel}",
                                    f"i64 {count}"])
            at = em.add(em.mul(em.mul(first, n("columns")), form.group),
                        em.mul(em.mul(channel, form.phases), n("spread")))
            following = em.add(channel, n("chunk"))
            last = em.compare("sge", following, n("channels"))
            map_ = em.select("i64", 1, last, str(em.add(low, panel)), str(low))
            taps = em.gep(slots[0], self._tap(em, map_, em.select("i64", 1, last, "0", str(following))), F)
            em.call(multiply, [f"ptr {em.gep(slots[-1], at, F)}", f"ptr {weights}", f"ptr {sums}", f"i64 {tiles}",
                               f"i64 {count}", f"ptr {taps}"])

        def leave(low: Index, first: Index, last: Index) -> None:
            def image(number: Index, start: Index, end: Index, offset: Index) -> None:
                place = em.gep(sums, em.mul(em.mul(offset, n("columns")), panel), F)
                high = em.min(em.add(low, panel), n("maps"))
                output.call(em, place, line, turned, (start, end), (low, high), number, slots[1:1 + reads],
                            slots[1 + reads:-1], output_types(form.results))
            for_images(em, first, last, n("rows"), image)

        def piece(p: Index, _: list[str]) -> None:
            low = em.mul(p, panel)
            if form.several:  # then all tiles are one block
                clear(em, sums, em.mul(n("out.plane"), self.side ** 2))
                em.loop(0, n("channels"), n("chunk"), lambda channel, _: products(
                    low, channel, 0, n("most"), True), unroll=False)
                leave(low, 0, n("total"))
                return
            em.call(transform, [f"ptr {slots[0]}", f"ptr {weights}", f"i64 {low}", "i64 0", f"i64 {n('channels')}"])

            def some(first: Index, _: list[str]) -> None:
                last = em.min(em.add(first, n("tile_rows")), n("total"))
                tiles = em.div(em.add(em.mul(em.sub(last, first), n("columns")), form.rows - 1), form.rows)
                products(low, 0, first, tiles, False)
                leave(low, first, last)
            em.loop(0, n("total"), n("tile_rows"), some, unroll=False)
        em.loop(*em.chunk(n("panels")), 1, piece, unroll=False)

    @staticmethod
    def _tap(em: Emitter, map_: Index, channel: Index) -> Index:
        """Where the taps of a channel of a map are."""
        return em.add(em.mul(map_, em.number("map")), em.mul(channel, em.number("channel")))

    def _transform(self) -> Emitter:
        """A function: the weights of ``%count`` channels from ``%channel`` for the panel of maps from ``%map``."""
        form = self.form
        em = self.em.function("weights", ["ptr %weights", "ptr %to", "i64 %map", "i64 %channel", "i64 %count"])

        def vector(q: Index, _: list[str]) -> None:
            at = em.mul(q, self.lanes)
            first = em.add("%map", at)

            def one(c: Index, _: list[str]) -> None:
                place = em.gep("%to", em.add(em.mul(c, self.panel), at), F)
                transform_weights(em, form.filters, "%weights", em.add("%channel", c), first, place,
                                  em.number("plane"), em.number("phase"))
            em.loop(0, "%count", 1, one, unroll=False)
        em.loop(0, form.vectors, 1, vector, unroll=False)
        return em

    def _multiply(self) -> Emitter:
        """A function: the products of all points, ``%tiles`` register tiles high; rows past the last are of no use.

        Meanwhile it brings the weights that are transformed next, which begin at ``%next``, closer: some maps of them
        for each register tile, a channel in each step.
        """
        form, panel = self.form, self.panel
        em = self.em.function("multiply", [
            "ptr %data", "ptr %weights", "ptr %sums", "i64 %tiles", "i64 %depth", "ptr %next"])
        n, lanes = em.number, self.lanes
        product = Product(form.group, 1, panel, lanes, panel, lanes, n("spread"))
        phases = phase_table(em, form.phases, self.side, n("chunk"))

        def point(k: Index, _: list[str]) -> None:
            data = em.gep("%data", em.mul(k, n("data")), F)
            sums = em.gep("%sums", em.mul(k, n("out.plane")), F)
            b = em.gep("%weights", em.mul(k, n("plane")), F)
            depth: Index = "%depth"
            if phases is not None:
                first, depth = phases(k)
                data = em.gep(data, em.mul(first, n("spread")), F)
                b = em.gep(b, em.mul(first, panel), F)

            def tile(i: Index, _: list[str]) -> None:
                row = em.mul(i, form.rows)
                places: list[str] = []
                if form.each:
                    turn = em.add(em.mul(k, n("turns")), i)
                    first = em.min(em.div(em.mul(turn, panel), em.mul(n("turns"), self.side ** 2)), panel - form.each)
                    places = [em.gep("%next", self._tap(em, em.add(first, q), 0), F) for q in range(form.each)]

                def ahead(channel: Index) -> None:
                    for place in places:
                        em.prefetch(em.gep(place, self._tap(em, 0, channel), F))
                small_product(em, product, form.rows, form.vectors, depth, em.gep(data, em.mul(row, form.group), F), b,
                              em.gep(sums, em.mul(row, panel), F), form.several, ahead)
            em.loop(0, "%tiles", 1, tile, unroll=False)
        em.loop(0, self.side ** 2, 1, point, unroll=False)
        return em
