"""Horizontal fusion: the same update of many parameters becomes one ``foreach`` node."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kusari.ir import PRIMITIVES, Arg, Expr, Graph, Node, Value, substitute
from kusari.ir.alignment import NotANest
from kusari.ir.product import pointwise_exprs

from .analysis import only_assigned
from .order import Partition, dependencies


def foreach(graph: Graph) -> Graph:
    """Join independent updates that differ only in the tensors they work on; the same graph when there are none.

    An update is an elementwise node whose results only become new state. Runs after ``fuse``, which makes one node of
    all computation for a parameter.
    """
    users = graph.users()
    outputs = dict.fromkeys(graph.outputs)
    found: dict[Any, dict[int, tuple[Value, ...]]] = {}  # the tensors of each update, by the shared rest
    for i, node in enumerate(graph.nodes):
        if not all(v not in outputs and only_assigned(users[v]) for v in node.outputs):
            continue
        if (form := _form(node)) is not None:
            found.setdefault(form[0], {})[i] = form[1]
    if all(len(rows) < 2 for rows in found.values()):
        return graph
    partition = Partition(dependencies(graph))
    merged: dict[int, list[Node]] = {}
    for key, rows in found.items():
        for run in partition.join_runs(rows):
            if len(run) > 1:
                merged[run[0]] = [_join(graph, key[0], key[1], run, [rows[i] for i in run])]
    return partition.arranged(graph, merged) if merged else graph


def _form(node: Node) -> tuple[Any, tuple[Value, ...]] | None:
    """The node as expressions over shared scalars and tensors of its own, or None.

    Nodes that may be joined have equal keys, whose first entries are the expressions and the scalars.
    """
    if node.op.name == "fused":
        try:
            exprs = pointwise_exprs(node.attrs["body"])
        except NotANest:
            return None
    elif node.op.name == "map":
        exprs = (node.attrs["expr"],)
    else:
        return None
    shape = node.outputs[0].shape
    own = [v for v in node.inputs if v.shape == shape]
    shared = [v for v in node.inputs if v.shape == () and shape != ()]
    if not own or len(own) + len(shared) != len(node.inputs) or any(v.shape != shape for v in node.outputs):
        return None
    if any(v.tensor.dtype.kind not in "fiub" or v.tensor.dtype.itemsize > 8 for v in (*node.inputs, *node.outputs)):
        return None
    order = {v: k for k, v in enumerate((*shared, *own))}
    args: list[Expr] = [Arg(order[v]) for v in node.inputs]
    written = tuple(substitute(e, args) for e in exprs)
    key = (written, tuple(shared), tuple(v.tensor.dtype for v in own), shape == (), own[0].tensor.device)
    return key, tuple(own)


def _join(graph: Graph, exprs: tuple[Expr, ...], shared: tuple[Value, ...], run: Sequence[int],
          rows: Sequence[tuple[Value, ...]]) -> Node:
    inputs = (*shared, *(v for own in rows for v in own))
    outputs = tuple(v for i in run for v in graph.nodes[i].outputs)
    attrs = {"exprs": exprs, "shared": len(shared), "arity": len(rows[0])}
    return Node(PRIMITIVES["foreach"], inputs, outputs, attrs, graph.nodes[run[0]].where)
