"""Gradients of convolution weights: elements of staged images broadcast, times vectors of output channels."""
from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kusari.ir import DType, Kernel, Windows

from ..target import Target
from .conv_geometry import staged_windows
from .conv_spec import ConvSpec
from .conv_stage import clear, stage_function
from .emitter import Emitter, Index
from .given import given_kernel
from .types import value_type, vector

_MANY = 16  # blocks that threads can share evenly


@dataclass(frozen=True)
class WeightShape:
    """A tile: ``channels`` of x times a run along the last axis of the window in rows, ``vectors`` of output channels.

    ``samples`` are staged at a time. A long axis of the window is cut in runs; the last one begins earlier, so that all
    are of one length. Invariant: taps of all runs are at the same distances, which strides forbid: there a run is the
    whole axis or a single tap.
    """

    channels: int
    run: int
    vectors: int
    width: int
    samples: int
    cycles: float


def choose_weights(spec: ConvSpec, target: Target) -> WeightShape:
    """The tile with the fewest cycles, counted as for products, and as many samples as half the cache holds."""
    width = target.lanes(spec.dtype.itemsize)
    run = spec.kernel[-1]
    spare = 2 if target.has_fma else 3
    columns = -(-spec.features // width)
    positions = spec.n * spec.positions
    best: WeightShape | None = None
    for vectors in range(1, min(columns, 8) + 1):
        most = max((target.registers - spare - vectors) // vectors, 1)
        length = min(run, most)
        length = -(-run // -(-run // length)) if spec.stride[-1] == 1 or length == run else 1
        for channels in range(1, min(spec.channels, most // length, 16) + 1):
            rows = channels * length
            tiles = -(-columns // vectors) * -(-spec.channels // channels) * (spec.taps // run) * -(-run // length)
            step = max(rows * vectors / 2, (rows + vectors) / 2, 4) + (1 + vectors) / 4 + 0.5
            cost = spec.groups * tiles * (positions * step + 4 * rows * vectors)
            if best is None or cost < best.cycles:
                best = WeightShape(channels, length, vectors, width, 1, cost)
    assert best is not None
    image, _ = staged_windows(spec.windows)
    each = (spec.channels * image.size + spec.positions * columns * width) * spec.dtype.itemsize
    samples = max(1, min(spec.n, target.l2_bytes * 6 // 10 // max(each, 1)))
    blocks = -(-spec.n // samples)
    return WeightShape(best.channels, best.run, best.vectors, width, -(-spec.n // blocks), best.cycles)


@dataclass(frozen=True)
class WeightForm:
    """What the text depends on: how windows lie, the tile, and some of what follows from numbers of channels.

    ``rest`` output channels are no whole vector. ``several``: there are blocks of samples. ``whole``: threads share
    blocks of channels, whose filters are written in one go; or runs where blocks are too few.
    """

    windows: Windows
    dtype: DType
    channels: int
    run: int
    vectors: int
    width: int
    rest: int
    several: bool
    whole: bool

    @property
    def outer_taps(self) -> int:
        """Taps of a window along all axes but the last."""
        return prod(self.windows.kernel[:-1])

    @property
    def runs(self) -> int:
        """Runs along the last axis of the window."""
        return -(-self.windows.kernel[-1] // self.run)

    @property
    def parts(self) -> int:
        """Runs of a block of channels."""
        return self.outer_taps * self.runs

    @property
    def breadth(self) -> int:
        """Output channels of a tile."""
        return self.vectors * self.width

    @property
    def tile(self) -> int:
        """Sums of a unit of work."""
        return self.channels * (prod(self.windows.kernel) if self.whole else self.run) * self.breadth


def taps_kernel(spec: ConvSpec, target: Target) -> Kernel:
    """The kernel of a gradient; its slots are x, the gradient of y, the result and scratch."""
    shape = choose_weights(spec, target)
    size, width = spec.dtype.itemsize, shape.width
    column_blocks = -(-spec.features // (shape.vectors * width))
    channel_blocks = -(-spec.channels // shape.channels)
    whole = channel_blocks * column_blocks >= _MANY
    blocks = -(-spec.n // shape.samples)
    form = WeightForm(spec.windows, spec.dtype, shape.channels, shape.run, shape.vectors, width,
                      spec.features % width, blocks > 1, whole)
    units = channel_blocks * (1 if whole else form.parts)   # of one block of columns
    sample = spec.channels * staged_windows(spec.windows)[0].size

    def lines(elements: int) -> int:
        return -(-elements * size // 64) * 64 // size
    staged = lines(shape.samples * sample + width)
    sums = staged + lines(shape.samples * spec.positions * column_blocks * form.breadth)
    scratch = sums + lines(form.tile * units * column_blocks if blocks > 1 else form.tile)
    numbers = {"images": spec.n, "samples": shape.samples, "blocks": blocks, "groups": spec.groups, "c": spec.c,
               "channels": spec.channels, "k": spec.k, "features": spec.features, "units": units,
               "all": units * column_blocks, "sample": sample, "turned": staged, "sums": sums, "scratch": scratch,
               "block": shape.samples * spec.positions * form.breadth, "filter": spec.channels * spec.taps,
               "padded": column_blocks * form.breadth}
    return given_kernel("conv_weight_taps", form, target, 4, numbers, lambda em: _Weights(em, form).write(),
                        scratch=scratch * size, flops=spec.flops, moved=spec.bytes)


class _Weights:
    """Writes one kernel.

    Threads share the tiles, so every sum is made by one of them in the order of samples and positions: the result does
    not depend on their number. Invariant: the scratch of a thread holds the staged images of a block of samples, their
    gradients with channels last, and a tile of sums for each of all units where there is more than one block.
    """

    def __init__(self, em: Emitter, form: WeightForm) -> None:
        self.em = em
        self.form = form
        self.element = value_type(form.dtype)
        self.ty = vector(self.element, form.width)
        self.image, self.offsets = staged_windows(form.windows)
        self.positions = prod(form.windows.out)
        self.taps = prod(form.windows.kernel)
        self.breadth = form.breadth
        self.tile = form.tile

    def write(self) -> None:
        """Write it."""
        em, form, tile, n = self.em, self.form, self.tile, self.em.number
        size = form.dtype.itemsize
        self.slots = [em.slot(i) for i in range(3)]
        self.own = em.gep(em.slot(3), em.mul("%tid", n("scratch")), self.element)
        self.turned = em.gep(self.own, n("turned"), self.element)
        self.sums = em.gep(self.own, n("sums"), self.element)
        self.stage = stage_function(em, self.image, lambda inner: inner.number("channels"), self.element, form.width)
        self.turn = self._turn_function()
        self.put = self._put_whole_function() if form.whole else self._put_function()
        last = form.windows.kernel[-1]
        self.bases = em.table("i64", [self.offsets[i * last + start] for i in range(form.outer_taps)
                                      for start in self._run_starts()])
        clear(em, self.own, n("turned"), self.element, size)
        lo, hi = em.chunk(n("all"))

        def group(g: Index, _: list[str]) -> None:
            if form.several:
                clear(em, em.gep(self.sums, em.mul(lo, tile), self.element), em.mul(em.sub(hi, lo), tile),
                      self.element, size)

            def block(b: Index, _: list[str]) -> None:
                first = em.mul(b, n("samples"))
                count = em.min(em.sub(n("images"), first), n("samples"))
                self._gather(g, first, count, lo, hi)
                em.loop(lo, hi, 1, lambda u, _: self._unit(g, u, count), unroll=False)
            em.loop(0, n("blocks"), 1, block, unroll=False)
            if form.several:
                em.loop(lo, hi, 1, lambda u, _: self._put(g, u, em.gep(self.sums, em.mul(u, tile), self.element)),
                        unroll=False)
        em.when(em.compare("slt", lo, hi), lambda: em.loop(0, n("groups"), 1, group, unroll=False))

    def _run_starts(self) -> list[int]:
        last = self.form.windows.kernel[-1] - self.form.run
        return [min(i * self.form.run, last) for i in range(self.form.runs)]

    # Operands

    def _gather(self, group: Index, first: Index, count: Index, lo: Index, hi: Index) -> None:
        """Stage the images of ``count`` samples, and turn those channels of their gradients that the units need."""
        em, n = self.em, self.em.number
        start = em.mul(em.div(lo, n("units")), self.breadth)
        end = em.mul(em.div(em.add(hi, em.sub(n("units"), 1)), n("units")), self.breadth)
        end = em.min(end, n("features"))

        def sample(s: Index, _: list[str]) -> None:
            image = em.add(first, s)
            channel = em.add(em.mul(image, n("c")), em.mul(group, n("channels")))
            x = em.gep(self.slots[0], em.mul(channel, self.image.source), self.element)
            em.call(self.stage, [f"ptr {x}", f"ptr {em.gep(self.own, em.mul(s, n('sample')), self.element)}"])
            feature = em.add(em.mul(image, n("k")), em.mul(group, n("features")))
            gy = em.gep(self.slots[1], em.mul(feature, self.positions), self.element)
            place = em.gep(self.turned, em.mul(s, self.positions * self.breadth), self.element)
            em.call(self.turn, [f"ptr {gy}", f"ptr {place}", f"i64 {start}", f"i64 {end}"])
        em.loop(0, count, 1, sample, unroll=False)

    def _turn_function(self) -> Emitter:
        """``turn(from, to, start, end)``: channels last, block of columns by block of columns, in square pieces.

        The last piece along positions overlaps the one before. Channels past the end become zero.
        """
        form, positions, width, element = self.form, self.positions, self.form.width, self.element
        em = self.em.function("turn", ["ptr %from", "ptr %to", "i64 %start", "i64 %end"])
        n = em.number
        lines = min(positions, width)

        def spot(c: Index, p: Index) -> str:
            number = em.div(c, self.breadth)
            inside = em.sub(c, em.mul(number, self.breadth))
            at = em.add(em.mul(number, n("block")), em.add(em.mul(p, self.breadth), inside))
            return em.gep("%to", at, element)

        def block(c: Index, p: Index, channels: int) -> None:
            start = em.gep("%from", em.add(em.mul(c, positions), p), element)
            rows = [em.load(element, width, em.gep(start, r * positions, element), lines) for r in range(channels)]
            rows += ["zeroinitializer"] * (width - channels)
            place = spot(c, p)
            turned = em.transpose(element, rows) if width > 1 else rows
            for r, x in enumerate(turned[:lines]):
                em.store(element, width, x, em.gep(place, r * self.breadth, element))
        full = em.sub(n("features"), form.rest)
        for channels, first, end in ((width, 0, full), (form.rest, full, n("features"))):
            def strip(c: Index, _: list[str], channels: int = channels) -> None:
                em.loop(0, positions, width, lambda p, _: block(c, em.min(p, positions - lines), channels),
                        unroll=False)
            if channels:
                em.loop(em.max("%start", first), em.min("%end", end), width, strip, unroll=False)

        def zero(c: Index, _: list[str]) -> None:
            em.loop(0, positions, 1, lambda p, _: em.store(element, width, "zeroinitializer", spot(c, p)),
                    unroll=False)
        em.loop(em.add(full, width if form.rest else 0), n("padded"), width, zero, unroll=False)
        return em

    # Products

    def _place(self, unit: Index) -> tuple[Index, Index, Index]:
        """Block of columns, first channel and number of the run of taps (0 for a whole block) of a unit."""
        em, form, n = self.em, self.form, self.em.number
        columns = em.div(unit, n("units"))
        rest = em.sub(unit, em.mul(columns, n("units")))
        parts = 1 if form.whole else form.parts
        channels = em.div(rest, parts)
        first = em.min(em.mul(channels, form.channels), em.sub(n("channels"), form.channels))
        return columns, first, em.sub(rest, em.mul(channels, parts))

    def _unit(self, group: Index, unit: Index, count: Index) -> None:
        em, form = self.em, self.form
        columns, channel, run = self._place(unit)
        place = em.gep(self.sums, em.mul(unit, self.tile), self.element) if form.several else self.sums
        if form.whole:
            em.loop(0, form.parts, 1, lambda run, _: self._run(columns, channel, run, count, place), unroll=False)
        else:
            self._run(columns, channel, run, count, place)
        if not form.several:
            self._put(group, unit, place)

    def _tap(self, run: Index) -> Index:
        """The first tap of a run."""
        em, form, last = self.em, self.form, self.form.windows.kernel[-1]
        line = em.div(run, form.runs)
        number = em.sub(run, em.mul(line, form.runs))
        return em.add(em.mul(line, last), em.min(em.mul(number, form.run), last - form.run))

    def _run(self, columns: Index, channel: Index, run: Index, count: Index, place: str) -> None:
        """The sums of a run of taps of a block of channels over ``count`` samples, added to what is at ``place``."""
        em, shape, width, element, n = self.em, self.form, self.form.width, self.element, self.em.number
        base = em.load("i64", 1, em.gep(self.bases, run, "i64"))
        x = em.gep(self.own, em.add(em.mul(channel, self.image.size), base), element)
        gy = em.gep(self.turned, em.mul(columns, n("block")), element)
        # The taps of a run lie at the same distances from its first one, whichever planes they are in.
        near = self._distances()
        first, step_of_channel = (self._tap(run), self.taps) if shape.whole else (0, shape.run)
        place = em.gep(place, em.mul(first, self.breadth), element)
        spots = [em.gep(place, (c * step_of_channel + t) * self.breadth + j * width, element)
                 for c in range(shape.channels) for t in range(shape.run) for j in range(shape.vectors)]
        initial = [em.load(element, width, p) for p in spots] if shape.several else ["zeroinitializer"] * len(spots)
        *outer, breadth = shape.windows.out

        def step(a: str, b: str, sums: list[str]) -> list[str]:
            ys = [em.load(element, width, em.gep(b, j * width, element)) for j in range(shape.vectors)]
            result: list[str] = []
            for i in range(shape.channels):
                for offset in near:
                    one = em.load(element, 1, em.gep(a, i * self.image.size + offset, element))
                    one = em.broadcast(element, width, one)
                    at = len(result)
                    result += [em.fma(element, width, one, y, sums[at + j]) for j, y in enumerate(ys)]
            return result

        def axes(depth: int, a: str, b: str, sums: list[str]) -> list[str]:
            carry = [(self.ty, v) for v in sums]
            if depth == len(outer):
                return em.loop(0, breadth, 1, lambda q, v: step(
                    em.gep(a, q, element), em.gep(b, em.mul(q, self.breadth), element), v), carry, unroll=False)
            rest = prod(shape.windows.out[depth + 1:]) * self.breadth
            return em.loop(0, outer[depth], 1, lambda q, v: axes(
                depth + 1, em.gep(a, em.mul(q, self.image.steps[depth]), element),
                em.gep(b, em.mul(q, rest), element), v), carry, unroll=False)

        def sample(s: Index, sums: list[str]) -> list[str]:
            return axes(0, em.gep(x, em.mul(s, n("sample")), element),
                        em.gep(gy, em.mul(s, self.positions * self.breadth), element), sums)
        sums = em.loop(0, count, 1, sample, [(self.ty, v) for v in initial], unroll=False)
        for p, v in zip(spots, sums, strict=True):
            em.store(element, width, v, p)

    def _distances(self) -> list[int]:
        """From the first tap of a run to the others."""
        return [self.offsets[i] - self.offsets[0] for i in range(self.form.run)]

    # Results

    def _put_function(self) -> Emitter:
        """``put(tile, to, count)``: a tile's ``count`` output channels to their filters."""
        shape, element = self.form, self.element
        em = self.em.function("put", ["ptr %tile", "ptr %to", "i64 %count"])
        filter_size = em.number("filter")

        def feature(o: Index, _: list[str]) -> None:
            source = em.gep("%tile", o, element)
            target = em.gep("%to", em.mul(o, filter_size), element)
            for i in range(shape.channels):
                for t in range(shape.run):
                    x = em.load(element, 1, em.gep(source, (i * shape.run + t) * self.breadth, element))
                    em.store(element, 1, x, em.gep(target, i * self.taps + t, element))
        em.loop(0, "%count", 1, feature, unroll=False)
        return em

    def _put_whole_function(self) -> Emitter:
        """``put(tile, to, count)``: the same of all taps of a block of channels, which are neighbours in a filter.

        Square blocks are transposed in registers; the last one along the filter overlaps the one before.
        """
        width, element = self.form.width, self.element
        em = self.em.function("put", ["ptr %tile", "ptr %to", "i64 %count"])
        filter_size, rows = em.number("filter"), self.form.channels * self.taps
        lines = min(rows, width)

        def block(o: Index, i: Index) -> None:
            source = em.gep("%tile", em.add(em.mul(i, self.breadth), o), element)
            values = [em.load(element, width, em.gep(source, r * self.breadth, element)) for r in range(lines)]
            values += ["zeroinitializer"] * (width - lines)
            target = em.gep("%to", em.add(em.mul(o, filter_size), i), element)
            for k, x in enumerate(em.transpose(element, values)):
                em.store(element, width, x, em.gep(target, em.mul(k, filter_size), element), lines)
        full = em.mul(em.div("%count", width), width)

        def strip(o: Index, _: list[str]) -> None:
            em.loop(0, rows, width, lambda i, _: block(o, em.min(i, rows - lines)), unroll=False)
        em.loop(0, full, width, strip, unroll=False)

        def single(o: Index, _: list[str]) -> None:
            def one(i: Index, _: list[str]) -> None:
                x = em.load(element, 1, em.gep("%tile", em.add(em.mul(i, self.breadth), o), element))
                em.store(element, 1, x, em.gep("%to", em.add(em.mul(o, filter_size), i), element))
            em.loop(0, rows, 1, one, unroll=False)
        em.loop(full, "%count", 1, single, unroll=False)
        return em

    def _put(self, group: Index, unit: Index, tile: str) -> None:
        em, n = self.em, self.em.number
        columns, channel, run = self._place(unit)
        tap = 0 if self.form.whole else self._tap(run)
        feature = em.mul(columns, self.breadth)
        count = em.min(em.sub(n("features"), feature), self.breadth)
        row = em.add(em.mul(group, n("features")), feature)
        at = em.add(em.mul(em.add(em.mul(row, n("channels")), channel), self.taps), tap)
        em.call(self.put, [f"ptr {tile}", f"ptr {em.gep(self.slots[2], at, self.element)}", f"i64 {count}"])
