"""Recomputation: values that a backward needs are dropped and computed again, so that less memory is taken.

A graph is cut at a position. Values made before it and read behind it cross the cut; values that are not kept get
clones of their makers right before their first reader behind the cut, down to values that are kept. Clones are the same
nodes on the same operands, so they become the same kernels and give the same bits. Nodes that draw, write or run Python
are never repeated: their results are always kept. Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost"
(2016).
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from kusari.ir import Graph, Node, TensorType, Value
from kusari.ir.arithmetic import operations
from kusari.ir.costs import BYTE_PICOSECONDS, node_picoseconds

from .liveness import Liveness, total_bytes
from .order import Versions
from .rematerialize import LEAST_LIVE_BYTES, TIME_SHARE, rematerialize_cheap
from .tidy import remove_dead
from .update_early import update_early

SMALL_SHARE = 0.05       # of the bytes that cross: kept in any case, the smallest values first
LEAST_GAIN_SHARE = 0.02  # of the bytes: less is not worth computing anything again
ABOUT_SHARE = 0.04       # of the bytes: so much more than the least counts as the least
SEGMENTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
COST_CHOICES = 8         # of values that are cheap to compute again: equal shares of the bytes that cross
CUT_ROUNDS = 6           # of one step, each at the most live bytes


@dataclass(frozen=True, eq=False)
class Recomputed:
    """A graph in which some values are computed twice; ``cut`` is a position in the original graph.

    ``kept`` are the roots that cross the cut now, ``seconds`` is the estimated time of the clones.
    """

    graph: Graph
    cut: int
    kept: tuple[Value, ...]
    clones: int
    seconds: float

    def crossing(self) -> int:
        """Bytes of the values that cross the cut."""
        return total_bytes(self.kept)


class _Needed(Exception):
    """A value cannot be made again."""

    def __init__(self, root: Value) -> None:
        self.root = root


def _contracts(node: Node) -> bool:
    """Whether the node is (or contains) a product or a convolution."""
    return operations(node) > 0


def _seconds(node: Node) -> float:
    """A rough estimate of the node's time."""
    return 1e-12 * node_picoseconds(node)


def _repeatable(node: Node) -> bool:
    return not node.has_effect and all(isinstance(v.type, TensorType) for v in node.outputs)


class _Cut:
    """A graph cut at a position: the definitions before it, and the values read behind it."""

    def __init__(self, graph: Graph, cut: int) -> None:
        self.graph, self.cut = graph, cut
        self.roots = graph.roots()
        self.made = {v: i for i, n in enumerate(graph.nodes[:cut]) for v in n.outputs}
        self._versions = Versions(graph)
        behind = dict.fromkeys(self.roots[v] for n in graph.nodes[cut:] for v in n.inputs)
        self.crossing = [r for r in behind if r in self.made]
        self._crossing = frozenset(self.crossing)
        shown = {self.roots[v] for v in graph.outputs if self.roots[v] in self.made}
        self.fixed = {r for r in self.made if self.roots[r] is r and (
            r in shown or not _repeatable(graph.nodes[self.made[r]]))}
        room = SMALL_SHARE * total_bytes(self.crossing)
        for root in sorted(self.crossing, key=lambda v: v.nbytes):  # statistics, read far from their definition
            room -= root.nbytes
            if room < 0:
                break
            self.fixed.add(root)

    def unchanged(self, node: Node, made: int, again: int) -> bool:
        """Whether the operands of the node from outside are the same at a later position."""
        return all(self._versions.before(made, v) == self._versions.before(again, v) for v in node.inputs)

    def rebuild(self, kept: Collection[Value]) -> Recomputed:
        """Return the graph with all but ``kept`` computed again; raises ``_Needed`` for a value that must be kept."""
        graph, made, roots = self.graph, self.made, self.roots
        env: dict[Value, Value] = {}
        nodes: list[Node] = list(graph.nodes[:self.cut])
        clones, seconds = 0, 0.0

        def known(v: Value) -> bool:
            return v in env or v not in made or (roots[v] is v and v in kept)

        for position in range(self.cut, len(graph.nodes)):
            node = graph.nodes[position]
            stack = [v for v in reversed(node.inputs) if not known(v)]
            while stack:
                v = stack[-1]
                if known(v):
                    stack.pop()
                    continue
                maker = graph.nodes[made[v]]
                if missing := [u for u in maker.inputs if not known(u)]:
                    stack += reversed(missing)
                    continue
                if not _repeatable(maker) or not self.unchanged(maker, made[v], position):
                    raise _Needed(roots[v])
                again = tuple(Value(u.type, u.hint) for u in maker.outputs)
                nodes.append(Node(maker.op, tuple(env.get(u, u) for u in maker.inputs), again, maker.attrs,
                                  maker.where))
                env.update((old, new) for old, new in zip(maker.outputs, again, strict=True) if not known(old))
                if not maker.op.is_view:
                    clones, seconds = clones + 1, seconds + _seconds(maker)
            inputs = tuple(env.get(v, v) for v in node.inputs)
            same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
            nodes.append(node if same else Node(node.op, inputs, node.outputs, node.attrs, node.where))
        found = graph.with_nodes(nodes)
        behind = dict.fromkeys(v for n in nodes[self.cut:] for v in n.inputs if v in made)
        return Recomputed(found, self.cut, tuple(behind), clones, seconds)

    def attempt(self, kept: set[Value]) -> Recomputed:
        """The same, keeping more values as they turn out to be needed."""
        kept = kept | self.fixed
        while True:
            try:
                return self.rebuild(kept)
            except _Needed as needed:
                kept.add(needed.root)

    def maker(self, root: Value) -> Node:
        return self.graph.nodes[self.made[root]]

    def cheap(self) -> Iterator[set[Value]]:
        """Sets of values to keep so that neither products nor convolutions are repeated.

        First all their results; then, for each value that crosses, the results it is made from if these are smaller,
        else the value itself.
        """
        all_contracted = {r for r in self.made if self.roots[r] is r and _contracts(self.maker(r))}
        yield all_contracted
        kept = {r for r in self.crossing if r in self.fixed or _contracts(self.maker(r))}
        for root in self.crossing:  # an earlier one may have made a later one free
            if root in kept:
                continue
            new = {r for r in self._sources(root, kept) if _contracts(self.maker(r)) or r in self.fixed}
            kept |= new if total_bytes(new) < root.nbytes else {root}
        yield kept

    def _sources(self, root: Value, kept: Collection[Value]) -> list[Value]:
        """The contractions and fixed values that ``root`` would be made from, without ``kept``."""
        found: dict[Value, None] = {}
        seen: set[Value] = set()
        stack = [root]
        while stack:
            v = self.roots[stack.pop()]
            if v in seen or v not in self.made or v in kept:
                continue
            seen.add(v)
            if v is not root and (v in self.fixed or _contracts(self.maker(v))):
                found[v] = None
            else:
                stack += self.maker(v).inputs
        return list(found)

    def cheapest(self, products: bool) -> Iterator[set[Value]]:
        """Yield ever smaller sets of kept values: the first to go take the least time per byte to make again.

        Of values of about the same cost, to a factor of two, the first goes first: the backward wants it last.
        """
        prices: list[tuple[int, int, Value]] = []
        for root in self.crossing:
            if root not in self.fixed and root.nbytes:
                makers = self._makers(root)
                if products or not any(map(_contracts, makers)):
                    price = sum(map(node_picoseconds, makers)) / (BYTE_PICOSECONDS * root.nbytes)
                    prices.append((int(price).bit_length(), self.made[root], root))
        prices.sort(key=lambda priced: priced[:2])
        total = total_bytes(root for *_, root in prices)
        kept, filled, share = set(self.crossing), 0, 1
        for *_, root in prices:
            kept.discard(root)
            filled += root.nbytes
            if filled * COST_CHOICES >= total * share:
                share = filled * COST_CHOICES // total + 1
                yield set(kept)

    def _makers(self, root: Value) -> list[Node]:
        """The nodes that make a value from the values that cross."""
        found: dict[Node, None] = {}
        stack = [self.maker(root)]
        while stack:
            node = stack.pop()
            if node not in found:
                found[node] = None
                stack += [self.graph.nodes[self.made[v]] for v in node.inputs
                          if v in self.made and self.roots[v] not in self._crossing]
        return list(found)

    def segments(self, cheap: set[Value]) -> Iterator[set[Value]]:
        """Cut the part before into segments of about as many crossing bytes; keep the values alive at their borders.

        The last segment keeps the values that cross, or (the second of each pair) only its values in ``cheap``.
        """
        order = sorted(self.crossing, key=lambda r: self.made[r])
        total = total_bytes(order)
        if not total:
            return
        live = self._live()
        for count in SEGMENTS:
            if count > len(order):
                return
            borders: list[int] = []
            filled = 0
            for root in order:
                filled += root.nbytes
                if filled >= total * (len(borders) + 1) / count and len(borders) < count - 1:
                    near = range(self.made[root], min(self.cut - 1, self.made[root] + 1 + self.cut // (2 * count)))
                    borders.append(min(near, key=lambda p: live[p], default=self.made[root]) + 1)
            kept: set[Value] = set()
            for border in borders:
                for node in self.graph.nodes[border:self.cut]:
                    kept.update(r for v in node.inputs if (r := self.roots[v]) in self.made and self.made[r] < border)
            last = {r for r in order if self.made[r] >= (borders[-1] if borders else 0)}
            yield kept | last
            yield kept | {r for r in last if r in cheap}

    def _live(self) -> list[int]:
        """Bytes that the part before the cut itself still needs after each of its nodes."""
        last: dict[Value, int] = {}
        for i, node in enumerate(self.graph.nodes[:self.cut]):
            last.update((r, i) for v in node.inputs if (r := self.roots[v]) in self.made)
        change = [0] * (self.cut + 1)
        for root, end in last.items():
            change[self.made[root]] += root.nbytes
            change[end] -= root.nbytes
        found: list[int] = []
        for each in change:
            found.append(each + (found[-1] if found else 0))
        return found


def fullest(graph: Graph) -> int:
    """Return the position at which the most bytes of intermediates are alive, the cut of a whole step."""
    return min(Liveness(graph).at + 1, len(graph.nodes))


def keeping(graph: Graph, cut: int, kept: Collection[Value]) -> Recomputed:
    """Return the graph in which only ``kept`` crosses the cut, with the values that must cross besides."""
    return _Cut(graph, cut).attempt(set(kept))


def from_kept(graph: Graph, cut: int, kept: Collection[Value]) -> Recomputed | None:
    """Return the graph in which nothing but ``kept`` crosses the cut; None if that is not enough."""
    try:
        return _Cut(graph, cut).rebuild(kept)
    except _Needed:
        return None


def recomputations(graph: Graph, cut: int, products: bool) -> Iterator[Recomputed]:
    """Yield alternatives that trade time for memory; with ``products`` also some that repeat contractions."""
    at = _Cut(graph, cut)
    alternatives: list[set[Value]] = list(at.cheap())
    cheap = alternatives[-1]
    alternatives += at.cheapest(products)
    if products:
        alternatives += at.segments(cheap)
    seen: set[tuple[Value, ...]] = set()
    for kept in alternatives:
        found = at.attempt(kept)
        if found.kept not in seen:
            seen.add(found.kept)
            yield found


def choose_recomputed(graph: Graph, cut: int, memory: str | float, now: int,
                      size: Callable[[Recomputed], int], products: bool = True) -> tuple[Recomputed | None, int]:
    """Return the graph to run for ``memory``, and its bytes; None if none is better than the graph as it is.

    ``size`` returns the bytes that an alternative takes, ``now`` are the bytes of the graph as it is. ``"balanced"``
    takes the least without repeating products, ``"low"`` the least of all; a number of bytes is a limit: the fastest
    alternative within it, or the least of all if none is. Of alternatives that take about the least it is the fastest.
    """
    if not isinstance(memory, str) and now <= memory:
        return None, now
    alternatives = [(size(way), way) for way in recomputations(graph, cut, products and memory != "balanced")]
    alternatives = [(n, way) for n, way in alternatives if n < now * (1 - LEAST_GAIN_SHARE)]
    if not alternatives:
        return None, now
    enough = min(n for n, _ in alternatives) + ABOUT_SHARE * now if isinstance(memory, str) else memory
    within = [(n, way) for n, way in alternatives if n <= enough]
    if not within:
        enough = min(n for n, _ in alternatives) + ABOUT_SHARE * now
        within = [(n, way) for n, way in alternatives if n <= enough]
    n, best = min(within, key=lambda found: (found[1].seconds, found[0]))
    return best, n


@dataclass(frozen=True, eq=False)
class RecomputedStep:
    """A whole step with recomputation: its graph and bytes, how many nodes run again, an estimate of their time."""

    graph: Graph
    nbytes: int
    clones: int
    seconds: float


def recompute_in_rounds(graph: Graph, memory: str | float, now: int, size: Callable[[Graph], int]) -> RecomputedStep:
    """Return the graph of a whole step with recomputation for ``memory``, as for ``choose_recomputed``.

    It is cut at the most live bytes, and the result is cut again, as long as that helps. A limit is first tried without
    repeating products.
    """
    tried = [_rounds(graph, memory, now, size, products)
             for products in ((False,) if memory == "balanced" else (True,) if memory == "low" else (False, True))]
    if not isinstance(memory, str) and (within := [each for each in tried if each.nbytes <= memory]):
        return min(within, key=lambda each: each.seconds)
    return min(tried, key=lambda each: each.nbytes)


def _rounds(graph: Graph, memory: str | float, now: int, size: Callable[[Graph], int],
            products: bool) -> RecomputedStep:
    found, worth = graph, 0.0
    for _ in range(CUT_ROUNDS):
        way, less = choose_recomputed(found, fullest(found), memory, now, lambda way: size(remove_dead(way.graph)),
                                      products)
        if way is None or now - less < worth:
            break
        found, now = remove_dead(way.graph), less
        worth = worth or (ABOUT_SHARE * now if isinstance(memory, str) else 1)  # further rounds repeat clones
    again = [node for node in found.nodes if not node.op.is_view]
    kept = [node for node in graph.nodes if not node.op.is_view]
    seconds = sum(map(_seconds, again)) - sum(map(_seconds, kept))
    return RecomputedStep(found, now, len(again) - len(kept), seconds)


@dataclass(frozen=True)
class Account:
    """The effect of recomputation: nodes that run again, bytes now and before, bytes of outputs that are gone."""

    clones: int
    now: int
    before: int
    gone: int = 0


def limit(memory: str | float, speed: int) -> str | float:
    """Return a share of the bytes that ``"speed"`` takes as bytes; other wishes unchanged."""
    return memory * speed if isinstance(memory, float) and memory < 1 else memory


def recompute_cheap(graph: Graph, size: Callable[[Graph], int], share: float = TIME_SHARE,
                    least: int = LEAST_LIVE_BYTES) -> tuple[Graph, Account | None]:
    """Return the graph that ``"speed"`` runs, and an account: values that take hardly any time are computed again.

    ``share`` and ``least`` are as for ``rematerialize_cheap``.
    """
    found = rematerialize_cheap(graph, share, least)
    if not found.count:
        return graph, None
    less = remove_dead(found.graph)
    before, now = size(graph), size(less)
    return (less, Account(found.count, now, before)) if now < before * (1 - LEAST_GAIN_SHARE) else (graph, None)


def recompute_step(graph: Graph, memory: str | float, size: Callable[[Graph], int], spent: Collection[int] = (),
               cheaper: Graph | None = None) -> tuple[Graph, Account]:
    """Return the graph of a whole step with recomputation for ``memory``, and an account of it.

    ``spent`` are outputs that ``"low"`` does not return: gradients, which are released once they have been used.
    ``cheaper`` is the graph of ``"speed"``: nothing that takes more memory is returned.
    """
    speed = graph if cheaper is None else cheaper
    before = size(speed)
    most = limit(memory, before)
    if not isinstance(most, str) and before <= most:
        return speed, Account(0, before, before)
    found = recompute_in_rounds(graph, most, before if speed is graph else size(graph), size)
    if found.nbytes > before:
        found = RecomputedStep(speed, before, 0, 0.0)
    graph, now, gone = found.graph, found.nbytes, 0
    if memory == "low" and spent:
        gone = sum(v.tensor.nbytes for v in {graph.outputs[i] for i in spent})
        graph = update_early(graph.with_nodes(graph.nodes, [v for i, v in enumerate(graph.outputs) if i not in spent]))
        now = size(graph)
    return graph, Account(found.clones, now, before, gone)
