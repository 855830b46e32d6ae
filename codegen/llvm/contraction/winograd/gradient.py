"""The gradient of the weights of a convolution with 3 x 3 taps by Winograd's algorithm, as LLVM IR.

A tile of the gradient at the output is a filter over the tile of the image, with three outputs each way. Its transform
times that of the image's tile, summed over all tiles, is the transform of the gradient. Threads share the work in one
of two ways (``GradientBlocking``), both with two kernels, one after the other.
"""
from __future__ import annotations

from kusari.ir import Kernel

from ....target import Target
from ...text.emitter import Emitter, Index
from ..stage import scratch_layout
from .algebra import Transform, gradient_algebra
from .images import symbol_of
from .parts import F, Product, Source, even_blocks, for_images, small_product, transform_function
from .spec import WinogradSpec, gradient_blocking, round_up


def tiles_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The first kernel: its slots are the images, the gradients at the output and scratch."""
    return _Gradient(spec, target).first()


def sums_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The second kernel: its slots are the gradient of the weights and scratch, as the first kernel left it."""
    return _Gradient(spec, target).second()


class _Gradient:
    """Writes both kernels.

    Transformed tiles are at ``[vector of channels][point][tile][lane]``, sums at
    ``[panel of output channels][rows of channels][point][row][output channel of the panel]``, so that elements computed
    together are neighbours.
    """

    def __init__(self, spec: WinogradSpec, target: Target) -> None:
        self.spec = spec
        self.target = target
        self.block = block = gradient_blocking(spec, target)
        lanes = block.lanes
        self.tiles = (spec.batch * spec.rows if block.owned else block.tile_rows) * spec.columns
        plane = self.tiles * lanes + 16
        matrices = gradient_algebra(spec.tile)
        common = {"step": spec.tile, "columns": spec.columns, "stride": lanes, "plane": plane,
                  "group": plane * spec.points, "lanes": lanes}
        self.data = Source(spec.channels, spec.height, spec.width, spec.pad[0], spec.pad[2], matrix=matrices.data,
                           **common)
        self.taps = Source(spec.maps, spec.out_height, spec.out_width, 0, 0, matrix=matrices.taps, **common)
        self.product = Product(1, lanes, lanes, self.data.group, block.panel, lanes)
        self.row_tiles = -(-spec.channels // block.rows)
        self.panels = -(-spec.maps // block.panel)
        self.unit = spec.points * block.rows * block.panel
        rows = min(block.tile_rows, spec.rows)
        buffers = (self.data.window(rows), self.taps.window(rows))
        transformed = (self.data.group * -(-spec.channels // lanes), self.taps.group * self.panels * block.vectors)
        self.square = round_up(9, lanes) * lanes
        if block.owned:
            self.shared = scratch_layout(4, *transformed)
            self.own = scratch_layout(4, *buffers, self.unit, self.square)
        else:
            self.shared = [0]
            self.own = scratch_layout(4, *buffers, self.row_tiles * self.panels * self.unit, self.square, *transformed)

    def _scratch(self, em: Emitter, slot: int) -> tuple[str, list[str]]:
        """Pointers to the whole scratch and to the parts of this thread."""
        scratch = em.slot(slot)
        own = em.gep(scratch, em.add(em.mul("%tid", self.own[-1]), self.shared[-1]), F)
        return scratch, [em.gep(own, at, F) for at in self.own[:-1]]

    def _kernel(self, em: Emitter, flops: int, moved: int) -> Kernel:
        return Kernel("llvm", em.symbol, em.text(), 4 * self.own[-1], flops, moved, shared=4 * self.shared[-1])

    def _flops(self) -> int:
        spec = self.spec
        return 2 * spec.batch * spec.rows * spec.columns * spec.points * spec.channels * spec.maps

    def first(self) -> Kernel:
        """Transforms the tiles, and sums up their products unless that is left to the second kernel."""
        spec, block = self.spec, self.block
        em = Emitter(symbol_of("gradient", spec, self.target), self.target)
        functions = transform_function(em, "data", self.data), transform_function(em, "taps", self.taps)
        images = em.slot(0), em.slot(1)
        scratch, own = self._scratch(em, 2)
        sizes = spec.channels * spec.height * spec.width, spec.maps * spec.out_height * spec.out_width
        places = [em.gep(scratch, at, F) for at in self.shared[:-1]] if block.owned else own[4:6]
        em.clear(own[0], 4 * self.own[2])
        multiply = None
        if not block.owned:
            em.clear(own[2], 4 * (self.own[3] - self.own[2]))
            multiply = self._multiply(em)

        def work(first: Index, last: Index) -> None:
            def enter(n: Index, low: Index, high: Index, offset: Index) -> None:
                start = em.add(offset, first) if block.owned else offset
                for function, image, size, window, to, n_maps in zip(
                        functions, images, sizes, own[:2], places, (spec.channels, spec.maps), strict=True):
                    at = em.gep(image, em.mul(n, size), F)
                    place = em.gep(to, em.mul(start, spec.columns * block.lanes), F)
                    em.call(function, at, window, place, low, high, 0, n_maps)
            for_images(em, first, last, spec.rows, enter)
            if multiply is not None:
                depth = em.mul(em.sub(last, first), spec.columns)
                em.call(multiply, places[0], places[1], own[2], depth)
        even_blocks(em, spec.batch * spec.rows, block.tile_rows, work)
        moved = 4 * (spec.batch * sum(sizes) + sum(self.shared[-1:]))
        return self._kernel(em, 0 if block.owned else self._flops(), moved)

    def _multiply(self, em: Emitter) -> Emitter:
        """A function that adds the products of ``%depth`` tiles to all sums."""
        inner = em.function("multiply", ["ptr %data", "ptr %taps", "ptr %sums", "i64 %depth"])

        @inner.each(0, self.panels)
        def panel(p: Index) -> None:
            @inner.each(0, self.row_tiles)
            def rows(r: Index) -> None:
                place = inner.gep("%sums", inner.mul(inner.add(inner.mul(p, self.row_tiles), r), self.unit), F)
                self._products(inner, p, r, place, "%data", "%taps", "%depth", True)
        return inner

    def _products(self, em: Emitter, p: Index, r: Index, place: str, data: str, taps: str, depth: Index,
                  add: bool) -> None:
        """The products of all points for panel ``p`` and row tile ``r``."""
        block = self.block
        per_vector = block.lanes // block.rows
        vector = em.div(r, per_vector)
        lane = em.mul(em.sub(r, em.mul(vector, per_vector)), block.rows)
        a = em.gep(data, em.add(em.mul(vector, self.data.group), lane), F)
        b = em.gep(taps, em.mul(p, block.vectors * self.taps.group), F)

        @em.each(0, self.spec.points)
        def point(k: Index) -> None:
            at = em.gep(place, em.mul(k, block.rows * block.panel), F)
            offset = em.mul(k, self.data.plane)
            small_product(em, self.product, block.rows, block.vectors, depth, em.gep(a, offset, F),
                          em.gep(b, offset, F), at, add)

    def second(self) -> Kernel:
        """Transforms sums to gradients; before that it makes the sums, or adds up those of all threads."""
        spec, block = self.spec, self.block
        em = Emitter(symbol_of("weights_gradient", spec, self.target), self.target)
        to = em.slot(0)
        scratch, own = self._scratch(em, 1)
        finish = self._finish(em)

        def unit(u: Index, _: list[str]) -> None:
            p, r = em.divmod(u, self.row_tiles)
            if block.owned:
                sums = own[2]
                data, taps = (em.gep(scratch, at, F) for at in self.shared[:-1])
                self._products(em, p, r, sums, data, taps, self.tiles, False)
            else:
                sums = em.gep(scratch, em.add(em.mul(u, self.unit), self.own[2]), F)
                self._add_up(em, sums)
            em.call(finish, sums, own[3], to, em.mul(r, block.rows), em.mul(p, block.panel))
        lo, hi = em.chunk(self.row_tiles * self.panels)
        em.loop(lo, hi, 1, unit, unroll=False)
        moved = 36 * spec.channels * spec.maps + 4 * self.unit * self.row_tiles * self.panels
        return self._kernel(em, self._flops() if block.owned else 0, moved)

    def _add_up(self, em: Emitter, sums: str) -> None:
        """Add the sums of the other threads to those of the first one."""
        lanes = self.block.lanes

        @em.each(1, "%nth")
        def thread(t: Index) -> None:
            other = em.gep(sums, em.mul(t, self.own[-1]), F)

            @em.each(0, self.unit, lanes)
            def vector(i: Index) -> None:
                place = em.gep(sums, i, F)
                x = em.load(F, lanes, em.gep(other, i, F))
                em.store(F, lanes, em.binary("fadd", F, lanes, em.load(F, lanes, place), x), place)

    def _finish(self, em: Emitter) -> Emitter:
        """A function that transforms the sums of a register tile and stores weights."""
        spec, block = self.spec, self.block
        lanes, panel = block.lanes, block.panel
        inner = em.function("finish", ["ptr %sums", "ptr %square", "ptr %to", "i64 %channel", "i64 %map"])
        size = spec.tile + 2
        transform = Transform(inner, gradient_algebra(spec.tile).out, lanes)
        stride = round_up(9, lanes)

        @inner.each(0, inner.min(block.rows, inner.sub(spec.channels, "%channel")))
        def row(i: Index) -> None:
            def vector(j: Index, _: list[str]) -> None:
                first = inner.add("%map", inner.mul(j, lanes))
                start = inner.gep("%sums", inner.add(inner.mul(i, panel), inner.mul(j, lanes)), F)

                values = [inner.load(F, lanes, inner.gep(start, k * block.rows * panel, F)) for k in range(spec.points)]
                taps = [x for line in transform.both([values[k:k + size] for k in range(0, spec.points, size)])
                        for x in line]
                for at in range(0, 9, lanes):
                    part = taps[at:at + lanes]
                    transposed = inner.transpose(F, [*part, *[part[0]] * (lanes - len(part))])
                    for q, x in enumerate(transposed):
                        inner.store(F, lanes, x, inner.gep("%square", q * stride + at, F))

                def store(q: Index, _: list[str]) -> None:
                    source = inner.gep("%square", inner.mul(q, stride), F)
                    at = inner.add(inner.mul(inner.add(first, q), spec.channels), inner.add("%channel", i))
                    place = inner.gep("%to", inner.mul(at, 9), F)
                    for k in range(0, 9, lanes):
                        x = inner.load(F, lanes, inner.gep(source, k, F))
                        inner.store(F, lanes, x, inner.gep(place, k, F), 9 - k)
                exist = inner.min(lanes, inner.sub(spec.maps, first)) if spec.maps % lanes else lanes
                inner.loop(0, exist, 1, store, unroll=False)
            whole = spec.maps % panel in (0, *range(panel - lanes + 1, panel))
            vectors = block.vectors if whole else inner.min(
                block.vectors, inner.div(inner.add(inner.sub(spec.maps, "%map"), lanes - 1), lanes))
            inner.loop(0, vectors, 1, vector, unroll=False)
        return inner
