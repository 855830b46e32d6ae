"""Groups of nodes: what may join, against a search through the whole graph."""
from __future__ import annotations

import numpy as np
import pytest

from kusari.passes import order
from kusari.passes.order import Partition


def reach(p: Partition, before: list[list[int]], start: int, without: tuple[int, int]) -> set[int]:
    """The groups that group ``start`` depends on, by paths that begin with any edge but ``without``."""
    edges = {(p.group[i], p.group[j]) for i, b in enumerate(before) for j in b if p.group[i] != p.group[j]}
    found: set[int] = set()
    stack = [b for a, b in edges if a == start and (a, b) != without]
    while stack:
        g = stack.pop()
        if g not in found:
            found.add(g)
            stack += [b for a, b in edges if a == g]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_joining_and_waiting(seed: int) -> None:
    rs = np.random.RandomState(seed)
    n = 16
    before = [sorted({int(j) for j in rs.randint(0, i, rs.randint(0, 3))}) if i else [] for i in range(n)]
    p = Partition(before)
    refused = joined = 0
    for _ in range(60):
        i, j = (int(k) for k in rs.randint(0, n, 2))
        a, b = p.group[i], p.group[j]
        assert p.waits(a, [b]) == (a == b or b in reach(p, before, a, (-1, -1)))
        if a == b:
            continue
        legal = b not in reach(p, before, a, (a, b)) and a not in reach(p, before, b, (b, a))
        assert p.can_join(a, b) == legal
        refused += not legal
        if legal and rs.rand() < 0.4:
            joined += 1
            g = p.join(a, b)
            assert p.members[g] == [k for k in range(n) if p.group[k] == g] and {i, j} <= set(p.members[g])
    assert refused and joined


@pytest.mark.parametrize("gap", [1, order.GAP_POSITIONS])
@pytest.mark.parametrize("seed", range(8))
def test_places_follow_dependencies_however_little_room_there_is(seed: int, gap: int,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "GAP_POSITIONS", gap)
    rs = np.random.RandomState(seed)
    n = 24
    before = [sorted({int(j) for j in rs.randint(0, i, rs.randint(0, 3))}) if i else [] for i in range(n)]
    p = Partition(before)
    refused = joined = 0
    for _ in range(40):
        groups = [int(g) for g in rs.choice(sorted(set(p.group)), min(3, len(set(p.group))), replace=False)]
        apart = all(a == b or b not in reach(p, before, a, (-1, -1)) for a in groups for b in groups)
        assert p.are_independent(groups) == apart
        if apart and len(groups) == 3:
            p.join(*groups)
            joined += 1
        refused += not apart
        places = {g: p._place[g] for g in p.group}
        assert sorted(places.values()) == p._taken and len(set(p._taken)) == len(p._taken)
        assert all(places[p.group[j]] <= places[p.group[i]] for i, needs in enumerate(before) for j in needs)
    assert refused and joined
