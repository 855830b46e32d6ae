"""The cheapest values to keep, the others being computed again: a minimum cut, by Dinic's maximum flow."""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from kusari.ir import Value

INFINITE = 1 << 60


def cheapest(costs: Mapping[Value, int], prices: Mapping[Value, int], operands: Mapping[Value, Sequence[Value]],
             wanted: Iterable[Value]) -> set[Value]:
    """Return the values to compute again so that all ``wanted`` are available for the least in all.

    To keep a value has its price, to compute it again from its operands, which are available then, its cost; -1 if that
    is impossible. Every value has a vertex "available" and, where possible, one "computed again".
    """
    network = Network()
    there = {v: network.vertex() for v in costs}
    again = {v: network.vertex() for v, cost in costs.items() if cost >= 0}
    for v, a in there.items():
        if v not in again:
            network.edge(a, 1, prices[v])
            continue
        r = again[v]
        network.edge(a, r, prices[v])
        network.edge(r, 1, costs[v])
        network.edge(r, a, INFINITE)
        for u in dict.fromkeys(operands[v]):
            network.edge(r, there[u], INFINITE)
    for v in wanted:
        network.edge(0, there[v], INFINITE)
    near = network.near_source()
    return {v for v, r in again.items() if near[r]}


class Network:
    """Vertices are numbers from 0; 0 is the source, 1 the sink.

    Source: E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation" (1970).
    """

    def __init__(self) -> None:
        self._out: list[list[int]] = [[], []]  # numbers of edges
        self._to: list[int] = []
        self._room: list[int] = []  # an edge is followed by its reverse

    def vertex(self) -> int:
        """A new vertex."""
        self._out.append([])
        return len(self._out) - 1

    def edge(self, a: int, b: int, capacity: int) -> None:
        """An edge that may be cut at the cost ``capacity``."""
        for u, v, room in ((a, b, capacity), (b, a, 0)):
            self._out[u].append(len(self._to))
            self._to.append(v)
            self._room.append(room)

    def near_source(self) -> list[bool]:
        """Which vertices the cheapest cut leaves on the source's side; of several such cuts, the one with fewest."""
        while True:
            level = self._levels()
            if level[1] < 0:
                return [x >= 0 for x in level]
            at = [0] * len(self._out)
            while self._augment(level, at):
                pass

    def _levels(self) -> list[int]:
        level = [-1] * len(self._out)
        level[0] = 0
        queue: deque[int] = deque([0])
        while queue:
            u = queue.popleft()
            for e in self._out[u]:
                v = self._to[e]
                if level[v] < 0 and self._room[e]:
                    level[v] = level[u] + 1
                    queue.append(v)
        return level

    def _augment(self, level: list[int], at: list[int]) -> bool:
        """Send flow along one path of rising levels; False when there is none left."""
        path: list[int] = []
        u = 0
        while u != 1:
            while at[u] < len(self._out[u]):
                e = self._out[u][at[u]]
                if self._room[e] and level[self._to[e]] == level[u] + 1:
                    path.append(e)
                    u = self._to[e]
                    break
                at[u] += 1
            else:
                if not path:
                    return False
                e = path.pop()
                u = self._to[e ^ 1]
                at[u] += 1
        flow = min(self._room[e] for e in path)
        for e in path:
            self._room[e] -= flow
            self._room[e ^ 1] += flow
        return True
