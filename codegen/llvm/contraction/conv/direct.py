"""Convolutions of few channels by few filters, depthwise ones above all: vectors of staged images times single weights.

Nothing is gathered: the elements of neighbouring windows are a vector of the staged image in place.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from kusari.ir.costs import BROADCAST_CYCLES, LOAD_CYCLES

from ....target import Target
from ...text.emitter import Emitter, Index
from ...text.tiles import Tiles, full_tiles
from ..epilogue import Epilogue, Finisher, is_heavy
from ..stage import LINE_BYTES, whole_lines
from ..tile import Factors
from .geometry import Gathering, gathering
from .padding_nan import FixUp, any_unbounded, meets_padding
from .spec import ConvSpec
from .stage import MOST_UNROLLED_TAPS, stage_function
from .writer import ConvWriter

_MOST_LINES = 8
_MOST_VECTORS = 4
_MOST_TILE_ROWS = 8
_FROM_TABLE_RATIO = 1.02         # times the cycles where the offsets of taps are no constants
_FAR_RATIO = 1.1                 # times the cycles where a tile reads more than the first-level cache holds: 1.0 to 1.4
_FINISH_CYCLES = 6.0             # a vector of results that was kept before its epilogue
_CONFLICT_RATIO = 1.3            # times the cycles where all rows of the filters fall into the same sets of that cache
_FEW_IMAGES = 8                  # from this number on threads have nearly equal shares
_MOST_UNROLLED_OPERATIONS = 800  # multiply-adds of a tile


@dataclass(frozen=True)
class DirectShape:
    """Tiles of ``rows`` filters, ``lines`` rows of positions and ``vectors`` in each.

    ``steps`` are taps whose weights are in registers at the same time, so that a vector of the image is loaded once for
    all windows that it is in; those of a single step stay there while the tile moves over the plane. Without steps
    weights are loaded tap by tap. If it is ``flat``, a plane of results is a single line of positions as long as the
    staged plane: vectors are full although rows are shorter, and the positions between two rows are dropped later.
    """

    rows: int
    lines: int
    vectors: int
    width: int
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
    height = g.height
    step = g.line
    taps = g.parts[0].taps
    images = spec.n * spec.groups
    size = g.depth * g.image.size * spec.dtype.itemsize
    best: DirectShape | None = None
    for rows in (r for r in range(1, _MOST_TILE_ROWS + 1) if g.rows % r == 0):
        for vectors in range(1, min(columns, _MOST_VECTORS) + 1):
            for lines in range(1, min(height, _MOST_LINES) + 1):
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
                count = g.rows // rows * -(-height // lines) * -(-columns // vectors)
                cost = images * prod(g.size[:-2]) * count * (tile + 1.0 * sums + 6)
                if size > target.l1_bytes:   # the image comes closer again for every tile of filters
                    cost += images * (g.rows // rows) * size / 64
                if g.depth > 1 and g.depth * len(taps) * vectors * LINE_BYTES > target.l1_bytes:
                    cost *= _FAR_RATIO
                if best is None or cost < best.cycles:
                    best = DirectShape(rows, lines, vectors, width, steps, cost)
    assert best is not None
    if len(g.size) > 1 and images >= _FEW_IMAGES:
        best = min(best, *_flat(spec, target, g), key=lambda shape: shape.cycles)
    staging = images * (g.depth * 2.0 * g.image.size / width + 20)
    return replace(best, cycles=best.cycles + staging)


def _flat(spec: ConvSpec, target: Target, g: Gathering) -> list[DirectShape]:
    """The flat tiles whose results stay in a near cache, and their cycles by count without the staging of images."""
    width = target.lanes(spec.dtype.itemsize)
    taps = g.parts[0].taps
    planes = spec.n * spec.groups * prod(g.size[:-2])
    size = g.depth * g.image.size * spec.dtype.itemsize
    finish = planes * g.rows * (-(-_span(g) // width) + _FINISH_CYCLES * g.size[-2] * -(-g.size[-1] // width))
    found: list[DirectShape] = []
    for rows in (r for r in range(1, _MOST_TILE_ROWS + 1) if g.rows % r == 0):
        if rows * _span(g) * spec.dtype.itemsize > target.l2_bytes // 4:
            break
        for vectors in range(1, _MOST_VECTORS + 1):
            if vectors > 1 and rows * vectors + vectors + 2 > target.registers:
                continue
            cost = 0.0
            for t in full_tiles(_span(g), width * vectors):
                some = -(-t.size // width)
                tap = max(max(rows * some, 8) / 2, some * LOAD_CYCLES + rows * BROADCAST_CYCLES)
                if len(taps) > MOST_UNROLLED_TAPS:
                    tap *= _FROM_TABLE_RATIO
                cost += t.count * (g.depth * len(taps) * tap + 6)
            cost = planes * (g.rows // rows) * cost + finish
            if size > target.l1_bytes:
                cost += spec.n * spec.groups * (g.rows // rows) * size / 64
            if g.depth > 1 and g.depth * len(taps) * vectors * LINE_BYTES > target.l1_bytes:
                cost *= _FAR_RATIO
            if g.row_step * spec.dtype.itemsize % 4096 == 0:
                cost *= _CONFLICT_RATIO
            found.append(DirectShape(rows, 1, vectors, width, (), cost, flat=True))
    return found


def _span(g: Gathering) -> int:
    """Positions of a staged plane from the first result's to the last one's."""
    return (g.size[-2] - 1) * g.image.steps[-2] + g.size[-1]


def _steps(g: Gathering, spec: ConvSpec, target: Target, rows: int,
           sums: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """All taps, or those of one column of the windows after the other; empty if registers are too few for that."""
    if g.depth > 1:
        return ()
    taps = g.parts[0].taps
    found = (taps,)
    if rows * len(taps) + sums + 3 > target.registers:
        last = spec.kernel[-1]
        found = tuple([tuple([(t, offset) for t, offset in taps if t % last == column]) for column in range(last)])
        if rows * max(map(len, found)) + sums + 3 > target.registers or len(taps) * sums > _MOST_UNROLLED_OPERATIONS:
            return ()
    return found


@dataclass(frozen=True)
class _Filters:
    """The filters of a tile: the first one's number and address, weights in registers, the epilogue's constants."""

    first: Index
    start: str
    weights: dict[tuple[int, int], str]
    known: list[list[str | None]]


class Direct(ConvWriter[DirectShape]):
    """Writes a convolution or the gradient of its input.

    Invariant: the scratch of a thread holds the staged channels of one group of one sample, those of the next one if
    they are small, and the results of a flat tile for a whole plane.
    """

    def __init__(self, em: Emitter, spec: ConvSpec, shape: DirectShape) -> None:
        super().__init__(em, spec, shape, shape.width)
        self.g = gathering(spec)
        self.taps = self.g.parts[0].taps
        self.heavy = is_heavy(spec.exprs)

    def write(self) -> int:
        em, spec, shape, g = self.em, self.spec, self.plan, self.g
        self.staged = whole_lines(g.depth * g.image.size + shape.width, self.size)
        images = spec.n * spec.groups
        # Two alternating images if they are small: stores take longer than the computation of one image.
        ahead = images > 1 and self.staged * self.size <= self.em.target.l1_bytes // 4
        self.span = -(-_span(g) // shape.width) * shape.width if shape.flat else 0
        self.own, self.kept = self.scratch(self.staged * (2 if ahead else 1), shape.rows * self.span)
        self.stage = stage_function(em, g.image, g.depth, self.element, shape.width)
        self.finisher = Finisher(em, self.work, shape.width, self.span or shape.width * shape.vectors)
        if self.heavy and not shape.flat:
            self.buffer = em.value(f"alloca [{shape.width * shape.vectors} x {self.element}], align 64", "tile")
        if len(self.taps) > MOST_UNROLLED_TAPS and not shape.steps:
            self.table = em.table("i64", [v for pair in self.taps for v in pair])
        em.clear(self.own, self.scratch_bytes)
        lines = -(-self.g.height // shape.lines)
        if images < 4 and lines > 1:
            tasks, part = (0, images), em.chunk(lines)
        else:
            tasks, part = em.chunk(images), (0, lines)
        if spec.direction == "input" and meets_padding(g):
            # Weights that are infinite or NaN must not be multiplied by padding.
            odd = any_unbounded(em, self.element, shape.width, self.slots[1], spec.k * spec.channels * spec.taps)
            em.when(odd, lambda: self._one_by_one(tasks, part), lambda: self._images(tasks, part, ahead), rare=True)
        else:
            self._images(tasks, part, ahead)
        return self.scratch_bytes

    def _images(self, tasks: tuple[Index, Index], part: tuple[Index, Index], ahead: bool) -> None:
        em = self.em
        if ahead:
            em.when(em.compare("slt", *tasks), lambda: self._stage(tasks[0], self._address(tasks[0])))

        @em.each(*tasks)
        def image(i: Index) -> None:
            if ahead:
                after = em.add(i, 1)
                em.when(em.compare("slt", after, tasks[1]), lambda: self._stage(after, self._address(after)))
                self._image(i, self._address(i), part)
            else:
                self._stage(i, self.own)
                self._image(i, self.own, part)

    def _address(self, i: Index) -> str:
        """The address of staged image ``i``, of two alternating ones."""
        em = self.em
        odd = em.sub(i, em.mul(em.div(i, 2), 2))
        return self.at(self.own, em.mul(odd, self.staged))

    def _stage(self, i: Index, place: str) -> None:
        em, g = self.em, self.g
        source = self.at(self.slots[0], em.mul(i, g.depth * g.image.source))
        em.call(self.stage, source, place)

    def _at(self, i: Index) -> tuple[str, Epilogue]:
        """The filters of an image's group, and its epilogue."""
        em, groups = self.em, self.spec.groups
        sample, group = em.divmod(i, groups)
        return self.filters(group), self.epilogue(sample, group, i)

    def _image(self, i: Index, place: str, part: tuple[Index, Index]) -> None:
        em, shape, g = self.em, self.plan, self.g
        filters, epilogue = self._at(i)
        self.place = place

        @em.each(0, g.rows // shape.rows)
        def row(k: Index) -> None:
            first = em.mul(k, shape.rows)
            start = self.at(filters, em.mul(first, g.row_step))
            known = 0 if self.heavy or shape.flat else shape.rows
            tile = _Filters(first, start, self._weights(start, self.taps) if len(shape.steps) == 1 else {}, [
                epilogue.rows(em.add(first, r), shape.width) for r in range(known)])
            plane = self._flat if shape.flat else self._lines
            self._outer(0, 0, 0, lambda base, column: plane(epilogue, tile, base, column, part))

    def _one_by_one(self, tasks: tuple[Index, Index], part: tuple[Index, Index]) -> None:
        """All results of this thread, one after the other, without a product of padding."""
        em = self.em
        low, high = (em.mul(i, self.plan.lines) for i in part)

        @em.each(*tasks)
        def image(i: Index) -> None:
            self._stage(i, self.own)
            filters, epilogue = self._at(i)
            em.call(self._exact_function(epilogue), self.own, filters, low, em.min(high, self.g.height),
                    *epilogue.arguments())

    def _exact_function(self, epilogue: Epilogue) -> Emitter:
        """``exact(image, filters, low, high, …)``: rows ``low`` to ``high`` of all planes of an image."""
        em = self.em.function("exact", ["ptr %image", "ptr %filters", "i64 %low", "i64 %high", *epilogue.parameters()])
        g, inner, fix_up = self.g, epilogue.inside(em), FixUp(em, self.g, self.element)
        step = self.g.line

        @em.each(0, g.rows)
        def filter_(r: Index) -> None:
            weights = em.gep("%filters", em.mul(r, g.row_step), self.element)

            def plane(base: Index, number: Index) -> None:
                @em.each("%low", "%high")
                def line(k: Index) -> None:
                    @em.each(0, g.size[-1])
                    def one(q: Index) -> None:
                        place = em.add(em.add(base, em.mul(k, step)), q)
                        column = em.add(em.mul(em.add(em.mul(number, g.height), k), g.size[-1]), q)
                        inner.store(fix_up.total("%image", place, weights), r, column, 1, None)
            self._outer(0, 0, 0, plane, em)
        return em

    def _weights(self, start: str, taps: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
        """The weights of some taps of a tile's filters, broadcast."""
        em, width, element = self.em, self.plan.width, self.element
        return {(r, t): em.broadcast(element, width, em.load(element, 1, self.at(
            start, r * self.g.row_step + t))) for r in range(self.plan.rows) for t, _ in taps}

    def _outer(self, depth: int, base: Index, column: Index, use: Callable[[Index, Index], None],
               function: Emitter | None = None) -> None:
        """Loops over all axes but the last two: the begin of a plane in the images, and in the results."""
        em, g = function or self.em, self.g
        if depth >= len(g.size) - 2:
            use(base, column)
            return

        @em.each(0, g.size[depth])
        def turn(q: Index) -> None:
            self._outer(depth + 1, em.add(base, em.mul(q, g.image.steps[depth])),
                        em.add(em.mul(column, g.size[depth]), q), use, em)

    def _lines(self, epilogue: Epilogue, tile: _Filters, base: Index, plane: Index, part: tuple[Index, Index]) -> None:
        """A plane of results of some filters: rows by rows; the last ones may be computed again."""
        em, g, shape = self.em, self.g, self.plan
        height, breadth = self.g.height, g.size[-1]
        step = self.g.line

        @em.each(*part)
        def line(k: Index) -> None:
            first = em.min(em.mul(k, shape.lines), height - shape.lines)
            here = em.add(base, em.mul(first, step))
            there = em.mul(em.add(em.mul(plane, height), first), breadth)
            for t in full_tiles(breadth, shape.width * shape.vectors):
                self._strip(epilogue, tile, here, there, t)

    def _flat(self, epilogue: Epilogue, tile: _Filters, base: Index, plane: Index, _: tuple[Index, Index]) -> None:
        """A plane of results of some filters, stored like the staged plane; then its rows are finished."""
        em, g, shape, width, element = self.em, self.g, self.plan, self.plan.width, self.element

        def strip(q: Index, vectors: int) -> None:
            sums = self._sum(tile, self.at(self.place, em.add(base, q)), vectors)
            for (r, _, j), x in sums.items():
                em.store(element, width, x, self.at(self.kept, em.add(q, r * self.span + j * width)))
        for t in full_tiles(_span(g), width * shape.vectors):
            vectors = -(-t.size // width)

            @em.each(t.start, t.start + t.count * t.size, t.size)
            def turn(q: Index, vectors: int = vectors) -> None:
                strip(q, vectors)

        @em.each(0, g.size[-2])
        def line(k: Index) -> None:
            start = self.at(self.kept, em.mul(k, g.image.steps[-2]))
            column = em.mul(em.add(em.mul(plane, g.size[-2]), k), g.size[-1])
            for f in full_tiles(g.size[-1], width):
                self.finisher.call(epilogue, self.at(start, f.start), tile.first, shape.rows,
                                   em.add(column, f.start), f.count, f.size)

    def _strip(self, epilogue: Epilogue, tile: _Filters, here: Index, there: Index, t: Tiles) -> None:
        em, g, shape, width = self.em, self.g, self.plan, self.plan.width
        valid = [min(width, t.size - j) for j in range(0, t.size, width)]

        @em.each(t.start, t.start + t.count * t.size, t.size)
        def turn(q: Index) -> None:
            start = self.at(self.place, em.add(here, q))
            sums = self._near(tile, start, len(valid)) if shape.steps else self._sum(tile, start, len(valid))
            for r, i in itertools.product(range(shape.rows), range(shape.lines)):
                row = em.add(tile.first, r)
                column = em.add(em.add(there, i * g.size[-1]), q)
                own = [sums[r, i, j] for j in range(len(valid))]
                if self.heavy:
                    for j, x in enumerate(own):
                        em.store(self.element, width, x, self.at(self.buffer, j * width))
                    for f in full_tiles(t.size, width):
                        self.finisher.call(epilogue, self.at(self.buffer, f.start), row, 1,
                                           em.add(column, f.start), f.count, f.size)
                    continue
                for j, (x, v) in enumerate(zip(own, valid, strict=True)):
                    epilogue.store(x, row, em.add(column, j * width), width, v, tile.known[r])

    def _near(self, tile: _Filters, start: str, vectors: int) -> dict[tuple[int, int, int], str]:
        """The sums of a tile over one channel, position by position: each vector of the image is added to its sums."""
        em, width, element, shape = self.em, self.plan.width, self.element, self.plan
        step = self.g.line
        sums: dict[tuple[int, int, int], str] = {}
        for taps in shape.steps:
            weights = tile.weights or self._weights(tile.start, taps)
            users: dict[int, list[tuple[int, int]]] = {}
            for (t, offset), i in itertools.product(taps, range(shape.lines)):
                users.setdefault(offset + i * step, []).append((i, t))
            for place, j in itertools.product(sorted(users), range(vectors)):
                x = em.load(element, width, self.at(start, place + j * width))
                found = list(itertools.product(users[place], range(shape.rows)))
                keys = [(r, i, j) for (i, _), r in found]
                before = [sums.get(key, "zeroinitializer") for key in keys]
                factors = [weights[r, t] for (_, t), r in found]
                sums.update(zip(keys, self.tile.add(factors, [x], before), strict=True))
        return sums

    def _sum(self, tile: _Filters, start: str, vectors: int) -> dict[tuple[int, int, int], str]:
        """The sums of the tile whose first window begins at ``start``, over all channels and taps."""
        em, g, width, element, shape = self.em, self.g, self.plan.width, self.element, self.plan
        step = self.g.line
        spots = list(itertools.product(range(shape.lines), range(vectors)))
        keys = [(r, i, j) for r in range(shape.rows) for i, j in spots]

        def tap(image: str, line: str, weight: Index, offset: Index, sums: list[str]) -> list[str]:
            near = self.at(image, offset)
            images = list(self.tile.factors(Factors(near, 0, [i * step + j * width for i, j in spots])))
            weights = (em.broadcast(element, width, em.load(element, 1, self.at(
                self.at(line, weight), r * g.row_step))) for r in range(shape.rows))
            return self.tile.add(weights, images, sums)

        def channel(c: Index, sums: list[str]) -> list[str]:
            image = self.at(start, em.mul(c, g.image.size))
            line = self.at(tile.start, em.mul(c, g.channel_step))
            if len(self.taps) <= MOST_UNROLLED_TAPS:
                for weight, offset in self.taps:
                    sums = tap(image, line, weight, offset, sums)
                return sums

            def one(t: Index, sums: list[str]) -> list[str]:
                entry = em.gep(self.table, em.mul(t, 2), "i64")
                return tap(image, line, em.entry(entry), em.entry(entry, 1), sums)
            return self.tile.sum(len(self.taps), one, sums)
        sums = self.tile.sum(g.depth, channel, self.tile.zeros(len(keys)))
        return dict(zip(keys, sums, strict=True))
