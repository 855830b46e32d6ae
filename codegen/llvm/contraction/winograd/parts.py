"""Common parts of the Winograd kernels: images to transformed tiles, weights, squares transposed in registers."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kusari.ir import Kernel

from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.types import symbol_of
from ..operand import Results
from ..writer import Writer
from .algebra import Algebra, Matrix, forward_algebra, strided_algebra
from .functions import pixels_function, taps_function, tiles_function, turn
from .phases import PHASES
from .spec import WinogradSpec


class WinogradWriter(Writer):
    """Writes kernel ``number`` of a convolution, the first or the second; ``names`` are those of both."""

    names: ClassVar[tuple[str, str]]

    def __init__(self, spec: WinogradSpec, target: Target, number: int, results: Results) -> None:
        name = f"winograd{spec.tile}_{self.names[number]}_{spec.channels}x{spec.maps}"
        super().__init__(Emitter(symbol_of(name, spec, target), target), results, target.lanes(4))
        self.spec = spec

    def kernel(self, flops: int, moved: int, shared: int) -> Kernel:
        """The finished kernel, which reads and writes ``moved`` bytes; ``shared`` elements are of all threads."""
        return Kernel("llvm", self.em.symbol, self.em.text(), self.scratch_bytes, flops, moved, shared=4 * shared)


def algebra_of(spec: WinogradSpec) -> Algebra:
    """The matrices of a convolution."""
    return (forward_algebra if spec.stride == 1 else strided_algebra)(spec.tile)


@dataclass(frozen=True)
class Source:
    """Images whose tiles are transformed by ``matrix``, and the layout of the results.

    A tile is as wide as ``matrix``; neighbours are ``step`` apart, ``columns`` of them in a row. ``top`` and ``left``
    are zeros around the image. Vector ``v`` of the channels of ``(point, tile)`` is at
    ``v * group + point * plane + tile * stride`` in the result; in the last one, lanes without a channel have any
    value. ``block`` channels (whole vectors) have their phases one after the other, if there are any.
    """

    channels: int
    height: int
    width: int
    top: int
    left: int
    step: int
    columns: int
    matrix: Matrix
    stride: int
    plane: int
    group: int
    lanes: int
    block: int = 0

    @property
    def extent(self) -> int:
        """Pixels along an axis of a tile: as many as ``matrix`` has columns; with phases, two for each but the last."""
        return 2 * len(self.matrix[0]) - 1 if self.block else len(self.matrix[0])

    @property
    def breadth(self) -> int:
        """Pixels of a padded row."""
        return (self.columns - 1) * self.step + self.extent

    def window(self, tile_rows: int) -> int:
        """Elements of the buffer for ``tile_rows`` rows of tiles of one vector of channels."""
        return ((tile_rows - 1) * self.step + self.extent) * self.breadth * self.lanes


def square(lanes: int, extent: int) -> int:
    """The side of the squares in which pixels and channels are transposed: no wider than a row of pixels needs."""
    side = 2
    while side < min(lanes, extent):
        side *= 2
    return min(side, lanes)


def transform_function(em: Emitter, name: str, source: Source) -> Emitter:
    """A function that transforms the rows of tiles from ``%first`` to ``%last`` of the image at ``%image``.

    Of its channels it takes those from ``%low`` to ``%high``. ``%window`` is a buffer of ``source.window`` elements,
    all zero at first; ``%to`` is the address of tile ``%first``.
    """
    inner = em.function(
        name, ["ptr %image", "ptr %window", "ptr %to", "i64 %first", "i64 %last", "i64 %low", "i64 %high"])
    image, window, result = (Array(inner, "float", source.lanes, p) for p in ("%image", "%window", "%to"))
    first, last, low, high = inner.numbers
    tiles = tiles_function(em.target, source.matrix, source.lanes, source.step, source.block > 0)
    count, top = last - first, first * source.step
    lines = count * source.step + (source.extent - source.step)
    for c in inner.each(low, high, source.lanes):
        _fill_window(source, image, window, c, top, lines)
        to = result.at(c * (source.group // source.lanes))
        if source.block:  # of the blocks before this one there are all phases
            to = to.at(c // source.block * ((len(PHASES) - 1) * source.block))
        for y in inner.each(0, count):
            inner.call(tiles, window.at(y * (source.step * source.breadth * source.lanes)),
                       to.at(y * (source.columns * source.stride)), source.columns, source.stride,
                       source.breadth * source.lanes, source.plane, source.block)
    return inner


def _fill_window(source: Source, image: Array, window: Array, c: Index, top: Index, lines: Index) -> None:
    """Copy rows of one vector of channels, pixel by pixel; rows outside of the image are zero.

    The zeros left and right of the image are never written.
    """
    em, lanes, breadth, size = image.em, source.lanes, source.breadth, source.height * source.width
    side = square(lanes, source.width)
    image, window = (Array(em, "float", side, array.pointer) for array in (image, window))
    whole = source.channels % lanes == 0
    planes = [image.at(c * size)] if whole else [
        image.at(em.min(c + q, source.channels - 1) * size) for q in range(lanes)]
    for r in em.each(0, lines):
        row = top + r - source.top
        start = window.at((r * breadth + source.left) * lanes)
        for there in em.either(em.compare("ult", row, source.height)):
            if not there:
                start.clear(source.width * lanes)
                continue
            short = source.width if source.width < side else None
            at = row * source.width
            if whole:
                em.call(pixels_function(em.target, lanes, side, short), planes[0].at(at), start, source.width, size)
                continue
            for i in em.each(0, source.width, side):
                x = i if short else em.min(i, source.width - side)   # the last square may overlap the one before
                turn([p.at(at + x) for p in planes], start.at(x * lanes), lanes, side, short)


def transform_weights(spec: WinogradSpec, weights: Array, channels: tuple[Index, Index], first: Index, place: Array,
                      stride: int, plane: int, step: int) -> None:
    """Transform the taps of ``channels``, first and number, for the output channels from ``first``.

    Places of channels are ``stride`` apart; point ``k`` is at ``k * plane``. Lanes past the last output channel have
    the values of the last one. Phases are ``step`` elements apart.
    """
    em, lanes = weights.em, weights.width
    channel, count = channels
    between_maps, between_channels = spec.tap_steps
    base = weights.at(channel * between_channels + first * between_maps)
    last = () if spec.maps % lanes == 0 else (spec.maps - 1 - first,)
    em.call(taps_function(em.target, algebra_of(spec).taps, lanes, spec.transposed, spec.phases > 1, not last),
            base, place, count, between_channels, stride, between_maps, plane, step, *last)


def for_images(em: Emitter, first: Index, last: Index, rows: int) -> Iterator[tuple[Index, Index, Index, Index]]:
    """Loops over the images with the rows of tiles ``first`` … ``last - 1``: number, first and last row, offset."""
    for n in em.each(first // rows, (last - 1) // rows + 1):
        start = n * rows
        low, high = em.max(first, start), em.min(last, start + rows)
        yield n, low - start, high - start, low - first


def even_blocks(em: Emitter, total: int, most: int) -> Iterator[tuple[Index, Index]]:
    """First and end of this thread's part of ``range(total)``, in equal pieces of at most ``most``."""
    lo, hi = em.chunk(total)
    count = (hi - lo + (most - 1)) // most
    step = (hi - lo + (em.max(count, 1) - 1)) // em.max(count, 1)
    for first in em.each(lo, hi, step):
        yield first, em.min(first + step, hi)
