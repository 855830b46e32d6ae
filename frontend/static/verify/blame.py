"""Which node is to blame when compiled code differs from define-by-run, and which line of the user's applied it."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Graph, Node, TensorType, Value

from ..compile.compile import compile_graph
from ..replay.arguments import Arguments
from ..trace.bindings import ArrayBinding, StateBinding
from .differences import difference, largest
from .rounding import Call, Rounding

if TYPE_CHECKING:
    from ..gradients.differentiate import Backward
    from .verify import Reference

MOST_PREFIXES = 300  # nodes in front of which code is compiled to find the first that differs


def _name(node: Node) -> str:
    return f"{node.op.name} ({node.where or 'an unknown place'})"


class Blame:
    """What was found: ``scale``, the largest number on the way, and a sentence, which is worked out when asked for.

    ``rounding`` tells what may be nothing but rounding; None where the recording itself differs from define-by-run.
    """

    def __init__(self, sentence: str | Callable[[], str], scale: float = 0.0, rounding: Rounding | None = None) -> None:
        self.scale = scale
        self.rounding = rounding
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence if isinstance(self._sentence, str) else self._sentence()


def blame_forward(reference: Reference) -> Blame:
    """Find the first node whose value differs."""
    graph, tape = reference.recorded.graph, reference.tape
    of: dict[Value, Value] = {}
    for old, new in zip(graph.nodes, tape.nodes, strict=False):
        kinds = [v.type for v in old.outputs], [v.type for v in new.outputs]
        if old.op is not new.op or kinds[0] != kinds[1] or any(of.get(a, b) is not b for a, b in zip(
                old.inputs, new.inputs, strict=False)):
            return Blame(f"Define-by-run now applies {_name(new)} where {_name(old)} was recorded: something the "
                         "function depends on has changed unnoticed.")
        if old.op.key is not None and new.op.key is not None and old.op.key(old.attrs) != new.op.key(new.attrs):
            return Blame(f"The attributes of {_name(new)} are others than when it was recorded.")
        of.update(zip(old.outputs, new.outputs, strict=True))
    if len(graph.nodes) != len(tape.nodes):
        shorter, longer = sorted((graph.nodes, tape.nodes), key=len)
        return Blame(f"Define-by-run and the recording part at {_name(longer[len(shorter)])}.")
    arrays = {value: array for array in tape._keep if (value := tape.known(array)) is not None}
    expected = {old: np.asarray(arrays[new]) for old, new in of.items() if new in arrays}
    return _first(reference, graph.nodes, {}, expected)


def blame_backward(reference: Reference, backward: Backward, gys: Sequence[Any]) -> Blame:
    """Find the first node, forward or backward, whose value differs."""
    recorded = reference.recorded
    seeds = {v: g for v, g in zip(backward.seeds, gys, strict=True) if v is not None}
    return _first(reference, (*recorded.graph.nodes, *backward.nodes), {**seeds, **dict(backward.consts)}, {})


def _first(reference: Reference, nodes: Sequence[Node], more: dict[Value, Any], expected: dict[Value, Any]) -> Blame:
    """Interpret ``nodes``, which should give what is ``expected``; then, when asked, compile ever more of them."""
    recorded = reference.recorded
    sources: dict[Value, Any] = {**dict(recorded.graph.consts), **more}
    sources.update({v: np.asarray(getattr(x, "_array", x))
                    for v, x in zip(recorded.leaves, reference.leaves, strict=True)})
    env = {**sources, **{v: a.copy() for v, a in zip(recorded.graph.params, reference.sources, strict=True)}}
    scale = largest(*env.values())
    before = np.random.get_state()
    np.random.set_state(reference.state.random)
    try:
        for node in nodes:
            results = node.op.call(node.attrs, *[env[v] for v in node.inputs])
            for value, result in zip(node.outputs, results, strict=True):
                env[value] = result
                if isinstance(value.type, TensorType):
                    env[value] = expected.get(value, np.asarray(result))
                    scale = max(scale, largest(env[value]))
                if value in expected:
                    text = difference(expected[value], np.asarray(result), reference.unit, scale)
                    if text is not None:
                        return Blame(f"The first node that differs is {_name(node)}, as recorded: {text}.", scale)
    except Exception as error:  # the difference itself is what has to be told
        return Blame(f"Which node is to blame could not be found: {type(error).__name__}: {error}.", scale)
    finally:
        np.random.set_state(before)
    state = {v for v, b in zip(recorded.graph.params, recorded.bindings, strict=True) if isinstance(b, StateBinding)}
    rounding = Rounding(lambda call: _interpreted(reference, nodes, sources, call), reference.unit, state)
    return Blame(lambda: _miscompiled(reference, nodes, sources, env, scale, rounding), scale, rounding)


def _interpreted(reference: Reference, nodes: Sequence[Node], sources: dict[Value, Any],
                 call: Call) -> dict[Value, Any]:
    """Interpret ``nodes`` on the same random numbers; ``call`` applies each."""
    graph = reference.recorded.graph
    env = {**sources, **{v: a.copy() for v, a in zip(graph.params, reference.sources, strict=True)}}
    before = np.random.get_state()
    np.random.set_state(reference.state.random)
    try:
        for node in nodes:
            results = call(node, [env[v] for v in node.inputs])
            for value, result in zip(node.outputs, results, strict=True):
                env[value] = np.asarray(result) if isinstance(value.type, TensorType) else result
    finally:
        np.random.set_state(before)
    return env


def _miscompiled(reference: Reference, nodes: Sequence[Node], sources: dict[Value, Any], env: dict[Value, Any],
                 scale: float, rounding: Rounding) -> str:
    """Compile ever more of ``nodes``, until one gives something else than in ``env``."""
    before = np.random.get_state()
    try:
        for k, node in enumerate(nodes[:MOST_PREFIXES]):
            tensors = tuple(v for v in node.outputs if isinstance(v.type, TensorType))
            found = _compiled(reference, nodes[:k + 1], tensors, sources) if tensors else []
            for value, array in zip(tensors, found, strict=True):
                text = difference(env[value], array, reference.unit, scale)
                if text is not None and not rounding.excuses(value, env[value], array):
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
