"""Pooling with overlapping or padded windows, and its gradients, on staged images (``conv.geometry``)."""
from __future__ import annotations

from collections.abc import Iterator
from math import prod

from kusari.ir import Arg, Call, Kernel, Node, Windows, pool_windows

from ...target import Target
from ..contraction.conv.geometry import Image, staged_windows, whole_image
from ..contraction.conv.stage import each_row, each_staged, each_tap, stage_function, together
from ..contraction.writer import whole_lines
from ..scalar.dispatch import emit_expr
from ..text.array import Array
from ..text.emitter import Carried, Emitter, Index
from ..text.tiles import each_tile, each_vector
from ..text.types import splat, symbol_of, value_type, vector


def pool_kernel(node: Node, target: Target) -> Kernel:
    """The kernel of a ``pool`` or ``unpool`` node of float32 or float64 whose tensors are not empty."""
    first, last = node.inputs[0].tensor, node.outputs[0].tensor
    forward = node.op.name == "pool"
    windows = pool_windows(node.attrs, (first if forward else last).shape[2:], (last if forward else first).shape[2:])
    symbol = symbol_of(f"{node.op.name}_{'x'.join(map(str, windows.size))}", node.op.name, sorted(node.attrs.items()),
                       first, len(node.inputs), target)
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

    def geometry(self) -> tuple[Image, tuple[int, ...]]:
        """The staged image of a channel, and the offset of every tap in it."""
        return staged_windows(self.windows)

    def array(self, slot: int, element: str = "") -> Array:
        """The array in a slot."""
        return Array(self.em, element or self.element, self.width, self.em.slot(slot))

    def own(self, slot: int, images: int = 1) -> Array:
        """The scratch of this thread, for so many channels."""
        return self.array(slot).at(self.em.tid * (images * self.staged))

    def number(self, tap: Index) -> str:
        """A vector of copies of the number of a tap."""
        if isinstance(tap, int):
            return splat("i32", self.width, tap)
        return self.em.broadcast("i32", self.width, self.em.value(f"trunc i64 {tap} to i32"))

    def each_vector(self) -> Iterator[tuple[Index, Index, int]]:
        """Loops over the vectors of windows along the last axis: offset in the image, position, valid lanes."""
        return each_vector(self.em, self.windows.out, self.image.steps, self.width)


class _Pool(_Planes):
    """Writes ``pool``: the windows of neighbouring results are neighbours in the staged image."""

    def write(self) -> int:
        """Write the kernel; returns the bytes of scratch each thread needs."""
        em, width = self.em, self.width
        self.fn, self.places = self.node.attrs["fn"], self.node.attrs["places"]
        x, y = self.array(0), self.array(1)
        places = self.array(2, "i32") if self.places else y
        both = self.own(2 + self.places, 2)
        stage = stage_function(em, self.image, 1, self.element, width)
        nothing = splat(self.element, width, float("-inf") if self.fn == "max" else 0.0)
        for i in em.each(0, 2 * self.staged // width * width, width):
            both.store(nothing, i)
        positions = prod(self.windows.out)

        def put(c: Index, place: Array) -> None:
            em.call(stage, x.at(c * self.image.source), place)
        for c, own in each_staged(em, em.chunk(self.channels), put, both, self.staged):
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
        (_, first), *others = enumerate(self.offsets)
        total = Carried([self.ty], [near.load(first)])
        for _, (_, offset) in each_tap(self.em, others, total):
            total.values = [self._combine(total.values[0], near.load(offset))]
        return total.values[0]

    def _find(self, near: Array, total: str) -> str:
        """The number of the first tap that equals the maximum, by lane: from the last one to the first."""
        em, width = self.em, self.width
        *earlier, _ = enumerate(self.offsets)
        found = Carried([vector("i32", width)], [splat("i32", width, len(earlier))])
        for _, (t, offset) in each_tap(em, earlier[::-1], found):
            same = em.value(f"fcmp oeq {self.ty} {near.load(offset)}, {total}")
            found.values = [em.select("i32", width, same, self.number(t), found.values[0])]
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
        positions, size, taps = prod(self.windows.out), prod(self.windows.size), em.table("i64", self.offsets)
        for c in em.each(*em.chunk(self.channels)):
            own.clear(self.image.size)
            source, numbers = g.at(c * positions), places.at(c * positions)
            for t in em.each(0, len(self.offsets)):
                image, wanted = own.at(em.entry(taps, t)), self.number(t)
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
