"""Rematerialization: values read long after their definition are computed again, if that takes hardly any time.

At the peak of live memory, a value that a loop nest made of others which stay anyway (or of small ones, as the
statistics of a normalization) need not wait for its late readers: a slice of its maker runs again, inside the kernel
that reads it if possible, else right in front of it. The slice starts from other results of its maker, if those are
available. The same scalar functions on the same numbers give the same bits.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from kusari.ir import FUSED, Graph, Node, Value, copied
from kusari.ir.alignment import NotANest
from kusari.ir.costs import (
    BYTE_PICOSECONDS,
    CALL_PICOSECONDS,
    INSTRUCTION_PICOSECONDS,
    node_picoseconds,
    point_picoseconds,
)
from kusari.ir.nest import nest_of
from kusari.ir.product import ROOTS

from .canonical import canonical, on_own_values
from .liveness import Liveness, total_bytes
from .order import Versions
from .regions import MAX_BUFFERS

TIME_SHARE = 0.01                    # of the time of all nodes: may be spent
LEAST_LIVE_BYTES = 1 << 20           # with fewer there is nothing to gain
LIVE_RATIO = 100                     # live bytes per byte of a value: smaller values are left alone
SMALL_RATIO = 64                     # bytes of a value per byte of an operand that may stay for it
GAIN_SHARE = 0.02                    # of the bytes: less is no gain
MOST_ROUNDS = 64


@dataclass(frozen=True, eq=False)
class Rematerialized:
    """A graph that takes less memory: ``count`` values are computed again, in ``seconds`` by estimate."""

    graph: Graph
    count: int
    seconds: float


@dataclass(frozen=True, eq=False)
class _Piece:
    """``body`` computes a value again from ``inputs``, in ``cost`` picoseconds besides reading and writing once."""

    inputs: tuple[Value, ...]
    body: Graph
    cost: int


@dataclass(frozen=True, eq=False)
class _Choice:
    """A value to compute again: the nodes to put in place of others, or in front of them, and picoseconds."""

    root: Value
    cost: int
    instead: dict[int, tuple[Node, ...]]


def rematerialize_cheap(graph: Graph, share: float = TIME_SHARE, least: int = LEAST_LIVE_BYTES) -> Rematerialized:
    """Return a graph with values computed again at the peak of live memory, for ``share`` of its time at most.

    Nothing is done below ``least`` bytes. Products, convolutions, draws and effects never run again.
    """
    budget = int(share * sum(map(node_picoseconds, graph.nodes)))
    candidates = _Candidates(graph)
    found = [(candidates.live.most, Rematerialized(graph, 0, 0.0))]
    spent = 0
    while candidates.live.most >= least and len(found) <= MOST_ROUNDS:
        best: _Choice | None = None
        for root in candidates.crossing():
            choice = candidates.choice(root)
            if choice is not None and spent + choice.cost <= budget and (
                    best is None or _price(choice) < _price(best)):
                best = choice
        if best is None:
            break
        spent += best.cost
        graph = candidates.with_choice(best)
        candidates = _Candidates(graph)
        found.append((candidates.live.most, Rematerialized(graph, len(found), spent * 1e-12)))
    enough = min(most for most, _ in found) * (1 + GAIN_SHARE)
    return next(cheaper for most, cheaper in found if most <= enough)


def _price(choice: _Choice) -> float:
    return choice.cost / choice.root.tensor.nbytes


def _point_cost(nodes: Sequence[Node]) -> int:
    """Picoseconds of maps and reductions at one point."""
    return sum(point_picoseconds(n.attrs["expr"]) if n.op.name == "map" else CALL_PICOSECONDS for n in nodes
               if n.op.name in ("map", "reduce"))


def _is_nest(node: Node) -> bool:
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


class _Candidates:
    """The values of a graph that may be computed again, so that less is alive at the peak."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.live = Liveness(graph)
        self._versions = Versions(graph)

    def crossing(self) -> list[Value]:
        """The values alive at the peak that are large enough, the first made first."""
        live = self.live
        return [v for v, born in live.made.items() if born <= live.at < live.last(v)
                and v not in live.shown and v.nbytes * LIVE_RATIO >= live.most]

    def choice(self, root: Value) -> _Choice | None:
        """The nodes that compute ``root`` again, inside its later readers or in front of the first; None if none do."""
        nodes = self.graph.nodes
        maker = nodes[self.live.made[root]]
        if not _is_nest(maker) or maker.has_effect:
            return None
        reads = self.live.reads[root]
        late = reads[bisect_left(reads, self.live.at + 1):]
        readers = [i for i in late if not nodes[i].op.is_view]
        if not readers or any(nodes[i].has_effect for i in readers):
            return None
        piece = self._piece(maker, root, late[0])
        if piece is None:
            return None
        inside = self._inside(piece, root, late)
        if inside is not None:
            return inside
        again = Value(root.type, root.hint)
        cost = piece.cost + INSTRUCTION_PICOSECONDS + BYTE_PICOSECONDS * total_bytes((*piece.inputs, root))
        instead: dict[int, tuple[Node, ...]] = {}
        env = {root: again}
        front = [Node(FUSED, piece.inputs, (again,), {"body": piece.body}, maker.where)]
        for i in late:
            node = nodes[i]
            for v in node.inputs:
                front += self._view(v, root, env)
            new = Node(node.op, tuple([env.get(v, v) for v in node.inputs]), node.outputs, node.attrs, node.where)
            instead[i], front = (*front, new), []
        return _Choice(root, cost, instead)

    def _view(self, v: Value, root: Value, env: dict[Value, Value]) -> list[Node]:
        """The nodes that make ``v``, a view of ``root``, from the repeated value; ``env`` receives their results."""
        chain: list[Node] = []
        live = self.live
        while live.roots[v] is root and v not in env:
            if live.views[v] > live.at:
                break  # its maker reads the new value
            chain.append(self.graph.nodes[live.views[v]])
            v = chain[-1].inputs[0]
        made: list[Node] = []
        for node in reversed(chain):
            new = Value(node.output.type, node.output.hint)
            made.append(Node(node.op, tuple([env.get(u, u) for u in node.inputs]), (new,), node.attrs, node.where))
            env[node.output] = new
        return made

    def _is_available(self, v: Value, root: Value, made: int, again: int) -> bool:
        """Whether ``v`` still has at position ``again`` the value of ``made``, and is alive anyway, or small."""
        live, versions = self.live, self._versions
        if versions.before(made, v) != versions.before(again, v):
            return False
        source = live.roots[v]
        if source not in live.made or source in live.shown:
            return True
        return live.last(source) >= again or source.nbytes * SMALL_RATIO <= root.nbytes

    def _piece(self, maker: Node, root: Value, again: int) -> _Piece | None:
        """The piece that computes ``root`` again at a position; None if an operand is not available there."""
        made = self.live.made[root]
        inputs, body = _body_of(maker)
        outer = dict(zip(body.inputs, inputs, strict=True))
        inner = dict(zip(maker.outputs, body.outputs, strict=True))
        nodes = body.nodes
        # A value stored in half precision differs from the one that the kernel went on computing with.
        if all(v.tensor.dtype.itemsize > 2 for n in nodes for v in n.outputs if v.tensor.dtype.kind == "f"):
            known = {inner[v]: v for v in maker.outputs if v is not root and self._is_available(v, root, made, again)}
            nodes = tuple([n for n in nodes if n.outputs[0] not in known])
            outer.update(known)
        part = canonical(Graph(body.name, tuple(outer), (), (), nodes, (inner[root],)))
        if not part.nodes or not all(self._is_available(outer[v], root, made, again) for v in part.inputs):
            return None
        stages = 1 + sum(n.op.name == "reduce" for n in part.nodes)
        inputs = tuple([outer[v] for v in part.inputs])
        cost = _point_cost(part.nodes) * root.tensor.size + BYTE_PICOSECONDS * (stages - 1) * total_bytes(inputs)
        part = on_own_values(part)
        try:
            nest_of(part)
        except NotANest:
            return None
        return _Piece(inputs, part, cost)

    def _inside(self, piece: _Piece, root: Value, late: Sequence[int]) -> _Choice | None:
        """The same inside the kernels that read the value; None if they cannot hold it."""
        nodes, cost = self.graph.nodes, 0
        instead: dict[int, tuple[Node, ...]] = {}
        for i in late:
            joined = _joined(piece, root, nodes[i])
            if joined is None:
                return None
            extra = total_bytes(v for v in joined.inputs if v not in nodes[i].inputs)
            stages = nest_of(joined.attrs["body"]).stages
            cost += max(0, stages * piece.cost + BYTE_PICOSECONDS * (extra - root.nbytes))
            instead[i] = (joined,)
        return _Choice(root, cost, instead)

    def with_choice(self, choice: _Choice) -> Graph:
        """The graph with the nodes of ``choice``."""
        return self.graph.with_nodes([new for i, node in enumerate(self.graph.nodes)
                                      for new in choice.instead.get(i, (node,))])


def _joined(piece: _Piece, root: Value, reader: Node) -> Node | None:
    """The nest ``reader`` with the piece that makes ``root`` inside; None if that is no nest of the same points."""
    if not _is_nest(reader) or reader.has_effect:
        return None
    inputs, body = _body_of(reader)
    if any(n.op.name == "slice" for n in (*piece.body.nodes, *body.nodes)):
        return None
    own: dict[Value, Value] = {}  # outer values to the new body's inputs

    def entering(v: Value) -> Value:
        if v not in own:
            own[v] = Value(v.type, v.hint)
        return own[v]

    first = {v: entering(u) for v, u in zip(piece.body.inputs, piece.inputs, strict=True)}
    nodes = copied(piece.body.nodes, first)
    result = first[piece.body.outputs[0]]
    second = {v: result if u is root else entering(u) for v, u in zip(body.inputs, inputs, strict=True)}
    nodes += copied(body.nodes, second)
    made = canonical(Graph(body.name, tuple(own.values()), (), (), tuple(nodes),
                           tuple([second[v] for v in body.outputs])))
    if len(made.inputs) + len(made.outputs) > MAX_BUFFERS:
        return None
    try:
        before, after = nest_of(body), nest_of(made)
    except NotANest:
        return None
    if (before.size, before.stages) != (after.size, after.stages):
        return None
    outer = {v: u for u, v in own.items()}
    return Node(FUSED, tuple([outer[v] for v in made.inputs]), reader.outputs, {"body": made}, reader.where)
