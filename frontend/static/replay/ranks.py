"""Ranks of results: their distances from leaves, as if each recorded function had been applied for itself."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from kusari.ir import Value

from ..trace.recording import Recording

_LEAF = -1  # stands for whatever has the rank 0


class Ranks:
    """The ranks of the results of one recording, by those of the ``leaves`` that it wants gradients of.

    ``lowest`` are the ranks where all of those are 0. Invariant: each is the one that define-by-run gives, and above
    all those of the leaves, as a backward goes through the call as through one function.
    """

    def __init__(self, recording: Recording, leaves: Sequence[Value]) -> None:
        self._recording = recording
        self._leaves = leaves
        self.lowest = tuple([max(1, d[_LEAF]) for d in self._distances(())])
        self._by_leaf: list[dict[int, int]] | None = None

    def above(self, ranks: Iterable[int]) -> list[int]:
        """Return the ranks of results where the leaves have ``ranks``."""
        if self._by_leaf is None:
            self._by_leaf = self._distances(self._leaves)
        known = dict(enumerate(ranks))
        lowest = max(known.values()) + 1
        known[_LEAF] = 0
        return [max(lowest, *[known[i] + distance for i, distance in found.items()]) for found in self._by_leaf]

    def _distances(self, leaves: Sequence[Value]) -> list[dict[int, int]]:
        """Return the longest path to each result from each of ``leaves``, and from all others."""
        recording = self._recording
        far: dict[Value, dict[int, int]] = {v: {i: 0} for i, v in enumerate(leaves)}
        nothing = {_LEAF: 0}
        for node in recording.graph.nodes:
            if node.attrs.get("function") is None:  # side-effect code gives arrays
                continue
            reached: dict[int, int] = {_LEAF: 1}
            for v in node.inputs:
                for i, distance in far.get(v, nothing).items():
                    if reached.get(i, 0) <= distance:
                        reached[i] = distance + 1
            far.update((v, reached) for v in node.outputs if v not in recording.detached)
        return [far.get(v, nothing) for v in recording.graph.outputs]
