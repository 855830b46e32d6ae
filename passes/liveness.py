"""Liveness: how many bytes of intermediate values are alive at the same time, and the node with the most."""
from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from kusari.ir import Graph, Value


def total_bytes(values: Iterable[Value]) -> int:
    """Return the bytes of all of ``values``."""
    return sum(v.nbytes for v in values)


class Lifetimes:
    """For each value the owner of its buffer, in ``roots``; for each root its definition and its reads, in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.roots = roots = graph.roots()
        self.reads: dict[Value, list[int]] = {v: [] for v in graph.sources()}
        self.made: dict[Value, int] = {}
        for i, node in enumerate(graph.nodes):
            for v in dict.fromkeys(roots[v] for v in node.inputs):
                self.reads[v].append(i)
            for v in node.outputs:
                if roots[v] is v:
                    self.reads[v], self.made[v] = [], i


class Liveness(Lifetimes):
    """The bytes that are ``alive`` behind each node; at most ``most``, behind node ``at``.

    ``shown`` values, the graph's results and new states, do not count: they are not in the arena as a rule.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        roots = self.roots
        self.shown = {roots[v] for v in (*graph.outputs, *(v for n in graph.nodes if n.op.writes for v in n.inputs))}
        change = [0] * (len(graph.nodes) + 1)
        for v, born in self.made.items():
            if v not in self.shown:
                change[born] += v.nbytes
                change[self.last(v)] -= v.nbytes
        self.alive = list(accumulate(change[:-1]))  # bytes, behind each node
        self.most = max(self.alive, default=0)
        self.at = self.alive.index(self.most) if self.most > 0 else 0

    def last(self, root: Value) -> int:
        """The last node that reads a value, or its definition, if it has no reader."""
        return self.reads[root][-1] if self.reads[root] else self.made[root]
