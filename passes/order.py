"""What must come before what: data, effects and the state that WRITES nodes change."""
from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from kusari.ir import Graph, Node, Trait, Value


def dependencies(graph: Graph) -> list[list[int]]:
    """Return for each node the nodes (by index) that must run before it.

    Besides data: nodes with effects keep their order, a node that reads a param runs before a later node that writes
    it and after an earlier one.
    """
    params = {v: v for v in graph.params}  # a param, or a view of one, to the param
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
            if v in params:
                state = params[v]
                if state in writer:
                    before[writer[state]] = None
                readers.setdefault(state, []).append(i)
        if Trait.WRITES in node.op.traits and node.inputs:
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
            if Trait.VIEW in node.op.traits and node.inputs[0] in params:
                params[v] = params[node.inputs[0]]
        result.append(list(before))
    return result


def written_values(graph: Graph) -> set[Value]:
    """The params that some node writes, and the views of them: what a node reads there depends on when it runs."""
    found = {n.inputs[0] for n in graph.nodes if Trait.WRITES in n.op.traits and n.inputs}
    for node in graph.nodes:
        if Trait.VIEW in node.op.traits and node.inputs[0] in found:
            found.add(node.outputs[0])
    return found


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
    place = {i: k for k, own in enumerate(origins) for i in own}
    producer = {v: k for k, n in enumerate(made) for v in n.outputs}
    before = [dict.fromkeys(producer[v] for v in n.inputs if v in producer) for n in made]
    for i, needs in enumerate(dependencies(graph)):
        for j in needs:
            data = any(v in graph.nodes[i].inputs for v in graph.nodes[j].outputs)
            if not data and i in place and j in place and place[i] != place[j]:
                before[place[i]][place[j]] = None
    keys = [own[-1] for own in origins]
    return graph.with_nodes([made[k] for k in schedule(keys, before)])


class Partition:
    """Nodes in disjoint groups without a cycle between groups; starts with every node in a group of its own.

    Invariant: for groups that are alive ``above[g]`` has a bit for every node outside ``g`` on which a member of ``g``
    depends, directly or through other groups (whole groups count).
    """

    def __init__(self, before: Sequence[Sequence[int]]) -> None:
        n = len(before)
        self.group = list(range(n))
        self.members: list[list[int]] = [[i] for i in range(n)]
        self.bits = [1 << i for i in range(n)]
        self.above = [0] * n
        self.needs: list[dict[int, None]] = [dict.fromkeys(b) for b in before]
        for i, b in enumerate(before):
            for j in b:
                self.above[i] |= self.above[j] | self.bits[j]
        self._alive = list(range(n))

    def can_join(self, a: int, b: int) -> bool:
        """Whether the groups may become one: no path leads from one to the other through a third."""
        return not self._indirect(a, b) and not self._indirect(b, a)

    def _indirect(self, a: int, b: int) -> bool:
        if not self.above[a] & self.bits[b]:
            return False
        seen: set[int] = set()
        for node in self.needs[a]:
            g = self.group[node]
            if g not in (a, b) and g not in seen:
                seen.add(g)
                if self.above[g] & self.bits[b]:
                    return True
        return False

    def join(self, a: int, b: int) -> int:
        """Make one group of two; returns its number."""
        a, b = sorted((a, b))
        for i in self.members[b]:
            self.group[i] = a
        self.members[a] = sorted(self.members[a] + self.members[b])
        self.bits[a] |= self.bits[b]
        self.needs[a].update(self.needs[b])
        self.above[a] = (self.above[a] | self.above[b]) & ~self.bits[a]
        self._alive.remove(b)
        own = self.bits[a]
        reach = self.above[a] | own
        for g in self._alive:
            if g != a and self.above[g] & own:
                self.above[g] |= reach
        return a
