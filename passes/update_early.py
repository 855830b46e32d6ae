"""Updates as early as possible: a gradient is used, and its memory released, before the next one is made."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kusari.ir import Graph, Node, Value

from .analysis import only_assigned


def update_in_parts(graph: Graph) -> Graph:
    """Update parameters with gradients before Python waits for the next ones; the same graph if it does not wait."""
    return update_early(graph) if any(n.op.is_confined and (n.outputs or n.op.writes) for n in graph.nodes) else graph


def update_early(graph: Graph) -> Graph:
    """Split ``foreach`` nodes whose results become state into one per position, each behind its last dependency.

    An update waits for its operands, for all readers of the old state, and for nodes that run Python, which may read
    anything unless they are confined. Nothing else changes its position, so results stay the same to the bit.
    """
    roots = graph.roots()
    users = graph.users()
    outputs = set(graph.outputs)
    updates = [node for node in graph.nodes if node.op.name == "foreach" and not any(
        v in outputs or not only_assigned(users[v]) for v in node.outputs)]
    if not updates:
        return graph
    moved = {*updates, *(user for node in updates for v in node.outputs for user in users[v])}
    last: dict[Value, int] = {}  # the definition of a value and the last read of a state, of values and roots
    python = -1
    rest = [node for node in graph.nodes if node not in moved]
    for i, node in enumerate(rest):
        last.update(dict.fromkeys((*node.outputs, *(roots[v] for v in node.inputs)), i))
        if node.op.is_opaque and not node.op.is_confined:
            python = i
    for i in range(len(rest) - 2, -1, -1):  # views that follow each other are all there behind the last
        if rest[i].op.is_view and rest[i + 1].op.is_view:
            last[rest[i].output] = max(last[rest[i].output], last[rest[i + 1].output])
    behind: dict[int, list[Node]] = {}
    for node in updates:
        parts: dict[int, list[Node]] = {}
        for row in _rows(node):
            states = [roots[user.inputs[0]] for v in row.outputs for user in users[v]]
            at = max([python, *(last.get(v, -1) for v in row.inputs), *(last.get(s, -1) for s in states)])
            parts.setdefault(at, []).append(row)
        for at, rows in parts.items():
            part = _joined(rows, node.attrs["shared"])
            behind.setdefault(at, []).extend([part, *(user for v in part.outputs for user in users[v])])
    later = [n for i, node in enumerate(rest) for n in (node, *behind.get(i, ()))]
    return graph.with_nodes([*behind.get(-1, ()), *later])


def _rows(node: Node) -> list[Node]:
    """Return an update as one node per tensor."""
    shared, arity, count = node.attrs["shared"], node.attrs["arity"], len(node.attrs["exprs"])
    own = node.inputs[shared:]
    return [Node(node.op, (*node.inputs[:shared], *own[i * arity:(i + 1) * arity]),
                 node.outputs[i * count:(i + 1) * count], node.attrs, node.where) for i in range(len(own) // arity)]


def _joined(rows: Sequence[Node], shared: int) -> Node:
    """Return updates of one tensor each as one node."""
    inputs = (*rows[0].inputs[:shared], *(v for row in rows for v in row.inputs[shared:]))
    return replace(rows[0], inputs=inputs, outputs=tuple(v for row in rows for v in row.outputs))
