"""One order of nodes and inputs for bodies that compute the same."""
from __future__ import annotations

from kusari.ir import Graph, Node, Value


def canonical(body: Graph) -> Graph:
    """``body`` with its nodes in the order in which its outputs ask for them, and its inputs likewise.

    What no output needs is gone.
    """
    maker = {v: n for n in body.nodes for v in n.outputs}
    nodes: dict[Node, None] = {}
    inputs: dict[Value, None] = {}
    stack: list[tuple[Value, bool]] = [(v, False) for v in reversed(body.outputs)]
    while stack:
        v, ready = stack.pop()
        node = maker.get(v)
        if node is None:
            inputs[v] = None
        elif ready:
            nodes[node] = None
        elif node not in nodes:
            stack.append((v, True))
            stack += [(u, False) for u in reversed(node.inputs)]
    return Graph(body.name, tuple(inputs), (), (), tuple(nodes), body.outputs)
