"""The result of memory planning: a slot for every value."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from .graph import Graph, Node, Value


@dataclass(frozen=True)
class Arena:
    """A slot ``offset`` bytes into the frame's arena."""

    offset: int


@dataclass(frozen=True)
class External:
    """A slot ``offset`` bytes into buffer ``index`` of those bound at every call.

    The buffers are those of inputs, then of params, then of consts, then of outputs that own one.
    """

    index: int
    offset: int = 0


Slot = Arena | External


def view_offset(node: Node) -> int:
    """Return the offset in bytes of the result of a node with the trait VIEW in its operand."""
    if node.op.name != "part":
        return 0
    source = node.inputs[0].tensor
    return node.attrs["start"] * prod(source.shape[1:]) * source.dtype.itemsize


def moved(slot: Slot, offset: int) -> Slot:
    """Return the slot ``offset`` bytes behind ``slot``."""
    return replace(slot, offset=slot.offset + offset) if offset else slot


def joint_offsets(node: Node) -> tuple[int, ...]:
    """Return the byte offset of each operand of a ``concat`` in its result; empty if one is not a single block."""
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

    ``externals`` are the values in the external buffers, in index order. Values that share bytes are views of each
    other, are joined by a ``concat``, or have lifetimes that do not overlap. ``arena_size`` is in bytes.
    """

    graph: Graph
    slots: Mapping[Value, Slot]
    externals: tuple[Value, ...]
    arena_size: int

    def in_place(self, node: Node) -> tuple[Value, ...]:
        """Return the operands of a ``concat`` that are computed directly in its result."""
        return tuple(v for v, there in zip(node.inputs, self.placed(node), strict=False) if there)

    def placed(self, node: Node) -> tuple[bool, ...]:
        """Return for each operand of a ``concat`` whether it is in the result already.

        Of an operand that occurs twice, one occurrence is.
        """
        if node.op.name != "concat" or node.output not in self.slots:
            return ()
        whole = self.slots[node.output]
        there = [self.slots.get(v) == moved(whole, offset)
                 for v, offset in zip(node.inputs, joint_offsets(node), strict=False)]
        return (*there, *(False for _ in node.inputs[len(there):]))

    def remaining(self, node: Node) -> Node:
        """Return ``node`` as it runs: the attribute ``placed`` of a ``concat`` names operands that need no copy."""
        placed = self.placed(node)
        return Node(node.op, node.inputs, node.outputs, {**node.attrs, "placed": placed}, node.where) if any(
            placed) else node

    def is_view(self, node: Node) -> bool:
        """Whether a node with the trait VIEW needs no copy, as its result lies in its operand."""
        slots = self.slots
        if node.inputs[0] not in slots:
            return node.output not in slots
        return slots.get(node.output) == moved(slots[node.inputs[0]], view_offset(node))

    def describe(self) -> str:
        """One line about memory: arena size against the sum of all intermediate sizes."""
        total = sum(v.tensor.nbytes for v, s in self.slots.items() if isinstance(s, Arena))
        return f"arena {self.arena_size:,} bytes for {total:,} bytes of intermediates"
