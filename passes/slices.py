"""Slices of loop nests: the part of a body that makes one value, alone or inside the nests that read it.

A slice starts from other results of its nest, if those are available: a normalization runs again as some calls per
element on the mean and the deviation that are kept, not as a reduction. The same scalar functions on the same numbers
give the same bits.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from kusari.ir import FUSED, Graph, Node, Value, copied, structure
from kusari.ir.alignment import NotANest
from kusari.ir.costs import INSTRUCTION_PICOSECONDS, arithmetic_picoseconds, moved_picoseconds, node_picoseconds
from kusari.ir.nest import nest_of
from kusari.ir.product import ROOTS

from .canonical import canonical, on_own_values
from .order import Versions
from .regions import MAX_BUFFERS

Pieces = tuple[Graph, tuple[int, ...]]  # a body, and the places of its inputs among given values


class Slices:
    """The slices, joins and times found in one search, each once: the steps of a loop have the same bodies."""

    def __init__(self) -> None:
        self._parts: dict[tuple[Graph, int, frozenset[int]], Pieces | None] = {}
        self._joined: dict[tuple[Any, Any, tuple[int, ...]], Pieces | None] = {}
        self._arithmetic: dict[Graph, int] = {}
        self._times: dict[Node, int] = {}

    def time(self, nodes: Iterable[Node]) -> int:
        """Picoseconds of ``nodes`` with their instructions."""
        known, total = self._times, 0
        for node in nodes:
            if not node.op.is_view:
                if node not in known:
                    known[node] = INSTRUCTION_PICOSECONDS + self._own_time(node)
                total += known[node]
        return total

    def _own_time(self, node: Node) -> int:
        if node.op.name != "fused":
            return node_picoseconds(node)
        body = node.attrs["body"]
        if body not in self._arithmetic:
            self._arithmetic[body] = arithmetic_picoseconds(node)
        return max(moved_picoseconds(node), self._arithmetic[body])

    def of(self, maker: Node, value: Value, known: Collection[Value]) -> Node | None:
        """Return the nest that makes nothing but ``value``, from the ``known`` results of its maker; None if none does.

        Its output is a new value.
        """
        if len(maker.outputs) == 1 or not is_nest(maker):
            return None
        body: Graph = maker.attrs["body"]
        key = body, maker.outputs.index(value), frozenset([i for i, v in enumerate(maker.outputs) if v in known])
        if key not in self._parts:
            self._parts[key] = _part(*key)
        if (part := self._parts[key]) is None:
            return None
        given = (*maker.inputs, *maker.outputs)
        entering = tuple([given[i] for i in part[1]])
        return Node(FUSED, entering, (Value(value.type, value.hint),), {"body": part[0]}, maker.where)

    def join(self, first: Node, reader: Node) -> Node | None:
        """Return the nest ``reader`` with the nest ``first`` inside, whose result it reads.

        None if that is no nest of the same points, or rounds otherwise.
        """
        if not is_nest(reader) or reader.has_effect:
            return None
        (inputs, one), (others, two) = _body_of(first), _body_of(reader)
        given = (*inputs, first.output, *others)
        place = {v: i for i, v in reversed(list(enumerate(given)))}
        key = structure(one), structure(two), tuple([place[v] for v in given])
        if key not in self._joined:
            self._joined[key] = _joined(one, two, key[2])
        if (joined := self._joined[key]) is None:
            return None
        entering = tuple([given[i] for i in joined[1]])
        return Node(FUSED, entering, reader.outputs, {"body": joined[0]}, reader.where)

    def absorb(self, graph: Graph, clones: Collection[Node]) -> Graph:
        """Return the graph in which each of ``clones`` runs inside the nests that read it, where all can hold it.

        That must not take longer by count, and its operands must be the same there.
        """
        nodes: list[Node | None] = list(graph.nodes)
        readers: dict[Value, dict[int, None]] = {v: {} for clone in clones if is_nest(clone) for v in clone.outputs}
        if not readers:
            return graph
        versions, shown = Versions(graph), set(graph.outputs)
        at_clone: list[int] = []
        for i, node in enumerate(graph.nodes):
            if node in clones:
                at_clone.append(i)
            if not readers.keys().isdisjoint(node.inputs):
                for v in node.inputs:
                    if v in readers:
                        readers[v][i] = None
        for at in reversed(at_clone):
            clone = nodes[at]
            if clone is None or not is_nest(clone) or len(clone.outputs) > 1 or clone.output in shown:
                continue
            found = {i: self.join(clone, reader)
                     if all(versions.before(at, v) == versions.before(i, v) for v in clone.inputs) else None
                     for i in readers[clone.output] if (reader := nodes[i]) is not None}
            joined = [node for node in found.values() if node is not None]
            apart = [clone, *(node for i in found if (node := nodes[i]) is not None)]
            if len(joined) < len(found) or self.time(joined) > self.time(apart):
                continue
            nodes[at] = None
            for i, node in found.items():
                nodes[i] = node
                for v in clone.inputs:
                    if v in readers:
                        readers[v][i] = None
        return graph.with_nodes([node for node in nodes if node is not None])


def _part(body: Graph, output: int, known: frozenset[int]) -> Pieces | None:
    """The part of a body that makes one output, from its inputs and the ``known`` outputs."""
    nodes = body.nodes
    places = {v: i for i, v in enumerate(body.inputs)}
    if not _rounds(body):
        there = {body.outputs[i]: len(body.inputs) + i for i in known}
        nodes = tuple([n for n in nodes if n.outputs[0] not in there])
        places.update(there)
    part = canonical(Graph(body.name, tuple(places), (), (), nodes, (body.outputs[output],)))
    if not part.nodes:
        return None
    entering = tuple([places[v] for v in part.inputs])
    part = on_own_values(part)
    with suppress(NotANest):
        nest_of(part)
        return part, entering
    return None


def _joined(one: Graph, two: Graph, place: tuple[int, ...]) -> Pieces | None:
    """The body of ``two`` with ``one`` inside, whose result it reads; equal values have equal places."""
    if _rounds(one) or any(n.op.name == "slice" for n in (*one.nodes, *two.nodes)):
        return None
    entering: dict[int, Value] = {}
    count = len(one.inputs)
    inside = {v: entering.setdefault(i, Value(v.type, v.hint)) for v, i in zip(one.inputs, place[:count], strict=True)}
    nodes = copied(one.nodes, inside)
    result = inside[one.outputs[0]]
    behind = {v: result if i == place[count] else entering.setdefault(i, Value(v.type, v.hint))
              for v, i in zip(two.inputs, place[count + 1:], strict=True)}
    nodes += copied(two.nodes, behind)
    outputs = tuple([behind[v] for v in two.outputs])
    made = canonical(Graph(two.name, tuple(entering.values()), (), (), tuple(nodes), outputs))
    at = {v: i for i, v in entering.items()}
    with suppress(NotANest):
        before, after = nest_of(two), nest_of(made)
        if (before.size, before.stages) == (after.size, after.stages) and (
                len(made.inputs) + len(made.outputs) <= MAX_BUFFERS):
            return made, tuple([at[v] for v in made.inputs])
    return None


def is_nest(node: Node) -> bool:
    """Whether the node is a loop nest over plain memory."""
    if node.op.name == "fused":
        return not any(n.op.name in ROOTS for n in node.attrs["body"].nodes)
    return node.op.name in ("map", "reduce")


def _body_of(node: Node) -> tuple[tuple[Value, ...], Graph]:
    """The inputs of a nest, and its body."""
    if node.op.name == "fused":
        return node.inputs, node.attrs["body"]
    inputs = tuple(dict.fromkeys(node.inputs))
    return inputs, Graph("body", inputs, (), (), (node,), node.outputs)


def _rounds(body: Graph) -> bool:
    """Whether a value that is stored may differ from the one with which the kernel goes on: in half precision."""
    return any(v.tensor.dtype.kind == "f" and v.tensor.dtype.itemsize <= 2 for n in body.nodes for v in n.outputs)
