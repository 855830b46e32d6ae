"""Stages: nodes of a graph that may run concurrently. Instructions of a stage wait for each other only at its end."""
from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from .arithmetic import operations
from .graph import Graph, Node, Value
from .product import ROOTS
from .types import TensorType

TINY_BYTES = 1 << 14       # of a tiny node, at most; and
TINY_OPERATIONS = 1 << 16  # its work: it takes less than a barrier or two, whatever it does
MOST_BYTES = 1 << 21       # larger nodes are shared well by all threads
MOST_OPERATIONS = 1 << 26
MOST_STAGE_NODES = 16

TINY = "tiny"
MOVES = frozenset(("transpose", "slice", "pad_slice", "broadcast_to"))  # as fast for any layout of the result

_stages_of: WeakKeyDictionary[Graph, list[tuple[int, int]]] = WeakKeyDictionary()


def bytes_of(node: Node) -> int:
    """Bytes that a node reads and writes."""
    return sum(v.nbytes for v in {*node.inputs, *node.outputs})


def kind_of(node: Node, large: bool = False) -> Any:
    """A key that is equal for nodes that may run concurrently; None for a node that runs alone.

    They do the same on other values, and so take about the same time, or are ``TINY``, so that it does not matter. A
    node that all threads share well runs alone, unless ``large``.
    """
    if node.has_effect or node.op.is_opaque or node.op.is_view or node.op.key is None:
        return None
    operands = (*node.inputs, *node.outputs)
    if not node.outputs or not all(isinstance(v.type, TensorType) for v in operands):
        return None
    size, work = bytes_of(node), operations(node)
    if size <= TINY_BYTES and work <= TINY_OPERATIONS:
        return TINY
    if (size > MOST_BYTES or work > MOST_OPERATIONS) and not large:
        return None
    own = node
    if node.op.name == "fused":  # the epilogue of a product counts for little
        own = next((n for n in node.attrs["body"].nodes if n.op.name in ROOTS), node)
    attrs = None if node.op.name in MOVES else own.op.key(own.attrs) if own.op.key else id(own)
    return (own.op.name, attrs, tuple([v.type for v in own.inputs]), tuple([v.type for v in node.outputs]))


def stages(graph: Graph) -> list[tuple[int, int]]:
    """Return for each node the first and the last node of its stage: independent neighbours of one kind.

    Views, which take no time, may lie between them.
    """
    found = _stages_of.get(graph)
    if found is None:
        found = _stages_of[graph] = _stages(graph)
    return found


def _stages(graph: Graph) -> list[tuple[int, int]]:
    roots = graph.roots()
    result = [(i, i) for i in range(len(graph.nodes))]
    kind: Any = None
    members: list[int] = []
    made: set[Value] = set()

    def close() -> None:
        if len(members) > 1:
            span = members[0], members[-1]
            result[span[0]:span[1] + 1] = [span] * (span[1] + 1 - span[0])

    for i, node in enumerate(graph.nodes):
        if node.op.is_view:
            continue
        own = kind_of(node)
        fits = own is not None and own == kind and len(members) < MOST_STAGE_NODES
        if not fits or any(roots[v] in made for v in node.inputs):
            close()
            kind, members, made = own, [], set()
        members.append(i)
        made.update(node.outputs)
    close()
    return result
