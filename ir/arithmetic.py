"""Arithmetic of products and convolutions, the part of the work that grows faster than the arrays read and written."""
from __future__ import annotations

from math import prod

from .convolution import CONVOLUTIONS
from .graph import Node


def operations(node: Node) -> int:
    """Additions and multiplications of the products and convolutions that ``node`` is or contains, by definition."""
    if node.op.name == "fused":
        return sum(map(operations, node.attrs["body"].nodes))
    if node.op.name == "matmul":
        return 2 * node.output.tensor.size * node.inputs[0].shape[-2 if node.attrs["transa"] else -1]
    if node.op.name not in CONVOLUTIONS:
        return 0
    one, two = node.inputs[:2]
    image, weight = (two, node.output) if node.op.name == "conv_weight" else (
        node.output if node.op.name == "conv" else one, two)
    return 2 * image.tensor.size * prod(weight.shape[1:])
