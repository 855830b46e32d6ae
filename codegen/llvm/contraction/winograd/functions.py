"""The innermost work of Winograd's algorithm, as functions that the kernels of all convolutions share.

They are told how far apart elements lie, so that one text does for every shape, and is compiled once.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.squares import sources, targets
from .algebra import Matrix, Transform
from .phases import transformed


def _store(phases: list[list[tuple[int, str]]], place: Array, plane: Index, step: Index) -> None:
    """Write a transformed tile, each point to its plane, with ``step`` elements between phases."""
    for number, points in enumerate(phases):  # sums for each: so many could not stay in registers
        places = targets(place.at(step * number), 1 + max(k for k, _ in points), plane)
        for k, x in points:
            places[k].store(x)


@lru_cache(maxsize=8)
def tiles_function(target: Target, matrix: Matrix, lanes: int, step: int, phased: bool) -> Emitter:
    """A function that transforms ``%count`` tiles of a window, ``step`` pixels apart, to places ``%stride`` apart.

    In the window ``%row`` elements lie between rows; phases lie ``%block`` apart.
    """
    em = Emitter("winograd_tiles", target, ["ptr %from", "ptr %to", "i64 %count", "i64 %stride", "i64 %row",
                                            "i64 %plane", "i64 %block"])
    count, stride, row, plane, block = em.numbers
    window, to = (Array(em, "float", lanes, p) for p in ("%from", "%to"))
    size = 2 * len(matrix[0]) - 1 if phased else len(matrix[0])
    for x in em.each(0, count):
        lines = sources(window.at(x * (step * lanes)), size, row)
        grid = [[line.load(j * lanes) for j in range(size)] for line in lines]
        _store(transformed(em, matrix, lanes, grid, phased), to.at(x * stride), plane, block)
    return em.finished()


def turn(starts: Sequence[Array], place: Array, lanes: int, side: int, short: int | None) -> None:
    """Store ``side`` pixels, or the first ``short``, of ``lanes`` channels: all channels of a pixel, and so on."""
    for part in range(0, lanes, side):
        rows = [p.load(0, short) for p in starts[part:part + side]]
        for k, y in enumerate(place.em.transpose("float", rows)[:short]):
            place.store(y, k * lanes + part)


@lru_cache(maxsize=32)
def pixels_function(target: Target, lanes: int, side: int, short: int | None) -> Emitter:
    """A function that copies a row of ``%width`` pixels of channels that lie ``%size`` elements apart.

    The last ``side`` of them may overlap those before; fewer than that are ``short``.
    """
    em = Emitter("winograd_pixels", target, ["ptr %from", "ptr %to", "i64 %width", "i64 %size"])
    image, place = (Array(em, "float", side, p) for p in ("%from", "%to"))
    width, size = em.numbers
    for i in em.each(0, width, side) if short is None else (0,):
        x = em.min(i, width - side) if short is None else 0
        turn(sources(image.at(x), lanes, size), place.at(x * lanes), lanes, side, short)
    return em.finished()


@lru_cache(maxsize=16)
def taps_function(target: Target, matrix: Matrix, lanes: int, reverse: bool, phased: bool, whole: bool) -> Emitter:
    """A function that transforms taps of ``%count`` channels, ``%next`` elements apart, to places ``%stride`` apart.

    They are those of ``lanes`` output channels, ``%apart`` elements apart; unless there are as many, ``%last`` is the
    last one.
    """
    em = Emitter("winograd_taps", target, ["ptr %from", "ptr %to", "i64 %count", "i64 %next", "i64 %stride",
                                           "i64 %apart", "i64 %plane", "i64 %block", *["i64 %last"] * (not whole)])
    count, following, stride, apart, plane, block, *last = em.numbers
    weights, to = (Array(em, "float", lanes, p) for p in ("%from", "%to"))
    for c in em.each(0, count):
        base = weights.at(c * following)
        starts = sources(base, lanes, apart) if whole else [base.at(em.min(q, last[0]) * apart) for q in range(lanes)]
        taps: list[str] = []  # vectors of a tap of each filter
        while len(taps) < 9:
            at = len(taps)
            if at == 8 and lanes > 2:
                taps.append(em.collect("float", lanes, (p.one(at) for p in starts)))
            else:
                taps += em.transpose("float", [p.load(at, 9 - at) for p in starts])[:9 - at]
        if reverse:
            taps.reverse()
        phases = transformed(em, matrix, lanes, [taps[i:i + 3] for i in (0, 3, 6)], phased)
        _store(phases, to.at(c * stride), plane, block)
    return em.finished()


@lru_cache(maxsize=8)
def outputs_function(target: Target, matrix: Matrix, lanes: int) -> Emitter:
    """A function that transforms the sums of ``%count`` tiles, ``%stride`` elements apart, to a row of tiles.

    ``%row`` elements lie between lines of that.
    """
    em = Emitter("winograd_outputs", target, ["ptr %from", "ptr %to", "i64 %count", "i64 %stride", "i64 %plane",
                                              "i64 %row"])
    count, stride, plane, row = em.numbers
    sums, place = (Array(em, "float", lanes, p) for p in ("%from", "%to"))
    size, tile = len(matrix[0]), len(matrix)
    for x in em.each(0, count):
        points = [p.load() for p in sources(sums.at(x * stride), size * size, plane, size)]
        grid = Transform(em, matrix, lanes).both([points[i:i + size] for i in range(0, size * size, size)])
        for line, values in zip(targets(place.at(x * (tile * lanes)), tile, row), grid, strict=True):
            for j, value in enumerate(values):
                line.store(value, j * lanes)
    return em.finished()


@lru_cache(maxsize=32)
def square_function(target: Target, lanes: int, side: int, valid: int) -> Emitter:
    """A function that transposes ``valid`` pixels of ``lanes`` channels: all pixels of a channel, and so on."""
    em = Emitter("winograd_square", target, ["ptr %from", "ptr %to"])
    pixels, place = (Array(em, "float", side, p) for p in ("%from", "%to"))
    for part in range(0, lanes, side):
        rows = [pixels.load(q * lanes + part) for q in range(valid)]
        for q, x in enumerate(em.transpose("float", rows + [rows[0]] * (side - valid))):
            place.store(x, (part + q) * side)
    return em.finished()
