"""A graph cut at a position: values made before it and read behind it cross, and are kept or computed again behind it.

Values that are not kept get clones of their makers, or of the slices that make them, right before their first reader
behind the cut, down to values that are kept. Nodes that draw, write or run Python are never repeated: their results are
always kept. Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016).
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from kusari.ir import Graph, Node, TensorType, Value
from kusari.ir.arithmetic import operations

from .liveness import Liveness, total_bytes
from .min_cut import cheapest
from .order import Versions
from .slices import Slices

SMALL_SHARE = 0.05  # of the bytes that cross: kept in any case, the smallest values first
SEGMENTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)


@dataclass(frozen=True, eq=False)
class Recomputed:
    """A graph in which some values are computed twice.

    ``kept`` are the roots that cross the cut now, ``picoseconds`` an estimate of the time that it takes more.
    """

    graph: Graph
    kept: tuple[Value, ...]
    clones: int
    picoseconds: float

    def crossing(self) -> int:
        """Bytes of the values that cross the cut."""
        return total_bytes(self.kept)


class Cut:
    """A graph cut at a position: the definitions before it, and the values read behind it.

    Without ``products`` neither products nor convolutions run again.
    """

    def __init__(self, graph: Graph, cut: int, products: bool = True, slices: Slices | None = None) -> None:
        self.graph, self.cut, self.products = graph, cut, products
        self._slices = slices or Slices()
        self._before = self._slices.time(graph.nodes)
        self.roots = graph.roots()
        self.made = {v: i for i, n in enumerate(graph.nodes[:cut]) for v in n.outputs}
        behind = range(cut, len(graph.nodes))
        self._readers = [i for i in behind if not self.made.keys().isdisjoint(graph.nodes[i].inputs)]
        self._versions = Versions(graph)
        read = dict.fromkeys(self.roots[v] for i in self._readers for v in graph.nodes[i].inputs)
        self.crossing = [r for r in read if r in self.made]
        shown = {self.roots[v] for v in graph.outputs if self.roots[v] in self.made}
        self.fixed = {r for r in self.made if self.roots[r] is r and (r in shown or not self._repeats(self.maker(r)))}
        room = SMALL_SHARE * total_bytes(self.crossing)
        for root in sorted(self.crossing, key=lambda v: v.nbytes):  # statistics, read far from their definition
            room -= root.nbytes
            if room < 0:
                break
            self.fixed.add(root)

    def maker(self, root: Value) -> Node:
        """The node that makes a value."""
        return self.graph.nodes[self.made[root]]

    def _repeats(self, node: Node) -> bool:
        """Whether a node may run again."""
        return not node.has_effect and all(isinstance(v.type, TensorType) for v in node.outputs) and (
            self.products or not operations(node))

    def _unchanged(self, values: Iterable[Value], made: int, again: int) -> bool:
        """Whether operands from outside are the same at a later position."""
        return all(self._versions.before(made, v) == self._versions.before(again, v) for v in values)

    def rebuild(self, kept: Collection[Value]) -> Recomputed | Value:
        """Return the graph with all but ``kept`` computed again, or a value that must be kept as well."""
        graph, made, roots = self.graph, self.made, self.roots
        env: dict[Value, Value] = {}
        nodes: list[Node] = []
        clones: dict[Node, None] = {}
        done = 0

        def known(v: Value) -> bool:
            return v in env or v not in made or v in kept and (roots[v] is v or roots[v] not in made)

        for position in self._readers:
            node = graph.nodes[position]
            nodes += graph.nodes[done:position]
            done = position + 1
            stack = [v for v in reversed(node.inputs) if not known(v)]
            while stack:
                v = stack[-1]
                if known(v):
                    stack.pop()
                    continue
                maker = self.maker(v)
                part = self._slices.of(maker, v, [u for u in maker.outputs if known(u)])
                again = maker if part is None else part
                if missing := [u for u in again.inputs if not known(u)]:
                    stack += reversed(missing)
                    continue
                if not self._repeats(maker) or not self._unchanged(again.inputs, made[v], position):
                    return roots[v] if roots[v] in made else v  # a view of a param that is written since
                results = tuple(Value(u.type, u.hint) for u in again.outputs)
                clone = replace(again.on(env), outputs=results)
                nodes.append(clone)
                old = maker.outputs if part is None else (v,)
                env.update((u, new) for u, new in zip(old, results, strict=True) if not known(u))
                if not maker.op.is_view:
                    clones[clone] = None
            nodes.append(node.on(env))
        nodes += graph.nodes[done:]
        found = self._slices.absorb(graph.with_nodes(nodes), clones)
        behind = dict.fromkeys(v for n in found.nodes[self.cut:] for v in n.inputs if v in made)
        return Recomputed(found, tuple(behind), len(clones), self._slices.time(found.nodes) - self._before)

    def attempt(self, kept: Collection[Value]) -> Recomputed:
        """The same, keeping more values as they turn out to be needed."""
        kept = self.fixed.union(kept)
        while isinstance(found := self.rebuild(kept), Value):
            kept.add(found)
        return found

    def smallest(self) -> set[Value]:
        """The values of the fewest bytes from which all that cross can be made."""
        values = [v for v in self.made if self.roots[v] is v]
        costs = {v: -1 if v in self.fixed else 0 for v in values}
        prices = {v: 0 if v in self.fixed and v in self.crossing else v.nbytes for v in values}
        operands = {v: [u for w in self.maker(v).inputs if (u := self.roots[w]) in costs] for v in values}
        again = cheapest(costs, prices, operands, self.crossing)
        needed = {u for v in again for u in operands[v]}
        return {v for v in (*self.crossing, *needed) if v not in again}

    def by_price(self, count: int, time: float) -> Iterator[set[Value]]:
        """Yield ``count`` ever smaller sets of kept values: the first to go take the least time per byte to make again.

        Of values of about the same price, to a factor of two, the first goes first: the part behind wants it last.
        A value that does not fit into ``time`` with the others is left out.
        """
        every = set(self.crossing)
        prices: list[tuple[int, int, float, Value]] = []
        before = total_bytes(every)
        for root in self.crossing:
            if root not in self.fixed and root.nbytes:
                found = self.attempt(every - {root})
                if (less := before - found.crossing()) > 0:
                    price = max(0.0, found.picoseconds / less)
                    prices.append((int(price).bit_length(), self.made[root], found.picoseconds, root))
        prices.sort(key=lambda priced: priced[:2])
        total = total_bytes(root for *_, root in prices)
        filled, share = 0, 1
        for *_, price, root in prices:
            if price > time:
                continue
            time -= price
            every.discard(root)
            filled += root.nbytes
            if filled * count >= total * share:
                share = filled * count // total + 1
                yield set(every)

    def segments(self, last: set[Value]) -> Iterator[set[Value]]:
        """Cut the part before into segments of about as many crossing bytes; keep the values alive at their borders.

        The last segment keeps the values that cross, or (the second of each pair) only the ones in ``last``.
        """
        order = sorted(self.crossing, key=lambda r: self.made[r])
        total = total_bytes(order)
        live = Liveness(self.graph.with_nodes(self.graph.nodes[:self.cut], ())).alive if total else []
        for count in SEGMENTS:
            if count > len(order) or not total:
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
            end = {r for r in order if self.made[r] >= (borders[-1] if borders else 0)}
            yield kept | end
            yield kept | (end & last)
