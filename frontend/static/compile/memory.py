"""The switch between speed and memory: ``static_graph(memory=…)``, and reports of the memory of a schedule."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kusari.ir import Arena, Graph, Node, Plan, TensorType, Value
from kusari.passes import Account, Cut, Recomputed, limit, plan, search
from kusari.passes.tidy import remove_dead

if TYPE_CHECKING:
    from .compile import Compiled

SPEED = "speed"
WORDS = (SPEED, "balanced", "low")


def checked(memory: Any) -> str | float:
    """Return the value of the option; raises ``ValueError`` or ``TypeError`` for an invalid one."""
    if isinstance(memory, str):
        if memory in WORDS:
            return memory
        raise ValueError(f"memory must be one of {', '.join(map(repr, WORDS))} or a number, got {memory!r}")
    number: Any = memory
    if not isinstance(number, (int, float, np.number)) or isinstance(number, bool):
        raise TypeError(f"memory must be one of {', '.join(map(repr, WORDS))} or a number, got {memory!r}")
    if not memory > 0:
        raise ValueError(f"memory must be above 0: below 1 a part of what 'speed' takes, else bytes; got {memory!r}")
    return float(memory)


def megabytes(n: float) -> str:
    """Bytes for people."""
    return f"{n / 2**20:,.1f} MB" if n >= 1e6 else f"{n:,.0f} bytes"


def description(memory: str | float, did: Account) -> str:
    """A text for people on the recomputation in a schedule."""
    wish = repr(memory) if isinstance(memory, str) else f"{memory:g}"
    most = limit(memory, did.before)
    missed = "" if isinstance(most, str) or did.now <= most else (
        f"; the limit of {megabytes(most)} is missed, as nothing that takes less was found")
    again = (f"{did.clones} node{'s' * (did.clones != 1)} computed again in the backward" if did.clones
             else "nothing is computed again")
    if memory == SPEED:
        return (f"memory={wish}: {did.clones} value{'s' * (did.clones != 1)} computed again, for hardly any time; "
                f"arena of {megabytes(did.now)} instead of {megabytes(did.before)}")
    more = f" and {megabytes(did.gone)} of gradients, which are not kept" if did.gone else ""
    than = f" where 'speed' takes {megabytes(did.before)}{more}" if did.clones or more else ""
    return f"memory={wish}: {again}; arena of {megabytes(did.now)}{than}{missed}"


class Joint:
    """A forward and one of its backwards, as the passes left them, as a single graph that is cut between them.

    The first ``results`` outputs of ``forward`` are its results, ``saved`` says which other one is which input of
    ``backward``, whose first inputs are ``seeds`` seeds and results as they are then. ``fits`` is False where they
    cannot be joined.
    """

    def __init__(self, forward: Graph, backward: Graph, results: int, saved: Sequence[tuple[int, Value]],
                 seeds: int) -> None:
        self._forward, self._backward, self._results = forward, backward, results
        self._seeds = backward.inputs[:seeds]
        sources, made = set(forward.sources()), forward.producers()
        same = {v: forward.outputs[i] for i, v in saved}
        known = all(v in sources or v in same for v in (*backward.inputs[seeds:], *backward.params))
        # Values that the backward computes again already may bear the names they have in the forward.
        same.update((v, Value(v.type, v.hint)) for n in backward.nodes for v in n.outputs if v in made)
        self._grads = tuple(same.get(v, v) for v in backward.outputs)
        self.fits = known and not any(v in made for v in self._grads)  # else a gradient is one of the forward's values
        self._consts = dict(forward.consts) | dict(backward.consts)
        self.cut = len(forward.nodes)
        self.graph = Graph(forward.name, (*forward.inputs, *self._seeds), forward.params, tuple(self._consts.items()),
                           (*forward.nodes, *(_renamed(n, same) for n in backward.nodes)),
                           (*forward.outputs[:results], *self._grads))

    def forward(self, kept: Sequence[Value]) -> Graph:
        """The forward, whose outputs are its results and ``kept``."""
        graph = self._forward
        return remove_dead(graph.with_nodes(graph.nodes, (*graph.outputs[:self._results], *kept)))

    def backward(self, kept: Sequence[Value]) -> tuple[Graph, tuple[int, ...]] | None:
        """The backward that has nothing but ``kept``, and the numbers of these that are inputs; None if more is needed.

        Its inputs are the seeds, those, and the inputs of the forward that it reads; all sources are the forward's.
        """
        way = Cut(self.graph, self.cut).rebuild(set(kept))
        return self._behind(way, kept) if isinstance(way, Recomputed) else None

    def _behind(self, way: Recomputed, kept: Sequence[Value]) -> tuple[Graph, tuple[int, ...]]:
        nodes = way.graph.nodes[self.cut:]
        reads = {v for n in nodes for v in n.inputs} | set(self._grads)
        used = tuple(i for i, v in enumerate(kept) if v in reads)
        graph = self._forward
        inputs = (*self._seeds, *(kept[i] for i in used), *(v for v in graph.inputs if v in reads))
        return Graph(self._backward.name, inputs, tuple(v for v in graph.params if v in reads),
                     tuple((v, a) for v, a in self._consts.items() if v in reads), nodes, self._grads), used

    def choose(self, memory: str | float, planning: dict[str, Any]) -> tuple[tuple[Value, ...] | None, str]:
        """The values to keep, None for all that are kept anyway; and a text for people."""
        def size(way: Recomputed) -> int:
            return (plan(self.forward(way.kept), kept=way.kept, **planning).arena_size
                    + plan(self._behind(way, way.kept)[0]).arena_size)

        if not self.fits:
            return None, description(memory, Account(0, 0, 0))
        outputs = self._forward.outputs[self._results:]
        before = plan(self._forward, kept=outputs, **planning).arena_size + plan(self._backward).arena_size
        way, now = search(self.graph, limit(memory, before), before, size, self.cut)
        return (way.kept if way.clones else None), description(memory, Account(way.clones, now, before))


def _renamed(node: Node, names: dict[Value, Value]) -> Node:
    if not any(v in names for v in (*node.inputs, *node.outputs)):
        return node
    return replace(node, inputs=tuple(names.get(v, v) for v in node.inputs),
                   outputs=tuple(names.get(v, v) for v in node.outputs))


def peak_of(compiled: Compiled) -> int:
    """Return the bytes of one call: its arena, scratch of kernels beside it, results with arrays of their own."""
    return compiled.plan.arena_size + compiled.executable.report.scratch_bytes + _own_bytes(compiled.plan)


def _own_bytes(made: Plan) -> int:
    return sum(v.tensor.nbytes for v in made.externals[len(list(made.graph.sources())):])


def report(compiled: Compiled) -> list[str]:
    """Lines on the memory of one compiled graph, for people."""
    graph, made = compiled.plan.graph, compiled.plan
    roots = graph.roots()
    kept = {roots[v] for v in compiled.kept if isinstance(v.type, TensorType)}
    kept_bytes = sum(v.tensor.nbytes for v in kept if isinstance(made.slots.get(v), Arena))
    scratch = compiled.executable.report.scratch_bytes
    lines = [f"arena {megabytes(made.arena_size)}, of which {megabytes(kept_bytes)} kept for the backward; "
             f"scratch of kernels beside it {megabytes(scratch)}; "
             f"results with arrays of their own {megabytes(_own_bytes(made))}; "
             f"peak of one call {megabytes(peak_of(compiled))}"]
    return [*lines, compiled.recomputation] if compiled.recomputation else lines
