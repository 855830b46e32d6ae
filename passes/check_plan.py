"""A checker of memory plans: runs the plan on symbols, and finds every read of bytes that were overwritten."""
from __future__ import annotations

from kusari.ir import Arena, External, Node, Plan, Slot, TensorType, Value, joint_offsets

from .overwrites import overwritable


class PlanError(Exception):
    """A plan lets values overwrite each other; the message names the node and the value."""


class _Memory:
    """Simulated memory: stretches of the arena with their contents, and the contents of each external buffer."""

    def __init__(self, made: Plan, alignment: int) -> None:
        self.made, self.slots, self.alignment = made, made.slots, alignment
        self.root = made.graph.roots()
        self.arena: list[tuple[int, int, object]] = []
        self.external: dict[int, object] = {}
        self.content: dict[Value, frozenset[object]] = {}  # root -> what may stand in its buffer
        self.joined = {self.root[v] for n in made.graph.nodes for v in made.in_place(n)}

    def fail(self, node: Node | None, v: Value, why: str) -> PlanError:
        place = f"{node.op.name} at {node.where}" if node else "the end"
        return PlanError(f"{place}: {v!r} in {self.slots.get(v)} {why}")

    def write(self, node: Node | None, v: Value, kept: set[Value] | None = None) -> None:
        """Fill the buffer of ``v``, all but the operands that are ``kept`` in place and become parts of it."""
        what = object()
        self.content[self.root[v]] = frozenset((what,)).union(*(self.content[self.root[u]] for u in kept or ()))
        slot = self.slots.get(v)
        if slot is None:
            raise self.fail(node, v, "has no slot")
        if isinstance(slot, External):
            self.external[slot.index] = what
            return
        start, end = slot.offset, slot.offset + v.tensor.nbytes
        if start % self.alignment and v not in self.joined or end > self.made.arena_size:
            raise self.fail(node, v, "is not aligned or ends outside the arena")
        parts = [(start, end)]
        if node and kept:
            places = zip(node.inputs, joint_offsets(node), strict=True)
            parts = [(start + k, start + k + u.tensor.nbytes) for u, k in places
                     if u not in kept or self.slots[u] != Arena(start + k)]
        for start, end in parts:
            self.arena = [a for a in self.arena if a[1] <= start or a[0] >= end]
            if end > start:
                self.arena.append((start, end, what))

    def read(self, node: Node | None, v: Value) -> None:
        slot = self.slots.get(v)
        if slot is None:
            raise self.fail(node, v, "has no slot")
        expected = self.content[self.root[v]]
        if isinstance(slot, External):
            found = self.external.get(slot.index) in expected
        else:
            start, end = slot.offset, slot.offset + v.tensor.nbytes
            there = sum(max(0, min(end, b) - max(start, a)) for a, b, held in self.arena if held in expected)
            found = there == end - start
        if not found:
            raise self.fail(node, v, "was overwritten")


def check_plan(made: Plan, alignment: int = 64) -> Plan:
    """Return the plan after running it on symbols: every read must find the value last computed."""
    graph, slots = made.graph, made.slots
    memory = _Memory(made, alignment)
    content = memory.content
    for v in graph.sources():
        if isinstance(v.type, TensorType):
            memory.write(None, v)
    for node in graph.nodes:
        tensors = [v for v in node.inputs if isinstance(v.type, TensorType)]
        for v in tensors:
            # `assign` only names its state; a state computed in place holds the new value already.
            if not (node.op.name == "assign" and v is node.inputs[0]):
                memory.read(node, v)
        if node.op.name == "assign":
            state, new = node.inputs
            if slots[state] == slots[memory.root[new]]:
                content[state] = content[memory.root[new]]
            else:
                memory.write(node, state)
        if node.op.is_view:
            continue
        kept = {v for v in made.in_place(node) if v.tensor.size and isinstance(slots[v], Arena)}
        for k, v in enumerate(node.outputs):
            if not isinstance(v.type, TensorType):
                continue
            allowed = overwritable(node, k)
            for i, u in enumerate(node.inputs):
                if isinstance(u.type, TensorType) and i not in allowed and u not in kept \
                        and _overlap(slots.get(u), u, slots[v], v):
                    raise memory.fail(node, v, f"would overwrite {u!r} while it is read")
        results = [v for v in node.outputs if isinstance(v.type, TensorType)]
        for v in results:
            memory.write(node, v, kept)
        for v in results:
            memory.read(node, v)
    for v in graph.outputs:
        if isinstance(v.type, TensorType):
            memory.read(None, v)
    return made


def _overlap(a: Slot | None, u: Value, b: Slot | None, v: Value) -> bool:
    if isinstance(a, External) and isinstance(b, External) and a.index != b.index or type(a) is not type(b):
        return False
    assert a is not None and b is not None
    return a.offset < b.offset + v.tensor.nbytes and b.offset < a.offset + u.tensor.nbytes
