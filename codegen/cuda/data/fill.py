"""Kernels of ``full``: one number everywhere."""
from __future__ import annotations

from kusari.ir import Kernel, Node

from ...native import is_full
from ..text.kernel import KernelText, int_type
from ..text.types import literal, stored

BLOCK_THREADS = 256
MOST_BLOCKS = 4096


def fill_kernel(node: Node) -> Kernel | None:
    """The kernel of a ``full`` node, None for other nodes; its slot is the output."""
    if not is_full(node):
        return None
    kind = node.output.tensor
    text = KernelText("fill", BLOCK_THREADS, [kind.dtype], int_type(kind.size))
    wide = text.index
    with text.block(f"for ({wide} u = BLOCK * ({wide}){BLOCK_THREADS} + THREAD; u < {kind.size}; "
                    f"u += BLOCKS * ({wide}){BLOCK_THREADS})"):
        text.line(f"p0[u] = {stored(kind.dtype, literal(node.attrs['value'], kind.dtype))};")
    return text.kernel(min(MOST_BLOCKS, -(-kind.size // BLOCK_THREADS)), 0, kind.nbytes)
