"""Sums over the terms of a product's factor come right in front of the product: a library may compute both at once.

A linear layer's gradients are the case: that of the bias is the sum of the rows of y's gradient, which is a factor of
that of the weight. In front of the product its result has memory of its own while the product runs.
"""
from __future__ import annotations

from kusari.ir import Graph, Node
from kusari.ir.product import factor_of_sum, is_sum_of_rows

from .order import dependencies


def sums_beside_products(graph: Graph) -> Graph:
    """Move each sum over the terms of a factor to the first product that has this factor, where that is possible."""
    sums = [n for n in graph.nodes if is_sum_of_rows(n)]
    taken: set[Node] = set()
    for total in sums:
        product = next((n for n in graph.nodes if n not in taken and factor_of_sum(n, total) is not None), None)
        if product is not None:
            taken.add(product)
            graph = _beside(graph, total, product)
    return graph


def _beside(graph: Graph, total: Node, product: Node) -> Graph:
    """The graph with ``total`` right in front of ``product``, if what lies between allows for that."""
    nodes = list(graph.nodes)
    here, there = nodes.index(total), nodes.index(product)
    before = dependencies(graph)
    if here > there:
        if any(j >= there for j in before[here]):
            return graph
    elif here == there - 1 or any(here in before[j] for j in range(here + 1, there + 1)):
        return graph
    nodes.remove(total)
    nodes.insert(nodes.index(product), total)
    return graph.with_nodes(nodes)
