"""The convolutions of ``images``, for few tiles and many weights: threads share the output channels ("maps").

Two kernels, one after the other. The first transforms all tiles, to memory that all threads share. In the second every
thread takes panels of output channels: it transforms their weights into its second-level cache, multiplies, and
transforms the sums back. So transformed weights, which are larger than the weights, never pass from one processor to
another.
"""
from __future__ import annotations

from collections.abc import Callable

from kusari.ir import Kernel

from ....target import Target
from ...text.emitter import Emitter, Index
from .forward import Forward
from .parts import for_images, transform_function, transform_weights
from .spec import WinogradSpec, maps_blocking, round_up


class Maps(Forward):
    """Writes both kernels. Transformed tiles are at the start of the scratch memory; register tiles reach beyond."""

    names = "tiles", "maps"

    def __init__(self, spec: WinogradSpec, target: Target, number: int) -> None:
        self.block = block = maps_blocking(spec, target)
        self.total = spec.batch * spec.rows
        self.most = round_up(block.tile_rows * spec.columns, block.rows)
        super().__init__(spec, target, number, block, self.total * spec.columns + block.rows, block.chunk, 1,
                         self.most, block.panel)
        self.shared = round_up(spec.points * self.source.plane, 16)

    def first(self) -> Kernel:
        """Transforms the tiles: threads share vectors of channels of some rows of tiles of an image."""
        em, spec, block, source = self.em, self.spec, self.block, self.source
        image, scratch = self.array(em.slot(0)), self.array(em.slot(1))
        self.scratch_slot = 1
        size = round_up(source.window(block.window_rows), 16)
        window, = self.scratch(size, shared=self.shared)
        transform = transform_function(em, "tiles", source)
        window.clear(size)
        groups, parts = -(-spec.channels // block.lanes), -(-spec.rows // block.window_rows)
        for u in em.each(*em.chunk(spec.batch * groups * parts)):
            above, part = em.divmod(u, parts)
            n, group = em.divmod(above, groups)
            first, low = part * block.window_rows, group * block.lanes
            at = image.at(n * (spec.channels * spec.height * spec.width))
            tile = (n * spec.rows + first) * spec.columns
            em.call(transform, at, window, scratch.at(tile * source.stride), first,
                    em.min(first + block.window_rows, spec.rows), low,
                    em.min(low + block.lanes, spec.channels))
        moved = 4 * (spec.batch * spec.channels * spec.height * spec.width + self.shared)
        return self.kernel(moved, moved, self.shared)

    def second(self) -> Kernel:
        """Multiplies, and applies the epilogue: threads share panels of output channels."""
        em, spec, block, panel = self.em, self.spec, self.block, self.block.panel
        self.read_slots()
        self.filters, self.data = self.array(self.slots[0]), self.array(em.slot(self.scratch_slot))
        self.weights, self.sums, *self.turning = self.scratch(
            spec.points * self.weights_plane, spec.points * self.sums_plane, *self.buffers, shared=self.shared)
        self.transform, self.finish = self._transform(), self.output()
        self.product = self.multiply(block, panel, None, block.chunks > 1, self._ahead)
        for p in em.each(*em.chunk(-(-spec.maps // panel))):
            low = p * panel
            if block.chunks > 1:
                self._by_channels(low)
            else:
                self._by_tiles(low)
        return self.with_results(4 * (self.shared + 9 * spec.channels * spec.maps), self.shared)

    def _by_channels(self, low: Index) -> None:
        """A panel from output channel ``low`` on, some channels at a time: the sums of all tiles are added up."""
        em, spec, block = self.em, self.spec, self.block
        self.sums.clear(spec.points * self.sums_plane)
        for channel in em.each(0, spec.channels, block.chunk):
            depth = em.min(block.chunk, spec.channels - channel)
            em.call(self.transform, self.filters, self.weights, low, channel, depth)
            self._multiply(low, channel, depth, 0, self.most // block.rows)
        self._leave(low, 0, self.total)

    def _by_tiles(self, low: Index) -> None:
        """A panel from output channel ``low`` on, some rows of tiles at a time, of all channels."""
        em, spec, block = self.em, self.spec, self.block
        em.call(self.transform, self.filters, self.weights, low, 0, spec.channels)
        for first in em.each(0, self.total, block.tile_rows):
            last = em.min(first + block.tile_rows, self.total)
            count = ((last - first) * spec.columns + (block.rows - 1)) // block.rows
            self._multiply(low, 0, spec.channels, first, count)
            self._leave(low, first, last)

    def _multiply(self, low: Index, channel: Index, depth: Index, first: Index, count: Index) -> None:
        """Products of ``depth`` channels and of ``count`` register tiles from row of tiles ``first``."""
        em, spec, block = self.em, self.spec, self.block
        at = first * (spec.columns * self.source.stride) + channel * spec.phases
        following = channel + block.chunk
        last = em.compare("sge", following, spec.channels)
        map_ = em.choose(last, low + block.panel, low)
        taps = self.filters.at(self._tap(map_, em.choose(last, 0, following)))
        em.call(self.product, self.data.at(at), self.weights, self.sums, count, depth, taps)

    def _leave(self, low: Index, first: Index, last: Index) -> None:
        """Transform the sums of some rows of tiles back, with the epilogue."""
        em, spec, panel = self.em, self.spec, self.block.panel
        for n, start, end, offset in for_images(em, first, last, spec.rows):
            place = self.sums.at(offset * (spec.columns * panel))
            high = em.min(low + panel, spec.maps)
            em.call(self.finish, place, *self.turning, start, end, low, high, *self.epilogue(n).arguments)

    def _tap(self, map_: Index, channel: Index) -> Index:
        """The offset of the taps of a channel of an output channel."""
        maps, channels = self.spec.tap_steps
        return map_ * maps + channel * channels

    def _transform(self) -> Emitter:
        """A function: weights of ``%count`` channels from ``%channel`` for a panel, from output channel ``%map``."""
        spec, block = self.spec, self.block
        em = self.em.function("weights", ["ptr %weights", "ptr %to", "i64 %map", "i64 %channel", "i64 %count"])
        weights, to = self.array("%weights", em), self.array("%to", em)
        map_, channel, count = em.numbers
        for q in em.each(0, block.vectors):
            at = q * block.lanes
            first = map_ + at
            if spec.maps % block.panel and spec.maps % block.lanes == 0:  # vectors past the last one repeat it
                first = em.min(first, spec.maps - block.lanes)
            transform_weights(spec, weights, (channel, count), first, to.at(at), block.panel, self.weights_plane,
                              block.chunk * block.panel)
        return em

    def _ahead(self, em: Emitter, point: Index, tile: Index) -> Callable[[Index], None]:
        """Bring the next weights to transform, which begin at ``%next``, closer while a register tile is multiplied.

        Some output channels for each tile, a channel in each step.
        """
        spec, block = self.spec, self.block
        turns = spec.points * -(-block.tile_rows * spec.columns // block.rows)
        each = -(-block.panel // turns) if spec.phases == 1 else 0
        turn = point * (turns // spec.points) + tile
        first = em.min(turn * block.panel // turns, block.panel - each)
        places = [self.array("%next", em).at(self._tap(first + q, 0)) for q in range(each)]

        def fetch(channel: Index) -> None:
            for place in places:
                em.prefetch(place.at(self._tap(0, channel)).pointer)
        return fetch
