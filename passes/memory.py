"""Memory planning: one sweep over the nodes gives every value a slot; what dies makes room for what is born."""
from __future__ import annotations

import os
from bisect import insort
from collections.abc import Collection, Iterable
from math import inf

from kusari.ir import Arena, External, Graph, Node, Plan, Slot, TensorType, Trait, Value
from kusari.ir.alignment import NotANest
from kusari.ir.nest import nest_of

ALIGNMENT = 64


def hoist_random(graph: Graph) -> Graph:
    """Move draws that need no input to the front, in order, so that native rows are not cut in pieces.

    A draw behind another that must stay does so too, and behind an OPAQUE node, which may draw as well.
    """
    front: list[Node] = []
    rest: list[Node] = []
    passed = False
    for node in graph.nodes:
        draws = bool(node.op.traits & (Trait.RANDOM | Trait.OPAQUE))
        passed = passed or draws and (bool(node.inputs) or Trait.OPAQUE in node.op.traits)
        (front if draws and not passed else rest).append(node)
    return graph.with_nodes([*front, *rest])


def overwritable(node: Node, output: int) -> tuple[int, ...]:
    """Return the inputs whose buffer output number ``output`` may be written to while the node runs.

    Invariant: the same bytes are read and written at every index, and nothing reads them afterwards.
    """
    kind = node.outputs[output].type
    if not isinstance(kind, TensorType):
        return ()
    if node.op.name == "fused":
        try:
            pairs = nest_of(node.attrs["body"]).overwrites()
        except NotANest:  # a product with an epilogue: its operands are read to the end
            return ()
        return tuple(i for o, i in pairs if o == output)
    candidates: Iterable[int] = ()
    if node.op.name == "foreach":
        shared, arity = node.attrs["shared"], node.attrs["arity"]
        start = shared + output // len(node.attrs["exprs"]) * arity
        candidates = range(start, start + arity)
    elif Trait.ELEMENTWISE in node.op.traits and len(node.outputs) == 1:
        candidates = range(len(node.inputs))
    fitting = ((i, node.inputs[i].type) for i in candidates)
    return tuple(i for i, t in fitting
                 if isinstance(t, TensorType) and t.shape == kind.shape and t.dtype.itemsize == kind.dtype.itemsize)


class _Space:
    """A growing block with holes: best fit, neighbours joined."""

    def __init__(self) -> None:
        self.end = 0
        self._holes: list[tuple[int, int]] = []  # (offset, size), sorted

    def take(self, size: int) -> int:
        """Return the offset of ``size`` bytes: the smallest hole that holds them, or the end."""
        best = min((hole for hole in self._holes if hole[1] >= size), key=lambda hole: hole[1], default=None)
        if best is not None:
            self._holes.remove(best)
            if best[1] > size:
                insort(self._holes, (best[0] + size, best[1] - size))
            return best[0]
        start = self.end
        if self._holes and sum(self._holes[-1]) == self.end:
            start = self._holes.pop()[0]
        self.end = start + size
        return start

    def give(self, offset: int, size: int) -> None:
        """Make the bytes free."""
        before = next((hole for hole in self._holes if sum(hole) == offset), None)
        after = next((hole for hole in self._holes if hole[0] == offset + size), None)
        if before is not None:
            self._holes.remove(before)
            offset, size = before[0], before[1] + size
        if after is not None:
            self._holes.remove(after)
            size += after[1]
        insort(self._holes, (offset, size))


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class _Life:
    """For each value the one whose buffer it shares (``root``), and for each root when it is last read."""

    def __init__(self, graph: Graph) -> None:
        self.root = graph.roots()
        self.reads: dict[Value, list[int]] = {v: [] for v in graph.sources()}
        self.born: dict[Value, int] = {}
        for i, node in enumerate(graph.nodes):
            for v in node.inputs:
                self.reads[self.root[v]].append(i)
            for v in node.outputs:
                if self.root[v] is v:
                    self.reads[v] = []
                    self.born[v] = i
        self.outputs = {self.root[v] for v in graph.outputs}

    def last(self, root: Value) -> float:
        """Index of the node that reads it last; infinite for what must stay."""
        if root in self.outputs:
            return inf
        return self.reads[root][-1] if self.reads[root] else self.born.get(root, inf)


def _in_place(graph: Graph, life: _Life, assign: int) -> Value | None:
    """Return the root of what ``assign`` writes when it may be computed in the state's own buffer, else None."""
    node = graph.nodes[assign]
    state, new = node.inputs
    root = life.root[new]
    if root in life.outputs or root not in life.born or root.tensor.dtype != state.tensor.dtype:
        return None
    born = life.born[root]
    maker = graph.nodes[born]
    if Trait.OPAQUE in maker.op.traits:
        return None
    allowed = overwritable(maker, maker.outputs.index(root))
    if any(life.root[v] is state and i not in allowed for i, v in enumerate(maker.inputs)):
        return None
    for between in graph.nodes[born + 1:assign]:
        if Trait.OPAQUE in between.op.traits or any(life.root[v] is state for v in between.inputs):
            return None
    for i in range(assign + 1, len(graph.nodes)):
        later = graph.nodes[i]
        if Trait.WRITES in later.op.traits and later.inputs and later.inputs[0] is state:
            return None if any(r >= i for r in life.reads[root]) else root
        if Trait.OPAQUE in later.op.traits and any(r > i for r in life.reads[root]):
            return None
    return root


def plan(graph: Graph, *, copy_in_below: int = 0, copy_out_below: int = 0, kept: Collection[Value] = ()) -> Plan:
    """Give every value of ``graph`` a slot.

    Inputs of fewer than ``copy_in_below`` bytes get a place in the arena that nothing else uses; so do outputs of
    fewer than ``copy_out_below`` bytes and those in ``kept``, of any size. Other outputs own an external buffer.
    ``KUSARI_CHECK=1`` checks the plan by simulation.
    """
    life = _Life(graph)
    space = _Space()
    externals = list(graph.sources())
    slots: dict[Value, Slot] = {}  # of roots
    for i, v in enumerate(externals):
        small = i < len(graph.inputs) and isinstance(v.type, TensorType) and 0 < v.type.nbytes < copy_in_below
        slots[v] = Arena(space.take(_padded(v.tensor.nbytes))) if small else External(i)
    kept_roots = {life.root[v] for v in kept}
    for v in graph.outputs:
        root = life.root[v]
        if root in slots or root in kept_roots or not isinstance(v.type, TensorType):
            continue
        if v.type.nbytes >= copy_out_below:
            slots[root] = External(len(externals))
            externals.append(v)
    for i, node in enumerate(graph.nodes):
        if node.op.name == "assign" and isinstance(slots.get(node.inputs[0]), External):
            root = _in_place(graph, life, i)
            if root is not None and root not in slots:
                slots[root] = slots[node.inputs[0]]

    blocks: dict[Value, tuple[int, int]] = {}  # roots in the arena that will make room
    for i, node in enumerate(graph.nodes):
        if Trait.VIEW not in node.op.traits:
            for k, v in enumerate(node.outputs):
                if v in slots or not isinstance(v.type, TensorType):
                    continue
                block = _inherit(node, k, i, life, blocks)
                size = _padded(v.type.nbytes)
                if block is None:
                    block = (space.take(size) if size else 0, size)
                slots[v] = Arena(block[0])
                if size:
                    blocks[v] = block
        for v in dict.fromkeys((*node.inputs, *node.outputs)):
            root = life.root[v]
            if root in blocks and life.last(root) <= i:
                space.give(*blocks.pop(root))

    every = {v: slots[r] for v, r in life.root.items() if r in slots}
    made = Plan(graph, every, tuple(externals), space.end)
    if os.environ.get("KUSARI_CHECK", "0") not in ("", "0"):
        check_plan(made)
    return made


def _inherit(node: Node, output: int, at: int, life: _Life,
             blocks: dict[Value, tuple[int, int]]) -> tuple[int, int] | None:
    """Take over the block of an input that dies in ``node`` and may be overwritten by ``output``."""
    if Trait.OPAQUE in node.op.traits:
        return None
    allowed = overwritable(node, output)
    for i in allowed:
        root = life.root[node.inputs[i]]
        if root not in blocks or life.last(root) != at:
            continue
        if all(j in allowed for j, v in enumerate(node.inputs) if life.root[v] is root):
            return blocks.pop(root)
    return None


class PlanError(Exception):
    """A plan lets values overwrite each other; the message names the node and the value."""


def check_plan(made: Plan) -> Plan:
    """Return the plan after running it on symbols: every read must find what was last computed for that value."""
    graph, slots = made.graph, made.slots
    life = _Life(graph)
    arena: list[tuple[int, int, object]] = []
    external: dict[int, object] = {}
    content: dict[Value, object] = {}  # root -> what its buffer must hold

    def fail(node: Node | None, v: Value, why: str) -> PlanError:
        return PlanError(f"{node.op.name + ' at ' + node.where if node else 'the end'}: {v!r} in {slots.get(v)} {why}")

    def write(node: Node | None, v: Value, what: object) -> None:
        slot = slots.get(v)
        if slot is None:
            raise fail(node, v, "has no slot")
        if isinstance(slot, External):
            external[slot.index] = what
            return
        start, end = slot.offset, slot.offset + v.tensor.nbytes
        if start % ALIGNMENT or end > made.arena_size:
            raise fail(node, v, "is not aligned or ends outside the arena")
        arena[:] = [a for a in arena if a[1] <= start or a[0] >= end]
        if end > start:
            arena.append((start, end, what))

    def read(node: Node | None, v: Value) -> None:
        slot = slots.get(v)
        if slot is None:
            raise fail(node, v, "has no slot")
        expected = content[life.root[v]]
        if isinstance(slot, External):
            found = external.get(slot.index)
        else:
            end = slot.offset + v.tensor.nbytes
            found = next((a[2] for a in arena if a[0] == slot.offset and a[1] == end), None)
            if end == slot.offset:
                return
        if found is not expected:
            raise fail(node, v, "was overwritten")

    for v in graph.sources():
        if isinstance(v.type, TensorType):
            content[v] = object()
            write(None, v, content[v])
    for node in graph.nodes:
        tensors = [v for v in node.inputs if isinstance(v.type, TensorType)]
        for v in tensors:
            # `assign` only names its state; a state computed in place holds the new value already.
            if not (node.op.name == "assign" and v is node.inputs[0]):
                read(node, v)
        if node.op.name == "assign":
            state, new = node.inputs
            if slots[state] == slots[life.root[new]]:
                content[state] = content[life.root[new]]
            else:
                content[state] = object()
                write(node, state, content[state])
        if Trait.VIEW in node.op.traits:
            continue
        for k, v in enumerate(node.outputs):
            if not isinstance(v.type, TensorType):
                continue
            allowed = overwritable(node, k)
            for i, u in enumerate(node.inputs):
                if isinstance(u.type, TensorType) and i not in allowed and _overlap(slots.get(u), u, slots[v], v):
                    raise fail(node, v, f"would overwrite {u!r} while it is read")
        for v in node.outputs:
            if isinstance(v.type, TensorType):
                content[v] = object()
                write(node, v, content[v])
        for v in node.outputs:
            if isinstance(v.type, TensorType):
                read(node, v)
    for v in graph.outputs:
        if isinstance(v.type, TensorType):
            read(None, v)
    return made


def _overlap(a: Slot | None, u: Value, b: Slot | None, v: Value) -> bool:
    if isinstance(a, Arena) and isinstance(b, Arena):
        return a.offset < b.offset + v.tensor.nbytes and b.offset < a.offset + u.tensor.nbytes
    return a is not None and a == b
