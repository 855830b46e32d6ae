"""LLVM IR text of kernels that only move data: copies between strided views of two buffers."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from kusari.ir import DType, Kernel, Node, joint_offsets

from ...copies import Axis, Copy, carrier_of, copies_of, in_parts, simple, strides_of
from ...target import Target
from ..text.array import Array
from ..text.emitter import Emitter, Index
from ..text.squares import squares_function
from ..text.tiles import each_run
from ..text.types import memory_type

LEAST_PARTS = 16  # of a loop, for threads to share it


def move_kernel(node: Node, target: Target) -> Kernel:
    """Return the kernel of a node that ``is_move``; slots are its inputs, then its outputs.

    For ``assign`` the slots are the new value, then the state.
    """
    if (kernel := _concat_blocks(node, target)):
        return kernel
    copies = copies_of(node)
    sources, (out,) = (node.inputs[1:], node.inputs[:1]) if node.op.name == "assign" else (node.inputs, node.outputs)
    parts, carrier = carrier_of(out.tensor.dtype)
    symbol = f"move_{node.op.name}"
    em = Emitter(symbol, target)
    pointers = [em.slot(i) for i in range(len(sources) + 1)]
    placed = node.attrs.get("placed", (False,) * len(copies))  # operands that are in place already
    for copy, pointer, is_there in zip(copies, pointers, placed, strict=False):
        mover = _Mover(em, carrier, pointer, pointers[-1])
        if node.op.name == "pad_slice":
            mover.pad(in_parts(copy, parts), [*out.shape, parts])
        elif not is_there:
            mover.write(simple(in_parts(copy, parts)))
    moved = out.tensor.nbytes + sum(v.tensor.nbytes for v in sources)
    return Kernel("llvm", symbol, em.text(), 0, 0, moved)


LOOP_BLOCKS = 8  # from this number on a loop moves them: text for each takes its time to compile


def _concat_blocks(node: Node, target: Target) -> Kernel | None:
    """The kernel of a ``concat`` of many blocks of equal size, of which threads share the operands; None for others."""
    sizes = {v.tensor.nbytes for v in node.inputs}
    if node.op.name != "concat" or len(node.inputs) < LOOP_BLOCKS or len(sizes) > 1 or not all(sizes) or (
            not joint_offsets(node) or "placed" in node.attrs):
        return None
    size, = sizes
    em = Emitter("move_concat", target)
    em.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    out = em.slot(len(node.inputs))
    for i in em.each(*em.chunk(len(node.inputs))):
        place = em.gep(out, i * size, "i8")
        em.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr {em.slot(i)}, i64 {size}, i1 false)")
    return Kernel("llvm", "move_concat", em.text(), 0, 0, 2 * node.output.tensor.nbytes)


class _Mover:
    """Writes one copy; threads share its first loop that is long enough."""

    def __init__(self, em: Emitter, dtype: DType, source: str, target: str) -> None:
        self.em, self.dtype, self.width = em, dtype, em.target.lanes(dtype.itemsize)
        self.source, self.target = (Array(em, memory_type(dtype), self.width, p) for p in (source, target))

    def write(self, copy: Copy, bounds: tuple[Index, Index] | None = None) -> None:
        """Write all loops; ``bounds`` restrict the first one in place of sharing."""
        if any(a.extent == 0 for a in copy.axes):
            return
        axes = list(copy.axes)
        tile = self._tile(axes)
        inner = axes.pop()
        across = axes.pop(tile) if tile >= 0 else None
        loops = [*axes, *([across] if across else []), inner]
        step = [1] * len(axes) + [self.width] * (len(loops) - len(axes))
        parts = [-(-a.extent // s) for a, s in zip(loops, step, strict=True)]
        longest = next((i for i, n in enumerate(parts) if n >= LEAST_PARTS), parts.index(max(parts)))
        part = longest if bounds is None else 0

        def limits(level: int) -> tuple[Index, Index]:
            if level != part:
                return 0, loops[level].extent
            return bounds if bounds is not None else self.em.chunk(loops[level].extent, step[level])

        def open_(level: int, start: Index, to: Index) -> None:
            if level < len(axes):
                a = axes[level]
                for i in self.em.each(*limits(level)):
                    open_(level + 1, self._at(start, i, a.source), self._at(to, i, a.target))
            elif across:
                self._tiles(across, inner, limits(level), limits(level + 1), start, to)
            else:
                self._line(inner, limits(level), start, to)
        open_(0, copy.start, copy.to)

    def _at(self, base: Index, i: Index, stride: int) -> Index:
        return base + i * stride

    def _tile(self, axes: Sequence[Axis]) -> int:
        """The loop along which the source is contiguous, if that is not the innermost; else -1."""
        inner = axes[-1]
        if inner.target != 1 or abs(inner.source) <= 1 or self.width < 4 or inner.extent < self.width // 2:
            return -1
        return next((i for i, a in enumerate(axes[:-1]) if a.source == 1 and a.extent >= self.width // 2), -1)

    def _line(self, a: Axis, limits: tuple[Index, Index], start: Index, to: Index) -> None:
        """One run of the innermost loop, a vector at a time."""
        for i, width, valid in each_run(self.em, *limits, self.width):
            x = self.em.read(self.dtype, width, f"{self.source}", self._at(start, i, a.source), a.source, valid)
            self.em.write(self.dtype, width, x, f"{self.target}", self._at(to, i, a.target), a.target, valid)

    def _tiles(self, across: Axis, inner: Axis, rows: tuple[Index, Index], columns: tuple[Index, Index],
               start: Index, to: Index) -> None:
        """Squares of ``width`` by ``width``: rows of the source become columns of the target in registers."""
        em, w = self.em, self.width

        def whole(i: Index, n: Index) -> Index:
            return i + em.max(n - i, 0) // w * w

        def places(rows: tuple[Index, Index], columns: tuple[Index, Index]) -> Iterator[tuple[Array, Array]]:
            for i in em.each(*rows):
                for j in em.each(*columns):
                    here = self.source.at(self._at(self._at(start, i, across.source), j, inner.source))
                    yield here, self.target.at(self._at(self._at(to, i, across.target), j, inner.target))
        row_stop, column_stop = whole(*rows), whole(*columns)
        element = {4: "float", 8: "double"}.get(self.dtype.itemsize, self.source.element)
        squares = squares_function(em.target, element, w, w)
        for i in em.each(rows[0], row_stop, w):
            here = self._at(self._at(start, i, across.source), columns[0], inner.source)
            there = self._at(self._at(to, i, across.target), columns[0], inner.target)
            em.call(squares, self.source.at(here), self.target.at(there), column_stop - columns[0], inner.source,
                    across.target, inner.source, 1)
        for edge in ((rows, (column_stop, columns[1])), ((row_stop, rows[1]), (columns[0], column_stop))):
            for here, there in places(*edge):
                there.put(here.one())

    def pad(self, copy: Copy, shape: Sequence[int]) -> None:
        """Every thread clears its part of the result along the first axis and copies the source's elements into it."""
        em = self.em
        axes = [a if a.target >= 0 else Axis(a.extent, -a.source, -a.target) for a in copy.axes]
        to = copy.to + sum(a.target * (a.extent - 1) for a in copy.axes if a.target < 0)
        start = copy.start + sum(a.source * (a.extent - 1) for a in copy.axes if a.target < 0)
        strides = strides_of(shape)
        first = next((i for i, n in enumerate(shape) if n != 1), 0)
        if prod(shape) == 0:
            return
        lo, hi = em.chunk(shape[first])
        begin, end = lo * strides[first], hi * strides[first]
        self.target.clear(em.max(end - begin, 0), begin)
        if any(a.extent == 0 for a in axes) or len(axes) <= first:
            return
        axes += [Axis(1, 1, 1)] * (len(shape) - len(axes))
        lead, step = axes[first], max(1, axes[first].target // strides[first])
        offset = to // strides[first] % shape[first]  # the row of the source's first row in the result

        def place(bound: Index) -> Index:
            return em.min((em.max(bound - offset, 0) + (step - 1)) // step, lead.extent)
        rest = simple(Copy(tuple(axes[first + 1:]), start, to))
        self.write(Copy((lead, *rest.axes), start, to), (place(lo), place(hi)))
