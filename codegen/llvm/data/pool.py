"""Pooling with overlapping or padded windows, and its gradients, on staged images (``conv.geometry``)."""
from __future__ import annotations

import hashlib
from collections.abc import Iterator
from math import prod

from kusari.ir import Arg, Call, Kernel, Node, Windows, pool_windows

from ...target import Target
from ..contraction.conv.geometry import Image, staged_windows, whole_image
from ..contraction.conv.stage import MOST_UNROLLED_TAPS, each_row, stage_function, together
from ..contraction.writer import whole_lines
from ..scalar.dispatch import emit_expr
from ..text.array import Array
from ..text.emitter import I64, Carried, Emitter, Index
from ..text.tiles import each_index, each_tile
from ..text.types import constant, splat, value_type, vector


def pool_kernel(node: Node, target: Target) -> Kernel:
    """The kernel of a ``pool`` or ``unpool`` node of float32 or float64 whose tensors are not empty."""
    first, last = node.inputs[0].tensor, node.outputs[0].tensor
    forward = node.op.name == "pool"
    windows = pool_windows(node.attrs, (first if forward else last).shape[2:], (last if forward else first).shape[2:])
    key = (node.op.name, sorted(node.attrs.items()), first, len(node.inputs), target)
    symbol = f"{node.op.name}_{'x'.join(map(str, windows.size))}_{hashlib.sha256(repr(key).encode()).hexdigest()[:12]}"
    em = Emitter(symbol, target)
    scratch = (_Pool if forward else _Unpool)(em, windows, node).write()
    moved = sum(v.tensor.nbytes for v in (*node.inputs, *node.outputs))
    work = prod(first.shape[:2]) * prod(windows.out) * prod(windows.kernel)
    return Kernel("llvm", symbol, em.text(), scratch, 2 * work, moved)


class _Planes:
    """Common parts of both: threads share the channels of all samples. Invariant: scratch holds one staged channel."""

    places: bool  # whether the places of the largest elements are an output, or an operand

    def __init__(self, em: Emitter, windows: Windows, node: Node) -> None:
        self.em, self.windows, self.node = em, windows, node
        self.dtype, self.channels = node.inputs[0].tensor.dtype, prod(node.inputs[0].shape[:2])
        self.element, self.width = value_type(self.dtype), em.target.lanes(self.dtype.itemsize)
        self.ty = vector(self.element, self.width)
        self.image, self.offsets = self.geometry()
        self.staged = whole_lines(self.image.size + 2 * self.width, self.dtype.itemsize)
        self.taps = em.table("i64", self.offsets)

    def geometry(self) -> tuple[Image, tuple[int, ...]]:
        """The staged image of a channel, and the offset of every tap in it."""
        return staged_windows(self.windows)

    def array(self, slot: int, element: str = "") -> Array:
        """The array in a slot."""
        return Array(self.em, element or self.element, self.width, self.em.slot(slot))

    def own(self, slot: int, images: int = 1) -> Array:
        """The scratch of this thread, for so many channels."""
        return self.array(slot).at(self.em.tid * (images * self.staged))

    def each_vector(self) -> Iterator[tuple[Index, Index, int]]:
        """Loops over the vectors of windows along the last axis: offset in the image, position, valid lanes."""
        em, out = self.em, self.windows.out
        for base, number in each_index(em, out[:-1], self.image.steps):
            column = number * out[-1]
            for q, valid in each_tile(em, out[-1], self.width):
                yield base + q, column + q, valid


class _Pool(_Planes):
    """Writes ``pool``: the windows of neighbouring results are neighbours in the staged image."""

    def write(self) -> int:
        """Write the kernel; returns the bytes of scratch each thread needs."""
        em, width = self.em, self.width
        self.fn, self.places = self.node.attrs["fn"], self.node.attrs["places"]
        x, y = self.array(0), self.array(1)
        places = self.array(2, "i32") if self.places else y
        # Two alternating channels: stores take longer than the computation of a small one.
        both = self.own(2 + self.places, 2)
        stage = stage_function(em, self.image, 1, self.element, width)
        nothing = splat(self.element, width, float("-inf") if self.fn == "max" else 0.0)
        for i in em.each(0, 2 * self.staged // width * width, width):
            both.store(nothing, i)
        positions = prod(self.windows.out)
        lo, hi = em.chunk(self.channels)

        def place(c: Index) -> Array:
            return both.at(em.divmod(c, 2)[1] * self.staged)

        def put(c: Index) -> None:
            em.call(stage, x.at(c * self.image.source), place(c))
        with em.only(em.compare("slt", lo, hi)):
            put(lo)
        for c in em.each(lo, hi):
            after, own = c + 1, place(c)
            with em.only(em.compare("slt", after, hi)):
                put(after)
            target, numbers = y.at(c * positions), places.at(c * positions)
            for base, column, valid in self.each_vector():
                near = own.at(base)
                total = self._fold(near)
                target.store(total, column, valid)
                if self.places:
                    numbers.store(self._find(near, total), column, valid)
        return 2 * self.staged * self.dtype.itemsize

    def _combine(self, a: str, b: str) -> str:
        call = Call("maximum" if self.fn == "max" else "add", (Arg(0), Arg(1)))
        return emit_expr(self.em, call, (a, b), (self.dtype, self.dtype), self.width)[0]

    def _fold(self, near: Array) -> str:
        em = self.em
        total = near.load(self.offsets[0])
        if len(self.offsets) <= MOST_UNROLLED_TAPS:
            for offset in self.offsets[1:]:
                total = self._combine(total, near.load(offset))
            return total
        folded = Carried([self.ty], [total])
        for t in em.each(1, len(self.offsets), carried=folded):
            folded.values = [self._combine(folded.values[0], near.load(em.entry(self.taps, t)))]
        return folded.values[0]

    def _find(self, near: Array, total: str) -> str:
        """The number of the first tap that equals the maximum, by lane: from the last one to the first."""
        em, width, last = self.em, self.width, len(self.offsets) - 1

        def choose(offset: Index, number: str, places: str) -> str:
            same = em.value(f"fcmp oeq {self.ty} {near.load(offset)}, {total}")
            return em.select("i32", width, same, number, places)
        places = splat("i32", width, last)
        if len(self.offsets) <= MOST_UNROLLED_TAPS:
            for t in range(last - 1, -1, -1):
                places = choose(self.offsets[t], splat("i32", width, t), places)
            return places
        found = Carried([vector("i32", width)], [places])
        for i in em.each(0, last, carried=found):
            t = last - 1 - i
            number = em.broadcast("i32", width, em.value(f"trunc i64 {t} to i32"))
            found.values = [choose(em.entry(self.taps, t), number, found.values[0])]
        return found.values[0]


class _Unpool(_Planes):
    """Writes ``unpool``: tap after tap is added to the planes of an image, which are then interleaved."""

    def geometry(self) -> tuple[Image, tuple[int, ...]]:
        """Rows do not overlap, masked lanes included: a load would wait for a recent store."""
        return whole_image(self.windows, -(-self.windows.out[-1] // self.width) * self.width)

    def write(self) -> int:
        """Write the kernel; returns the bytes of scratch each thread needs."""
        em, width, element, last = self.em, self.width, self.element, self.image.axes[-1]
        g, self.places = self.array(0), len(self.node.inputs) == 2
        places = self.array(1, "i32") if self.places else g
        x, own = self.array(1 + self.places), self.own(2 + self.places)
        positions, size = prod(self.windows.out), prod(self.windows.size)
        for c in em.each(*em.chunk(self.channels)):
            em.clear(own.pointer, self.image.size * self.dtype.itemsize)
            source, numbers = g.at(c * positions), places.at(c * positions)
            for t in em.each(0, len(self.offsets)):
                image = own.at(em.entry(self.taps, t))
                number = em.value(f"trunc i64 {t} to i32") if isinstance(t, I64) else constant("i32", t)
                wanted = em.broadcast("i32", width, number)
                for base, column, valid in self.each_vector():
                    y = source.load(column, valid)
                    if self.places:
                        found = numbers.load(column, valid)
                        here = em.value(f"icmp eq {vector('i32', width)} {found}, {wanted}")
                        y = em.select(element, width, here, y, "zeroinitializer")
                    place = image.at(base)
                    place.store(em.binary("fadd", element, width, place.load(0, valid), y), 0, valid)
            target = x.at(c * size)
            for offset, column in each_row(em, self.image):
                row, to = own.at(offset), target.at(column)
                for w, valid in each_tile(em, last.size, width):
                    to.store(together(self.image, row, w, valid), w, valid)
        return self.staged * self.dtype.itemsize
