"""Dependencies between nodes: data, effects and the state that WRITES nodes change."""
from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
    """The params that some node writes, and their views: their contents depend on the time of the read."""
    written = graph.written()
    return {v for v, root in graph.roots().items() if root in written}


class Versions:
    """The number of writes to a param, or to the param that a value is a view of, before a position."""

    def __init__(self, graph: Graph) -> None:
        self._writes = graph.written()
        self._roots = graph.roots() if self._writes else {}

    def before(self, position: int, value: Value) -> int:
        """The version of ``value`` that the node at ``position`` reads."""
        return bisect_left(self._writes.get(self._roots[value], ()), position) if self._writes else 0


def made_for_caller(graph: Graph) -> set[Value]:
    """The values that nodes make and outputs show: the caller may keep and change them.

    So their buffers are not ours to use again. An output that shows a source does so because define-by-run returns the
    very same array.
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


def arrange(graph: Graph, made: Sequence[Sequence[Node]], origins: Sequence[Sequence[int]]) -> Graph:
    """Return ``graph`` with the runs of nodes ``made``, each in order and consecutive, by data, effects and state.

    ``origins[k]`` are the indices of the nodes of ``graph`` that ``made[k]`` replaces; nodes without a replacement are
    gone.
    """
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


GAP_POSITIONS = 1 << 32  # between neighbouring groups at first


class Partition:
    """Nodes in disjoint groups without a cycle between groups; starts with every node in a group of its own.

    Invariant: groups have positions, and a group that waits for another has a later one; so a search for paths looks at
    the groups between two positions only. A joined group takes the first of the positions, and its dependencies move
    right before it; nothing else moves, as there is room between positions (order maintenance with gaps, after Dietz
    and Sleator, "Two algorithms for maintaining order in a list", 1987).
    """

    def __init__(self, before: Sequence[Sequence[int]]) -> None:
        n = len(before)
        self.group = list(range(n))
        self.members: list[list[int]] = [[i] for i in range(n)]
        self._place = list(range(0, n * GAP_POSITIONS, GAP_POSITIONS))
        self._taken = list(self._place)  # the positions, sorted
        self._needs: list[dict[int, None]] = [dict.fromkeys(b) for b in before]  # nodes, by group

    def needs(self, node: int) -> list[int]:
        """The nodes that the group of ``node`` waits for."""
        return list(self._needs[self.group[node]])

    def waits(self, a: int, for_: Iterable[int]) -> bool:
        """Whether group ``a`` is one of the groups ``for_`` or depends on one, directly or through others."""
        goals = set(for_)
        return a in goals or not goals.isdisjoint(self._behind([a], min(self._place[g] for g in goals) - 1))

    def can_join(self, a: int, b: int) -> bool:
        """Whether the groups may become one: no path leads from one to the other through a third."""
        group, place = self.group, self._place
        if place[a] > place[b]:
            a, b = b, a
        return all(a not in [group[node] for node in self._needs[g]] for g in self._behind((b,), place[a]) if g != b)

    def are_independent(self, groups: Sequence[int]) -> bool:
        """Whether no path leads from one of the groups to another, so that they may become one."""
        group, own = self.group, set(groups)
        between = self._behind(groups, min(self._place[g] for g in own))
        return all((g := group[node]) not in own or g == i
                   for i in (*own, *between) for node in self._needs[i])

    def join(self, *groups: int) -> int:
        """Make one group of several of which every two ``can_join``; returns its number."""
        place = self._place
        first = min(groups, key=place.__getitem__)
        early = sorted(set(self._behind(groups, place[first])).difference(groups), key=place.__getitem__)
        a = min(groups)
        for g in groups:
            if g != first:
                self._leave(g)
        if early:
            for g in early:
                self._leave(g)
            self._settle(first, [*early, a])
        else:
            place[a] = place[first]
        for b in groups:
            if b != a:
                for i in self.members[b]:
                    self.group[i] = a
                self._needs[a].update(self._needs[b])
        self.members[a] = sorted([i for g in groups for i in self.members[g]])
        return a

    def join_runs(self, nodes: Iterable[int]) -> list[list[int]]:
        """Join nodes to runs that do not wait for each other: each joins the last run or, if it may not, begins one.

        Nodes of groups with other members begin one as well.
        """
        nodes = list(nodes)
        every = [self.group[i] for i in nodes]
        if all(len(self.members[g]) == 1 for g in every) and self.are_independent(every):
            self.join(*every)
            return [nodes]
        runs: list[list[int]] = []
        for i in nodes:
            groups = [self.group[runs[-1][0]], self.group[i]] if runs else []
            if groups and len(self.members[groups[1]]) == 1 and self.are_independent(groups):
                self.join(*groups)
                runs[-1].append(i)
            else:
                runs.append([i])
        return runs

    def arranged(self, graph: Graph, made: Mapping[int, Sequence[Node]]) -> Graph:
        """Return ``graph`` with runs of nodes ``made`` for groups; every other group is a single node."""
        groups = sorted(set(self.group))  # the number of a group is its first member
        return arrange(graph, [made.get(g, graph.nodes[g:g + 1]) for g in groups], [self.members[g] for g in groups])

    def _leave(self, g: int) -> None:
        """Free the position of a group."""
        del self._taken[bisect_left(self._taken, self._place[g])]

    def _settle(self, first: int, groups: Sequence[int]) -> None:
        """Give ``groups`` the position of the group ``first`` and positions right behind it."""
        taken = self._taken
        start = self._place[first]
        k = bisect_left(taken, start)
        end = taken[k + 1] if k + 1 < len(taken) else start + GAP_POSITIONS * len(groups)
        if end - start < len(groups):  # no room left: all positions anew
            order = {p: i * GAP_POSITIONS * len(groups) for i, p in enumerate(taken)}
            self._place[:] = [order.get(p, -1) for p in self._place]
            taken[:] = order.values()
            start = taken[k]
            end = start + GAP_POSITIONS * len(groups)
        step = (end - start) // len(groups)
        places = [start + i * step for i in range(len(groups))]
        for g, p in zip(groups, places, strict=True):
            self._place[g] = p
        taken[k:k + 1] = places

    def _behind(self, starts: Sequence[int], low: int) -> Iterator[int]:
        """Yield the groups behind the position ``low`` that the groups ``starts`` wait for, through others as well."""
        place, group, needs = self._place, self.group, self._needs
        found: set[int] = set()
        stack = list(starts)
        while stack:
            for node in needs[stack.pop()]:
                g = group[node]
                if place[g] > low and g not in found:
                    found.add(g)
                    stack.append(g)
                    yield g
