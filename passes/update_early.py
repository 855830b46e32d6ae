"""Updates as early as possible: a gradient is used, and its memory released, before the next one is made."""
from __future__ import annotations

from kusari.ir import Graph, Node, Value


def update_early(graph: Graph) -> Graph:
    """Split ``foreach`` nodes whose results become state into one per tensor, each behind its last dependency.

    An update waits for its operands, for all readers of the old state, and for nodes that run Python, which may read
    anything. Nothing else changes its position, so results stay the same to the bit.
    """
    roots = graph.roots()
    users = graph.users()
    outputs = set(graph.outputs)
    units: list[list[Node]] = []
    moved: set[Node] = set()
    for node in graph.nodes:
        if node.op.name != "foreach" or any(v in outputs or not _assigned(users[v]) for v in node.outputs):
            continue
        for row in _rows(node):
            units.append([row, *(user for v in row.outputs for user in users[v])])
        moved.add(node)
        moved.update(user for v in node.outputs for user in users[v])
    if not units:
        return graph
    last: dict[Value, int] = {}  # the definition of a value and the last read of a state, of values and roots
    python = -1
    rest = [node for node in graph.nodes if node not in moved]
    for i, node in enumerate(rest):
        for v in node.outputs:
            last[v] = i
        for v in node.inputs:
            last[roots[v]] = i
        if node.op.is_opaque:
            python = i
    behind: dict[int, list[Node]] = {}
    for unit in units:
        row, *assigns = unit
        states = [roots[n.inputs[0]] for n in assigns]
        at = max([python, *(last.get(v, -1) for v in row.inputs), *(last.get(s, -1) for s in states)])
        behind.setdefault(at, []).extend(unit)
    nodes = behind.get(-1, [])
    for i, node in enumerate(rest):
        nodes += [node, *behind.get(i, ())]
    return graph.with_nodes(nodes)


def _assigned(users: list[Node]) -> bool:
    """Whether a value only becomes some state."""
    return bool(users) and all(user.op.name == "assign" for user in users)


def _rows(node: Node) -> list[Node]:
    shared, arity, count = node.attrs["shared"], node.attrs["arity"], len(node.attrs["exprs"])
    own = node.inputs[shared:]
    return [Node(node.op, (*node.inputs[:shared], *own[i * arity:(i + 1) * arity]),
                 node.outputs[i * count:(i + 1) * count], node.attrs, node.where) for i in range(len(own) // arity)]
