"""Copies that convolutions make of their operands: staged images, and panels gathered from them."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ...text.emitter import Emitter, Index
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

    @inner.each(0, channels)
    def channel(c: Index) -> None:
        source = inner.gep("%from", inner.mul(c, image.source), element)
        place = inner.gep("%to", inner.mul(c, image.size), element)
        _planes(inner, image, 0, 0, source, place, element, width)
    return inner


def _planes(em: Emitter, image: Image, axis: int, plane: int, source: str, place: str, element: str,
            width: int) -> None:
    """One axis after the other: for each plane the positions that hold elements; rows along the last axis."""
    a = image.axes[axis]
    rest = 1
    for later in image.axes[axis + 1:]:
        rest *= later.size
    for number, remainder in enumerate(a.planes):
        inside = a.inside(remainder)
        index = plane * len(a.planes) + number
        if not inside:
            continue
        if axis == len(image.axes) - 1:
            start = em.gep(place, index * prod(image.lengths), element)
            _row(em, a, remainder, inside, source, start, element, width)
            continue

        @em.each(inside.start, inside.stop)
        def line(i: Index, remainder: int = remainder, index: int = index) -> None:
            h = em.add(em.mul(i, a.stride), remainder - a.pad)
            _planes(em, image, axis + 1, index, em.gep(source, em.mul(h, rest), element),
                    em.gep(place, em.mul(i, image.steps[axis]), element), element, width)


def _row(em: Emitter, axis: StagedAxis, remainder: int, inside: range, source: str, place: str, element: str,
         width: int) -> None:
    """The positions ``inside`` of one plane of one row: every ``stride``-th element."""
    first = inside.start * axis.stride + remainder - axis.pad

    def part(i: Index, valid: int) -> None:
        start = em.gep(source, em.add(em.mul(i, axis.stride), first), element)
        target = em.gep(place, em.add(i, inside.start), element)
        if axis.stride == 1:
            x = em.load(element, width, start, valid)
        else:
            x = _every(em, start, axis.stride, element, width, valid)
        em.store(element, width, x, target, valid)

    @each_tile(em, len(inside), width)
    def turn(i: Index, valid: int) -> None:
        part(i, valid)


def _every(em: Emitter, start: str, stride: int, element: str, width: int, valid: int) -> str:
    """A vector of ``valid`` elements that are ``stride`` apart."""
    if 2 * stride <= width or stride == 2 <= width:
        # The elements between are read, too, but none behind the last one; a shuffle picks each vector's own.
        reach = stride * (valid - 1) + 1
        parts = [em.load(element, width, em.gep(start, at, element), reach - at) for at in range(0, reach, width)]
        places = [lane * stride for lane in range(width)]
        x = em.shuffle(element, width, parts[0], parts[min(1, len(parts) - 1)], [
            p if p < 2 * width else 0 for p in places])
        for k, part in enumerate(parts[2:], 2):
            x = em.shuffle(element, width, x, part, [
                p - (k - 1) * width if p // width == k else lane for lane, p in enumerate(places)])
        return x
    return em.collect(element, width, (
        em.load(element, 1, em.gep(start, lane * stride, element)) for lane in range(valid)), zeros=True)


class Pieces:
    """Finds the columns of a panel: runs of at most a vector of neighbours in staged images.

    Column ``j`` of a block of samples is position ``j`` of ``extents``, samples first. A piece is three int64: its
    offset in the images, its column in the panel, and its number of columns. Pieces follow each other, so that each can
    be written to a panel whole: its excess is overwritten by the next one, or falls behind the panel's columns.
    """

    def __init__(self, em: Emitter, image: Image, sample: int, table: str, width: int) -> None:
        self.em = em
        self.image = image
        self.sample = sample
        self.table = table
        self.width = width

    def find(self, extents: Sequence[Index], column: Index, count: Index) -> Index:
        """Fill the table for ``count`` columns from ``column`` on; returns how many pieces there are."""
        em, width = self.em, self.width
        breadth = extents[-1]
        first = em.div(column, breadth)
        last = em.div(em.sub(em.add(column, count), 1), breadth)

        def row(r: Index, number: list[str]) -> list[str]:
            start = em.sub(em.mul(r, breadth), column)
            base = self._base(extents[:-1], r)
            skipped = em.div(em.max(em.sub(0, start), 0), width)
            end = em.div(em.add(em.min(breadth, em.sub(count, start)), width - 1), width)

            def piece(v: Index, number: list[str]) -> list[str]:
                at = em.max(em.add(start, em.mul(v, width)), 0)
                entry = em.gep(self.table, em.mul(number[0], PIECE_WORDS), "i64")
                em.store("i64", 1, str(em.add(base, em.sub(at, start))), entry)
                em.store("i64", 1, str(at), em.gep(entry, 1, "i64"))
                until = em.min(em.min(em.add(start, em.mul(em.add(v, 1), width)), em.add(start, breadth)), count)
                em.store("i64", 1, str(em.sub(until, at)), em.gep(entry, 2, "i64"))
                return [str(em.add(number[0], 1))]
            return em.loop(skipped, end, 1, piece, [("i64", number[0])], unroll=False)
        return em.loop(first, em.add(last, 1), 1, row, [("i64", "0")], unroll=False)[0]

    def _base(self, outer: Sequence[Index], row: Index) -> Index:
        """The begin of a row along the last axis."""
        em = self.em
        base: Index = 0
        for extent, step in zip(reversed(outer), reversed(self.image.steps[:-1]), strict=True):
            rest = em.div(row, extent)
            base = em.add(base, em.mul(em.sub(row, em.mul(rest, extent)), step))
            row = rest
        return em.add(base, em.mul(row, self.sample))


def pack_function(em: Emitter, image: Image, taps: Sequence[int] | None, stride: int, element: str,
                  width: int) -> Emitter:
    """``pack(from, to, pieces, count, channels, taps, number)``: gather a panel, ``[channel][tap][stride]``.

    ``taps`` are the offsets of all taps if those are always the same; else the function reads them from a table of
    pairs, as second entries.
    """
    inner = em.function("pack", ["ptr %from", "ptr %to", "ptr %pieces", "i64 %count", "i64 %channels", "ptr %taps",
                                 "i64 %number"])
    few = taps is not None and len(taps) <= MOST_UNROLLED_TAPS
    number: Index = len(taps) if taps is not None else "%number"

    @inner.each(0, "%channels")
    def channel(c: Index) -> None:
        source = inner.gep("%from", inner.mul(c, image.size), element)
        target = inner.gep("%to", inner.mul(inner.mul(c, number), stride), element)

        @inner.each(0, "%count")
        def piece(i: Index) -> None:
            entry = inner.gep("%pieces", inner.mul(i, PIECE_WORDS), "i64")
            start = inner.gep(source, inner.entry(entry), element)
            place = inner.gep(target, inner.entry(entry, 1), element)

            def copy(offset: Index, at: Index) -> None:
                x = inner.load(element, width, inner.gep(start, offset, element))
                inner.store(element, width, x, inner.gep(place, at, element))
            if few:
                assert taps is not None
                for t, offset in enumerate(taps):
                    copy(offset, t * stride)
                return

            @inner.each(0, number)
            def tap(t: Index) -> None:
                offset = inner.entry("%taps", inner.add(inner.mul(t, 2), 1))
                copy(offset, inner.mul(t, stride))
    return inner


def each_row(em: Emitter, image: Image, use: Callable[[Index, Index], None]) -> None:
    """``use(offset, position)`` for every row of elements along the last axis: its offset in the planes, its number."""
    last = image.axes[-1]

    def axes(depth: int, base: Index, planes: Index, column: Index) -> None:
        if depth == len(image.axes) - 1:
            use(em.add(base, em.mul(em.mul(planes, last.stride), prod(image.lengths))), em.mul(column, last.size))
            return
        a = image.axes[depth]

        @em.each(0, a.size)
        def one(h: Index) -> None:
            u = em.add(h, a.pad)
            place = em.div(u, a.stride)
            number = em.add(em.mul(planes, a.stride), em.sub(u, em.mul(place, a.stride)))
            axes(depth + 1, em.add(base, em.mul(place, image.steps[depth])), number,
                 em.add(em.mul(column, a.size), h))
    axes(0, 0, 0, 0)


def together(em: Emitter, image: Image, row: str, place: Index, valid: int, element: str, width: int) -> str:
    """``valid`` neighbours from ``place`` on (not yet divided by the stride), interleaved from the planes of one row.

    Vectors begin at even elements of the row.
    """
    last = image.axes[-1]
    plane = prod(image.lengths)
    if last.stride == 1:
        return em.load(element, width, em.gep(row, place, element))
    if last.stride == 2 and width > 1:
        odd = last.pad % 2   # the parity of the first element
        low = em.gep(row, em.add(em.div(place, 2), odd * plane), element)
        high = em.gep(row, em.add(em.div(em.add(place, 1), 2), (1 - odd) * plane), element)
        a, b = em.load(element, width, low), em.load(element, width, high)
        return em.shuffle(element, width, a, b, [i // 2 + width * (i % 2) for i in range(width)])

    def one(lane: int) -> str:
        position, remainder = em.divmod(em.add(place, lane), last.stride)
        return em.load(element, 1, em.gep(row, em.add(em.mul(remainder, plane), position), element))
    return em.collect(element, width, map(one, range(valid)), zeros=True)
