"""Products come right in front of the GELU that reads them, or of its gradient: a library may compute both at once."""
from __future__ import annotations

from kusari.ir import Graph, Node
from kusari.ir.gelu import gelu_gradient_in, gelu_in

from .sums_of_factors import beside


def products_beside_gelu(graph: Graph) -> Graph:
    """Move each product to the GELU or to the gradient of one that reads it first, where that is possible."""
    made = graph.producers()
    for node in graph.nodes:
        if (gelu := gelu_in(node)) is not None:
            product = made.get(gelu.x)
        else:
            gradient = gelu_gradient_in(node, made)
            product = None if gradient is None else made.get(gradient.given)
        if product is not None and _multiplies(product):
            graph = beside(graph, product, node)
    return graph


def _multiplies(node: Node) -> bool:
    """Whether a node is a product, with or without an epilogue."""
    return node.op.name == "matmul" or node.op.name == "fused" and any(
        n.op.name == "matmul" for n in node.attrs["body"].nodes)
