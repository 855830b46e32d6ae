"""Order: independent nodes that do the same on other values, or are tiny, become neighbours: a stage.

Examples are the two directions of a recurrent network, towers with shared weights, gates: a thread does all of one node
where it would do half of both, with a barrier for each.
"""
from __future__ import annotations

import heapq
from typing import Any

from kusari.ir import Graph
from kusari.ir.stages import MOST_STAGE_NODES, bytes_of, kind_of

from .order import dependencies

STAGE_BYTES = 1 << 24  # read and written by the nodes of one stage: more lives too long, and in no cache


def group_stages(graph: Graph) -> Graph:
    """Move each node up to the first earlier node of its kind that is independent of it."""
    nodes = graph.nodes
    kinds = [kind_of(node, large=True) for node in nodes]
    if sum(kind is not None for kind in kinds) < 2:
        return graph
    before = dependencies(graph)
    waiting = [len(needs) for needs in before]
    after: list[list[int]] = [[] for _ in nodes]
    for i, needs in enumerate(before):
        for j in needs:
            after[j].append(i)
    ready: list[int] = []
    by_kind: dict[Any, list[int]] = {}
    done = [False] * len(nodes)
    order: list[int] = []

    def enter(found: list[int]) -> None:
        while found:
            i = found.pop()
            if nodes[i].op.is_view:  # it takes no time
                done[i] = True
                order.append(i)
                found += released(i)
                continue
            heapq.heappush(ready, i)
            if kinds[i] is not None:
                heapq.heappush(by_kind.setdefault(kinds[i], []), i)

    def released(i: int) -> list[int]:
        for j in after[i]:
            waiting[j] -= 1
        return [j for j in after[i] if not waiting[j]]

    enter([i for i, n in enumerate(waiting) if not n])
    while ready:
        i = heapq.heappop(ready)
        if done[i]:
            continue
        group = [i]
        same = by_kind.get(kinds[i], [])
        most = min(MOST_STAGE_NODES, STAGE_BYTES // max(bytes_of(nodes[i]), 1)) if same else 1
        while same and len(group) < most:
            j = heapq.heappop(same)
            if j != i and not done[j]:
                group.append(j)
        group.sort()
        for j in group:
            done[j] = True
        order += group
        enter([k for j in group for k in released(j)])
    return graph if order == list(range(len(nodes))) else graph.with_nodes([nodes[i] for i in order])
