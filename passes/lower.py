"""Lowering: ops that know how become primitives."""
from __future__ import annotations

from typing import Any

from kusari.ir import Arg, Builder, Graph, Node, Value


class LowerError(Exception):
    """An op's ``lower`` gave something that does not fit the node; the message names the op and the user's line."""


def lower(graph: Graph) -> Graph:
    """Replace every node whose op has a ``lower`` by what that builds, over again until only others are left.

    An op may decline a node by returning None; it then stays as it is.
    """
    nodes: list[Node] = []
    replaced: dict[Value, Value] = {}
    waiting = list(reversed(graph.nodes))
    depth: dict[Node, int] = {}
    state = graph.written()
    while waiting:
        node = waiting.pop()
        if any(v in replaced for v in node.inputs):
            inputs = tuple(_follow(replaced, v) for v in node.inputs)
            fresh = Node(node.op, inputs, node.outputs, node.attrs, node.where)
            depth[fresh] = depth.pop(node, 0)
            node = fresh
        level = depth.pop(node, 0)
        built = _expand(node) if node.op.lower is not None else None
        if built is None:
            nodes.append(node)
            continue
        if level > 50:
            raise LowerError(f"{node.op.name} at {node.where} lowers to itself")
        inner, outputs = built
        if any(v in state for v in outputs):
            # The op hands on a param: what it gives must not change when the param is written to.
            b = Builder(node.where)
            outputs = tuple(b.map(Arg(0), v) if v in state else v for v in outputs)
            inner = [*inner, *b.nodes]
        for old, new in zip(node.outputs, outputs, strict=True):
            replaced[old] = new
            if old.hint and not new.hint and any(new in n.outputs for n in inner):
                new.hint = old.hint
        for n in reversed(inner):
            depth[n] = level + 1
            waiting.append(n)
    # A lowered node may hand on a value that another lowered node made.
    return graph.with_nodes(nodes, [_follow(replaced, v) for v in graph.outputs])


def _follow(replaced: dict[Value, Value], v: Value) -> Value:
    while v in replaced:
        v = replaced[v]
    return v


def _expand(node: Node) -> tuple[list[Node], tuple[Value, ...]] | None:
    assert node.op.lower is not None
    b = Builder(node.where)
    result: Any = node.op.lower(b, node.attrs, *node.inputs)
    if result is None:
        return None
    outputs: tuple[Value, ...] = (result,) if isinstance(result, Value) else tuple(result)
    expected = [v.type for v in node.outputs]
    if [v.type for v in outputs] != expected:
        raise LowerError(f"{node.op.name} at {node.where} should lower to {expected}, got {[v.type for v in outputs]}")
    return b.nodes, outputs
