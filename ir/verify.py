"""The checker that runs after every pass."""
from __future__ import annotations

from .graph import Graph, Node, Value
from .printer import print_graph
from .types import Type


class VerifyError(Exception):
    """A graph breaks a rule of the IR; the message shows it with ``-->`` at the node, and the passes run before."""


def verify(graph: Graph, history: tuple[str, ...] = (), known: set[Node] | None = None) -> Graph:
    """Return ``graph`` after checking it; raises ``VerifyError``.

    The types of the nodes in ``known`` are not inferred again; the nodes that pass are added to it.

    Checked: every value defined once and before use, outputs defined, types as the ops' rules infer them, WRITES only
    to params.
    """
    defined: set[Value] = set()

    def fault(message: str, node: Node | None = None) -> VerifyError:
        after = f"\nafter the passes: {', '.join(history)}" if history else ""
        return VerifyError(f"{message}{after}\n{print_graph(graph, mark=node)}")

    for v in graph.sources():
        if v in defined:
            raise fault(f"{v!r} is listed twice among inputs, params and consts")
        defined.add(v)
    for v, array in graph.consts:
        if tuple(array.shape) != v.shape or array.dtype != v.tensor.dtype:
            raise fault(f"const {v!r} holds an array of {array.dtype}{list(array.shape)}")
    params = set(graph.params)
    inferred: dict[tuple[int, ...], tuple[Type, ...]] = {}  # steps of a loop share attributes and types
    for node in graph.nodes:
        for v in node.inputs:
            if v not in defined:
                raise fault(f"{v!r} is used before it is defined", node)
        for v in node.outputs:
            if v in defined:
                raise fault(f"{v!r} is defined twice", node)
            defined.add(v)
        if node.op.types is not None and (known is None or node not in known):
            form = (id(node.op), id(node.attrs), *[id(v.type) for v in node.inputs])
            types = inferred.get(form)
            if types is None:
                try:
                    types = inferred[form] = node.op.types(node.attrs, *(v.type for v in node.inputs))
                except Exception as error:
                    raise fault(f"the type rule of {node.op.name} fails: {error}", node) from error
            if types != tuple(v.type for v in node.outputs):
                said = tuple(v.type for v in node.outputs)
                raise fault(f"{node.op.name} gives {types}, its outputs say {said}", node)
        if node.op.writes and node.inputs and node.inputs[0] not in params:
            raise fault(f"{node.op.name} writes to a value that is not a param", node)
    for v in graph.outputs:
        if v not in defined:
            raise fault(f"output {v!r} is not defined")
    if known is not None:
        known.update(graph.nodes)
    return graph
