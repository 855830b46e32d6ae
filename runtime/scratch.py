"""Slots for the scratch of kernels: memory of the schedule that holds nothing at that time."""
from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kusari.ir import Arena, External, Node, Plan, Slot, TensorType
from kusari.ir.stages import stages

from .memory import ALIGNMENT_BYTES, Array

LEAST_SEPARATE_BYTES = 1 << 16  # smaller scratch shares one offset: a search for a gap takes time


def plan_scratch(plan: Plan, needs: Mapping[Node, int], given: int) -> tuple[dict[Node, Slot], int]:
    """Return the slots of the scratch of nodes, ``needs`` bytes of each, and the size of the arena with them.

    The nodes of one stage share a slot, under the name of one of them. It is a part of the arena whose values are dead
    or not yet made, the array of an output that is not yet made (one of the externals from ``given`` on, from its first
    multiple of ``ALIGNMENT_BYTES`` on), or else the arena's end and some bytes more.
    """
    large = sorted(((size, node) for node, size in needs.items() if size > LEAST_SEPARATE_BYTES),
                   key=lambda pair: -pair[0])
    slots: dict[Node, Slot] = {}
    end = plan.arena_size
    if large:
        free = _Free(plan, given)
        for size, node in large:
            slots[node] = free.slot(node, size)
        end = free.end
    small = [node for node, size in needs.items() if size <= LEAST_SEPARATE_BYTES]
    if small:
        start = _aligned(plan.arena_size)  # behind all values
        slots.update((node, Arena(start)) for node in small)
        end = max(end, start + max(needs[node] for node in small))
    return slots, end


def _aligned(at: int) -> int:
    return -(-at // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class _Free:
    """The free parts of the arena and of the outputs while a node runs."""

    def __init__(self, plan: Plan, given: int) -> None:
        graph, roots = plan.graph, plan.graph.roots()
        self._stage = dict(zip(graph.nodes, stages(graph), strict=True))
        self.end = plan.arena_size
        born = {v: -1 for v in graph.sources()}
        last = dict.fromkeys(graph.inputs, len(graph.nodes))  # copied before the run, some of them for many runs
        for i, node in enumerate(graph.nodes):
            for v in node.outputs:
                born[v] = i
                last[roots[v]] = max(i, last.get(roots[v], i))
            for v in node.inputs:
                last[roots[v]] = max(i, last.get(roots[v], i))
        last.update((roots[v], len(graph.nodes)) for v in graph.outputs)
        taken: list[tuple[int, int, int, int]] = []
        made: dict[int, int] = {}  # when an output's array is first written to
        for v, slot in plan.slots.items():
            if not isinstance(v.type, TensorType):
                continue
            if isinstance(slot, External):
                if slot.index >= given:
                    made[slot.index] = min(made.get(slot.index, len(graph.nodes)), born[v])
            elif roots[v] is v and v.tensor.nbytes:
                taken.append((slot.offset, slot.offset + v.tensor.nbytes, born[v], last.get(v, -1)))
        self._taken: Array = np.array(sorted(taken), np.int64).reshape(-1, 4)
        # The output that is made last comes first.
        self._outputs = [(i, plan.externals[i].tensor.nbytes, made[i]) for i in sorted(made, key=lambda i: -made[i])]
        self._used: list[Slot] = []

    def slot(self, node: Node, size: int) -> Slot:
        """Return ``size`` bytes that are free during the stage of ``node``, preferably shared with other scratch."""
        first, at = self._stage[node]
        starts, ends, born, last = self._taken.T
        alive = (born <= at) & (last >= first)
        starts, ends = starts[alive], ends[alive]
        found = next((slot for slot in self._used if self._fits(slot, at, size, starts, ends)), None)
        if found is None:
            found = self._gap(starts, ends, size) or next(
                (slot for i, _, _ in self._outputs if self._fits(slot := External(i), at, size, starts, ends)), None)
            if found is None:
                found = Arena(_aligned(int(ends.max(initial=0))))
                self.end = max(self.end, found.offset + size)
            self._used.append(found)
        return found

    def _fits(self, slot: Slot, at: int, size: int, starts: Array, ends: Array) -> bool:
        if isinstance(slot, External):
            return any(i == slot.index and size + ALIGNMENT_BYTES <= room and at < made
                       for i, room, made in self._outputs)
        stop = slot.offset + size
        return stop <= self.end and not bool(((starts < stop) & (ends > slot.offset)).any())

    def _gap(self, starts: Array, ends: Array, size: int) -> Arena | None:
        """The smallest gap that holds ``size`` bytes between stretches, which are sorted by their start."""
        best, least, at = -1, self.end + 1, 0
        for start, stop in [*zip(starts.tolist(), ends.tolist(), strict=True), (self.end, self.end)]:
            if size <= start - at < least:
                best, least = at, start - at
            at = max(at, _aligned(stop))
        return Arena(best) if best >= 0 else None
