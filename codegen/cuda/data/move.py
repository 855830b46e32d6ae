"""Kernels that only move data: neighbouring threads write neighbouring elements, and packs where all is a multiple.

Where the source runs along another axis than the result, squares of it pass through shared memory.
"""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import prod

from kusari.ir import Kernel, Node

from ...copies import Axis, Copy, carrier_of, copies_of, in_parts, simple, strides_of
from ...native import is_copied_view, is_move
from ..text.kernel import KernelText, affine, int_type
from ..text.types import storage_name

BLOCK_THREADS = 256
MOST_BLOCKS = 4096
PACK_BYTES = 16
TILE_ELEMENTS = 32       # of a square's side
LEAST_TILE_ELEMENTS = 8  # of an axis that is worth a square


def move_kernel(node: Node) -> Kernel | None:
    """The kernel of a node that moves data, None for other nodes; slots are its inputs, then its outputs.

    For ``assign`` the slots are the new value, then the state.
    """
    if not is_move(node) and not is_copied_view(node):
        return None
    sources, (out,) = (node.inputs[1:], node.inputs[:1]) if node.op.name == "assign" else (node.inputs, node.outputs)
    parts, carrier = carrier_of(out.tensor.dtype)
    index = int_type(parts * max(v.tensor.size for v in (*sources, out)))
    text = KernelText(f"move_{node.op.name}", BLOCK_THREADS, [carrier] * (len(sources) + 1), index)
    writer = _Mover(text, carrier.itemsize)
    copies = [in_parts(c, parts) for c in copies_of(node)]
    if node.op.name == "pad_slice":
        blocks = writer.pad(copies[0], [*out.shape, parts])
    else:
        placed = node.attrs.get("placed", ())  # operands that are in place already
        wanted = [(k, simple(c)) for k, c in enumerate(copies)
                  if not (k < len(placed) and placed[k]) and all(a.extent for a in c.axes)]
        blocks = writer.copies(wanted)
    return text.kernel(blocks, 0, out.tensor.nbytes + sum(v.tensor.nbytes for v in sources))


class _Mover:
    """Writes copies of elements of ``itemsize`` bytes; the result is the last operand."""

    def __init__(self, text: KernelText, itemsize: int) -> None:
        self.text = text
        self.itemsize = itemsize
        self.target = f"p{len(text.operands) - 1}"
        self._tile = ""

    def copies(self, copies: Sequence[tuple[int, Copy]]) -> int:
        """Every copy has blocks of its own; returns their number."""
        if any(self._across(c) >= 0 for _, c in copies):
            storage = storage_name(self.text.operands[0])
            self._tile = self.text.shared(storage, TILE_ELEMENTS * (TILE_ELEMENTS + 1))
        total = 0
        most = max(1, MOST_BLOCKS // max(1, len(copies)))
        for k, copy in copies:
            across = self._across(copy)
            blocks = self._tiles_of(copy, across) if across >= 0 else min(most, self._blocks(copy))
            one = len(copies) == 1
            head = "" if one else f"if (BLOCK >= {total} && BLOCK < {total + blocks})"
            with self.text.block(head):
                self.text.line(f"const int block = BLOCK - {total};")
                if across >= 0:
                    self._squares(f"p{k}", copy, across)
                else:
                    self._flat(f"p{k}", copy, blocks)
            total += blocks
        return total

    def _turns(self, units: int, blocks: int) -> AbstractContextManager[None]:
        wide = self.text.index
        return self.text.block(f"for ({wide} u = block * ({wide}){BLOCK_THREADS} + THREAD; u < {units}; "
                               f"u += ({wide}){blocks * BLOCK_THREADS})")

    def _lanes(self, copy: Copy) -> int:
        """Neighbours in both buffers that move at once."""
        inner, lanes = copy.axes[-1], PACK_BYTES // self.itemsize
        if inner.source != 1 or inner.target != 1:
            return 1
        others = [inner.extent, copy.start, copy.to, *(s for a in copy.axes[:-1] for s in (a.source, a.target))]
        while any(n % lanes for n in others):
            lanes //= 2
        return lanes

    def _blocks(self, copy: Copy) -> int:
        return -(-prod(a.extent for a in copy.axes) // self._lanes(copy) // BLOCK_THREADS)

    def _flat(self, source: str, copy: Copy, blocks: int) -> None:
        """Element after element of the result, or pack after pack."""
        text, lanes = self.text, self._lanes(copy)
        axes = [*copy.axes[:-1], Axis(copy.axes[-1].extent // lanes, copy.axes[-1].source * lanes,
                                      copy.axes[-1].target * lanes)]
        if lanes > 1:
            addresses = f"(ADDRESS({source}) | ADDRESS({self.target}))"
            text.line(f"const bool aligned = {addresses} % {lanes * self.itemsize} == 0;")
        with self._turns(prod(a.extent for a in axes), blocks):
            self._indices("u", axes)
            there = affine([(f"i{d}", a.target) for d, a in enumerate(axes)], text.index, copy.to)
            here = affine([(f"i{d}", a.source) for d, a in enumerate(axes)], text.index, copy.start)
            self.element(f"{self.target} + ({there})", f"{source} + ({here})", lanes)

    def element(self, there: str, here: str, lanes: int) -> None:
        """Copy an element or a pack between two addresses."""
        text = self.text
        if lanes == 1:
            text.line(f"*({there}) = *({here});")
            return
        pack = text.pack(text.operands[-1], lanes)
        text.line(f"if (aligned) *(GLOBAL {pack} *)({there}) = *(GLOBAL const {pack} *)({here});")
        text.line(f"else for (int lane = 0; lane < {lanes}; ++lane) ({there})[lane] = ({here})[lane];")

    def _indices(self, number: str, axes: Sequence[Axis]) -> None:
        inner = 1
        for d in range(len(axes) - 1, -1, -1):
            text = number if inner == 1 else f"{number} / {inner}"
            self.text.line(f"const {self.text.index} i{d} = {text if d == 0 else f'{text} % {axes[d].extent}'};")
            inner *= axes[d].extent

    # Squares

    def _across(self, copy: Copy) -> int:
        """The axis along which the source is contiguous, if that is not the innermost; else -1."""
        inner = copy.axes[-1]
        if inner.target != 1 or abs(inner.source) <= 1 or inner.extent < LEAST_TILE_ELEMENTS:
            return -1
        return next((i for i, a in enumerate(copy.axes[:-1]) if a.source == 1 and a.extent >= LEAST_TILE_ELEMENTS), -1)

    def _tiles_of(self, copy: Copy, across: int) -> int:
        sides = [-(-copy.axes[d].extent // TILE_ELEMENTS) if d in (across, len(copy.axes) - 1) else copy.axes[d].extent
                 for d in range(len(copy.axes))]
        return prod(sides)

    def _squares(self, source: str, copy: Copy, across: int) -> None:
        """One square for a block: rows of the source become columns of the result."""
        text, tile, side, last = self.text, self._tile, TILE_ELEMENTS, len(copy.axes) - 1
        tiled = [Axis(-(-a.extent // side) if d in (across, last) else a.extent, a.source, a.target)
                 for d, a in enumerate(copy.axes)]
        self._indices("block", tiled)
        rest = [(f"i{d}", a) for d, a in enumerate(copy.axes) if d not in (across, last)]
        a, i = copy.axes[across], copy.axes[last]
        text.line(f"const int column = THREAD % {side}, line = THREAD / {side};")
        lines = BLOCK_THREADS // side
        here = affine([(n, x.source) for n, x in rest], text.index, copy.start)
        there = affine([(n, x.target) for n, x in rest], text.index, copy.to)
        with text.block(f"for (int k = line; k < {side}; k += {lines})"):
            text.line(f"const {text.index} along = i{across} * {side} + column, row = i{last} * {side} + k;")
            text.line(f"if (along < {a.extent} && row < {i.extent}) "
                      f"{tile}[k * {side + 1} + column] = {source}[{here} + along + row * {i.source}];")
        text.line("BARRIER;")
        with text.block(f"for (int k = line; k < {side}; k += {lines})"):
            text.line(f"const {text.index} along = i{across} * {side} + k, row = i{last} * {side} + column;")
            text.line(f"if (along < {a.extent} && row < {i.extent}) "
                      f"{self.target}[{there} + along * {a.target} + row] = {tile}[column * {side + 1} + k];")

    # Zeros around

    def pad(self, copy: Copy, shape: Sequence[int]) -> int:
        """Every element of the result is one of the source or zero; returns the number of blocks."""
        text, size = self.text, prod(shape)
        blocks = max(1, min(MOST_BLOCKS, -(-size // BLOCK_THREADS)))
        strides = strides_of(shape)
        axes = list(copy.axes) + [Axis(1, 1, 1)] * (len(shape) - len(copy.axes))
        whole = [Axis(n, 0, s) for n, s in zip(shape, strides, strict=True)]
        text.line("const int block = BLOCK;")
        with self._turns(size, blocks):
            self._indices("u", whole)
            tests: list[str] = []
            terms: list[tuple[str, int]] = []
            left = copy.to
            for d, (a, stride) in enumerate(zip(axes, strides, strict=True)):
                first, left = left // stride if stride else 0, left % stride if stride else left
                step = a.target // stride if stride else 1
                sign = 1 if step > 0 else -1
                away = f"(i{d} - {first})" if sign > 0 else f"({first} - i{d})"
                tests += [f"{away} >= 0", f"{away} < {a.extent * abs(step)}"]
                tests += [f"{away} % {abs(step)} == 0"] if abs(step) > 1 else []
                terms.append((f"({away} / {abs(step)})" if abs(step) > 1 else away, a.source))
            here = affine(terms, text.index, copy.start)
            text.line(f"{self.target}[u] = {' && '.join(tests)} ? p0[{here}] : 0;")
        return blocks
