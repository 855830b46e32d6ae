"""Convolutions of few channels by few filters, depthwise ones above all: vectors of staged images times single weights.

Nothing is gathered: the element of a window for neighbouring results is a vector of the staged image as it lies.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from ..target import Target
from .conv_geometry import gathering
from .conv_panels import matrices
from .conv_spec import ConvSpec
from .conv_stage import MOST_UNROLLED, clear, stage_function
from .emitter import Emitter, Index
from .gemm_parts import Epilogue, Finisher, Tiles, full_tiles, is_heavy
from .types import memory_type, vector

_VECTORS = 4  # results that share a weight: as many sums as hide the latency of an addition


@dataclass(frozen=True)
class DirectShape:
    """Tiles of ``lines`` rows of positions and ``vectors`` in each."""

    lines: int
    vectors: int
    width: int
    cycles: float


def choose_direct(spec: ConvSpec, target: Target) -> DirectShape:
    """The tile, and cycles by count: every result vector loads each element of its windows, mostly from two lines."""
    g = gathering(spec)
    width = target.lanes(spec.dtype.itemsize)
    columns = -(-g.size[-1] // width)
    vectors = min(columns, _VECTORS)
    lines = max(1, min(_VECTORS // vectors, g.size[-2] if len(g.size) > 1 else 1))
    work = spec.n * spec.groups * g.rows * prod(g.size[:-1]) * columns
    cycles = work * (g.depth * spec.taps * (0.85 + 0.25 / (lines * vectors)) + 2)
    cycles += spec.n * spec.groups * g.depth * 2.0 * g.image.size / width
    return DirectShape(lines, vectors, width, cycles)


def suits_direct(spec: ConvSpec) -> bool:
    """Whether the convolution, or gradient, has results of one kind only: those of strided gradients have several."""
    return spec.direction == "forward" or (spec.direction == "input" and set(spec.stride) == {1})


def write_direct(em: Emitter, spec: ConvSpec, shape: DirectShape) -> int:
    """Write the convolution; returns the bytes of scratch each thread needs."""
    return _Direct(em, spec, shape).write()


class _Direct:
    """Writes one kernel. Invariant: the scratch of a thread holds the staged channels of one group of one sample."""

    def __init__(self, em: Emitter, spec: ConvSpec, shape: DirectShape) -> None:
        self.em = em
        self.spec = spec
        self.shape = shape
        self.g = gathering(spec)
        self.work = matrices(spec, self.g)
        self.element = self.work.element
        self.ty = vector(self.element, shape.width)
        self.taps = self.g.parts[0].taps
        self.heavy = is_heavy(spec.exprs)

    def write(self) -> int:
        em, spec, shape, g = self.em, self.spec, self.shape, self.g
        size = spec.dtype.itemsize
        staged = -(-(g.depth * g.image.size + shape.width) * size // 64) * 64 // size
        self.slots = [em.slot(i) for i in range(self.work.scratch_slot)]
        self.own = em.gep(em.slot(self.work.scratch_slot), em.mul("%tid", staged), self.element)
        self.stage = stage_function(em, g.image, g.depth, self.element, shape.width)
        self.finisher = Finisher(em, self.work, shape.width, shape.width * shape.vectors)
        if self.heavy:
            self.buffer = em.value(f"alloca [{shape.width * shape.vectors} x {self.element}], align 64", "tile")
        if len(self.taps) > MOST_UNROLLED:
            self.table = em.table("i64", [v for pair in self.taps for v in pair])
        clear(em, self.own, staged, self.element, size)
        images = spec.n * spec.groups
        lines = -(-self._height() // shape.lines)
        if images < 4 and lines > 1:
            tasks, part = (0, images), em.chunk(lines)
        else:
            tasks, part = em.chunk(images), (0, lines)
        em.loop(*tasks, 1, lambda i, _: self._image(i, part), unroll=False)
        return staged * size

    def _height(self) -> int:
        """Rows of positions along the axis before the last."""
        return self.g.size[-2] if len(self.g.size) > 1 else 1

    def _image(self, i: Index, part: tuple[Index, Index]) -> None:
        em, spec, g = self.em, self.spec, self.g
        sample = em.div(i, spec.groups)
        group = em.sub(i, em.mul(sample, spec.groups))
        source = em.gep(self.slots[0], em.mul(i, g.depth * g.image.source), self.element)
        em.call(self.stage, [f"ptr {source}", f"ptr {self.own}"])
        filters = em.gep(self.slots[1], em.mul(group, spec.features * spec.channels * spec.taps), self.element)
        reads = [em.gep(self.slots[2 + k], em.add(em.mul(sample, o.batch), em.mul(group, o.row * g.rows)),
                        memory_type(o.dtype)) for k, o in enumerate(spec.operands)]
        writes = self.slots[2 + len(spec.operands):]
        epilogue = Epilogue(em, self.work, reads, writes, em.mul(i, g.rows * g.positions))

        def row(r: Index, _: list[str]) -> None:
            weights = em.gep(filters, em.mul(r, g.row_step), self.element)
            self._outer(0, 0, 0, lambda base, column: self._lines(epilogue, r, weights, base, column, part))
        em.loop(0, g.rows, 1, row, unroll=False)

    def _outer(self, depth: int, base: Index, column: Index, use: Callable[[Index, Index], None]) -> None:
        """Loops over all axes but the last two: where a plane begins in the images, and in the results."""
        em, g = self.em, self.g
        if depth >= len(g.size) - 2:
            use(base, column)
            return

        def turn(q: Index, _: list[str]) -> None:
            self._outer(depth + 1, em.add(base, em.mul(q, g.image.steps[depth])),
                        em.add(em.mul(column, g.size[depth]), q), use)
        em.loop(0, g.size[depth], 1, turn, unroll=False)

    def _lines(self, epilogue: Epilogue, row: Index, weights: str, base: Index, plane: Index,
               part: tuple[Index, Index]) -> None:
        """A plane of results of one filter: rows by rows; the last ones may be computed again."""
        em, g, shape = self.em, self.g, self.shape
        height, breadth = self._height(), g.size[-1]
        step = g.image.steps[-2] if len(g.size) > 1 else 0

        def line(k: Index, _: list[str]) -> None:
            first = em.min(em.mul(k, shape.lines), height - shape.lines)
            here = em.add(base, em.mul(first, step))
            there = em.mul(em.add(em.mul(plane, height), first), breadth)
            for t in full_tiles(breadth, shape.width * shape.vectors):
                self._strip(epilogue, row, weights, here, there, t)
        em.loop(*part, 1, line, unroll=False)

    def _strip(self, epilogue: Epilogue, row: Index, weights: str, here: Index, there: Index, t: Tiles) -> None:
        em, g, shape, width = self.em, self.g, self.shape, self.shape.width
        valid = [min(width, t.size - j) for j in range(0, t.size, width)]

        def turn(q: Index, _: list[str]) -> None:
            sums = self._sum(weights, em.gep(self.own, em.add(here, q), self.element), len(valid))
            for i in range(shape.lines):
                column = em.add(em.add(there, i * g.size[-1]), q)
                own = sums[i * len(valid):(i + 1) * len(valid)]
                if self.heavy:
                    for j, x in enumerate(own):
                        em.store(self.element, width, x, em.gep(self.buffer, j * width, self.element))
                    for f in full_tiles(t.size, width):
                        self.finisher.call(epilogue, em.gep(self.buffer, f.start, self.element), row, 1,
                                           em.add(column, f.start), f.count, f.size)
                    continue
                for j, (x, v) in enumerate(zip(own, valid, strict=True)):
                    epilogue.store(x, row, em.add(column, j * width), width, v)
        em.loop(t.start, t.start + t.count * t.size, t.size, turn, unroll=False)

    def _sum(self, weights: str, start: str, vectors: int) -> list[str]:
        """The tile whose first window begins at ``start``, over all channels and taps."""
        em, g, width, element = self.em, self.g, self.shape.width, self.element
        step = g.image.steps[-2] if len(g.size) > 1 else 0
        spots = [i * step + j * width for i in range(self.shape.lines) for j in range(vectors)]

        def tap(image: str, line: str, weight: Index, offset: Index, sums: list[str]) -> list[str]:
            w = em.broadcast(element, width, em.load(element, 1, em.gep(line, weight, element)))
            near = em.gep(image, offset, element)
            return [em.fma(element, width, w, em.load(element, width, em.gep(near, s, element)), x)
                    for s, x in zip(spots, sums, strict=True)]

        def channel(c: Index, sums: list[str]) -> list[str]:
            image = em.gep(start, em.mul(c, g.image.size), element)
            line = em.gep(weights, em.mul(c, g.channel_step), element)
            if len(self.taps) <= MOST_UNROLLED:
                for weight, offset in self.taps:
                    sums = tap(image, line, weight, offset, sums)
                return sums

            def one(t: Index, sums: list[str]) -> list[str]:
                entry = em.gep(self.table, em.mul(t, 2), "i64")
                return tap(image, line, em.load("i64", 1, entry), em.load("i64", 1, em.gep(entry, 1, "i64")), sums)
            return em.loop(0, len(self.taps), 1, one, [(self.ty, x) for x in sums], unroll=False)
        return em.loop(0, g.depth, 1, channel, [(self.ty, "zeroinitializer")] * len(spots), unroll=False)
