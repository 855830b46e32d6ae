"""Which node and which pass are to blame when compiled code differs from define-by-run, and which line of the user's.

The node is found by compiling ever more of them. That graph is then interpreted after each pass: the first pass that
changes a result is to blame.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Graph, Node, TensorType, Value
from kusari.passes import Observer

from ..arrays.bindings import ArrayBinding, StateBinding
from ..compile.compile import compile_graph
from ..replay.arguments import Arguments
from .differences import difference, largest
from .rounding import Evaluate, Rounding, call

if TYPE_CHECKING:
    from ..gradients.differentiate import Backward
    from ..replay.schedule import Schedule
    from .verify import EagerCall

PREFIX_NODES = 300  # nodes in front of which code is compiled to find the first that differs


def _name(node: Node) -> str:
    return f"{node.op.name} ({node.where or 'an unknown place'})"


class Blame:
    """The finding: ``scale``, the largest number on the way, and a sentence, which is worked out when asked for.

    ``rounding`` decides whether a difference may be rounding; None if the recording itself differs from define-by-run.
    """

    def __init__(self, sentence: str | Callable[[], str], scale: float = 0.0, rounding: Rounding | None = None) -> None:
        self.scale = scale
        self.rounding = rounding
        self._sentence = sentence

    def __str__(self) -> str:
        return self._sentence if isinstance(self._sentence, str) else self._sentence()


def blame_forward(reference: EagerCall, schedule: Schedule) -> Blame:
    """Find the first node whose value differs in a forward of ``schedule``, and the pass that makes it differ."""
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

    def whole(sources: dict[Value, Any]) -> tuple[Graph, dict[Value, Any]]:
        return schedule.forward.graph, sources

    return _first(reference, graph.nodes, {}, expected, whole if schedule.compiled else None)


def blame_backward(reference: EagerCall, schedule: Schedule, backward: Backward, gys: Sequence[Any]) -> Blame:
    """Find the first node, forward or backward, whose value differs, and the pass that makes it differ.

    ``backward`` was derived anew, for the gradients ``gys``.
    """
    recorded = reference.recorded
    seeds = {v: g for v, g in zip(backward.seeds, gys, strict=True) if v is not None}

    def whole(sources: dict[Value, Any]) -> tuple[Graph, dict[Value, Any]]:
        compiled = schedule.backward_for(tuple([g is not None for g in gys]))
        assert compiled is not None
        given = dict(zip(compiled.graph.inputs, [gys[i] for i in compiled.seeds], strict=False))
        return compiled.graph, {**_interpreted(reference, schedule.forward.graph, sources), **given}

    return _first(reference, (*recorded.graph.nodes, *backward.nodes), {**seeds, **dict(backward.consts)}, {},
                  whole if schedule.compiled else None)


_Whole = Callable[[dict[Value, Any]], tuple[Graph, dict[Value, Any]]]


def _first(reference: EagerCall, nodes: Sequence[Node], more: dict[Value, Any], expected: dict[Value, Any],
           whole: _Whole | None) -> Blame:
    """Interpret ``nodes``, which should give the ``expected`` arrays; then, when asked, compile ever more of them.

    ``whole`` takes the arrays for ``nodes`` and returns the graph that was compiled, with arrays for its inputs; None
    if it runs elsewhere.
    """
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
    except Exception as error:  # the difference itself has to be reported
        return Blame(f"Which node is to blame could not be found: {type(error).__name__}: {error}.", scale)
    finally:
        np.random.set_state(before)
    rounding = _rounding(reference, _part(reference, nodes, (), sources), sources)
    return Blame(lambda: _miscompiled(reference, nodes, sources, env, scale, rounding, whole), scale, rounding)


def _rounding(reference: EagerCall, graph: Graph, sources: dict[Value, Any]) -> Rounding:
    """The effect that rounding may have on the values of ``graph``."""
    recorded = reference.recorded
    state = {v for v, b in zip(recorded.graph.params, recorded.bindings, strict=True) if isinstance(b, StateBinding)}
    return Rounding(lambda call: _interpreted(reference, graph, sources, call), reference.unit, state)


def _part(reference: EagerCall, nodes: Sequence[Node], outputs: tuple[Value, ...], sources: Mapping[Value, Any],
          ) -> Graph:
    """The graph of some nodes, in which all ``sources`` that are no constants are inputs."""
    graph = reference.recorded.graph
    inputs = tuple(v for v in sources if all(v is not c for c, _ in graph.consts))
    return Graph(graph.name, inputs, graph.params, graph.consts, tuple(nodes), outputs)


def _interpreted(reference: EagerCall, graph: Graph, sources: Mapping[Value, Any], call: Evaluate = call,
                 ) -> dict[Value, Any]:
    """Interpret ``graph`` on the random numbers of the reference; ``call`` applies each node. Returns all values."""
    params = zip(reference.recorded.graph.params, reference.sources, strict=True)
    env = {**sources, **dict(graph.consts), **{v: a.copy() for v, a in params}}
    before = np.random.get_state()
    np.random.set_state(reference.state.random)
    try:
        for node in graph.nodes:
            results = call(node, [env[v] for v in node.inputs])
            for value, result in zip(node.outputs, results, strict=True):
                env[value] = np.asarray(result) if isinstance(value.type, TensorType) else result
    finally:
        np.random.set_state(before)
    return env


def _miscompiled(reference: EagerCall, nodes: Sequence[Node], sources: dict[Value, Any], env: dict[Value, Any],
                 scale: float, rounding: Rounding, whole: _Whole | None) -> str:
    """Compile ever more of ``nodes``, until one gives another array than in ``env``."""
    before = np.random.get_state()
    try:
        for k, node in enumerate(nodes[:PREFIX_NODES]):
            tensors = tuple(v for v in node.outputs if isinstance(v.type, TensorType))
            part = _part(reference, nodes[:k + 1], tensors, sources)
            found = _compiled(reference, part, sources) if tensors else []
            for value, array in zip(tensors, found, strict=True):
                text = difference(env[value], array, reference.unit, scale)
                if text is not None and not rounding.excuses(value, env[value], array):
                    return (f"The first node that differs is {_name(node)}, as compiled: {text}. "
                            + _blamed_pass(reference, part, sources, scale))
        text = "No node differs by itself; the difference comes with the graph as a whole."
        return text if whole is None else f"{text} {_blamed_pass(reference, *whole(sources), scale)}"
    except Exception as error:  # the difference itself has to be reported
        return f"Which node is to blame could not be found: {type(error).__name__}: {error}."
    finally:
        np.random.set_state(before)


def _compiled(reference: EagerCall, part: Graph, sources: Mapping[Value, Any]) -> list[Any]:
    """Compile ``part`` and run it on copies of everything."""
    bindings = [ArrayBinding(a.copy()) for a in reference.sources]
    np.random.set_state(reference.state.random)
    return Arguments(compile_graph(part), bindings).run([np.array(sources[v]) for v in part.inputs])


class _Changed(Exception):
    """A pass has changed a result."""


def _blamed_pass(reference: EagerCall, graph: Graph, sources: dict[Value, Any], scale: float) -> str:
    """Compile ``graph``, interpreted after each pass, and return the first that changes a result, in a sentence."""
    try:
        compile_graph(graph, observer=_interpreter(reference, graph, sources, scale))
    except _Changed as found:
        return str(found)
    return "No pass changes a result: the memory plan or a kernel is to blame."


def _interpreter(reference: EagerCall, graph: Graph, sources: dict[Value, Any], scale: float) -> Observer:
    """Return an observer that interprets ``graph`` after each pass; raises ``_Changed``."""
    results = _results(graph)
    expected = _interpreted(reference, graph, sources)
    rounding = _rounding(reference, graph, sources)

    def changed(after: Graph) -> str | None:
        try:
            env = _interpreted(reference, after, sources)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        for old, new in zip(results, _results(after), strict=True):
            text = difference(expected[old], env[new], reference.unit, scale)
            if text is not None and not rounding.excuses(old, expected[old], env[new]):
                return text
        return None

    def observe(name: str, before: Graph, after: Graph) -> None:
        if after is not before and (text := changed(after)) is not None:
            raise _Changed(f"The first pass that changes a result is {name}: {text}. KUSARI_PASSES=-{name} leaves it "
                           "out.")

    return observe


def _results(graph: Graph) -> list[Value]:
    """The outputs of a graph, and the values it may write to."""
    return [v for v in (*graph.outputs, *graph.params) if isinstance(v.type, TensorType)]
