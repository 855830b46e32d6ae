"""Where every value lives: the result of memory planning."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .graph import Graph, Value


@dataclass(frozen=True)
class Arena:
    """At ``offset`` bytes of the frame's arena."""

    offset: int


@dataclass(frozen=True)
class External:
    """In buffer ``index`` of those bound at every call: inputs, then params, then consts, then outputs that own one."""

    index: int


Slot = Arena | External


@dataclass(frozen=True, eq=False)
class Plan:
    """A graph with a slot for every value.

    ``externals`` names what each external buffer holds, in index order. Values that share a slot are views of
    each other, or one died before (or as) the other was made. ``arena_size`` is in bytes.
    """

    graph: Graph
    slots: Mapping[Value, Slot]
    externals: tuple[Value, ...]
    arena_size: int

    def describe(self) -> str:
        """A line on memory for people: arena size against the sum of all intermediate sizes."""
        total = sum(v.tensor.nbytes for v, s in self.slots.items() if isinstance(s, Arena))
        return f"arena {self.arena_size:,} bytes for {total:,} bytes of intermediates"
