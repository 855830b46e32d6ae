"""Copies that convolutions make of their operands: staged images, and panels gathered from them."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import prod

from ...nest.interleave import pick
from ...text.array import Array
from ...text.emitter import I64, Carried, Emitter, Index
from ...text.tiles import each_tile
from .geometry import Image, StagedAxis

PIECE_WORDS = 3          # int64 numbers that describe a piece of a panel
MOST_UNROLLED_TAPS = 32  # of a window whose offsets are constants of the text


def stage_cycles(image: Image, channels: int, width: int) -> float:
    """Cycles to stage ``channels`` channels, by count: three for each vector of a row."""
    rows = prod(len(a.planes) for a in image.axes) * prod(image.lengths[:-1])
    return 3.0 * channels * rows * -(-image.lengths[-1] // width)


def stage_function(em: Emitter, image: Image, channels: int, element: str, width: int) -> Emitter:
    """``stage(from, to)``: copy ``channels`` channels into zeros; padding is not written."""
    inner = em.function("stage", ["ptr %from", "ptr %to"])
    source, place = (Array(inner, element, width, p) for p in ("%from", "%to"))
    for c in inner.each(0, channels):
        _planes(image, 0, 0, source.at(c * image.source), place.at(c * image.size))
    return inner


def each_staged(em: Emitter, tasks: tuple[Index, Index], stage: Callable[[Index, Array], None], own: Array, size: int,
                ahead: bool = True) -> Iterator[tuple[Index, Array]]:
    """Loops over images, each staged in ``own``: its number and its place.

    Small ones are staged ``ahead``, in two places of ``size`` elements by turns: stores take longer than the
    computation of one image.
    """
    if not ahead:
        for i in em.each(*tasks):
            stage(i, own)
            yield i, own
        return

    def place(i: Index) -> Array:
        return own.at(em.divmod(i, 2)[1] * size)
    with em.only(em.compare("slt", *tasks)):
        stage(tasks[0], place(tasks[0]))
    for i in em.each(*tasks):
        after = i + 1
        with em.only(em.compare("slt", after, tasks[1])):
            stage(after, place(after))
        yield i, place(i)


def _planes(image: Image, axis: int, plane: Index, source: Array, place: Array) -> None:
    """One axis after the other: for each plane the positions that hold elements; rows along the last axis."""
    em, a = source.em, image.axes[axis]
    rest = prod(later.size for later in image.axes[axis + 1:])
    for number, first, inside in _alike(em, a) if axis < len(image.axes) - 1 else ():
        index = plane * len(a.planes) + number
        for i in em.each(inside.start, inside.stop):
            h = i * a.stride + first
            _planes(image, axis + 1, index, source.at(h * rest), place.at(i * image.steps[axis]))
    for number, remainder in enumerate(a.planes if axis == len(image.axes) - 1 else ()):
        if inside := a.inside(remainder):
            index = plane * len(a.planes) + number
            _row(a, remainder, inside, source, place.at(index * prod(image.lengths)))


def _alike(em: Emitter, axis: StagedAxis) -> Iterator[tuple[Index, Index, range]]:
    """Loops over the planes of an axis: number, first element without padding, and positions that hold elements.

    Neighbours with the same positions are one text.
    """
    kinds = [(p - k, axis.inside(p)) for k, p in enumerate(axis.planes)]
    for (shift, inside), group in groupby(range(len(kinds)), kinds.__getitem__):
        if inside:
            numbers = list(group)
            for number in em.each(numbers[0], numbers[-1] + 1):
                yield number, number + (shift - axis.pad), inside


def _row(axis: StagedAxis, remainder: int, inside: range, source: Array, place: Array) -> None:
    """The positions ``inside`` of one plane of one row: every ``stride``-th element."""
    em, first = source.em, inside.start * axis.stride + remainder - axis.pad
    for i, valid in each_tile(em, len(inside), source.width):
        start = source.at(i * axis.stride + first)
        target = place.at(i + inside.start)
        target.store(start.load(0, valid) if axis.stride == 1 else _every(start, axis.stride, valid), 0, valid)


def _every(start: Array, stride: int, valid: int) -> str:
    """A vector of ``valid`` elements that are ``stride`` apart."""
    em, element, width = start.em, start.element, start.width
    if 2 * stride <= width or stride == 2 <= width:
        # The elements between are read, too, but none behind the last one.
        reach = stride * (valid - 1) + 1
        parts = [start.load(at, reach - at) for at in range(0, reach, width)]
        last = len(parts) * width  # places from there on are of lanes that do not count
        return pick(em, element, width, parts, [divmod(lane * stride % last, width) for lane in range(width)])
    return em.collect(element, width, (start.one(lane * stride) for lane in range(valid)), zeros=True)


def each_tap(em: Emitter, taps: Sequence[tuple[int, int]],
             carried: Carried | None = None) -> Iterator[tuple[Index, Sequence[Index]]]:
    """Loops over taps: the number of each and its pair of words, constants of the text where taps are few."""
    if len(taps) <= MOST_UNROLLED_TAPS:
        yield from enumerate(taps)
        return
    table = em.table("i64", [word for tap in taps for word in tap])
    for t in em.each(0, len(taps), carried=carried):
        yield t, em.row(table, t, 2)


class Pieces:
    """Finds the columns of a panel: runs of at most a vector of neighbours in staged images.

    Column ``j`` of a block of samples is position ``j`` of ``extents``, samples first. A piece is three int64: its
    offset in the images, its column in the panel, and its number of columns. Pieces follow each other, so that each can
    be written to a panel whole: its excess is overwritten by the next one, or falls behind the panel's columns.
    """

    def __init__(self, em: Emitter, image: Image, sample: int, table: str, width: int) -> None:
        self.em, self.image, self.sample, self.table, self.width = em, image, sample, table, width

    def find(self, extents: Sequence[Index], column: Index, count: Index) -> Index:
        """Fill the table for ``count`` columns from ``column`` on; returns how many pieces there are."""
        em, width = self.em, self.width
        breadth = extents[-1]
        first = column // breadth
        last = (column + count - 1) // breadth

        number = Carried(["i64"], ["0"])
        for r in em.each(first, last + 1, carried=number):
            start = r * breadth - column
            base = self._base(extents[:-1], r)
            skipped = em.max(0 - start, 0) // width
            end = (em.min(breadth, count - start) + (width - 1)) // width
            for v in em.each(skipped, end, carried=number):
                at = em.max(start + v * width, 0)
                until = em.min(em.min(start + (v + 1) * width, start + breadth), count)
                found = I64(em, number.values[0])
                entry = em.gep(self.table, found * PIECE_WORDS, "i64")
                for k, word in enumerate((base + (at - start), at, until - at)):
                    em.store("i64", 1, f"{word}", em.gep(entry, k, "i64"))
                number.values = [f"{found + 1}"]
        return I64(em, number.values[0])

    def _base(self, outer: Sequence[Index], row: Index) -> Index:
        """The begin of a row along the last axis."""
        em = self.em
        base: Index = 0
        for extent, step in zip(reversed(outer), reversed(self.image.steps[:-1]), strict=True):
            row, here = em.divmod(row, extent)
            base = base + here * step
        return base + row * self.sample


def pack_function(em: Emitter, image: Image, taps: Sequence[tuple[int, int]], stride: int, element: str,
                  width: int) -> Emitter:
    """``pack(from, to, pieces, count, channels)``: gather a panel, ``[channel][tap][stride]``.

    ``taps`` are pairs, of which the second is the offset in an image.
    """
    inner = em.function("pack", ["ptr %from", "ptr %to", "ptr %pieces", "i64 %count", "i64 %channels"])
    images, panel = (Array(inner, element, width, p) for p in ("%from", "%to"))
    count, channels = inner.numbers
    for c in inner.each(0, channels):
        source, target = images.at(c * image.size), panel.at(c * len(taps) * stride)
        for place, column, _ in inner.rows("%pieces", count, PIECE_WORDS):
            start, to = source.at(place), target.at(column)
            for t, (_, offset) in each_tap(inner, taps):
                to.store(start.load(offset), t * stride)
    return inner


def each_row(em: Emitter, image: Image) -> Iterator[tuple[Index, Index]]:
    """Loops over the rows of elements along the last axis: the offset of each in the planes, its first position."""
    last = image.axes[-1]

    def axes(depth: int, base: Index, planes: Index, column: Index) -> Iterator[tuple[Index, Index]]:
        if depth == len(image.axes) - 1:
            yield base + planes * last.stride * prod(image.lengths), column * last.size
            return
        a = image.axes[depth]
        for h in em.each(0, a.size):
            place, remainder = em.divmod(h + a.pad, a.stride)
            number = planes * a.stride + remainder
            yield from axes(depth + 1, base + place * image.steps[depth], number, column * a.size + h)
    return axes(0, 0, 0, 0)


def together(image: Image, row: Array, first: Index, valid: int) -> str:
    """``valid`` neighbours of a row from element ``first`` on, an even one, interleaved from its planes."""
    em, width, last = row.em, row.width, image.axes[-1]
    plane, pad = prod(image.lengths), last.pad
    if last.stride == 1:
        return row.at(first).load(pad)
    if last.stride == 2 and width > 1:
        half, odd = row.at(first // 2), pad % 2
        low, high = half.load(pad // 2 + odd * plane), half.load((pad + 1) // 2 + (1 - odd) * plane)
        return em.shuffle(row.element, width, low, high, [i // 2 + width * (i % 2) for i in range(width)])

    def one(lane: int) -> str:
        position, remainder = em.divmod(first + (pad + lane), last.stride)
        return row.one(remainder * plane + position)
    return em.collect(row.element, width, map(one, range(valid)), zeros=True)
