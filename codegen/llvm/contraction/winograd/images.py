"""Convolution with 3 x 3 taps at every position by Winograd's algorithm, as LLVM IR; also the input's gradient.

Two kernels, one after the other. The first transforms the weights to a matrix per point, in memory that all threads
share. In the second every thread takes rows of tiles; in blocks that stay in its second-level cache it transforms the
tiles, multiplies them by the matrices, point by point, and transforms the sums back.

Source: Lavin and Gray, `Fast Algorithms for Convolutional Neural Networks <https://arxiv.org/abs/1509.09308>`_, 2016.
"""
from __future__ import annotations

import hashlib

from kusari.ir import Kernel

from ....target import Target
from ...text.emitter import Emitter, Index
from ..stage import scratch_layout
from .algebra import forward_algebra, strided_algebra
from .output import Output
from .parts import (
    F,
    Product,
    Source,
    even_blocks,
    for_images,
    phase_table,
    small_product,
    square,
    transform_function,
    transform_weights,
)
from .spec import Blocking, WinogradSpec, blocking, round_up, row_stride, weights_only


def symbol_of(name: str, spec: WinogradSpec, target: Target) -> str:
    digest = hashlib.sha256(repr((spec, target)).encode()).hexdigest()[:12]
    return f"winograd{spec.tile}_{name}_{spec.channels}x{spec.maps}_{digest}"


def _weights_size(spec: WinogradSpec, block: Blocking) -> int:
    """Elements of the transformed weights: ``[point][panel][channel][output channel of the panel]``."""
    return spec.points * _weights_plane(spec, block)


def _weights_plane(spec: WinogradSpec, block: Blocking) -> int:
    """Elements between points; not a power of two, where all points would meet in one set of the caches."""
    return spec.channels * spec.phases * round_up(spec.maps, block.panel) + 16


def weights_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The first kernel transforms the weights; its slots are the weights and scratch.

    A thread takes some channels of some vectors of output channels.
    """
    spec = weights_only(spec)
    block = blocking(spec, target)
    lanes, panel = block.lanes, block.panel
    em = Emitter(symbol_of("weights", spec, target), target)
    weights, to = em.slot(0), em.slot(1)
    plane = _weights_plane(spec, block)

    def unit(u: Index, _: list[str]) -> None:
        group, channel = em.divmod(u, spec.channels)
        first = em.mul(group, lanes)
        strip = em.div(first, panel)
        at = em.add(em.mul(strip, spec.channels * spec.phases * panel), em.sub(first, em.mul(strip, panel)))
        place = em.gep(to, em.add(at, em.mul(channel, panel)), F)
        transform_weights(em, spec, lanes, weights, channel, first, place, plane, spec.channels * panel)
    lo, hi = em.chunk(-(-spec.maps // lanes) * spec.channels)
    em.loop(lo, hi, 1, unit, unroll=False)
    size = 4 * _weights_size(spec, block)
    moved = 36 * spec.channels * spec.maps + size
    return Kernel("llvm", em.symbol, em.text(), 0, moved, moved, shared=size)


def images_kernel(spec: WinogradSpec, target: Target) -> Kernel:
    """The second kernel convolves with transformed weights and applies the epilogue.

    Its slots are the images, the operands, the outputs and scratch, as the first kernel left it.
    """
    return _Images(spec, target).kernel()


class _Images:
    """Writes the second kernel. Invariant: the border of ``window``, which is zero at first, is never written."""

    def __init__(self, spec: WinogradSpec, target: Target) -> None:
        self.spec = spec
        self.block = blocking(spec, target)
        self.em = Emitter(symbol_of("images", spec, target), target)
        lanes = self.block.lanes
        data_stride, sums_stride = row_stride(spec.channels * spec.phases, lanes), row_stride(spec.maps, lanes)
        algebra = (forward_algebra if spec.stride == 1 else strided_algebra)(spec.tile)
        self.source = Source(
            spec.channels, spec.height, spec.width, spec.pad[0], spec.pad[2], spec.step, spec.columns,
            algebra.data, data_stride, self.block.most * data_stride + 16, lanes, lanes,
            spec.channels if spec.phases > 1 else 0)
        self.sums_plane = self.block.most * sums_stride + 16
        self.output = Output(self.em, spec, lanes, sums_stride, self.sums_plane)
        self.product = Product(data_stride, 1, self.block.panel, lanes, sums_stride, lanes)
        self.places = scratch_layout(
            4, self.source.window(min(self.block.tile_rows, spec.rows)), self.output.line, lanes * square(lanes, lanes),
            spec.points * self.source.plane, spec.points * self.sums_plane)

    def kernel(self) -> Kernel:
        em, spec, block = self.em, self.spec, self.block
        transform = transform_function(em, "tiles", self.source)
        multiply = self._multiply()
        slots = [em.slot(i) for i in range(2 + len(spec.operands) + len(spec.exprs))]
        shared = _weights_size(spec, block)
        own = em.gep(slots[-1], em.add(em.mul("%tid", self.places[-1]), shared), F)
        window, line, transposed, data, sums = (em.gep(own, at, F) for at in self.places[:-1])
        em.clear(window, 4 * self.places[1])

        def work(first: Index, last: Index) -> None:
            def enter(n: Index, low: Index, high: Index, offset: Index) -> None:
                image = em.gep(slots[0], em.mul(n, spec.channels * spec.height * spec.width), F)
                to = em.gep(data, em.mul(offset, spec.columns * self.source.stride), F)
                em.call(transform, image, window, to, low, high, 0, spec.channels)

            def leave(n: Index, low: Index, high: Index, offset: Index) -> None:
                start = em.gep(sums, em.mul(offset, spec.columns * self.product.c_row), F)
                self.output.call(em, start, line, transposed, (low, high), (0, spec.maps), n, slots[1:-1])
            for_images(em, first, last, spec.rows, enter)
            tiles = em.div(em.add(em.mul(em.sub(last, first), spec.columns), block.rows - 1), block.rows)
            em.call(multiply, data, slots[-1], sums, tiles)
            for_images(em, first, last, spec.rows, leave)
        even_blocks(em, spec.batch * spec.rows, block.tile_rows, work)
        moved = 4 * (spec.batch * spec.channels * spec.height * spec.width + 9 * spec.channels * spec.maps)
        moved += self.output.bytes
        return Kernel("llvm", em.symbol, em.text(), 4 * self.places[-1],
                      2 * spec.batch * spec.rows * spec.columns * spec.products * spec.channels * spec.maps, moved,
                      shared=4 * shared)

    def _multiply(self) -> Emitter:
        """A function: the products of all points, ``%tiles`` register tiles high; rows past the last are void."""
        spec, block = self.spec, self.block
        em = self.em.function("multiply", ["ptr %data", "ptr %weights", "ptr %sums", "i64 %tiles"])
        vectors = -(-spec.maps // block.lanes)
        full, rest = divmod(vectors, block.vectors)
        phases = phase_table(em, spec, spec.channels)

        @em.each(0, spec.points)
        def point(k: Index) -> None:
            data = em.gep("%data", em.mul(k, self.source.plane), F)
            sums = em.gep("%sums", em.mul(k, self.sums_plane), F)
            weights = em.gep("%weights", em.mul(k, _weights_plane(spec, block)), F)
            depth: Index = spec.channels
            if phases is not None:
                first, depth = phases(k)
                data, weights = em.gep(data, first, F), em.gep(weights, em.mul(first, block.panel), F)

            def panel(p: Index, breadth: int) -> None:
                b = em.gep(weights, em.mul(p, spec.channels * spec.phases * block.panel), F)
                c = em.gep(sums, em.mul(p, block.panel), F)

                @em.each(0, "%tiles")
                def tile(i: Index) -> None:
                    row = em.mul(i, block.rows)
                    small_product(em, self.product, block.rows, breadth, depth,
                                  em.gep(data, em.mul(row, self.product.a_row), F), b,
                                  em.gep(c, em.mul(row, self.product.c_row), F), False)
            em.loop(0, full, 1, lambda p, _: panel(p, block.vectors), unroll=False)
            if rest:
                panel(full, rest)
        return em
