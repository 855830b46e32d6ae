"""Convolutions of few channels by few filters, depthwise ones above all: vectors of staged images times single weights.

Nothing is gathered: the elements of neighbouring windows are a vector of the staged image in place.
"""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from kusari.ir.costs import BROADCAST_CYCLES, CLASH_RATIO, LOAD_CYCLES, PAGE_BYTES

from ....contractions import ConvSpec
from ....target import Target
from ...text.array import Array
from ...text.emitter import Emitter, Index
from ...text.tiles import each_index, each_tile, full_tiles, lanes_in
from ..epilogue import Epilogue, Finisher
from ..tile import Factors
from ..writer import LINE_BYTES, whole_lines
from .geometry import Gathering, gathering
from .padding_nan import guarded
from .stage import MOST_UNROLLED_TAPS, each_staged, each_tap, stage_function
from .writer import ConvWriter

_MOST_LINES = 8
_MOST_VECTORS = 4
_MOST_TILE_ROWS = 8
_FROM_TABLE_RATIO = 1.02         # times the cycles where the offsets of taps are no constants
_FAR_RATIO = 1.1                 # times the cycles where a tile reads more than the first-level cache holds: 1.0 to 1.4
_FINISH_CYCLES = 6.0             # a vector of results that was kept before its epilogue
_FEW_IMAGES = 8                  # from this number on threads have nearly equal shares
_MOST_UNROLLED_OPERATIONS = 800  # multiply-adds of a tile
_MOST_UNROLLED_PRODUCTS = 150    # of them where steps could be a loop, which is less text


class DirectShape(NamedTuple):
    """Tiles of ``rows`` filters, ``lines`` rows of positions and ``vectors`` in each.

    ``steps`` are taps whose weights are in registers at the same time, so that a vector of the image is loaded once for
    all windows that it is in; those of a single step stay there while the tile moves over the plane. Without steps
    weights are loaded tap by tap. If it is ``flat``, a plane of results is a single line of positions as long as the
    staged plane: vectors are full although rows are shorter, and the positions between two rows are dropped later.
    """

    rows: int
    lines: int
    vectors: int
    steps: tuple[tuple[tuple[int, int], ...], ...]
    cycles: float
    flat: bool = False


def choose(spec: ConvSpec, target: Target) -> DirectShape:
    """Return the tile of the fewest cycles by count: multiply-adds or loads, of the image and of weights, if more.

    To those come each result's way to memory and the staging of images.
    """
    g = gathering(spec)
    width = target.lanes(spec.dtype.itemsize)
    columns = -(-g.size[-1] // width)
    taps = g.taps
    images, step = spec.n * spec.groups, g.line
    found: list[DirectShape] = []
    for rows, vectors in itertools.product(_divisors(g.rows), range(1, min(columns, _MOST_VECTORS) + 1)):
        for lines in range(1, min(g.height, _MOST_LINES) + 1):
            sums = rows * lines * vectors
            steps = _steps(g, spec, target, rows, sums)
            # Loads are under way for more than one tap.
            if sums > 1 and not steps and sums + 3 * lines * vectors + 2 > target.registers:
                continue
            if steps:
                places = sum(len({offset + i * step for _, offset in s for i in range(lines)}) for s in steps)
                loads = places * vectors * LOAD_CYCLES + (len(steps) > 1) * len(taps) * rows * BROADCAST_CYCLES
            else:
                loads = len(taps) * (lines * vectors * LOAD_CYCLES + rows * BROADCAST_CYCLES)
            # Few sums wait for each other: an addition takes four cycles, and two can begin in each.
            tile = g.depth * max(len(taps) * max(sums, 8) / 2, loads)
            if len(taps) > MOST_UNROLLED_TAPS and not steps:
                tile *= _FROM_TABLE_RATIO
            count = g.rows // rows * -(-g.height // lines) * -(-columns // vectors)
            cost = images * prod(g.size[:-2]) * count * (tile + 1.0 * sums + 6)
            found.append(DirectShape(rows, lines, vectors, steps, _with_caches(cost, rows, vectors, spec, target, g)))
    best = min(found, key=lambda shape: shape.cycles)
    if len(g.size) > 1 and images >= _FEW_IMAGES:
        best = min(best, *_flat(spec, target, g), key=lambda shape: shape.cycles)
    staging = images * (g.depth * 2.0 * g.image.size / width + 20)
    return best._replace(cycles=best.cycles + staging)


def _divisors(rows: int) -> list[int]:
    return [r for r in range(1, _MOST_TILE_ROWS + 1) if rows % r == 0]


def _with_caches(cost: float, rows: int, vectors: int, spec: ConvSpec, target: Target, g: Gathering) -> float:
    """``cost`` where a tile reads more than the first-level cache holds, and the image comes closer for each tile."""
    size = g.depth * g.image.size * spec.dtype.itemsize
    if size > target.l1_bytes:
        cost += spec.n * spec.groups * (g.rows // rows) * size / 64
    far = g.depth > 1 and g.depth * len(g.taps) * vectors * LINE_BYTES > target.l1_bytes
    return cost * _FAR_RATIO if far else cost


def _flat(spec: ConvSpec, target: Target, g: Gathering) -> list[DirectShape]:
    """The flat tiles whose results stay in a near cache, and their cycles by count without the staging of images."""
    width = target.lanes(spec.dtype.itemsize)
    taps = g.taps
    planes = spec.n * spec.groups * prod(g.size[:-2])
    finish = planes * g.rows * (-(-_span(g) // width) + _FINISH_CYCLES * g.size[-2] * -(-g.size[-1] // width))
    found: list[DirectShape] = []
    for rows, vectors in itertools.product(_divisors(g.rows), range(1, _MOST_VECTORS + 1)):
        kept = rows * _span(g) * spec.dtype.itemsize
        if kept > target.l2_bytes // 4 or (vectors > 1 and rows * vectors + vectors + 2 > target.registers):
            continue
        cost = 0.0
        for t in full_tiles(_span(g), width * vectors):
            some = -(-t.size // width)
            tap = max(max(rows * some, 8) / 2, some * LOAD_CYCLES + rows * BROADCAST_CYCLES)
            if len(taps) > MOST_UNROLLED_TAPS:
                tap *= _FROM_TABLE_RATIO
            cost += t.count * (g.depth * len(taps) * tap + 6)
        cost = _with_caches(planes * (g.rows // rows) * cost + finish, rows, vectors, spec, target, g)
        if g.row_step * spec.dtype.itemsize % PAGE_BYTES == 0:
            cost *= CLASH_RATIO
        found.append(DirectShape(rows, 1, vectors, (), cost, flat=True))
    return found


def _span(g: Gathering) -> int:
    """Positions of a staged plane from the first result's to the last one's."""
    return (g.size[-2] - 1) * g.image.steps[-2] + g.size[-1]


def _steps(g: Gathering, spec: ConvSpec, target: Target, rows: int,
           sums: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """All taps, or those of one column of the windows after the other; empty if registers are too few for that."""
    if g.depth > 1:
        return ()
    taps = g.taps
    found = (taps,)
    if rows * len(taps) + sums + 3 > target.registers:
        last = spec.kernel[-1]
        found = tuple([tuple([(t, offset) for t, offset in taps if t % last == column]) for column in range(last)])
        if rows * max(map(len, found)) + sums + 3 > target.registers or len(taps) * sums > _MOST_UNROLLED_OPERATIONS:
            return ()
    return found


class _Filters(NamedTuple):
    """The filters of a tile: the first one's number and address, weights in registers, the epilogue's constants."""

    first: Index
    start: Array
    weights: dict[tuple[int, int], str]
    known: list[list[str | None] | None]


class Direct(ConvWriter[DirectShape]):
    """Writes a convolution or the gradient of its input.

    Invariant: the scratch of a thread holds the staged channels of one group of one sample, those of the next one if
    they are small, and the results of a flat tile for a whole plane.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: DirectShape) -> None:
        super().__init__(em, spec, shape)
        self.g = gathering(spec)
        self.taps = self.g.taps

    def write(self) -> int:
        em, spec, shape, g, width = self.em, self.spec, self.plan, self.g, self.width
        self.staged = whole_lines(g.depth * g.image.size + width, self.size)
        images = spec.n * spec.groups
        ahead = images > 1 and self.staged * self.size <= em.target.l1_bytes // 4
        self.span = -(-_span(g) // width) * width if shape.flat else 0
        self.read_slots()
        kept = shape.rows * self.span + width if shape.flat else 0  # whole vectors are read of the last row, too
        self.own, self.kept = self.scratch(self.staged * (2 if ahead else 1), kept)
        self.stage = stage_function(em, g.image, g.depth, self.element, width)
        self.finisher = Finisher(em, self.results, width, self.span or width * shape.vectors, not shape.flat)
        self.own.clear(self.scratch_bytes // self.size)
        lines = -(-self.g.height // shape.lines)
        if images < 4 and lines > 1:
            tasks, part = (0, images), em.chunk(lines)
        else:
            tasks, part = em.chunk(images), (0, lines)
        guarded(self, lambda: self._images(tasks, part, ahead))
        return self.scratch_bytes

    def _images(self, tasks: tuple[Index, Index], part: tuple[Index, Index], ahead: bool) -> None:
        for i, place in each_staged(self.em, tasks, self._stage, self.own, self.staged, ahead):
            self._image(i, place, part)

    def _stage(self, i: Index, place: Array) -> None:
        source = self.array(self.slots[0]).at(i * (self.g.depth * self.g.image.source))
        self.em.call(self.stage, source, place)

    def _image(self, i: Index, place: Array, part: tuple[Index, Index]) -> None:
        em, shape, g = self.em, self.plan, self.g
        sample, group = em.divmod(i, self.groups)
        filters, epilogue = self.filters(group), self.epilogue(sample, group, i)
        self.place = place
        for k in em.each(0, g.rows // shape.rows):
            first = k * shape.rows
            start = filters.at(first * g.row_step)
            tile = _Filters(first, start, self._weights(start, self.taps) if len(shape.steps) == 1 else {}, [
                None if self.finisher.heavy or shape.flat else epilogue.rows(first + r, self.width)
                for r in range(shape.rows)])
            for base, number in each_index(em, g.size[:-2], g.image.steps):
                (self._flat if shape.flat else self._lines)(epilogue, tile, base, number, part)

    def _weights(self, start: Array, taps: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """The weights of some taps of a tile's filters, broadcast."""
        return {(r, t): start.spread(r * self.g.row_step + t) for r in range(self.plan.rows) for t, _ in taps}

    def _lines(self, epilogue: Epilogue, tile: _Filters, base: Index, plane: Index, part: tuple[Index, Index]) -> None:
        """A plane of results of some filters: rows by rows; the last ones may be computed again."""
        em, shape, height, breadth = self.em, self.plan, self.g.height, self.g.size[-1]
        for k in em.each(*part):
            first = em.min(k * shape.lines, height - shape.lines)
            here = base + first * self.g.line
            there = (plane * height + first) * breadth
            for q, size in each_tile(em, breadth, self.width * shape.vectors):
                start, valid = self.place.at(here + q), lanes_in(size, self.width)
                sums = self._near(tile, start, len(valid)) if shape.steps else self._sum(tile, start, len(valid))
                near = epilogue.at(tile.first, there + q)
                for r, i in itertools.product(range(shape.rows), range(shape.lines)):
                    self.finisher.finish(near, [sums[r, i, j] for j in range(len(valid))], r, 1, i * breadth, valid,
                                         tile.known[r])

    def _flat(self, epilogue: Epilogue, tile: _Filters, base: Index, plane: Index, part: tuple[Index, Index]) -> None:
        """A plane of results of some filters, stored like the staged plane; then its rows are finished."""
        em, g, shape, width = self.em, self.g, self.plan, self.width
        for q, size in each_tile(em, self.span, width * shape.vectors):  # of whole vectors, which are kept as they are
            sums = self._sum(tile, self.place.at(base + q), size // width)
            for (r, _, j), x in sums.items():
                self.kept.store(x, q + (r * self.span + j * width))
        for k in em.each(0, g.size[-2]):
            start = self.kept.at(k * g.image.steps[-2])
            column = (plane * g.size[-2] + k) * g.size[-1]
            self.finisher.stored(epilogue, start, tile.first, shape.rows, column, g.size[-1])

    def _near(self, tile: _Filters, start: Array, vectors: int) -> dict[tuple[int, int, int], str]:
        """The sums of a tile over one channel, step by step: a loop where steps are alike and would be long."""
        shape = self.plan
        keys = list(itertools.product(range(shape.rows), range(shape.lines), range(vectors)))
        sums = self.tile.carried(self.tile.zeros(len(keys)))

        def add(taps: Sequence[tuple[int, int]], filters: Array, image: Array) -> None:
            weights = tile.weights or self._weights(filters, taps)
            found = self._step(taps, weights, image, vectors, dict(zip(keys, sums.values, strict=True)))
            sums.values = [found[key] for key in keys]

        apart = {(b[0] - a[0], b[1] - a[1]) for one, other in itertools.pairwise(shape.steps)
                 for a, b in zip(one, other, strict=False)}
        even = len({len(taps) for taps in shape.steps}) == 1 == len(apart)
        if even and len(self.taps) * len(keys) > _MOST_UNROLLED_PRODUCTS:
            (weight, offset), = apart
            for k in self.em.each(0, len(shape.steps), carried=sums):
                add(shape.steps[0], tile.start.at(k * weight), start.at(k * offset))
        else:
            for taps in shape.steps:
                add(taps, tile.start, start)
        return dict(zip(keys, sums.values, strict=True))

    def _step(self, taps: Sequence[tuple[int, int]], weights: dict[tuple[int, int], str], start: Array, vectors: int,
              sums: dict[tuple[int, int, int], str]) -> dict[tuple[int, int, int], str]:
        """``sums`` plus the products of ``taps``, position by position: a vector of the image goes to all its sums."""
        users: dict[int, list[tuple[int, int]]] = {}
        for (t, offset), i in itertools.product(taps, range(self.plan.lines)):
            users.setdefault(offset + i * self.g.line, []).append((i, t))
        for place, j in itertools.product(sorted(users), range(vectors)):
            x = start.load(place + j * self.width)
            found = list(itertools.product(users[place], range(self.plan.rows)))
            keys = [(r, i, j) for (i, _), r in found]
            factors = [weights[r, t] for (_, t), r in found]
            sums.update(zip(keys, self.tile.add(factors, [x], [sums[key] for key in keys]), strict=True))
        return sums

    def _sum(self, tile: _Filters, start: Array, vectors: int) -> dict[tuple[int, int, int], str]:
        """The sums of the tile whose first window begins at ``start``, over all channels and taps."""
        em, g, shape = self.em, self.g, self.plan
        spots = list(itertools.product(range(shape.lines), range(vectors)))
        keys = [(r, i, j) for r in range(shape.rows) for i, j in spots]
        sums = self.tile.carried(self.tile.zeros(len(keys)))
        for c in em.each(0, g.depth, carried=sums):
            image, line = start.at(c * g.image.size), tile.start.at(c * g.channel_step)
            for _, (weight, offset) in each_tap(em, self.taps, sums):
                rows = Factors(line.at(weight), 0, [r * g.row_step for r in range(shape.rows)], True)
                columns = Factors(image.at(offset), 0, [i * g.line + j * self.width for i, j in spots])
                sums.values = self.tile.add_step(rows, columns, 0, sums.values)
        return dict(zip(keys, sums.values, strict=True))
