"""From the products of all points back to images, with the epilogue."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kusari.ir import DType, Expr

from .emitter import Emitter, Index
from .math import emit_exprs
from .types import F32, memory_type
from .winograd_algebra import Transform, forward_algebra, strided_algebra
from .winograd_parts import F, pointers, square
from .winograd_spec import WinogradSpec


@dataclass(frozen=True)
class Results:
    """Images that rows of tiles are finished to, and what they are made of.

    Element ``(point, tile, map)`` of the sums is at ``point * plane + tile * stride + map``, maps counted from the
    first one that is finished.
    """

    spec: WinogradSpec
    lanes: int
    stride: int
    plane: int

    @property
    def breadth(self) -> int:
        """Pixels of a row of tiles."""
        return self.spec.columns * self.spec.tile

    @property
    def _whole(self) -> bool:
        return self.breadth == self.spec.out_width and self.spec.out_height % self.spec.tile == 0

    @property
    def _pixels(self) -> int:
        """Pixels that follow each other."""
        return self.spec.out_width * (self.spec.tile if self._whole else 1)

    @property
    def line(self) -> int:
        """Elements of the buffer ``line``."""
        return self.spec.tile * self.breadth * self.lanes

    @property
    def square(self) -> int:
        """Elements of the buffer ``square``."""
        return self.lanes * square(self.lanes, self.lanes)

    @property
    def form(self) -> ResultsForm:
        """What the text depends on."""
        spec, side = self.spec, square(self.lanes, self._pixels)
        return ResultsForm(spec.tile, spec.stride, self.lanes, side, self._pixels % side, self._whole, spec.exprs,
                           tuple((o.dtype, o.column) for o in spec.operands))

    @property
    def numbers(self) -> dict[str, int]:
        """What a kernel is called with."""
        spec, pixels = self.spec, self.spec.out_height * self.spec.out_width
        strides = {f"out.{key}{i}": n for i, o in enumerate(spec.operands)
                   for key, n in (("row", o.row), ("batch", o.batch))}
        return {"out.height": spec.out_height, "out.width": spec.out_width, "out.columns": spec.columns,
                "out.breadth": self.breadth, "out.pixels": pixels, "out.image": spec.maps * pixels,
                "out.stride": self.stride, "out.plane": self.plane,
                "out.full": self._pixels - self._pixels % square(self.lanes, self._pixels), **strides}


@dataclass(frozen=True)
class ResultsForm:
    """What the text that finishes tiles depends on.

    ``rest`` of the pixels that follow each other are no whole square of ``side``; ``whole``: they are those of all
    lines of a row of tiles. ``operands`` are (dtype, whether it runs with the pixels).
    """

    tile: int
    stride: int
    lanes: int
    side: int
    rest: int
    whole: bool
    exprs: tuple[Expr, ...]
    operands: tuple[tuple[DType, int], ...]


class Output:
    """The function that finishes rows of tiles of some maps of one image.

    A row of tiles of one vector of maps is kept in ``line``, then pixels and maps change places and the expressions are
    applied.
    """

    def __init__(self, em: Emitter, form: ResultsForm) -> None:
        reads, writes = len(form.operands), len(form.exprs)
        self.em = em.function("output", [
            "ptr %sums", "ptr %line", "ptr %square", "i64 %first", "i64 %last", "i64 %low", "i64 %high",
            *(f"ptr %x{i}" for i in range(reads)), *(f"ptr %y{i}" for i in range(writes))])
        self.form = form
        self._write()

    def _n(self, name: str) -> str:
        return self.em.number(f"out.{name}")

    def _write(self) -> None:
        em, form, n = self.em, self.form, self._n
        lanes, tile = form.lanes, form.tile
        count = em.sub("%last", "%first")

        def row(y: Index, _: list[str]) -> None:
            sums = em.gep("%sums", em.mul(em.mul(y, n("columns")), n("stride")), F)
            top = em.mul(em.add(y, "%first"), tile)

            def maps(c: Index, _: list[str]) -> None:
                here = em.gep(sums, em.sub(c, "%low"), F)
                em.loop(0, n("columns"), 1, lambda x, _: self._tile(here, x), unroll=False)
                exist = em.min(lanes, em.sub("%high", c))
                pixel = em.mul(top, n("width"))
                if form.whole:  # the pixels of all lines follow each other, here and in the image
                    self._pixels("%line", pixel, c, exist)
                    return

                def one(i: Index, _: list[str]) -> None:
                    at = em.gep("%line", em.mul(em.mul(i, n("breadth")), lanes), F)
                    self._pixels(at, em.add(pixel, em.mul(i, n("width"))), c, exist)
                em.loop(0, em.min(tile, em.sub(n("height"), top)), 1, one, unroll=False)
            em.loop("%low", "%high", lanes, maps, unroll=False)
        em.loop(0, count, 1, row, unroll=False)

    def _tile(self, sums: str, x: Index) -> None:
        em, form = self.em, self.form
        lanes, tile = form.lanes, form.tile
        here = em.gep(sums, em.mul(x, self._n("stride")), F)
        algebra = (forward_algebra if form.stride == 1 else strided_algebra)(tile)
        size = len(algebra.data)
        values = [em.load(F, lanes, p) for p in pointers(em, here, self._n("plane"), size * size)]
        place = em.gep("%line", em.mul(x, tile * lanes), F)
        made = Transform(em, algebra.out, lanes).both([values[i:i + size] for i in range(0, size * size, size)])
        lines = pointers(em, place, em.mul(self._n("breadth"), lanes), tile)
        for p, row in zip(lines, made, strict=True):
            for j, value in enumerate(row):
                em.store(F, lanes, value, em.gep(p, j * lanes, F))

    def _pixels(self, line: str, pixel: Index, c: Index, exist: Index) -> None:
        """Write pixels of ``exist`` maps; the first one is number ``pixel`` of the image."""
        em, lanes, side = self.em, self.form.lanes, self.form.side

        def block(x: Index, valid: int) -> None:
            for part in range(0, lanes, side):
                rows = [em.load(F, side, em.gep(line, em.add(em.mul(em.add(x, q), lanes), part), F))
                        for q in range(valid)]
                rows += [rows[0]] * (side - valid)
                for q, value in enumerate(em.transpose(F, rows)):
                    em.store(F, side, value, em.gep("%square", (part + q) * side, F))

            def one(k: Index, _: list[str]) -> None:
                value = em.load(F, side, em.gep("%square", em.mul(k, side), F))
                self._finish(value, em.add(c, k), em.add(pixel, x), valid)
            em.loop(0, exist, 1, one, unroll=False)
        full = self._n("full")
        em.loop(0, full, side, lambda x, _: block(x, side), unroll=False)
        if self.form.rest:
            block(full, self.form.rest)

    def _finish(self, value: str, row: Index, pixel: Index, valid: int) -> None:
        em, form, side = self.em, self.form, self.form.side
        args = [value]
        for i, (dtype, column) in enumerate(form.operands):
            index = em.add(em.mul(row, self._n(f"row{i}")), pixel if column else 0)
            args.append(em.read(dtype, side, f"%x{i}", index, column, valid))
        place = em.add(em.mul(row, self._n("pixels")), pixel)
        results = emit_exprs(em, form.exprs, args, [F32, *(dtype for dtype, _ in form.operands)], side)
        for i, (result, dtype) in enumerate(results):
            em.write(dtype, side, result, f"%y{i}", place, 1, valid)

    def call(self, em: Emitter, sums: str, line: str, turned: str, rows: tuple[Index, Index],
             maps: tuple[Index, Index], image: Index, reads: Sequence[str], writes: Sequence[str],
             dtypes: Sequence[DType]) -> None:
        """Finish ``rows`` of tiles of ``maps`` of ``image``; ``dtypes`` are those of the outputs."""
        given = [em.gep(p, em.mul(image, em.number(f"out.batch{i}")), memory_type(dtype))
                 for i, (p, (dtype, _)) in enumerate(zip(reads, self.form.operands, strict=True))]
        made = [em.gep(p, em.mul(image, em.number("out.image")), memory_type(t))
                for p, t in zip(writes, dtypes, strict=True)]
        em.call(self.em, [f"ptr {sums}", f"ptr {line}", f"ptr {turned}", f"i64 {rows[0]}", f"i64 {rows[1]}",
                          f"i64 {maps[0]}", f"i64 {maps[1]}",
                          *(f"ptr {p}" for p in (*given, *made))])
