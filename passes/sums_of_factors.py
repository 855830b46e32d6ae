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
            graph = beside(graph, total, product)
    return graph


def beside(graph: Graph, first: Node, second: Node) -> Graph:
    """The graph with ``first`` right in front of ``second``, if what lies between allows for that."""
    nodes = list(graph.nodes)
    here, there = nodes.index(first), nodes.index(second)
    before = dependencies(graph)
    if here > there:
        if any(j >= there for j in before[here]):
            return graph
    elif here == there - 1 or any(here in before[j] for j in range(here + 1, there)):
        return graph
    nodes.remove(first)
    nodes.insert(nodes.index(second), first)
    return graph.with_nodes(nodes)
