"""Lowering: ops of the frontend become primitives, each by its own ``lower``."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kusari.ir import Arg, Builder, Graph, Node, Value, copied


class LowerError(Exception):
    """An op's ``lower`` returned values that do not fit the node; the message names the op and the user's line."""


def lower(graph: Graph) -> Graph:
    """Replace every node whose op has a ``lower`` by the nodes that builds, repeatedly until none is left.

    An op may decline a node by returning None; the node then stays. Nodes of equal ops, attributes and types lower
    alike, so an op is asked once for all steps of a loop.
    """
    forms: dict[Any, _Form] = {}
    nodes: list[Node] = []
    replaced: dict[Value, Value] = {}
    waiting = [(node, 0) for node in reversed(graph.nodes)]
    state = graph.written()
    while waiting:
        node, level = waiting.pop()
        node = node.on({v: latest(replaced, v) for v in node.inputs})
        built = _expand(node, forms) if node.op.lower is not None else None
        if built is None:
            nodes.append(node)
            continue
        if level > 50:
            raise LowerError(f"{node.op.name} at {node.where} lowers to itself")
        inner, outputs = built
        if any(v in state for v in outputs):
            # The op returns a param itself: its result must not change when the param is written to.
            b = Builder(node.where)
            outputs = tuple(b.map(Arg(0), v) if v in state else v for v in outputs)
            inner = [*inner, *b.nodes]
        for old, new in zip(node.outputs, outputs, strict=True):
            replaced[old] = new
            if old.hint and not new.hint and any(new in n.outputs for n in inner):
                new.hint = old.hint
        waiting += [(n, level + 1) for n in reversed(inner)]
    # A lowered node may return a value that another lowered node made.
    return graph.with_nodes(nodes, [latest(replaced, v) for v in graph.outputs])


def latest(replaced: Mapping[Value, Value], v: Value) -> Value:
    """Return the value that replaces ``v`` in the end, or ``v`` itself."""
    while v in replaced:
        v = replaced[v]
    return v


class _Form(NamedTuple):
    """The nodes of a lowering and its results, all but the operands on values of their own."""

    inputs: tuple[Value, ...]
    nodes: list[Node]
    outputs: tuple[Value, ...]

    @classmethod
    def of(cls, node: Node, inner: list[Node], outputs: tuple[Value, ...]) -> _Form | None:
        """The form of a lowering; None if it reads other values than the node does."""
        known = {*node.inputs, *(v for n in inner for v in n.outputs)}
        if not known.issuperset((*outputs, *(v for n in inner for v in n.inputs))) or any(
                n.where != node.where for n in inner):
            return None
        new = {v: v for v in node.inputs}
        return cls(node.inputs, copied(inner, new), tuple([new[v] for v in outputs]))

    def on(self, node: Node) -> tuple[list[Node], tuple[Value, ...]]:
        """The same lowering for another node."""
        new = dict(zip(self.inputs, node.inputs, strict=True))
        return copied(self.nodes, new, node.where), tuple([new[v] for v in self.outputs])


def _expand(node: Node, forms: dict[Any, _Form]) -> tuple[list[Node], tuple[Value, ...]] | None:
    assert node.op.lower is not None
    key: Any = None
    if node.op.key is not None:
        first: dict[Value, int] = {}
        same = tuple([first.setdefault(v, i) for i, v in enumerate(node.inputs)])
        key = node.op, node.op.key(node.attrs), tuple([v.type for v in node.inputs]), same, tuple(
            [v.type for v in node.outputs])
        form = forms.get(key)
        if form is not None:
            return form.on(node)
    b = Builder(node.where)
    result: Any = node.op.lower(b, node.attrs, *node.inputs)
    if result is None:
        return None
    outputs: tuple[Value, ...] = (result,) if isinstance(result, Value) else tuple(result)
    expected = [v.type for v in node.outputs]
    if [v.type for v in outputs] != expected:
        raise LowerError(f"{node.op.name} at {node.where} should lower to {expected}, got {[v.type for v in outputs]}")
    if key is not None and (form := _Form.of(node, b.nodes, outputs)) is not None:
        forms[key] = form
    return b.nodes, outputs
