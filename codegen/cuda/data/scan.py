"""Kernels of ``cumsum`` and ``cumprod``: a thread for each line whose neighbours lie beside it, else a block."""
from __future__ import annotations

from math import prod

from kusari.ir import Kernel, Node

from ...native import is_scan
from ..scalar.scalars import spell
from ..text.kernel import KernelText, int_type
from ..text.types import type_name

BLOCK_THREADS = 256
_STEPS = {"cumsum": "add", "cumprod": "multiply"}


def scan_kernel(node: Node) -> Kernel | None:
    """The kernel of ``cumsum`` or ``cumprod``; None for other nodes and dtypes it does not handle."""
    if not is_scan(node):
        return None
    shape, axis, dtype = node.output.shape, int(node.attrs["axis"]), node.output.tensor.dtype
    outer, n, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1:])
    text = KernelText(node.op.name, BLOCK_THREADS, [dtype, dtype], int_type(node.output.tensor.size))
    reverse, fn = bool(node.attrs.get("reverse")), _STEPS[node.op.name]
    place = f"{n - 1} - k" if reverse else "k"
    type_, wide = type_name(dtype), text.index

    def combined(a: str, b: str) -> str:
        return spell(fn, [a, b], [dtype, dtype], text.helpers)
    if not node.output.tensor.size:
        blocks = 0
    elif inner > 1:
        lines = outer * inner
        text.line(f"const {wide} line = BLOCK * ({wide}){BLOCK_THREADS} + THREAD;")
        with text.block(f"if (line < {lines})"):
            text.line(f"const {wide} start = line / {inner} * {n * inner} + line % {inner};")
            text.line(f"{type_} total = p0[start + ({f'{n - 1}' if reverse else '0'}) * {inner}];")
            with text.block(f"for ({wide} k = 0; k < {n}; ++k)"):
                text.line(f"const {wide} at = start + ({place}) * {inner};")
                text.line(f"if (k > 0) total = {combined('total', 'p0[at]')};")
                text.line("p1[at] = total;")
        blocks = -(-lines // BLOCK_THREADS)
    else:
        _block_scan(text, n, place, type_, combined("array[THREAD]", "other"), combined("carry", "array[THREAD]"))
        blocks = outer
    return text.kernel(blocks, node.output.tensor.size, 2 * node.output.tensor.nbytes)


def _block_scan(text: KernelText, n: int, place: str, type_: str, pair: str, carried: str) -> None:
    """A line of neighbours in memory: parts of as many as a block has threads, each added to those before."""
    array, wide = text.shared(type_, BLOCK_THREADS), text.index
    text.line(f"{type_} carry = 0;")
    with text.block(f"for ({wide} begin = 0; begin < {n}; begin += {BLOCK_THREADS})"):
        text.line(f"const {wide} k = begin + THREAD;")
        text.line(f"const {wide} at = BLOCK * ({wide}){n} + ({place});")
        text.line(f"if (k < {n}) {array}[THREAD] = p0[at];")
        text.line("BARRIER;")
        with text.block(f"for (int reach = 1; reach < {BLOCK_THREADS}; reach *= 2)"):
            text.line(f"{type_} other = 0;")
            text.line(f"if (THREAD >= reach) other = {array}[THREAD - reach];")
            text.line("BARRIER;")
            text.line(f"if (THREAD >= reach && k < {n}) {array}[THREAD] = {pair.replace('array', array)};")
            text.line("BARRIER;")
        text.line(f"{type_} total = 0;")
        text.line(f"if (k < {n}) total = begin == 0 ? {array}[THREAD] : {carried.replace('array', array)};")
        text.line(f"if (k < {n}) p1[at] = total;")
        text.line("BARRIER;")
        text.line(f"if (THREAD == {BLOCK_THREADS - 1}) {array}[THREAD] = total;")
        text.line("BARRIER;")
        text.line(f"carry = {array}[{BLOCK_THREADS - 1}];")
        text.line("BARRIER;")
