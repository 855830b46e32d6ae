"""The gradient of the weights of a convolution with 3 x 3 taps by Winograd's algorithm, as LLVM IR.

A tile of the gradient at the output is a filter over the tile of the image, with three outputs each way. Its transform
times that of the image's tile, summed over all tiles, is the transform of the gradient. Threads share the work in one
of two ways (``GradientBlocking``), both with two kernels, one after the other.
"""
from __future__ import annotations

from kusari.ir import Kernel

from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.types import F32
from ..operand import Results
from ..tile import Factors, Tile
from ..writer import scratch_layout
from .algebra import Transform, gradient_algebra
from .parts import Source, WinogradWriter, even_blocks, for_images, transform_function
from .spec import WinogradSpec, gradient_blocking, round_up


class Gradient(WinogradWriter):
    """Writes both kernels.

    Transformed tiles are at ``[vector of channels][point][tile][lane]``, sums at
    ``[panel of output channels][rows of channels][point][row][output channel of the panel]``, so that elements computed
    together are neighbours.
    """

    names = "gradient", "weights_gradient"

    def __init__(self, spec: WinogradSpec, target: Target, number: int) -> None:
        super().__init__(spec, target, number, Results(spec.maps, 9 * spec.channels, 1, F32, (), ()))
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
        self.row_tiles = -(-spec.channels // block.rows)
        self.panels = -(-spec.maps // block.panel)
        self.unit = spec.points * block.rows * block.panel
        rows = min(block.tile_rows, spec.rows)
        # Of a thread: windows of both images, sums, a square; transformed tiles, unless they are of all threads.
        self.sizes = [self.data.window(rows), self.taps.window(rows),
                      self.unit * (1 if block.owned else self.row_tiles * self.panels), round_up(9, lanes) * lanes]
        transformed = [self.data.group * -(-spec.channels // lanes), self.taps.group * self.panels * block.vectors]
        self.shared = [0]
        if block.owned:
            self.shared = scratch_layout(4, *transformed)
        else:
            self.sizes += transformed

    def parts(self, slot: int) -> tuple[Array, list[Array]]:
        """The whole scratch and the parts of this thread."""
        self.scratch_slot = slot
        return self.array(self.em.slot(slot)), self.scratch(*self.sizes, shared=self.shared[-1])

    def first(self) -> Kernel:
        """Transforms the tiles, and sums up their products unless that is left to the second kernel."""
        em, spec, block = self.em, self.spec, self.block
        functions = transform_function(em, "data", self.data), transform_function(em, "taps", self.taps)
        images = self.array(em.slot(0)), self.array(em.slot(1))
        scratch, own = self.parts(2)
        sizes = spec.channels * spec.height * spec.width, spec.maps * spec.out_height * spec.out_width
        places = [scratch.at(at) for at in self.shared[:-1]] if block.owned else own[4:6]
        own[0].clear(round_up(self.sizes[0], 16) + round_up(self.sizes[1], 16))
        multiply = None
        if not block.owned:
            own[2].clear(round_up(self.sizes[2], 16))
            multiply = self._multiply()
        for first, last in even_blocks(em, spec.batch * spec.rows, block.tile_rows):
            for n, low, high, offset in for_images(em, first, last, spec.rows):
                start = offset + first if block.owned else offset
                for function, image, size, window, to, n_maps in zip(
                        functions, images, sizes, own[:2], places, (spec.channels, spec.maps), strict=True):
                    at = image.at(n * size)
                    place = to.at(start * (spec.columns * block.lanes))
                    em.call(function, at, window, place, low, high, 0, n_maps)
            if multiply is not None:
                em.call(multiply, *places, own[2], (last - first) * spec.columns)
        flops = 0 if block.owned else spec.flops
        return self.kernel(flops, 4 * (spec.batch * sum(sizes) + self.shared[-1]), self.shared[-1])

    def _multiply(self) -> Emitter:
        """A function that adds the products of ``%depth`` tiles to all sums."""
        em = self.em.function("multiply", ["ptr %data", "ptr %taps", "ptr %sums", "i64 %depth"])
        data, taps, sums = (self.array(p, em) for p in ("%data", "%taps", "%sums"))
        depth, = em.numbers
        for p in em.each(0, self.panels):
            for r in em.each(0, self.row_tiles):
                place = sums.at((p * self.row_tiles + r) * self.unit)
                self._products(p, r, place, data, taps, depth, True)
        return em

    def _products(self, p: Index, r: Index, place: Array, data: Array, taps: Array, depth: Index, add: bool) -> None:
        """The products of all points for panel ``p`` and row tile ``r``."""
        em, block, tile = place.em, self.block, Tile(place.em, self.element, self.width)
        vector, inside = em.divmod(r, block.lanes // block.rows)
        lane = inside * block.rows
        a = data.at(vector * self.data.group + lane)
        b = taps.at(p * (block.vectors * self.taps.group))
        for k in em.each(0, self.spec.points):
            at, offset = place.at(k * (block.rows * block.panel)), k * self.data.plane
            rows = Factors(a.at(offset), block.lanes, range(block.rows), True)
            columns = Factors(b.at(offset), block.lanes, [j * self.data.group for j in range(block.vectors)])
            tile.multiply(rows, columns, depth, at, block.panel, add)

    def second(self) -> Kernel:
        """Transforms sums to gradients; before that it makes the sums, or adds up those of all threads."""
        em, spec, block = self.em, self.spec, self.block
        to = em.slot(0)
        scratch, own = self.parts(1)
        finish = self._finish()
        for u in em.each(*em.chunk(self.row_tiles * self.panels)):
            p, r = em.divmod(u, self.row_tiles)
            sums = own[2]
            if block.owned:
                data, taps = (scratch.at(at) for at in self.shared[:-1])
                self._products(p, r, sums, data, taps, self.tiles, False)
            else:
                sums = scratch.at(u * self.unit + scratch_layout(4, *self.sizes)[2])
                for t in em.each(1, em.nth):  # add the sums of the other threads to those of the first one
                    other = sums.at(t * (self.scratch_bytes // self.size))
                    for i in em.each(0, self.unit, self.width):
                        place, x = sums.at(i), other.load(i)
                        place.store(em.binary("fadd", self.element, self.width, place.load(), x))
            em.call(finish, sums, own[3], to, r * block.rows, p * block.panel)
        moved = 36 * spec.channels * spec.maps + 4 * self.unit * self.row_tiles * self.panels
        return self.kernel(spec.flops if block.owned else 0, moved, self.shared[-1])

    def _finish(self) -> Emitter:
        """A function that transforms the sums of a register tile and stores weights."""
        spec, block, lanes, size = self.spec, self.block, self.width, self.spec.tile + 2
        em = self.em.function("finish", ["ptr %sums", "ptr %square", "ptr %to", "i64 %channel", "i64 %map"])
        sums, square, to = (self.array(p, em) for p in ("%sums", "%square", "%to"))
        channel, map_ = em.numbers
        transform = Transform(em, gradient_algebra(spec.tile).out, lanes)
        stride = round_up(9, lanes)
        whole = spec.maps % block.panel in (0, *range(block.panel - lanes + 1, block.panel))
        vectors = block.vectors if whole else em.min(block.vectors, (spec.maps - map_ + (lanes - 1)) // lanes)
        for i in em.each(0, em.min(block.rows, spec.channels - channel)):
            for j in em.each(0, vectors):
                first = map_ + j * lanes
                start = sums.at(i * block.panel + j * lanes)
                values = [start.load(k * block.rows * block.panel) for k in range(spec.points)]
                grid = transform.both([values[k:k + size] for k in range(0, spec.points, size)])
                taps = [x for line in grid for x in line]
                for at in range(0, 9, lanes):
                    part = taps[at:at + lanes]
                    for q, x in enumerate(em.transpose(self.element, [*part, *[part[0]] * (lanes - len(part))])):
                        square.store(x, q * stride + at)
                for q in em.each(0, em.min(lanes, spec.maps - first) if spec.maps % lanes else lanes):
                    source = square.at(q * stride)
                    at = (first + q) * spec.channels + (channel + i)
                    place = to.at(at * 9)
                    for k in range(0, 9, lanes):
                        place.store(source.load(k), k, 9 - k)
        return em
