"""Slices of loop nests: the part of a body that makes one value, alone or inside the nests that read it.

A slice starts from other results of its nest, if those are available: a normalization runs again as some calls per
element on the mean and the deviation that are kept, not as a reduction. The same scalar functions on the same numbers
give the same bits.
"""
from __future__ import annotations

from collections.abc import Collection

from kusari.ir import FUSED, Graph, Node, Value, copied
from kusari.ir.alignment import NotANest
from kusari.ir.costs import INSTRUCTION_PICOSECONDS, node_picoseconds
from kusari.ir.nest import nest_of
from kusari.ir.product import ROOTS

from .canonical import canonical, on_own_values
from .order import Versions
from .regions import MAX_BUFFERS


def slice_of(maker: Node, value: Value, known: Collection[Value]) -> Node | None:
    """Return the nest that makes nothing but ``value``, from the ``known`` results of its maker; None if there is none.

    Its output is a new value.
    """
    if not is_nest(maker) or len(maker.outputs) == 1:
        return None
    inputs, body = _body_of(maker)
    outer = dict(zip(body.inputs, inputs, strict=True))
    inner = dict(zip(maker.outputs, body.outputs, strict=True))
    nodes = body.nodes
    if not _rounds(body):
        there = {inner[v]: v for v in known}
        nodes = tuple([n for n in nodes if n.outputs[0] not in there])
        outer.update(there)
    part = canonical(Graph(body.name, tuple(outer), (), (), nodes, (inner[value],)))
    if not part.nodes:
        return None
    entering = tuple([outer[v] for v in part.inputs])
    part = on_own_values(part)
    try:
        nest_of(part)
    except NotANest:
        return None
    return Node(FUSED, entering, (Value(value.type, value.hint),), {"body": part}, maker.where)


def join(first: Node, reader: Node) -> Node | None:
    """Return the nest ``reader`` with the nest ``first`` inside, whose result it reads.

    None if that is no nest of the same points, or rounds otherwise.
    """
    if not is_nest(reader) or reader.has_effect:
        return None
    own: dict[Value, Value] = {}  # outer values to the new body's inputs
    (inputs, one), (others, two) = _body_of(first), _body_of(reader)
    if _rounds(one) or any(n.op.name == "slice" for n in (*one.nodes, *two.nodes)):
        return None

    def entering(v: Value) -> Value:
        if v not in own:
            own[v] = Value(v.type, v.hint)
        return own[v]

    inside = {v: entering(u) for v, u in zip(one.inputs, inputs, strict=True)}
    nodes = copied(one.nodes, inside)
    result = inside[one.outputs[0]]
    behind = {v: result if u is first.output else entering(u) for v, u in zip(two.inputs, others, strict=True)}
    nodes += copied(two.nodes, behind)
    outputs = tuple([behind[v] for v in two.outputs])
    made = canonical(Graph(two.name, tuple(own.values()), (), (), tuple(nodes), outputs))
    if len(made.inputs) + len(made.outputs) > MAX_BUFFERS:
        return None
    try:
        before, after = nest_of(two), nest_of(made)
    except NotANest:
        return None
    if (before.size, before.stages) != (after.size, after.stages):
        return None
    outer = {v: u for u, v in own.items()}
    return Node(FUSED, tuple([outer[v] for v in made.inputs]), reader.outputs, {"body": made}, reader.where)


def absorb(graph: Graph, clones: Collection[Node]) -> Graph:
    """Return the graph in which each of ``clones`` runs inside the nests that read it, where all can hold it.

    That must not take longer by count, and its operands must be the same there.
    """
    nodes: list[Node | None] = list(graph.nodes)
    readers: dict[Value, dict[int, None]] = {v: {} for clone in clones if is_nest(clone) for v in clone.outputs}
    if not readers:
        return graph
    versions, shown = Versions(graph), set(graph.outputs)
    for i, node in enumerate(graph.nodes):
        for v in node.inputs:
            if v in readers:
                readers[v][i] = None
    for at in reversed(range(len(nodes))):
        clone = nodes[at]
        if clone is None or clone not in clones or not is_nest(clone) or len(clone.outputs) > 1 or (
                clone.output in shown):
            continue
        found = {i: join(clone, reader) if all(versions.before(at, v) == versions.before(i, v) for v in clone.inputs)
                 else None for i in readers[clone.output] if (reader := nodes[i]) is not None}
        joined = [node for node in found.values() if node is not None]
        if len(joined) < len(found) or sum(map(node_picoseconds, joined)) > INSTRUCTION_PICOSECONDS + sum(
                node_picoseconds(node) for i in (at, *found) if (node := nodes[i]) is not None):
            continue
        nodes[at] = None
        for i, node in found.items():
            nodes[i] = node
            for v in clone.inputs:
                if v in readers:
                    readers[v][i] = None
    return graph.with_nodes([node for node in nodes if node is not None])


def is_nest(node: Node) -> bool:
    """Whether the node is a loop nest over plain memory."""
    if node.op.name == "fused":
        return not any(n.op.name in ROOTS for n in node.attrs["body"].nodes)
    return node.op.name in ("map", "reduce")


def _body_of(node: Node) -> tuple[tuple[Value, ...], Graph]:
    """The inputs of a nest, and its body."""
    if node.op.name == "fused":
        return node.inputs, node.attrs["body"]
    inputs = tuple(dict.fromkeys(node.inputs))
    return inputs, Graph("body", inputs, (), (), (node,), node.outputs)


def _rounds(body: Graph) -> bool:
    """Whether a value that is stored may differ from the one with which the kernel goes on: in half precision."""
    return any(v.tensor.dtype.kind == "f" and v.tensor.dtype.itemsize <= 2 for n in body.nodes for v in n.outputs)
