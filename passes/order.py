"""What must come before what: data, effects and the state that WRITES nodes change."""
from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from kusari.ir import Graph, Node, Value


def dependencies(graph: Graph) -> list[list[int]]:
    """Return for each node the nodes (by index) that must run before it.

    Besides data: nodes with effects keep their order, a node that reads a param runs before a later node that writes
    it and after an earlier one.
    """
    params = set(graph.params)
    states = {v: r for v, r in graph.roots().items() if r in params}  # a param, or a view of one, to the param
    made: dict[Value, int] = {}
    readers: dict[Value, list[int]] = {}
    writer: dict[Value, int] = {}
    last_effect = -1
    result: list[list[int]] = []
    for i, node in enumerate(graph.nodes):
        before: dict[int, None] = {}
        for v in node.inputs:
            if v in made:
                before[made[v]] = None
            if v in states:
                state = states[v]
                if state in writer:
                    before[writer[state]] = None
                readers.setdefault(state, []).append(i)
        if node.op.writes and node.inputs:
            state = node.inputs[0]
            before.update(dict.fromkeys(r for r in readers.get(state, ()) if r != i))
            writer[state] = i
            readers[state] = []
        if node.has_effect:
            if last_effect >= 0:
                before[last_effect] = None
            last_effect = i
        for v in node.outputs:
            made[v] = i
        result.append(list(before))
    return result


def written_values(graph: Graph) -> set[Value]:
    """The params that some node writes, and the views of them: what a node reads there depends on when it runs."""
    written = graph.written()
    return {v for v, root in graph.roots().items() if root in written}


def made_for_caller(graph: Graph) -> set[Value]:
    """The values that nodes make and outputs show: the caller may keep and change them, so they are no buffers of ours.

    An output that shows a source does so because define-by-run hands out the very same array.
    """
    roots = graph.roots()
    return {roots[v] for v in graph.outputs}.difference(graph.sources())


def schedule(keys: Sequence[int], before: Sequence[Iterable[int]]) -> list[int]:
    """Return the items (by position) in an order in which all of ``before[i]`` come before ``i``; ties by ``keys``."""
    waiting = [0] * len(keys)
    after: list[list[int]] = [[] for _ in keys]
    for i, needs in enumerate(before):
        for j in needs:
            after[j].append(i)
            waiting[i] += 1
    ready = [(keys[i], i) for i, n in enumerate(waiting) if not n]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for j in after[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, (keys[j], j))
    if len(order) != len(keys):
        raise ValueError("the items depend on each other in a circle")
    return order


def arrange(graph: Graph, made: Sequence[Node], origins: Sequence[Sequence[int]]) -> Graph:
    """Return ``graph`` with the nodes ``made``, ordered by data, effects and state.

    ``origins[k]`` are the indices of the nodes of ``graph`` that ``made[k]`` stands for; nodes that nothing stands for
    are gone.
    """
    return arrange_runs(graph, [(node,) for node in made], origins)


def arrange_runs(graph: Graph, made: Sequence[Sequence[Node]], origins: Sequence[Sequence[int]]) -> Graph:
    """The same where several nodes, in order and without others in between, stand for some of ``graph``."""
    place = {i: k for k, own in enumerate(origins) for i in own}
    producer = {v: k for k, run in enumerate(made) for n in run for v in n.outputs}
    before = [dict.fromkeys(p for n in run for v in n.inputs if (p := producer.get(v, k)) != k)
              for k, run in enumerate(made)]
    for i, needs in enumerate(dependencies(graph)):
        for j in needs:
            data = any(v in graph.nodes[i].inputs for v in graph.nodes[j].outputs)
            if not data and i in place and j in place and place[i] != place[j]:
                before[place[i]][place[j]] = None
    keys = [own[-1] for own in origins]
    return graph.with_nodes([n for k in schedule(keys, before) for n in made[k]])


class Partition:
    """Nodes in disjoint groups without a cycle between groups; starts with every node in a group of its own.

    Invariant: groups have places, and a group that waits for another has a later one; so a search for paths looks at
    the groups between two places only. Joining renumbers the groups in between that have to change sides (after Pearce
    and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2006).
    """

    def __init__(self, before: Sequence[Sequence[int]]) -> None:
        n = len(before)
        self.group = list(range(n))
        self.members: list[list[int]] = [[i] for i in range(n)]
        self._place = list(range(n))
        self._needs: list[dict[int, None]] = [dict.fromkeys(b) for b in before]  # nodes, by group
        self._feeds: list[dict[int, None]] = [{} for _ in before]
        for i, b in enumerate(before):
            for j in b:
                self._feeds[j][i] = None

    def needs(self, node: int) -> list[int]:
        """The nodes that the group of ``node`` waits for."""
        return list(self._needs[self.group[node]])

    def waits(self, a: int, for_: Iterable[int]) -> bool:
        """Whether group ``a`` is one of the groups ``for_`` or depends on one, directly or through others."""
        goals = set(for_)
        return a in goals or not goals.isdisjoint(self._search(a, self._needs, min(self._place[g] for g in goals) - 1))

    def can_join(self, a: int, b: int) -> bool:
        """Whether the groups may become one: no path leads from one to the other through a third."""
        a, b = sorted((a, b), key=self._place.__getitem__)
        between = self._search(b, self._needs, self._place[a])
        return all(self.group[node] != a for g in between for node in self._needs[g])

    def join(self, a: int, b: int) -> int:
        """Make one group of two, which ``can_join``; returns its number."""
        place = self._place
        first, last = sorted((a, b), key=place.__getitem__)
        early = sorted(self._search(last, self._needs, place[first]), key=place.__getitem__)
        late = sorted(self._search(first, self._feeds, place[last]), key=place.__getitem__)
        places = sorted(place[g] for g in (first, last, *early, *late))
        a, b = sorted((a, b))
        for g, p in zip((*early, a), places, strict=False):
            place[g] = p
        for g, p in zip(reversed(late), reversed(places), strict=False):
            place[g] = p
        for i in self.members[b]:
            self.group[i] = a
        self.members[a] = sorted(self.members[a] + self.members[b])
        self._needs[a].update(self._needs[b])
        self._feeds[a].update(self._feeds[b])
        return a

    def _search(self, start: int, edges: Sequence[Iterable[int]], limit: int) -> dict[int, None]:
        """The groups that lie strictly between the place ``limit`` and ``start`` on paths along ``edges`` from it."""
        place, group = self._place, self.group
        low, high = sorted((place[start], limit))
        found: dict[int, None] = {}
        stack = [start]
        while stack:
            for node in edges[stack.pop()]:
                g = group[node]
                if low < place[g] < high and g not in found:
                    found[g] = None
                    stack.append(g)
        return found
