"""Convolution with 3 x 3 taps at every position by Winograd's algorithm, as LLVM IR; also the input's gradient.

Two kernels, one after the other. The first transforms the weights to a matrix per point, in memory that all threads
share. In the second every thread takes rows of tiles; in blocks that stay in its second-level cache it transforms the
tiles, multiplies them by the matrices, point by point, and transforms the sums back.

Source: Lavin and Gray, `Fast Algorithms for Convolutional Neural Networks <https://arxiv.org/abs/1509.09308>`_, 2016.
"""
from __future__ import annotations

from kusari.ir import Kernel

from ....target import Target
from .forward import Forward
from .parts import even_blocks, for_images, transform_function, transform_weights
from .spec import WinogradSpec, blocking, round_up, row_stride


class Images(Forward):
    """Writes both kernels. Invariant: the border of the window, which is zero at first, is never written."""

    names = "weights", "images"

    def __init__(self, spec: WinogradSpec, target: Target, number: int) -> None:
        self.block = block = blocking(spec, target)
        super().__init__(spec, target, number, block, block.most, spec.channels, -(-spec.maps // block.panel),
                         block.most, row_stride(spec.maps, block.lanes))
        self.shared = spec.points * self.weights_plane

    def first(self) -> Kernel:
        """Transforms the weights: a thread takes some channels of some vectors of output channels."""
        em, spec, lanes, panel = self.em, self.spec, self.width, self.block.panel
        weights, to = self.array(em.slot(0)), self.array(em.slot(1))
        begin, end = em.chunk(-(-spec.maps // lanes) * spec.channels)
        for group in em.each(begin // spec.channels, (end + (spec.channels - 1)) // spec.channels):
            first, start = group * lanes, group * spec.channels
            low, high = em.max(begin - start, 0), em.min(end - start, spec.channels)
            strip, inside = em.divmod(first, panel)
            place = to.at(strip * self.strip + inside + low * panel)
            transform_weights(spec, weights, (low, high - low), first, place, panel, self.weights_plane,
                              self.chunk * panel)
        moved = 36 * spec.channels * spec.maps + 4 * self.shared
        return self.kernel(moved, moved, self.shared)

    def second(self) -> Kernel:
        """Convolves with transformed weights: threads share the rows of tiles of all images."""
        em, spec, block, source = self.em, self.spec, self.block, self.source
        transform = transform_function(em, "tiles", source)
        multiply = self.multiply(block, spec.maps, spec.channels, add=False)
        self.read_slots()
        weights = self.array(em.slot(self.scratch_slot))
        sizes = source.window(min(block.tile_rows, spec.rows)), *self.buffers
        window, line, transposed, data, sums = self.scratch(
            *sizes, spec.points * source.plane, spec.points * self.sums_plane, shared=self.shared)
        output = self.output()
        window.clear(round_up(sizes[0], 16))
        size = spec.channels * spec.height * spec.width
        for first, last in even_blocks(em, spec.batch * spec.rows, block.tile_rows):
            for n, low, high, offset in for_images(em, first, last, spec.rows):
                image = self.array(self.slots[0]).at(n * size)
                to = data.at(offset * (spec.columns * source.stride))
                em.call(transform, image, window, to, low, high, 0, spec.channels)
            tiles = ((last - first) * spec.columns + (block.rows - 1)) // block.rows
            em.call(multiply, data, weights, sums, tiles)
            for n, low, high, offset in for_images(em, first, last, spec.rows):
                start = sums.at(offset * (spec.columns * self.sums_stride))
                em.call(output, start, line, transposed, low, high, 0, spec.maps, *self.epilogue(n).arguments)
        return self.with_results(4 * (spec.batch * size + 9 * spec.channels * spec.maps), self.shared)
