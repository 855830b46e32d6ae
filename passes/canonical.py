"""Canonical bodies: an order of nodes and inputs that is equal for equal computations, on values of their own."""
from __future__ import annotations

from kusari.ir import Graph, Node, Value, copied


def canonical(body: Graph) -> Graph:
    """Return ``body`` with its nodes in the order in which its outputs ask for them, and its inputs likewise.

    Nodes that no output needs are gone.
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


def on_own_values(body: Graph) -> Graph:
    """Return ``body`` on values of its own, in case the outer graph defines the original ones."""
    new = {v: Value(v.type, v.hint) for v in body.inputs}
    nodes = tuple(copied(body.nodes, new))
    return Graph(body.name, tuple([new[v] for v in body.inputs]), (), (), nodes, tuple([new[v] for v in body.outputs]))
