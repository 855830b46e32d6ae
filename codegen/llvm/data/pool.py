"""Pooling with overlapping or padded windows, and its gradients, on staged images (``conv.geometry``)."""
from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from math import prod

from kusari.ir import Arg, Call, DType, Kernel, Node, Windows, pool_windows

from ...target import Target
from ..contraction.conv.geometry import Image, staged_windows, whole_image
from ..contraction.conv.stage import MOST_UNROLLED_TAPS, each_row, stage_function, together
from ..contraction.stage import whole_lines
from ..scalar.dispatch import emit_expr
from ..text.emitter import Emitter, Index
from ..text.tiles import each_tile
from ..text.types import constant, value_type, vector


def pool_kernel(node: Node, target: Target) -> Kernel:
    """The kernel of a ``pool`` or ``unpool`` node of float32 or float64 whose tensors are not empty."""
    first, last = node.inputs[0].tensor, node.outputs[0].tensor
    forward = node.op.name == "pool"
    windows = pool_windows(node.attrs, (first if forward else last).shape[2:], (last if forward else first).shape[2:])
    key = (node.op.name, sorted(node.attrs.items()), first, len(node.inputs), target)
    symbol = f"{node.op.name}_{'x'.join(map(str, windows.size))}_{hashlib.sha256(repr(key).encode()).hexdigest()[:12]}"
    em = Emitter(symbol, target)
    if forward:
        write = _Pool(em, windows, first.dtype, prod(first.shape[:2]), node.attrs["fn"], node.attrs["places"])
    else:
        write = _Unpool(em, windows, first.dtype, prod(first.shape[:2]), len(node.inputs) == 2)
    scratch = write.write()
    moved = sum(v.tensor.nbytes for v in (*node.inputs, *node.outputs))
    work = prod(first.shape[:2]) * prod(windows.out) * prod(windows.kernel)
    return Kernel("llvm", symbol, em.text(), scratch, 2 * work, moved)


class _Planes:
    """Common parts of both: threads share the channels of all samples. Invariant: scratch holds one staged channel."""

    def __init__(self, em: Emitter, windows: Windows, dtype: DType, channels: int, image: Image,
                 offsets: Sequence[int]) -> None:
        self.em = em
        self.windows = windows
        self.dtype = dtype
        self.channels = channels
        self.image = image
        self.offsets = offsets
        self.element = value_type(dtype)
        self.width = em.target.lanes(dtype.itemsize)
        self.ty = vector(self.element, self.width)
        self.staged = whole_lines(image.size + 2 * self.width, dtype.itemsize)
        self.taps = em.table("i64", offsets)

    def own(self, slot: int, images: int = 1) -> str:
        """The scratch of this thread, for so many channels."""
        return self.em.gep(self.em.slot(slot), self.em.mul("%tid", images * self.staged), self.element)

    def rows(self, use: Callable[[Index, Index], None], depth: int = 0, base: Index = 0, column: Index = 0) -> None:
        """``use(offset in the image, position)`` for every row of windows along the last axis."""
        em, out = self.em, self.windows.out
        if depth == len(out) - 1:
            use(base, em.mul(column, out[-1]))
            return
        em.loop(0, out[depth], 1, lambda q, _: self.rows(
            use, depth + 1, em.add(base, em.mul(q, self.image.steps[depth])),
            em.add(em.mul(column, out[depth]), q)), unroll=False)

    def vectors(self, extent: int, use: Callable[[Index, int], None]) -> None:
        """``use(start, valid lanes)`` for the vectors of a row."""

        @each_tile(self.em, extent, self.width)
        def turn(q: Index, valid: int) -> None:
            use(q, valid)


class _Pool(_Planes):
    """Writes ``pool``: the windows of neighbouring results are neighbours in the staged image."""

    def __init__(self, em: Emitter, windows: Windows, dtype: DType, channels: int, fn: str, places: bool) -> None:
        super().__init__(em, windows, dtype, channels, *staged_windows(windows))
        self.fn = fn
        self.places = places

    def write(self) -> int:
        """Write the kernel; returns the bytes of scratch each thread needs."""
        em, width, element = self.em, self.width, self.element
        x, y = em.slot(0), em.slot(1)
        places = em.slot(2) if self.places else ""
        # Two alternating channels: stores take longer than the computation of a small one.
        both = self.own(2 + self.places, 2)
        stage = stage_function(em, self.image, 1, element, width)
        nothing = em.splat(element, width, float("-inf") if self.fn == "max" else 0.0)
        em.loop(0, 2 * self.staged // width * width, width, lambda i, _: em.store(
            element, width, nothing, em.gep(both, i, element)), unroll=False)
        positions = prod(self.windows.out)
        lo, hi = em.chunk(self.channels)

        def place(c: Index) -> str:
            odd = em.sub(c, em.mul(em.div(c, 2), 2))
            return em.gep(both, em.mul(odd, self.staged), element)

        def put(c: Index) -> None:
            em.call(stage, em.gep(x, em.mul(c, self.image.source), element), place(c))

        def channel(c: Index, _: list[str]) -> None:
            after, own = em.add(c, 1), place(c)
            em.when(em.compare("slt", after, hi), lambda: put(after))
            target = em.gep(y, em.mul(c, positions), element)
            numbers = em.gep(places, em.mul(c, positions), "i32") if self.places else ""

            def row(base: Index, column: Index) -> None:
                def part(q: Index, valid: int) -> None:
                    near = em.gep(own, em.add(base, q), element)
                    total = self._fold(near)
                    em.store(element, width, total, em.gep(target, em.add(column, q), element), valid)
                    if self.places:
                        found = self._find(near, total)
                        em.store("i32", width, found, em.gep(numbers, em.add(column, q), "i32"), valid)
                self.vectors(self.windows.out[-1], part)
            self.rows(row)
        em.when(em.compare("slt", lo, hi), lambda: put(lo))
        em.loop(lo, hi, 1, channel, unroll=False)
        return 2 * self.staged * self.dtype.itemsize

    def _at(self, near: str, offset: Index) -> str:
        return self.em.load(self.element, self.width, self.em.gep(near, offset, self.element))

    def _combine(self, a: str, b: str) -> str:
        call = Call("maximum" if self.fn == "max" else "add", (Arg(0), Arg(1)))
        return emit_expr(self.em, call, (a, b), (self.dtype, self.dtype), self.width)[0]

    def _fold(self, near: str) -> str:
        em = self.em
        total = self._at(near, self.offsets[0])
        if len(self.offsets) <= MOST_UNROLLED_TAPS:
            for offset in self.offsets[1:]:
                total = self._combine(total, self._at(near, offset))
            return total

        def step(t: Index, total: list[str]) -> list[str]:
            return [self._combine(total[0], self._at(near, em.entry(self.taps, t)))]
        return em.loop(1, len(self.offsets), 1, step, [(self.ty, total)], unroll=False)[0]

    def _find(self, near: str, total: str) -> str:
        """The number of the first tap that equals the maximum, by lane: from the last one to the first."""
        em, width, last = self.em, self.width, len(self.offsets) - 1

        def choose(offset: Index, number: str, places: str) -> str:
            same = em.value(f"fcmp oeq {self.ty} {self._at(near, offset)}, {total}")
            return em.select("i32", width, same, number, places)
        places = em.splat("i32", width, last)
        if len(self.offsets) <= MOST_UNROLLED_TAPS:
            for t in range(last - 1, -1, -1):
                places = choose(self.offsets[t], em.splat("i32", width, t), places)
            return places

        def step(i: Index, places: list[str]) -> list[str]:
            t = em.sub(last - 1, i)
            number = em.broadcast("i32", width, em.value(f"trunc i64 {t} to i32"))
            return [choose(em.entry(self.taps, t), number, places[0])]
        return em.loop(0, last, 1, step, [(vector("i32", width), places)], unroll=False)[0]


class _Unpool(_Planes):
    """Writes ``unpool``: tap after tap is added to the planes of an image, which are then interleaved."""

    def __init__(self, em: Emitter, windows: Windows, dtype: DType, channels: int, places: bool) -> None:
        # Rows do not overlap, masked lanes included: a load would wait for a recent store.
        lanes = em.target.lanes(dtype.itemsize)
        breadth = -(-windows.out[-1] // lanes) * lanes
        super().__init__(em, windows, dtype, channels, *whole_image(windows, breadth))
        self.places = places

    def write(self) -> int:
        """Write the kernel; returns the bytes of scratch each thread needs."""
        em, width, element = self.em, self.width, self.element
        g = em.slot(0)
        places = em.slot(1) if self.places else ""
        x = em.slot(1 + self.places)
        own = self.own(2 + self.places)
        positions, size = prod(self.windows.out), prod(self.windows.size)

        @em.each(*em.chunk(self.channels))
        def channel(c: Index) -> None:
            em.clear(own, self.image.size * self.dtype.itemsize)
            source = em.gep(g, em.mul(c, positions), element)
            numbers = em.gep(places, em.mul(c, positions), "i32") if self.places else ""

            @em.each(0, len(self.offsets))
            def tap(t: Index) -> None:
                image = em.gep(own, em.entry(self.taps, t), element)
                number = em.value(f"trunc i64 {t} to i32") if isinstance(t, str) else constant("i32", t)
                wanted = em.broadcast("i32", width, number)

                def row(base: Index, column: Index) -> None:
                    def part(q: Index, valid: int) -> None:
                        y = em.load(element, width, em.gep(source, em.add(column, q), element), valid)
                        if self.places:
                            found = em.load("i32", width, em.gep(numbers, em.add(column, q), "i32"), valid)
                            here = em.value(f"icmp eq {vector('i32', width)} {found}, {wanted}")
                            y = em.select(element, width, here, y, "zeroinitializer")
                        place = em.gep(image, em.add(base, q), element)
                        total = em.binary("fadd", element, width, em.load(element, width, place, valid), y)
                        em.store(element, width, total, place, valid)
                    self.vectors(self.windows.out[-1], part)
                self.rows(row)
            self._together(own, em.gep(x, em.mul(c, size), element))
        return self.staged * self.dtype.itemsize

    def _together(self, own: str, target: str) -> None:
        em, element, last = self.em, self.element, self.image.axes[-1]

        def row(offset: Index, column: Index) -> None:
            def part(w: Index, valid: int) -> None:
                x = together(em, self.image, em.gep(own, offset, element), em.add(w, last.pad), valid, element,
                             self.width)
                em.store(element, self.width, x, em.gep(target, em.add(column, w), element), valid)
            self.vectors(last.size, part)
        each_row(em, self.image, row)
