"""Rematerialization: values read long after they were made are computed again, where that costs hardly any time.

Where the most is alive, a value that a loop nest made of others which stay anyway (or of small ones, as the statistics
of a normalization) need not wait for its late readers: a part of its maker runs again, inside the kernel that reads it
where that can be, else right in front of it. A part computes the value from what its maker has computed besides, if
that is there. All the same scalar functions on the same numbers: the bits are those they were.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from kusari.ir import FUSED, Call, Graph, Node, TensorType, Value, walk
from kusari.ir.alignment import NotANest
from kusari.ir.arithmetic import operations
from kusari.ir.nest import TRANSCENDENTAL, nest_of
from kusari.ir.product import ROOTS

from .canonical import canonical
from .keep import CHEAP, COSTLY, PER_BYTE, SLOW, SLOWER
from .regions import MAX_BUFFERS

SHARE = 0.01           # of the time of all nodes: so much may be spent
ARITHMETIC = 6e11      # operations per second of products and convolutions, at most: what is saved of them counted in
ROW = 2_000_000        # picoseconds that one more row takes
LEAST = 1 << 20        # bytes alive below which it is not worth looking
PART = 100             # of what is alive: smaller values are left alone
SMALL = 64             # of a value: what is that much smaller may stay for it
GAIN = 0.02            # of the bytes: less is no gain
ROUNDS = 64


@dataclass(frozen=True, eq=False)
class Rematerialized:
    """A graph that takes less memory: ``count`` values are computed again, in ``seconds`` by estimate."""

    graph: Graph
    count: int
    seconds: float


@dataclass(frozen=True, eq=False)
class _Piece:
    """``body`` computes a value again from ``inputs``, where ``size`` points take ``work`` picoseconds each."""

    inputs: tuple[Value, ...]
    body: Graph
    cost: int


@dataclass(frozen=True, eq=False)
class _Choice:
    """A value to compute again: the nodes to put in place of others, or in front of them; picoseconds."""

    root: Value
    cost: int
    instead: dict[int, tuple[Node, ...]]


def rematerialize_cheap(graph: Graph, share: float = SHARE, least: int = LEAST) -> Rematerialized:
    """Return a graph in which values are computed again where the most is alive, for ``share`` of its time at most.

    Nothing is done below ``least`` bytes. Products, convolutions, draws and effects never run again.
    """
    budget = int(share * sum(map(_picoseconds, graph.nodes)))
    lives = _Lives(graph)
    found = [(lives.most, Rematerialized(graph, 0, 0.0))]
    spent = 0
    while lives.most >= least and len(found) <= ROUNDS:
        best: _Choice | None = None
        for root in lives.crossing():
            choice = lives.choice(root)
            if choice is not None and spent + choice.cost <= budget and (
                    best is None or _price(choice) < _price(best)):
                best = choice
        if best is None:
            break
        spent += best.cost
        graph = lives.with_choice(best)
        lives = _Lives(graph)
        found.append((lives.most, Rematerialized(graph, len(found), spent * 1e-12)))
    enough = min(most for most, _ in found) * (1 + GAIN)
    return next(cheaper for most, cheaper in found if most <= enough)


def _price(choice: _Choice) -> float:
    return choice.cost / choice.root.tensor.nbytes


def _nbytes(value: Value) -> int:
    return value.type.nbytes if isinstance(value.type, TensorType) else 0


def _picoseconds(node: Node) -> int:
    """At least what the node takes."""
    if node.op.is_view:
        return 0
    moved = PER_BYTE * sum(map(_nbytes, (*node.inputs, *node.outputs)))
    return max(moved, int(operations(node) / ARITHMETIC * 1e12))


def _work(nodes: Sequence[Node]) -> int:
    """Picoseconds of maps and reductions at one point."""
    calls = [c for n in nodes if n.op.name == "map" for c in {e for e in walk(n.attrs["expr"]) if isinstance(e, Call)}]
    return sum(COSTLY if c.fn in TRANSCENDENTAL else SLOW if c.fn in SLOWER else CHEAP for c in calls) + CHEAP * sum(
        n.op.name == "reduce" for n in nodes)


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


class _Lives:
    """A graph, when its values are made and read, and the position behind which the most of them is alive."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.roots = roots = graph.roots()
        self.writes: dict[Value, list[int]] = {}
        self.reads: dict[Value, list[int]] = {v: [] for v in graph.sources()}
        self.made: dict[Value, int] = {}
        self.views: dict[Value, int] = {}  # of values of others' buffers: who makes them
        for i, node in enumerate(graph.nodes):
            if node.op.writes and node.inputs:
                self.writes.setdefault(roots[node.inputs[0]], []).append(i)
            for v in dict.fromkeys(roots[v] for v in node.inputs):
                self.reads[v].append(i)
            for v in node.outputs:
                if roots[v] is v:
                    self.reads[v], self.made[v] = [], i
                else:
                    self.views[v] = i
        # Results, and what becomes state, is not in the arena as a rule.
        self.shown = {roots[v] for v in (*graph.outputs, *(v for n in graph.nodes if n.op.writes for v in n.inputs))}
        change = [0] * (len(graph.nodes) + 1)
        for v, born in self.made.items():
            if v not in self.shown:
                change[born] += _nbytes(v)
                change[self._last(v)] -= _nbytes(v)
        self.most, self.at, now = 0, 0, 0
        for i, each in enumerate(change):
            now += each
            if now > self.most:
                self.most, self.at = now, i

    def _last(self, root: Value) -> int:
        return self.reads[root][-1] if self.reads[root] else self.made[root]

    def crossing(self) -> list[Value]:
        """The values worth looking at that are alive where the most is, the first made first."""
        return [v for v, born in self.made.items() if born <= self.at < self._last(v)
                and v not in self.shown and _nbytes(v) * PART >= self.most]

    def choice(self, root: Value) -> _Choice | None:
        """How to compute a value again for those who read it later; None where that cannot be."""
        nodes = self.graph.nodes
        maker = nodes[self.made[root]]
        if not _is_nest(maker) or maker.has_effect:
            return None
        late = self.reads[root][bisect_left(self.reads[root], self.at + 1):]
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
        cost = piece.cost + ROW + PER_BYTE * (sum(map(_nbytes, piece.inputs)) + _nbytes(root))
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
        """What makes a view of a value anew, if ``v`` is one that was made before; ``env`` knows it then."""
        chain: list[Node] = []
        while self.roots[v] is root and v not in env:
            if self.views[v] > self.at:
                break  # its maker reads the new value
            chain.append(self.graph.nodes[self.views[v]])
            v = chain[-1].inputs[0]
        made: list[Node] = []
        for node in reversed(chain):
            new = Value(node.output.type, node.output.hint)
            made.append(Node(node.op, tuple([env.get(u, u) for u in node.inputs]), (new,), node.attrs, node.where))
            env[node.output] = new
        return made

    def _there(self, v: Value, root: Value, made: int, again: int) -> bool:
        """Whether ``v`` is at position ``again`` what it was at ``made``, and there anyway, or small."""
        source = self.roots[v]
        if (at := self.writes.get(source)) is not None and bisect_left(at, made) != bisect_left(at, again):
            return False
        if source not in self.made or source in self.shown:
            return True
        return self._last(source) >= again or _nbytes(source) * SMALL <= _nbytes(root)

    def _piece(self, maker: Node, root: Value, again: int) -> _Piece | None:
        """What computes ``root`` again at a position, None if what that takes is not there."""
        made = self.made[root]
        inputs, body = _body_of(maker)
        outer = dict(zip(body.inputs, inputs, strict=True))
        inner = dict(zip(maker.outputs, body.outputs, strict=True))
        nodes = body.nodes
        # What has been stored in half precision is not what the kernel went on computing with.
        if all(v.tensor.dtype.itemsize > 2 for n in nodes for v in n.outputs if v.tensor.dtype.kind == "f"):
            known = {inner[v]: v for v in maker.outputs if v is not root and self._there(v, root, made, again)}
            nodes = tuple([n for n in nodes if n.outputs[0] not in known])
            outer.update(known)
        part = canonical(Graph(body.name, tuple(outer), (), (), nodes, (inner[root],)))
        if not part.nodes or not all(self._there(outer[v], root, made, again) for v in part.inputs):
            return None
        stages = 1 + sum(n.op.name == "reduce" for n in part.nodes)
        reads = (stages - 1) * sum(_nbytes(outer[v]) for v in part.inputs)
        cost = _work(part.nodes) * root.tensor.size + PER_BYTE * reads
        part = _copy(part)
        try:
            nest_of(part.body)
        except NotANest:
            return None
        return _Piece(tuple([outer[v] for v in part.origin]), part.body, cost)

    def _inside(self, piece: _Piece, root: Value, late: Sequence[int]) -> _Choice | None:
        """The same within the kernels that read the value, None where they cannot or that takes longer."""
        nodes, cost = self.graph.nodes, 0
        instead: dict[int, tuple[Node, ...]] = {}
        for i in late:
            joined = _joined(piece, root, nodes[i])
            if joined is None:
                return None
            extra = sum(_nbytes(v) for v in joined.inputs if v not in nodes[i].inputs)
            stages = nest_of(joined.attrs["body"]).stages
            cost += max(0, stages * piece.cost + PER_BYTE * (extra - _nbytes(root)))
            instead[i] = (joined,)
        return _Choice(root, cost, instead)

    def with_choice(self, choice: _Choice) -> Graph:
        """The graph with other nodes."""
        return self.graph.with_nodes([new for i, node in enumerate(self.graph.nodes)
                                      for new in choice.instead.get(i, (node,))])


@dataclass(frozen=True, eq=False)
class _Copied:
    """A body on values of its own, and whose copies its inputs are."""

    body: Graph
    origin: tuple[Value, ...]


def _copy(body: Graph) -> _Copied:
    new: dict[Value, Value] = {v: Value(v.type, v.hint) for v in body.inputs}
    nodes = _copied(body.nodes, new)
    outputs = tuple([new[v] for v in body.outputs])
    return _Copied(Graph(body.name, tuple([new[v] for v in body.inputs]), (), (), nodes, outputs), body.inputs)


def _copied(nodes: Sequence[Node], new: dict[Value, Value]) -> tuple[Node, ...]:
    """The nodes on the values of ``new``, to which what they make is added."""
    made: list[Node] = []
    for n in nodes:
        outputs = tuple([Value(v.type, v.hint) for v in n.outputs])
        made.append(Node(n.op, tuple([new[v] for v in n.inputs]), outputs, n.attrs, n.where))
        new.update(zip(n.outputs, outputs, strict=True))
    return tuple(made)


def _joined(piece: _Piece, root: Value, reader: Node) -> Node | None:
    """The nest ``reader`` with the piece in it that makes ``root``; None where that is no nest of the same points."""
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
    nodes = list(_copied(piece.body.nodes, first))
    result = first[piece.body.outputs[0]]
    second = {v: result if u is root else entering(u) for v, u in zip(body.inputs, inputs, strict=True)}
    nodes += _copied(body.nodes, second)
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
