"""Common parts of the kernels that convolve: products of all points, and the way back to images."""
from __future__ import annotations

from collections.abc import Callable, Iterator

from kusari.ir import Kernel

from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.tiles import each_tile, full_tiles
from ...text.types import F32
from ..operand import Results
from ..tile import Factors, Tile
from .functions import outputs_function, square_function
from .parts import Source, WinogradWriter, algebra_of, square
from .phases import phases_at
from .spec import Tiling, WinogradSpec, row_stride


class Forward(WinogradWriter):
    """Writes kernels that convolve by ``block``.

    ``tiles`` transformed tiles are at ``[point][tile][channel]``. Transformed weights are at
    ``[point][panel][channel][output channel of the panel]``, ``chunk`` channels of ``panels`` panels at a time. Sums
    are at ``[point][tile][output channel]``, ``outputs`` of ``most`` tiles.
    """

    factors = 1

    def __init__(self, spec: WinogradSpec, target: Target, number: int, block: Tiling, tiles: int, chunk: int,
                 panels: int, most: int, outputs: int) -> None:
        work = Results(spec.maps, spec.out_height * spec.out_width, spec.batch, F32, spec.exprs, spec.operands)
        super().__init__(spec, target, number, work)
        self.em.only_calls()
        self.chunk = chunk
        stride, self.sums_stride = row_stride(spec.channels * spec.phases, block.lanes), outputs
        # Planes of a power of two would meet in one set of the caches.
        self.strip = chunk * spec.phases * block.panel
        self.weights_plane, self.sums_plane = self.strip * panels + 16, most * outputs + 16
        self.source = Source(
            spec.channels, spec.height, spec.width, spec.pad[0], spec.pad[2], spec.step, spec.columns,
            algebra_of(spec).data, stride, tiles * stride + 16, block.lanes, block.lanes,
            chunk if spec.phases > 1 else 0)
        self.breadth = spec.columns * spec.tile
        self.whole = self.breadth == spec.out_width and spec.out_height % spec.tile == 0
        self.side = square(block.lanes, spec.tile * spec.out_width if self.whole else spec.out_width)

    @property
    def buffers(self) -> tuple[int, int]:
        """Elements of a row of tiles of a vector of output channels, and of squares that are transposed."""
        return self.spec.tile * self.breadth * self.width, self.width * square(self.width, self.width)

    def with_results(self, moved: int, shared: int) -> Kernel:
        """The finished second kernel, which besides operands and outputs reads ``moved`` bytes."""
        spec = self.spec
        touched = sum(d.itemsize for d in (*self.results.types, *(o.dtype for o in spec.operands if o.column)))
        return self.kernel(spec.flops, moved + spec.batch * self.results.n * self.results.m * touched, shared)

    def multiply(self, block: Tiling, outputs: int, depth: int | None, add: bool,
                 ahead: Callable[[Emitter, Index, Index], Callable[[Index], None]] | None = None) -> Emitter:
        """A function: the products of all points, ``%tiles`` register tiles high; rows past the last are void.

        They are of ``depth`` channels; for None the number is a parameter, and so is the address ``%next``.
        ``ahead(function, point, tile)`` returns what writes further work of a step.
        """
        spec, source, strides = self.spec, self.source, (self.source.stride, self.sums_stride)
        more = ["i64 %depth", "ptr %next"] if depth is None else []
        em = self.em.function("multiply", ["ptr %data", "ptr %weights", "ptr %sums", "i64 %tiles", *more])
        tiles, *told = em.numbers
        data, weights, sums = (self.array(p, em) for p in ("%data", "%weights", "%sums"))
        register, table = Tile(em, self.element, self.width), ""
        if spec.phases > 1:  # of each point: the first row of the factors with a term there, and the number of rows
            table = em.table("i64", [n * self.chunk for at in phases_at(spec.side) for n in at])
        for k in em.each(0, spec.points):
            a, c = data.at(k * source.plane), sums.at(k * self.sums_plane)
            b, steps = weights.at(k * self.weights_plane), told[0] if depth is None else depth
            if table:
                first, steps = em.row(table, k, 2)
                a, b = a.at(first), b.at(first * block.panel)
            for t in full_tiles(-(-outputs // block.lanes), block.vectors):
                for p in em.each(t.first, t.first + t.count):
                    strip, place = b.at(p * self.strip), c.at(p * block.panel)
                    for i in em.each(0, tiles):
                        row = i * block.rows
                        fetch = ahead(em, k, i) if ahead else None
                        rows = Factors(a.at(row * strides[0]), 1, [n * strides[0] for n in range(block.rows)], True)
                        columns = Factors(strip, block.panel, register.neighbours(t.size))
                        register.multiply(rows, columns, steps, place.at(row * strides[1]), strides[1], add, fetch)
        return em

    def output(self) -> Emitter:
        """A function that finishes rows of tiles of some output channels ("maps") of one image.

        Output channels of its sums are counted from the first one that is finished. A row of tiles of one vector of
        them is kept in ``%line``, then pixels and output channels are transposed and the expressions are applied.
        """
        spec, lanes = self.spec, self.width
        em, epilogue = self.epilogue(0).function("output", [
            "ptr %sums", "ptr %line", "ptr %square", "i64 %first", "i64 %last", "i64 %low", "i64 %high"])
        first, last, low, high = em.numbers
        sums, line = (self.array(p, em) for p in ("%sums", "%line"))
        pixels, turned = (Array(em, self.element, self.side, p) for p in ("%line", "%square"))
        outputs = outputs_function(em.target, algebra_of(spec).out, lanes)

        def runs(top: Index) -> Iterator[tuple[Index, int, Index]]:
            """The pixels of a row of tiles in runs: begin in the line, number, and the first one's in the image."""
            if self.whole:  # those of all lines, here and in the image
                yield 0, spec.tile * spec.out_width, top * spec.out_width
                return
            for i in em.each(0, em.min(spec.tile, spec.out_height - top)):
                yield i * (self.breadth * lanes), spec.out_width, (top + i) * spec.out_width
        for y in em.each(0, last - first):
            tiles = sums.at(y * (spec.columns * self.sums_stride))
            top = (y + first) * spec.tile
            for c in em.each(low, high, lanes):
                own = tiles.at(c - low)
                em.call(outputs, own, line, spec.columns, self.sums_stride, self.sums_plane, self.breadth * lanes)
                exist = em.min(lanes, high - c) if spec.maps % lanes else lanes
                for at, count, pixel in runs(top):
                    for x, valid in each_tile(em, count, self.side):
                        em.call(square_function(em.target, lanes, self.side, valid), pixels.at(at + x * lanes), turned)
                        for k in em.each(0, exist):
                            value = turned.load(k * self.side)
                            epilogue.store(value, c + k, pixel + x, self.side, valid)
        return em
