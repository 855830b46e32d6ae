"""Analysis of a graph: definitions and uses, versions of state, slices of rows, and trees of sums."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kusari.ir import Arg, Builder, Call, Expr, Graph, Node, Value, fold

from .order import Versions, written_values


class Uses:
    """Definitions and uses of values: ``made`` has the index of each value's node, ``users`` those of its readers."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.nodes = graph, graph.nodes
        self.made = {v: i for i, n in enumerate(graph.nodes) for v in n.outputs}
        self.users: dict[Value, list[int]] = {}
        for i, n in enumerate(graph.nodes):
            for v in dict.fromkeys(n.inputs):
                self.users.setdefault(v, []).append(i)
        self.outputs = set(graph.outputs)
        self.written = written_values(graph)


class Analysis(Uses):
    """Versions of values as well; ``parts`` maps slices of rows to (whole, start, stop)."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        # The position of a value's definition, or its number among the sources: terms are in order of time.
        sources = list(graph.sources())
        self.place = {v: i - len(sources) for i, v in enumerate(sources)}
        self.place.update(self.made)
        self.versions = Versions(graph)
        self.parts: dict[Value, tuple[Value, int, int]] = {
            n.output: (n.inputs[0], n.attrs["start"], n.attrs["stop"]) for n in graph.nodes if n.op.name == "part"}

    def only_reader(self, v: Value) -> int:
        """The only node that reads ``v``, if ``v`` is no output; else -1."""
        found = self.users.get(v, ())
        return found[0] if len(found) == 1 and v not in self.outputs else -1

    def partner(self, node: Node) -> Value | None:
        """The operand joined with the first operand of ``node``: its second one, or that of a product that reads it."""
        first, *rest = node.inputs
        if rest:
            return rest[0] if node.op.name == "matmul" else first
        for i in self.users[first]:
            reader = self.nodes[i]
            if reader.op.name == "matmul" and reader.attrs["transa"] and reader.inputs[0] is first:
                return reader.inputs[1]
        return None

    def concat(self, b: Builder, values: Sequence[Value]) -> Value:
        """The rows of ``values``, one after the other: a slice of a larger value that has them, or a ``concat``."""
        parts = [self.parts.get(v) for v in values]
        first, last = parts[0], parts[-1]
        if first is not None and last is not None and all(
                p is not None and q is not None and p[0] is q[0] and p[2] == q[1]
                for p, q in zip(parts, parts[1:], strict=False)):
            return b.part(first[0], first[1], last[2]) if last[2] - first[1] < first[0].shape[0] else first[0]
        return b.concat(values, 0)


def only_assigned(users: Sequence[Node]) -> bool:
    """Whether a value that has these readers only becomes some state."""
    return bool(users) and all(user.op.name == "assign" for user in users)


def is_sum(node: Node) -> bool:
    """Whether a node only adds up values of one type, each once."""
    expr: Expr = node.attrs["expr"] if node.op.name == "map" else Arg(0)
    if not isinstance(expr, Call) or expr.fn != "add" or any(v.type != node.output.type for v in node.inputs):
        return False
    terms: set[Any] = fold(expr, lambda e: {e if isinstance(e, Arg) else None}, lambda fn, xs: (
        xs[0] | xs[1] if fn == "add" and len(xs) == 2 and xs[0].isdisjoint(xs[1]) else {None}))
    return None not in terms


def sum_tree(analysis: Analysis, root: int) -> tuple[set[int], list[Value]]:
    """The sums inside a sum that have no other reader, and all the terms added up, in order."""
    nodes = analysis.nodes
    inner: set[int] = set()
    leaves: list[Value] = []
    values = list(reversed(nodes[root].inputs))
    while values:
        v = values.pop()
        j = analysis.made.get(v, -1)
        if j >= 0 and is_sum(nodes[j]) and analysis.only_reader(v) >= 0:
            inner.add(j)
            values.extend(reversed(nodes[j].inputs))
        else:
            leaves.append(v)
    return inner, leaves


Terms = Sequence[tuple[Value, int]]  # each with the node that makes it if the sum alone reads it, once; else -1
SumRewrite = Callable[[Analysis, Builder, Terms], "tuple[list[Value], list[int]] | None"]


def rewrite_sums(graph: Graph, rewrite: SumRewrite) -> Graph:
    """Return the graph with other terms of its sums; the same graph if ``rewrite`` finds none.

    ``rewrite`` is given the terms of a sum, builds others, and returns those with the nodes that they replace. The new
    nodes stand where the whole sum stood, so nothing is moved.
    """
    analysis = Analysis(graph)
    seen: set[int] = set()
    gone: set[int] = set()
    instead: dict[int, Sequence[Node]] = {}
    for i in range(len(graph.nodes) - 1, -1, -1):
        if i not in seen and is_sum(graph.nodes[i]):
            inner, leaves = sum_tree(analysis, i)
            seen |= inner
            count = Counter(leaves)
            b = Builder(graph.nodes[i].where)
            built = rewrite(analysis, b, [(v, analysis.made.get(v, -1) if count[v] == 1 and analysis.only_reader(v) >= 0
                                           else -1) for v in leaves])
            if built is not None:
                total(b, built[0])
                instead[i] = in_place_of(graph.nodes[i], b.nodes)
                gone.update(inner, built[1])
    return with_runs(graph, {**dict.fromkeys(gone, ()), **instead})


def with_runs(graph: Graph, instead: Mapping[int, Sequence[Node]]) -> Graph:
    """Return the graph with runs of nodes in place of some, by their index; the same graph if there are none."""
    return graph.with_nodes([n for i, node in enumerate(graph.nodes) for n in instead.get(i, (node,))])


def total(b: Builder, terms: Sequence[Value]) -> Value:
    """The sum of ``terms``, from the first to the last."""
    result = terms[0]
    for v in terms[1:]:
        result = b.call("add", result, v)
    return result


def in_place_of(node: Node, made: Sequence[Node]) -> list[Node]:
    """The nodes ``made``, with the last one's results renamed to the results of ``node``."""
    last = made[-1]
    return [*made[:-1], replace(last, outputs=node.outputs, where=node.where)]
