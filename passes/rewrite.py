"""The engine of local rules: one sweep, each rule tried on each node until none applies."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kusari.ir import Builder, Graph, Node, TensorType, Value

from .lower import latest
from .order import made_for_caller


class RewriteError(Exception):
    """A rule gave values of other types than those it replaces, or the rules never come to an end."""


class Site(Builder):
    """The context in which a rule builds: a ``Builder`` that also knows definitions and readers of values.

    Invariant: ``producer`` gives a node only if running it again here would give the same value, so not when a param
    that it reads was written to since.
    """

    def __init__(self, sweep: _Sweep, where: str) -> None:
        super().__init__(where)
        self._sweep = sweep

    def producer(self, value: Value, op: str | None = None) -> Node | None:
        """The node that made ``value``; None for a source, a stale one, or another op than ``op``."""
        node = self._sweep.made.get(value)
        if node is None and self.nodes:
            node = next((n for n in self.nodes if value in n.outputs), None)
        return node if node is not None and (op is None or node.op.name == op) else None

    def const(self, value: Value) -> Any:
        """The array of a constant, else None."""
        return self._sweep.consts.get(value)

    def constant(self, array: Any, device: str = "cpu") -> Value:
        """A new constant of the graph."""
        array = np.asarray(array)
        value = Value(TensorType(array.dtype, array.shape, device))
        self._sweep.consts[value] = array
        self._sweep.added.append(value)
        return value

    def reads(self, value: Value) -> int:
        """How many nodes read ``value`` (and one for each time it is an output) in the original graph."""
        return self._sweep.reads.get(value, 1)


Rule = Callable[[Site, Node], "tuple[Value, ...] | None"]


class _Sweep:
    def __init__(self, graph: Graph) -> None:
        self.consts: dict[Value, Any] = dict(graph.consts)
        self.added: list[Value] = []
        self.made: dict[Value, Node] = {}
        self.reads = Counter([*(v for n in graph.nodes for v in n.inputs), *graph.outputs])
        self.computed: dict[Value, list[Value]] = {}  # what was computed from a state since it was written
        self.roots = graph.roots()
        self.sources = set(graph.sources())
        self.written = graph.written()
        self.fresh = made_for_caller(graph)

    def root(self, v: Value, inner: Sequence[Node]) -> Value:
        """The value whose buffer ``v`` shares; ``inner`` may have made views of it."""
        views = {n.output: n.inputs[0] for n in inner if n.op.is_view}
        while v in views:
            v = views[v]
        return self.roots.get(v, v)

    def may_replace(self, node: Node, outputs: Sequence[Value], inner: Sequence[Node]) -> bool:
        """Whether ``outputs`` can replace those of ``node`` unnoticed: buffers of other owners cannot."""
        if node.op.is_view:
            return True
        for old, new in zip(node.outputs, outputs, strict=True):
            root = self.root(new, inner)
            # A state may be written later; an array returned to the caller is the caller's to change.
            if root in self.written or old in self.fresh and (root in self.sources or root in self.consts):
                return False
        return True

    def replace(self, old: Value, new: Value, node: Node, inner: Sequence[Node]) -> None:
        """Note that ``new`` replaces the results of ``node``."""
        self.reads[new] = self.reads.get(new, 0) + self.reads.get(old, 1) - (1 if new in node.inputs else 0)
        if old in self.fresh:
            self.fresh.add(self.root(new, inner))

    def record(self, node: Node) -> None:
        """Note the results of ``node``, and drop the values that it makes stale."""
        for v in node.outputs:
            self.roots[v] = self.root(node.inputs[0], ()) if node.op.is_view else v
        if node.op.writes and node.inputs:
            for v in self.computed.pop(node.inputs[0], ()):
                self.made.pop(v, None)
        self.made.update(dict.fromkeys(node.outputs, node))
        for u in () if node.op.is_view else node.inputs:
            if (root := self.roots.get(u)) in self.written:
                self.computed.setdefault(root, []).extend(node.outputs)


def rewrite(graph: Graph, rules: Mapping[str, Sequence[Rule]]) -> Graph:
    """Apply the rules for its op to every node, also to nodes that rules build; the same graph when none applies.

    Nodes with effects are never given to rules. Raises ``RewriteError`` when a rule changes a type.
    """
    sweep = _Sweep(graph)
    nodes: list[Node] = []
    replaced: dict[Value, Value] = {}
    budget = 1000 + 200 * len(graph.nodes)
    waiting = list(reversed(graph.nodes))
    while waiting:
        node = waiting.pop()
        node = node.on({v: latest(replaced, v) for v in node.inputs})
        built = None if node.has_effect else _first(sweep, node, rules.get(node.op.name, ()))
        if built is None:
            nodes.append(node)
            sweep.record(node)
            continue
        inner, outputs = built
        budget -= 1
        if budget < 0:
            raise RewriteError(f"the rules do not come to an end at {node!r}")
        for old, new in zip(node.outputs, outputs, strict=True):
            replaced[old] = new
            sweep.replace(old, new, node, inner)
        waiting.extend(reversed(inner))
    result = graph.with_nodes(nodes, [latest(replaced, v) for v in graph.outputs])
    if not sweep.added:
        return result
    used = {v for n in result.nodes for v in n.inputs} | set(result.outputs)
    return replace(result, consts=(*graph.consts, *((v, sweep.consts[v]) for v in sweep.added if v in used)))


def _first(sweep: _Sweep, node: Node, rules: Sequence[Rule]) -> tuple[list[Node], tuple[Value, ...]] | None:
    if not rules:
        return None
    site = Site(sweep, node.where)
    for rule in rules:
        site.nodes.clear()
        outputs = rule(site, node)
        if outputs is None:
            continue
        if not sweep.may_replace(node, outputs, site.nodes):
            continue
        if [v.type for v in outputs] != [v.type for v in node.outputs]:
            raise RewriteError(f"{getattr(rule, '__name__', rule)} turns {[v.type for v in node.outputs]} of {node!r} "
                               f"into {[v.type for v in outputs]}")
        return site.nodes, outputs
    return None
