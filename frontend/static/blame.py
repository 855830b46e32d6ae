"""Which node is to blame when compiled code differs from define-by-run, and which line of the user's applied it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Graph, Node, TensorType, Value

from .arguments import Arguments
from .compile import compile_graph
from .tape import ArrayBinding

if TYPE_CHECKING:
    from .verify import Reference

MOST_PREFIXES = 300  # nodes in front of which code is compiled to find the first that differs


def _name(node: Node) -> str:
    return f"{node.op.name} ({node.where or 'an unknown place'})"


def blame_forward(reference: Reference) -> str:
    """Return a sentence on the first node whose value differs."""
    graph, tape = reference.recorded.graph, reference.tape
    of: dict[Value, Value] = {}
    for old, new in zip(graph.nodes, tape.nodes, strict=False):
        kinds = [v.type for v in old.outputs], [v.type for v in new.outputs]
        if old.op is not new.op or kinds[0] != kinds[1] or any(of.get(a, b) is not b for a, b in zip(
                old.inputs, new.inputs, strict=False)):
            return (f"Define-by-run now applies {_name(new)} where {_name(old)} was recorded: something the function "
                    "depends on has changed unnoticed.")
        if old.op.key is not None and new.op.key is not None and old.op.key(old.attrs) != new.op.key(new.attrs):
            return f"The attributes of {_name(new)} are others than when it was recorded."
        of.update(zip(old.outputs, new.outputs, strict=True))
    if len(graph.nodes) != len(tape.nodes):
        longer = max(graph.nodes, tape.nodes, key=len)
        return f"Define-by-run and the recording part at {_name(longer[min(len(graph.nodes), len(tape.nodes))])}."
    arrays = {value: array for array in tape._keep if (value := tape.known(array)) is not None}
    expected = {old: np.asarray(arrays[new]) for old, new in of.items() if new in arrays}
    return _first(reference, graph.nodes, {}, expected)


def blame_backward(reference: Reference, schedule: Any, gys: Sequence[Any]) -> str:
    """Return a sentence on the first node, forward or backward, whose value differs."""
    from .differentiate import differentiate
    recorded = reference.recorded
    backward = differentiate(recorded, tuple(g is not None for g in gys), schedule.wanted)
    seeds = {v: g for v, g in zip(backward.seeds, gys, strict=True) if v is not None}
    return _first(reference, (*recorded.graph.nodes, *backward.nodes), {**seeds, **dict(backward.consts)}, {})


def _first(reference: Reference, nodes: Sequence[Node], more: dict[Value, Any], expected: dict[Value, Any]) -> str:
    """Interpret ``nodes``, which should give what is ``expected``; then compile ever more of them."""
    from .verify import difference, largest
    recorded = reference.recorded
    graph = recorded.graph
    before = np.random.get_state()
    sources: dict[Value, Any] = {**dict(graph.consts), **more}
    sources.update({v: np.asarray(getattr(x, "_array", x))
                    for v, x in zip(recorded.leaves, reference.leaves, strict=True)})
    try:
        env = {**sources, **{v: a.copy() for v, a in zip(graph.params, reference.sources, strict=True)}}
        np.random.set_state(reference.state.random)
        scale = largest(*(np.asarray(x) for v, x in env.items() if isinstance(v.type, TensorType)))
        for node in nodes:
            results = node.op.call(node.attrs, *[env[v] for v in node.inputs])
            for value, result in zip(node.outputs, results, strict=True):
                if isinstance(value.type, TensorType):
                    result = np.asarray(result)
                    scale = max(scale, largest(result))
                text = difference(expected[value], result, scale) if value in expected else None
                if text is not None:
                    return f"The first node that differs is {_name(node)}, as it was recorded: {text}."
                env[value] = expected.get(value, result)
        for k, node in enumerate(nodes[:MOST_PREFIXES]):
            tensors = tuple(v for v in node.outputs if isinstance(v.type, TensorType))
            if not tensors:
                continue
            found = _compiled(reference, nodes[:k + 1], tensors, sources)
            for value, array in zip(tensors, found, strict=True):
                text = difference(env[value], array, scale)
                if text is not None:
                    return f"The first node that differs is {_name(node)}, as compiled: {text}."
    except Exception as error:  # the difference itself is what has to be told
        return f"Which node is to blame could not be found: {type(error).__name__}: {error}."
    finally:
        np.random.set_state(before)
    return "No node differs by itself; the difference comes with the graph as a whole."


def _compiled(reference: Reference, nodes: Sequence[Node], outputs: tuple[Value, ...], sources: dict[Value, Any],
              ) -> list[Any]:
    """Compile ``nodes`` alone and run them on copies of everything."""
    graph = reference.recorded.graph
    inputs = tuple(v for v in sources if all(v is not c for c, _ in graph.consts))
    part = Graph(graph.name, inputs, graph.params, graph.consts, tuple(nodes), outputs)
    bindings = [ArrayBinding(a.copy()) for a in reference.sources]
    np.random.set_state(reference.state.random)
    return Arguments(compile_graph(part), bindings).run([np.array(sources[v]) for v in inputs])
