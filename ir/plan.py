"""Where every value lives: the result of memory planning."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from .graph import Graph, Node, Value


@dataclass(frozen=True)
class Arena:
    """At ``offset`` bytes of the frame's arena."""

    offset: int


@dataclass(frozen=True)
class External:
    """In buffer ``index`` of those bound at every call, ``offset`` bytes from its begin.

    The buffers are those of inputs, then of params, then of consts, then of outputs that own one.
    """

    index: int
    offset: int = 0


Slot = Arena | External


def view_offset(node: Node) -> int:
    """Return how many bytes from the begin of its operand the result of a node with the trait VIEW lies."""
    if node.op.name != "part":
        return 0
    source = node.inputs[0].tensor
    return node.attrs["start"] * prod(source.shape[1:]) * source.dtype.itemsize


def moved(slot: Slot, offset: int) -> Slot:
    """Return the place ``offset`` bytes behind ``slot``."""
    return replace(slot, offset=slot.offset + offset) if offset else slot


def joint_offsets(node: Node) -> tuple[int, ...]:
    """Return where each operand of a ``concat`` goes in its result, in bytes; none where one is not a single block."""
    axis: int = node.attrs["axis"]
    if prod(node.output.shape[:axis]) != 1 or any(v.tensor.dtype != node.output.tensor.dtype for v in node.inputs):
        return ()
    offsets = [0]
    for v in node.inputs[:-1]:
        offsets.append(offsets[-1] + v.tensor.nbytes)
    return tuple(offsets)


@dataclass(frozen=True, eq=False)
class Plan:
    """A graph with a slot for every value.

    ``externals`` names what each external buffer holds, in index order. Values that share bytes are views of
    each other, are joined by a ``concat``, or one died before (or as) the other was made. ``arena_size`` is in bytes.
    """

    graph: Graph
    slots: Mapping[Value, Slot]
    externals: tuple[Value, ...]
    arena_size: int

    def in_place(self, node: Node) -> tuple[Value, ...]:
        """Return the operands of a ``concat`` that are computed where they belong in its result."""
        return tuple(v for v, there in zip(node.inputs, self.placed(node), strict=False) if there)

    def placed(self, node: Node) -> tuple[bool, ...]:
        """Return which operands of a ``concat`` are where they belong: one that is there twice is in one place only."""
        if node.op.name != "concat" or node.output not in self.slots:
            return ()
        whole = self.slots[node.output]
        there = [self.slots.get(v) == moved(whole, offset)
                 for v, offset in zip(node.inputs, joint_offsets(node), strict=False)]
        return (*there, *(False for _ in node.inputs[len(there):]))

    def remaining(self, node: Node) -> Node:
        """Return ``node`` as it is to be run: a ``concat`` is told by ``placed`` what it need not move."""
        placed = self.placed(node)
        return Node(node.op, node.inputs, node.outputs, {**node.attrs, "placed": placed}, node.where) if any(
            placed) else node

    def is_view(self, node: Node) -> bool:
        """Whether a node with the trait VIEW has nothing to do, as its result lies in its operand."""
        slots = self.slots
        if node.inputs[0] not in slots:
            return node.output not in slots
        return slots.get(node.output) == moved(slots[node.inputs[0]], view_offset(node))

    def describe(self) -> str:
        """A line on memory for people: arena size against the sum of all intermediate sizes."""
        total = sum(v.tensor.nbytes for v, s in self.slots.items() if isinstance(s, Arena))
        return f"arena {self.arena_size:,} bytes for {total:,} bytes of intermediates"
