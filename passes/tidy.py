"""Clean-up: dead code elimination, common subexpression elimination, constant folding."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kusari.ir import Graph, Node, TensorType, Value

from .order import Versions, made_for_caller

FOLD_ELEMENTS = 256  # constants larger than this are computed at every call rather than kept


def remove_dead(graph: Graph) -> Graph:
    """Remove nodes without effect and constants whose values have no reader."""
    kept = needed(graph.nodes, graph.outputs)
    read = {v for i in kept for v in graph.nodes[i].inputs}.union(graph.outputs)
    result = graph.with_nodes([graph.nodes[i] for i in kept])
    consts = tuple(c for c in graph.consts if c[0] in read)
    return result if len(consts) == len(graph.consts) else replace(result, consts=consts)


def needed(nodes: Sequence[Node], outputs: Iterable[Value]) -> list[int]:
    """Return the numbers of the nodes with effects, and of those whose values they or ``outputs`` need, in order."""
    read = set(outputs)
    found: list[int] = []
    for i in range(len(nodes) - 1, -1, -1):
        if nodes[i].has_effect or not read.isdisjoint(nodes[i].outputs):
            found.append(i)
            read.update(nodes[i].inputs)
    return found[::-1]


def merge_common(graph: Graph) -> Graph:
    """Compute once the results that several nodes compute: same op, attributes and operands, no write in between."""
    replaced: dict[Value, Value] = {}
    known: dict[Any, Node] = {}
    nodes: list[Node] = []
    consts: dict[Any, Value] = {}
    frozen: dict[int, Any] = {}  # steps of a loop share their attributes, which live as long as the graph
    for v, array in graph.consts:
        if isinstance(array, np.ndarray) and array.size <= FOLD_ELEMENTS:
            key = (v.type, array.tobytes())
            if consts.setdefault(key, v) is not v:
                replaced[v] = consts[key]
    versions = Versions(graph)
    for i, node in enumerate(graph.nodes):
        node = node.on(replaced)
        if node.has_effect or node.op.key is None:
            nodes.append(node)
            continue
        if (attrs := frozen.get(id(node.attrs))) is None:
            attrs = frozen[id(node.attrs)] = node.op.key(node.attrs)
        key = (node.op, attrs, node.inputs, tuple([v.type for v in node.outputs]),
               tuple([versions.before(i, v) for v in node.inputs]))
        first = known.setdefault(key, node)
        if first is node:
            nodes.append(node)
        else:
            replaced.update(zip(node.outputs, first.outputs, strict=True))
    return graph.with_nodes(nodes, [replaced.get(v, v) for v in graph.outputs])


def fold_constants(graph: Graph) -> Graph:
    """Compute small values that depend on constants only; a caller gets a fresh array of them at each call."""
    known: dict[Value, Any] = {v: a for v, a in graph.consts if isinstance(a, np.ndarray) and a.size <= FOLD_ELEMENTS}
    folded: list[tuple[Value, Any]] = []
    nodes: list[Node] = []
    fresh = made_for_caller(graph)
    for node in graph.nodes:
        foldable = (node.inputs and not node.has_effect and node.op.types is not None
                    and fresh.isdisjoint(node.outputs)
                    and all(v in known for v in node.inputs)
                    and all(isinstance(v.type, TensorType) and v.type.size <= FOLD_ELEMENTS for v in node.outputs))
        if not foldable:
            nodes.append(node)
            continue
        for v, array in zip(node.outputs, node.op.call(node.attrs, *(known[u] for u in node.inputs)), strict=True):
            known[v] = np.array(array, v.tensor.dtype, order="C").reshape(v.shape)
            folded.append((v, known[v]))
    if not folded:
        return graph
    return replace(graph, consts=graph.consts + tuple(folded), nodes=tuple(nodes))
