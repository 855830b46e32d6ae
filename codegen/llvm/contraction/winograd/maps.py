"""The convolutions of ``images``, for few tiles and many weights: threads share the output channels ("maps").

Two kernels, one after the other. The first transforms all tiles, to memory that all threads share. In the second every
thread takes panels of output channels: it transforms their weights into its second-level cache, multiplies, and
transforms the sums back. So transformed weights, which are larger than the weights, never pass from one processor to
another.
"""
from __future__ import annotations

from kusari.ir import Kernel

from ....target import Target
from ...text.emitter import Emitter, Index
from ..stage import scratch_layout
from .algebra import forward_algebra, strided_algebra
from .images import symbol_of
from .output import Output
from .parts import (
    F,
    Product,
    Source,
    for_images,
    phase_table,
    small_product,
    square,
    transform_function,
    transform_weights,
)
from .spec import WinogradSpec, maps_blocking, round_up, row_stride, tiles_only


def shared_tiles_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The first kernel transforms the tiles; its slots are the images and scratch."""
    return _Maps(tiles_only(spec), target, "tiles").tiles()


def maps_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The second kernel multiplies and applies the epilogue.

    Its slots are the weights, the operands, the outputs and scratch, as the first kernel left it.
    """
    return _Maps(spec, target, "maps").maps()


class _Maps:
    """Writes both kernels. Transformed tiles are at ``[point][tile][channel]``, at the start of the scratch memory."""

    def __init__(self, spec: WinogradSpec, target: Target, name: str) -> None:
        self.spec = spec
        self.block = block = maps_blocking(spec, target)
        self.em = Emitter(symbol_of(name, spec, target), target)
        self.total = spec.batch * spec.rows
        stride = row_stride(spec.channels * spec.phases, block.lanes)
        algebra = (forward_algebra if spec.stride == 1 else strided_algebra)(spec.tile)
        # Register tiles reach beyond the last tile.
        plane = (self.total * spec.columns + block.rows) * stride + 16
        self.source = Source(
            spec.channels, spec.height, spec.width, spec.pad[0], spec.pad[2], spec.step, spec.columns,
            algebra.data, stride, plane, block.lanes, block.lanes, block.chunk if spec.phases > 1 else 0)
        self.shared = round_up(spec.points * plane, 16)

    def tiles(self) -> Kernel:
        """Threads share vectors of channels of some rows of tiles of an image."""
        em, spec, block, source = self.em, self.spec, self.block, self.source
        image, scratch = em.slot(0), em.slot(1)
        size = round_up(source.window(block.window_rows), 16)
        window = em.gep(scratch, em.add(em.mul("%tid", size), self.shared), F)
        transform = transform_function(em, "tiles", source)
        em.clear(window, 4 * size)
        groups, parts = -(-spec.channels // block.lanes), -(-spec.rows // block.window_rows)

        @em.each(*em.chunk(spec.batch * groups * parts))
        def unit(u: Index) -> None:
            above = em.div(u, parts)
            first = em.mul(em.sub(u, em.mul(above, parts)), block.window_rows)
            n = em.div(above, groups)
            low = em.mul(em.sub(above, em.mul(n, groups)), block.lanes)
            at = em.gep(image, em.mul(n, spec.channels * spec.height * spec.width), F)
            tile = em.mul(em.add(em.mul(n, spec.rows), first), spec.columns)
            em.call(transform, at, window, em.gep(scratch, em.mul(tile, source.stride), F), first,
                    em.min(em.add(first, block.window_rows), spec.rows), low,
                    em.min(em.add(low, block.lanes), spec.channels))
        moved = 4 * (spec.batch * spec.channels * spec.height * spec.width + self.shared)
        return Kernel("llvm", em.symbol, em.text(), 4 * size, moved, moved, shared=4 * self.shared)

    def maps(self) -> Kernel:
        """Threads share panels of output channels."""
        em, spec, block = self.em, self.spec, self.block
        lanes, panel = block.lanes, block.panel
        most = round_up(block.tile_rows * spec.columns, block.rows)
        weights_plane, sums_plane = block.chunk * spec.phases * panel + 16, most * panel + 16
        output = Output(em, spec, lanes, panel, sums_plane)
        places = scratch_layout(4, spec.points * weights_plane, spec.points * sums_plane, output.line,
                                lanes * square(lanes, lanes))
        slots = [em.slot(i) for i in range(2 + len(spec.operands) + len(spec.exprs))]
        own = em.gep(slots[-1], em.add(em.mul("%tid", places[-1]), self.shared), F)
        weights, sums, line, transposed = (em.gep(own, at, F) for at in places[:-1])
        several = block.chunks > 1
        transform = self._transform(weights_plane)
        multiply = self._multiply(Product(self.source.stride, 1, panel, lanes, panel, lanes), weights_plane, sums_plane,
                                  several)

        def products(low: Index, channel: Index, first: Index, tiles: Index, fresh: bool) -> None:
            """Products of a chunk of channels and of ``tiles`` register tiles from row of tiles ``first``."""
            count = em.min(block.chunk, em.sub(spec.channels, channel))
            if fresh:
                em.call(transform, slots[0], weights, low, channel, count)
            at = em.add(em.mul(first, spec.columns * self.source.stride), em.mul(channel, spec.phases))
            following = em.add(channel, block.chunk)
            last = em.compare("sge", following, spec.channels)
            map_ = em.select("i64", 1, last, str(em.add(low, panel)), str(low))
            taps = em.gep(slots[0], self._tap(map_, em.select("i64", 1, last, "0", str(following))), F)
            em.call(multiply, em.gep(slots[-1], at, F), weights, sums, tiles, count, taps)

        def leave(low: Index, first: Index, last: Index) -> None:
            def image(n: Index, start: Index, end: Index, offset: Index) -> None:
                place = em.gep(sums, em.mul(offset, spec.columns * panel), F)
                high = em.min(em.add(low, panel), spec.maps)
                output.call(em, place, line, transposed, (start, end), (low, high), n, slots[1:-1])
            for_images(em, first, last, spec.rows, image)

        @em.each(*em.chunk(-(-spec.maps // panel)))
        def piece(p: Index) -> None:
            low = em.mul(p, panel)
            if several:  # then all tiles are one block
                em.clear(sums, 4 * spec.points * sums_plane)
                em.loop(0, spec.channels, block.chunk, lambda channel, _: products(
                    low, channel, 0, most // block.rows, True), unroll=False)
                leave(low, 0, self.total)
                return
            em.call(transform, slots[0], weights, low, 0, spec.channels)

            @em.each(0, self.total, block.tile_rows)
            def some(first: Index) -> None:
                last = em.min(em.add(first, block.tile_rows), self.total)
                tiles = em.div(em.add(em.mul(em.sub(last, first), spec.columns), block.rows - 1), block.rows)
                products(low, 0, first, tiles, False)
                leave(low, first, last)
        moved = 4 * (self.shared + 9 * spec.channels * spec.maps) + output.bytes
        return Kernel("llvm", em.symbol, em.text(), 4 * places[-1],
                      2 * self.total * spec.columns * spec.products * spec.channels * spec.maps, moved,
                      shared=4 * self.shared)

    def _tap(self, map_: Index, channel: Index, em: Emitter | None = None) -> Index:
        """The offset of the taps of a channel of an output channel."""
        em, spec = em or self.em, self.spec
        maps, channels = (9, 9 * spec.maps) if spec.transposed else (9 * spec.channels, 9)
        return em.add(em.mul(map_, maps), em.mul(channel, channels))

    def _transform(self, plane: int) -> Emitter:
        """A function: weights of ``%count`` channels from ``%channel`` for a panel, from output channel ``%map``."""
        spec, block = self.spec, self.block
        em = self.em.function("weights", ["ptr %weights", "ptr %to", "i64 %map", "i64 %channel", "i64 %count"])

        @em.each(0, block.vectors)
        def vector(q: Index) -> None:
            at = em.mul(q, block.lanes)
            first = em.add("%map", at)

            @em.each(0, "%count")
            def one(c: Index) -> None:
                place = em.gep("%to", em.add(em.mul(c, block.panel), at), F)
                transform_weights(em, spec, block.lanes, "%weights", em.add("%channel", c), first, place, plane,
                                  block.chunk * block.panel)
        return em

    def _multiply(self, product: Product, weights_plane: int, sums_plane: int, add: bool) -> Emitter:
        """A function: the products of all points, ``%tiles`` register tiles high; rows past the last are void.

        Meanwhile it brings the next weights to transform, which begin at ``%next``, closer: some output channels for
        each register tile, a channel in each step.
        """
        spec, block = self.spec, self.block
        em = self.em.function("multiply", [
            "ptr %data", "ptr %weights", "ptr %sums", "i64 %tiles", "i64 %depth", "ptr %next"])
        turns = spec.points * -(-block.tile_rows * spec.columns // block.rows)
        each = -(-block.panel // turns) if spec.phases == 1 else 0
        phases = phase_table(em, spec, block.chunk)

        @em.each(0, spec.points)
        def point(k: Index) -> None:
            data = em.gep("%data", em.mul(k, self.source.plane), F)
            sums = em.gep("%sums", em.mul(k, sums_plane), F)
            b = em.gep("%weights", em.mul(k, weights_plane), F)
            depth = "%depth"
            if phases is not None:
                first, depth = phases(k)
                data, b = em.gep(data, first, F), em.gep(b, em.mul(first, block.panel), F)

            @em.each(0, "%tiles")
            def tile(i: Index) -> None:
                row = em.mul(i, block.rows)
                turn = em.add(em.mul(k, turns // spec.points), i)
                first = em.min(em.div(em.mul(turn, block.panel), turns), block.panel - each)
                places = [em.gep("%next", self._tap(em.add(first, q), 0, em), F) for q in range(each)]

                def ahead(channel: Index) -> None:
                    for place in places:
                        em.prefetch(em.gep(place, self._tap(0, channel, em), F))
                small_product(em, product, block.rows, block.vectors, depth,
                              em.gep(data, em.mul(row, product.a_row), F), b,
                              em.gep(sums, em.mul(row, product.c_row), F), add, ahead)
        return em
