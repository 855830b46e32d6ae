"""Which nodes, other than loop nests and matrix products, have kernels, and the digest that is a part of their keys."""
from __future__ import annotations

from functools import lru_cache

import kusari.ir
from kusari.ir import Node
from kusari.ir.sources import digest_of_sources

MOVES = frozenset(("assign", "transpose", "broadcast_to", "slice", "pad_slice", "concat"))
SCANS = {"cumsum": "fadd", "cumprod": "fmul"}  # with the instruction that takes the next element in
UNIFORM = frozenset(("random_sample", "random", "ranf", "sample"))  # names that NumPy has for one function


def is_move(node: Node) -> bool:
    """Whether the node only moves data, between tensors of one dtype."""
    if node.op.name not in MOVES or not node.inputs:
        return False
    return len({v.tensor.dtype for v in (*node.inputs, *node.outputs)}) == 1


def is_copied_view(node: Node) -> bool:
    """Whether the node could be a view, if planning had made it one."""
    return node.op.is_view and len(node.inputs) == 1


def is_full(node: Node) -> bool:
    """Whether the node writes one number everywhere."""
    return node.op.name == "full" and node.output.tensor.dtype.kind in "fiub"


def is_pooling(node: Node) -> bool:
    """Whether the node pools, or undoes it, in dtypes that there are instructions for."""
    if node.op.name not in ("pool", "unpool"):
        return False
    first, result = node.inputs[0].tensor, node.outputs[0].tensor
    return first.dtype.kind == "f" and first.dtype.itemsize in (4, 8) and first.size > 0 and result.size > 0


def is_row_access(node: Node) -> bool:
    """Whether the node gathers or scatters whole rows of a table, in dtypes that there are instructions for."""
    if node.op.name not in ("take", "scatter_add"):
        return False
    table, indices = (node.inputs[0], node.inputs[1]) if node.op.name == "take" else (node.output, node.inputs[0])
    dtype = table.tensor.dtype
    return dtype.kind in "fiub" and dtype.itemsize <= 8 and indices.tensor.dtype.kind in "iu" and bool(table.shape)


def is_scan(node: Node) -> bool:
    """Whether the node adds up or multiplies along an axis, in dtypes that there are instructions for."""
    dtype = node.outputs[0].tensor.dtype if node.op.name in SCANS else None
    return dtype is not None and dtype.kind == "f" and dtype.itemsize in (4, 8)


def is_uniform_draw(node: Node) -> bool:
    """Whether the node draws floats in [0, 1) from NumPy's global generator, or a function of them."""
    if node.op.name != "random" or node.attrs["args"] or node.attrs["dist"] not in UNIFORM:
        return False
    kind = node.output.tensor.dtype
    return node.attrs["dtype"] in ("float32", "float64") and kind.kind in "fiub" and kind.itemsize <= 8


@lru_cache(maxsize=1)
def generator_version() -> str:
    """Return a digest of the code that writes kernels: another digest, other texts.

    It is taken from the source files of this package and of ``kusari.ir``.
    """
    return digest_of_sources(__file__, kusari.ir.__file__)
