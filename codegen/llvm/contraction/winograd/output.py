"""From the products of all points back to images, with the epilogue."""
from __future__ import annotations

from collections.abc import Sequence

from kusari.ir import expr_dtype

from ...text.emitter import Emitter, Index
from ...text.types import F32, memory_type
from ..epilogue import Epilogue
from ..operand import results_of
from .algebra import Transform, forward_algebra, strided_algebra
from .parts import F, square
from .spec import WinogradSpec


class Output:
    """The function that finishes rows of tiles of some output channels ("maps") of one image.

    Element ``(point, tile, map)`` of its input is at ``point * plane + tile * stride + map``, maps counted from the
    first one that is finished. A row of tiles of one vector of maps is kept in ``line``, then pixels and maps are
    transposed and the expressions are applied.
    """

    def __init__(self, em: Emitter, spec: WinogradSpec, lanes: int, stride: int, plane: int) -> None:
        reads, writes = len(spec.operands), len(spec.exprs)
        self.em = em.function("output", [
            "ptr %sums", "ptr %line", "ptr %square", "i64 %first", "i64 %last", "i64 %low", "i64 %high",
            *(f"ptr %x{i}" for i in range(reads)), *(f"ptr %y{i}" for i in range(writes))])
        self.spec = spec
        self.work = results_of(spec.maps, spec.out_height * spec.out_width, spec.batch, F32, spec.exprs, spec.operands)
        self.epilogue = Epilogue(self.em, self.work, [f"%x{i}" for i in range(reads)],
                                 [f"%y{i}" for i in range(writes)], 0)
        self.types = [expr_dtype(e, (F32, *self.work.operand_dtypes)) for e in spec.exprs]
        self.lanes = lanes
        self.stride = stride
        self.plane = plane
        self.breadth = spec.columns * spec.tile
        self.whole = self.breadth == spec.out_width and spec.out_height % spec.tile == 0
        self.side = square(lanes, spec.tile * spec.out_width if self.whole else spec.out_width)
        self._write()

    @property
    def line(self) -> int:
        """Elements of the buffer ``line``."""
        return self.spec.tile * self.breadth * self.lanes

    def _write(self) -> None:
        em, spec = self.em, self.spec
        count = em.sub("%last", "%first")

        @em.each(0, count)
        def row(y: Index) -> None:
            sums = em.gep("%sums", em.mul(y, spec.columns * self.stride), F)
            top = em.mul(em.add(y, "%first"), spec.tile)

            @em.each("%low", "%high", self.lanes)
            def maps(c: Index) -> None:
                here = em.gep(sums, em.sub(c, "%low"), F)
                em.loop(0, spec.columns, 1, lambda x, _: self._tile(here, x), unroll=False)
                exist = em.min(self.lanes, em.sub("%high", c)) if spec.maps % self.lanes else self.lanes
                if self.whole:  # the pixels of all lines follow each other, here and in the image
                    self._pixels("%line", spec.tile * spec.out_width, em.mul(top, spec.out_width), c, exist)
                    return

                @em.each(0, em.min(spec.tile, em.sub(spec.out_height, top)))
                def one(i: Index) -> None:
                    at = em.gep("%line", em.mul(i, self.breadth * self.lanes), F)
                    self._pixels(at, spec.out_width, em.mul(em.add(top, i), spec.out_width), c, exist)

    def _tile(self, sums: str, x: Index) -> None:
        em, lanes, tile = self.em, self.lanes, self.spec.tile
        here = em.gep(sums, em.mul(x, self.stride), F)
        size = self.spec.side
        algebra = (forward_algebra if self.spec.stride == 1 else strided_algebra)(tile)
        grid = [[em.load(F, lanes, em.gep(here, (i * size + j) * self.plane, F)) for j in range(size)]
                for i in range(size)]
        place = em.gep("%line", em.mul(x, tile * lanes), F)
        for i, row in enumerate(Transform(em, algebra.out, lanes).both(grid)):
            for j, value in enumerate(row):
                em.store(F, lanes, value, em.gep(place, (i * self.breadth + j) * lanes, F))

    def _pixels(self, line: str, count: int, pixel: Index, c: Index, exist: Index) -> None:
        """Write ``count`` pixels of ``exist`` output channels; the first one is number ``pixel`` of the image."""
        em, lanes, side = self.em, self.lanes, self.side

        def block(x: Index, valid: int) -> None:
            for part in range(0, lanes, side):
                rows = [em.load(F, side, em.gep(line, em.add(em.mul(em.add(x, q), lanes), part), F))
                        for q in range(valid)]
                rows += [rows[0]] * (side - valid)
                for q, value in enumerate(em.transpose(F, rows)):
                    em.store(F, side, value, em.gep("%square", (part + q) * side, F))

            @em.each(0, exist)
            def one(k: Index) -> None:
                value = em.load(F, side, em.gep("%square", em.mul(k, side), F))
                self.epilogue.store(value, em.add(c, k), em.add(pixel, x), side, valid)
        full = count // side * side
        em.loop(0, full, side, lambda x, _: block(x, side), unroll=False)
        if full < count:
            block(full, count - full)

    @property
    def bytes(self) -> int:
        """Bytes of the outputs, and of the operands that are read pixel by pixel."""
        touched = sum(d.itemsize for d in (*self.types, *(o.dtype for o in self.spec.operands if o.column)))
        return self.spec.batch * self.work.n * self.work.m * touched

    def call(self, em: Emitter, sums: str, line: str, transposed: str, rows: tuple[Index, Index],
             maps: tuple[Index, Index], image: Index, arrays: Sequence[str]) -> None:
        """Finish ``rows`` of tiles of output channels ``maps`` of ``image``; ``arrays`` are operands, then outputs."""
        size, reads = self.work.m * self.work.n, len(self.spec.operands)
        given = [em.gep(p, em.mul(image, o.batch), memory_type(o.dtype))
                 for p, o in zip(arrays, self.spec.operands, strict=False)]
        made = [em.gep(p, em.mul(image, size), memory_type(d))
                for p, d in zip(arrays[reads:], self.types, strict=True)]
        em.call(self.em, sums, line, transposed, *rows, *maps, *given, *made)
