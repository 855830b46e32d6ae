"""LLVM IR text of kernels that only move data: copies between strided views of two buffers."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from kusari.ir import DType, Kernel, Node, joint_offsets

from ...native import is_move
from ...target import Target
from ..text.emitter import Emitter, Index
from ..text.types import memory_type

LEAST_PARTS = 16  # of a loop, for threads to share it


@dataclass(frozen=True)
class Axis:
    """One loop of a copy; strides in elements, those of the source may be 0 or negative."""

    extent: int
    source: int
    target: int


@dataclass(frozen=True)
class Copy:
    """``target[to + sum(i * a.target)] = source[start + sum(i * a.source)]`` for all ``i`` of all axes."""

    axes: tuple[Axis, ...]
    start: int = 0
    to: int = 0


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements."""
    return tuple(prod(shape[i + 1:]) for i in range(len(shape)))


def copies_of(node: Node) -> list[Copy]:
    """Return the copies that a node makes, one per input; ``pad_slice`` also writes zeros."""
    shapes = [v.shape for v in node.inputs]
    attrs, name = node.attrs, node.op.name
    if name == "assign":
        return [_copy(shapes[1], strides_of(shapes[1]), strides_of(shapes[1]))]
    out = strides_of(node.output.shape)
    source = strides_of(shapes[0])
    if name == "transpose":
        order: tuple[int, ...] = attrs["axes"]
        return [_copy(node.output.shape, [source[a] for a in order], out)]
    if name == "broadcast_to":
        lead = (0,) * (len(out) - len(source))
        walk = lead + tuple(0 if n == 1 else s for n, s in zip(shapes[0], source, strict=True))
        return [_copy(node.output.shape, walk, out)]
    if name in ("slice", "pad_slice"):
        starts, steps = attrs["starts"], attrs["steps"]
        if name == "slice":
            walk = [s * k for s, k in zip(source, steps, strict=True)]
            return [_copy(node.output.shape, walk, out, sum(a * s for a, s in zip(starts, source, strict=True)))]
        walk = [s * k for s, k in zip(out, steps, strict=True)]
        return [_copy(shapes[0], source, walk, 0, sum(a * s for a, s in zip(starts, out, strict=True)))]
    assert name == "concat"
    axis: int = attrs["axis"]
    at, result = 0, list[Copy]()
    for shape in shapes:
        result.append(_copy(shape, strides_of(shape), out, 0, at * out[axis]))
        at += shape[axis]
    return result


def _copy(shape: Sequence[int], source: Sequence[int], target: Sequence[int], start: int = 0, to: int = 0) -> Copy:
    return Copy(tuple(map(Axis, shape, source, target)), start, to)


def _simple(copy: Copy) -> Copy:
    """The same copy with as few loops as possible."""
    axes: list[Axis] = []
    for a in copy.axes:
        if a.extent == 1:
            continue
        before = axes[-1] if axes else None
        if before and before.source == a.source * a.extent and before.target == a.target * a.extent:
            axes[-1] = Axis(before.extent * a.extent, a.source, a.target)
        else:
            axes.append(a)
    return Copy(tuple(axes) or (Axis(1, 1, 1),), copy.start, copy.to)


def move_kernel(node: Node, target: Target) -> Kernel | None:
    """Return the kernel of a node that moves data, None for other nodes; slots are its inputs, then its outputs.

    For ``assign`` the slots are the new value, then the state.
    """
    if not is_move(node):
        return None
    if (block := _even_blocks(node)):
        return _concat_blocks(node, block, target)
    copies = copies_of(node)
    sources, (out,) = (node.inputs[1:], node.inputs[:1]) if node.op.name == "assign" else (node.inputs, node.outputs)
    dtype = out.tensor.dtype
    parts, carrier = _carrier(dtype)
    symbol = f"move_{node.op.name}"
    em = Emitter(symbol, target)
    pointers = [em.slot(i) for i in range(len(sources) + 1)]
    if node.op.name == "pad_slice":
        _pad(em, _in_parts(copies[0], parts), pointers, carrier, [n for n in out.shape] + [parts])
    else:
        placed = node.attrs.get("placed", (False,) * len(copies))  # operands that are in place already
        for copy, pointer, is_there in zip(copies, pointers, placed, strict=False):
            if not is_there:
                _Mover(em, carrier, pointer, pointers[-1]).write(_simple(_in_parts(copy, parts)))
    moved = out.tensor.nbytes + sum(v.tensor.nbytes for v in sources)
    return Kernel("llvm", symbol, em.text(), 0, 0, moved)


LOOP_BLOCKS = 8  # from this number on a loop moves them: text for each takes its time to compile


def _even_blocks(node: Node) -> int:
    """The bytes of each operand of a ``concat`` of many blocks of equal size; 0 for other nodes."""
    if node.op.name != "concat" or len(node.inputs) < LOOP_BLOCKS or not joint_offsets(node) or "placed" in node.attrs:
        return 0
    sizes = {v.tensor.nbytes for v in node.inputs}
    return sizes.pop() if len(sizes) == 1 else 0


def _concat_blocks(node: Node, size: int, target: Target) -> Kernel:
    """Threads share the operands."""
    em = Emitter("move_concat", target)
    em.declare("void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    out = em.slot(len(node.inputs))
    lo, hi = em.chunk(len(node.inputs))

    @em.each(lo, hi)
    def block(i: Index) -> None:
        place = em.gep(out, em.mul(i, size), "i8")
        em.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr {em.slot(i)}, i64 {size}, i1 false)")
    return Kernel("llvm", "move_concat", em.text(), 0, 0, 2 * node.output.tensor.nbytes)


def _carrier(dtype: DType) -> tuple[int, DType]:
    """Integers that carry the bits of an element, and how many of them."""
    size = dtype.itemsize
    return (1, np.dtype(f"uint{8 * size}")) if size <= 8 else (size // 8, np.dtype("uint64"))


def _in_parts(copy: Copy, parts: int) -> Copy:
    if parts == 1:
        return copy
    axes = tuple(Axis(a.extent, a.source * parts, a.target * parts) for a in copy.axes)
    return Copy((*axes, Axis(parts, 1, 1)), copy.start * parts, copy.to * parts)


class _Mover:
    """Writes one copy; threads share its first loop that is long enough."""

    def __init__(self, em: Emitter, dtype: DType, source: str, target: str) -> None:
        self.em, self.dtype, self.source, self.target = em, dtype, source, target
        self.width = em.target.lanes(dtype.itemsize)

    def write(self, copy: Copy, bounds: tuple[Index, Index] | None = None) -> None:
        """Write all loops; ``bounds`` restrict the first one in place of sharing."""
        if any(a.extent == 0 for a in copy.axes):
            return
        axes = list(copy.axes)
        tile = self._tile(axes)
        inner = axes.pop()
        across = axes.pop(tile) if tile >= 0 else None
        loops = [*axes, *([across] if across else []), inner]
        step = [1] * len(axes) + ([self.width] if across else []) + [self.width]
        part = self._shared(loops, step) if bounds is None else 0

        def limits(level: int) -> tuple[Index, Index]:
            if level != part:
                return 0, loops[level].extent
            return bounds if bounds is not None else self.em.chunk(loops[level].extent, step[level])

        def open_(level: int, start: Index, to: Index) -> None:
            if level == len(axes):
                if across:
                    self._tiles(across, inner, limits(level), limits(level + 1), start, to)
                else:
                    self._line(inner, limits(level), start, to)
                return
            a = axes[level]
            self.em.loop(*limits(level), 1, lambda i, _: open_(
                level + 1, self._at(start, i, a.source), self._at(to, i, a.target)))
        open_(0, copy.start, copy.to)

    def _at(self, base: Index, i: Index, stride: int) -> Index:
        return self.em.add(base, self.em.mul(i, stride))

    def _shared(self, loops: Sequence[Axis], step: Sequence[int]) -> int:
        parts = [-(-a.extent // s) for a, s in zip(loops, step, strict=True)]
        for i, n in enumerate(parts):
            if n >= LEAST_PARTS:
                return i
        return parts.index(max(parts))

    def _tile(self, axes: Sequence[Axis]) -> int:
        """The loop along which the source is contiguous, if that is not the innermost; else -1."""
        inner = axes[-1]
        if inner.target != 1 or abs(inner.source) <= 1 or self.width < 4 or inner.extent < self.width // 2:
            return -1
        return next((i for i, a in enumerate(axes[:-1]) if a.source == 1 and a.extent >= self.width // 2), -1)

    def _line(self, a: Axis, limits: tuple[Index, Index], start: Index, to: Index) -> None:
        """One run of the innermost loop, a vector at a time."""
        em, w = self.em, self.width

        def vector(i: Index, width: int, valid: int | None = None) -> None:
            x = em.read(self.dtype, width, self.source, self._at(start, i, a.source), a.source, valid)
            em.write(self.dtype, width, x, self.target, self._at(to, i, a.target), a.target, valid)
        lo, hi = limits
        if isinstance(lo, int) and isinstance(hi, int):
            whole = lo + (hi - lo) // w * w
            em.loop(lo, whole, w, lambda i, _: vector(i, w))
            if whole < hi:
                vector(whole, w, hi - whole)
            return
        count = em.sub(hi, lo)
        whole = em.add(lo, em.mul(em.div(em.max(count, 0), w), w))
        em.loop(lo, whole, w, lambda i, _: vector(i, w))
        em.loop(whole, hi, 1, lambda i, _: vector(i, 1))

    def _tiles(self, across: Axis, inner: Axis, rows: tuple[Index, Index], columns: tuple[Index, Index],
               start: Index, to: Index) -> None:
        """Squares of ``width`` by ``width``: rows of the source become columns of the target in registers."""
        em, w = self.em, self.width

        def edge(i: Index, n: Index) -> tuple[Index, Index]:
            whole = em.add(i, em.mul(em.div(em.max(em.sub(n, i), 0), w), w))
            return whole, n

        def square(i: Index, j: Index) -> None:
            here, there = self._at(self._at(start, i, across.source), j, inner.source), \
                self._at(self._at(to, i, across.target), j, inner.target)
            lines = [em.read(self.dtype, w, self.source, em.add(here, k * inner.source)) for k in range(w)]
            for k, line in enumerate(em.transpose(memory_type(self.dtype), lines)):
                em.write(self.dtype, w, line, self.target, em.add(there, k * across.target))

        def single(i: Index, j: Index) -> None:
            x = em.read(self.dtype, 1, self.source, self._at(self._at(start, i, across.source), j, inner.source))
            em.write(self.dtype, 1, x, self.target, self._at(self._at(to, i, across.target), j, inner.target))
        row_stop, row_end = edge(*rows)
        column_stop, column_end = edge(*columns)
        em.loop(rows[0], row_stop, w, lambda i, _: em.loop(
            columns[0], column_stop, w, lambda j, _: square(i, j)))
        em.loop(rows[0], row_end, 1, lambda i, _: em.loop(
            column_stop, column_end, 1, lambda j, _: single(i, j)))
        em.loop(row_stop, row_end, 1, lambda i, _: em.loop(
            columns[0], column_stop, 1, lambda j, _: single(i, j)))


def zero(em: Emitter, pointer: str, element: str, begin: Index, end: Index, itemsize: int) -> None:
    """Write zeros to the elements ``begin`` … ``end - 1``."""
    size = em.mul(em.max(em.sub(end, begin), 0), itemsize)
    em.clear(em.gep(pointer, begin, element), size)


def _pad(em: Emitter, copy: Copy, pointers: Sequence[str], dtype: DType, shape: Sequence[int]) -> None:
    """Every thread clears its part of the result along the first axis and copies the source's elements into it."""
    axes = [a if a.target >= 0 else Axis(a.extent, -a.source, -a.target) for a in copy.axes]
    to = copy.to + sum(a.target * (a.extent - 1) for a in copy.axes if a.target < 0)
    start = copy.start + sum(a.source * (a.extent - 1) for a in copy.axes if a.target < 0)
    strides = strides_of(shape)
    first = next((i for i, n in enumerate(shape) if n != 1), 0)
    if prod(shape) == 0:
        return
    lo, hi = em.chunk(shape[first])
    zero(em, pointers[1], memory_type(dtype), em.mul(lo, strides[first]), em.mul(hi, strides[first]), dtype.itemsize)
    if any(a.extent == 0 for a in axes) or len(axes) <= first:
        return
    while len(axes) < len(shape):
        axes.append(Axis(1, 1, 1))
    lead, step = axes[first], max(1, axes[first].target // strides[first])
    offset = to // strides[first] % shape[first]  # the row of the source's first row in the result

    def place(bound: Index) -> Index:
        return em.min(em.div(em.add(em.max(em.sub(bound, offset), 0), step - 1), step), lead.extent)
    rest = _simple(Copy(tuple(axes[first + 1:]), start, to))
    _Mover(em, dtype, pointers[0], pointers[1]).write(
        Copy((Axis(lead.extent, lead.source, lead.target), *rest.axes), start, to), (place(lo), place(hi)))
