"""The meaning of a graph: node by node, in NumPy (or whatever the arrays are)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .graph import Graph, Value


def interpret(graph: Graph, inputs: Sequence[Any], params: Sequence[Any] = ()) -> list[Any]:
    """Run ``graph`` on arrays and return its outputs; WRITES nodes change the arrays in ``params``.

    Raises ``ValueError`` when the number of arrays does not fit the graph.
    """
    if len(inputs) != len(graph.inputs) or len(params) != len(graph.params):
        raise ValueError(f"{graph.name} takes {len(graph.inputs)} inputs and {len(graph.params)} params, "
                         f"got {len(inputs)} and {len(params)}")
    env: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
    env.update(zip(graph.params, params, strict=True))
    env.update(graph.consts)
    last = {v: i for i, n in enumerate(graph.nodes) for v in n.inputs}
    keep = {*graph.outputs, *graph.sources()}
    for i, node in enumerate(graph.nodes):
        results = node.op.call(node.attrs, *(env[v] for v in node.inputs))
        env.update(zip(node.outputs, results, strict=True))
        for v in (*node.inputs, *node.outputs):
            if last.get(v, -1) <= i and v not in keep:
                env.pop(v, None)
    return [env[v] for v in graph.outputs]
