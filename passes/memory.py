"""Memory planning: one sweep over the nodes gives every value a block; blocks with separate lifetimes share bytes.

Planning, and no pass, decides what runs in place: an output overwrites an input that is read for the last time,
operands of a ``concat`` are computed directly in its result, and a ``part``, a slice of rows, is a view.
"""
from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from math import inf

from kusari.ir import (
    Arena,
    External,
    Graph,
    Node,
    Plan,
    Slot,
    TensorType,
    Trait,
    Value,
    joint_offsets,
    moved,
    view_offset,
)
from kusari.ir.stages import stages

from .check_plan import check_plan
from .liveness import Lifetimes
from .overwrites import overwritable
from .place import Block, place

ALIGNMENT_BYTES = 64


def hoist_random(graph: Graph) -> Graph:
    """Move draws that need no input to the front, in order, so that native segments are not cut in pieces.

    A draw behind another that must stay does so too, and behind an OPAQUE node, which may draw as well.
    """
    front: list[Node] = []
    rest: list[Node] = []
    passed = False
    for node in graph.nodes:
        draws = bool(node.op.traits & (Trait.RANDOM | Trait.OPAQUE))
        passed = passed or draws and (bool(node.inputs) or node.op.is_opaque)
        (front if draws and not passed else rest).append(node)
    return graph.with_nodes([*front, *rest])


class _Life(Lifetimes):
    """Lifetimes, and places of values in each other.

    ``offset`` is the value's offset in the root's buffer. ``joint`` maps the roots that are computed inside the result
    of a ``concat`` to that result, with their offset. ``opaque`` and ``writes`` (by state) are nodes that run Python
    and that write, in order.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.offset: dict[Value, int] = {}
        self.joint: dict[Value, tuple[Value, int]] = {}
        self.opaque = [i for i, node in enumerate(graph.nodes) if node.op.is_opaque]
        self.writes = graph.written()
        for node in graph.nodes:
            for v in node.outputs:
                if self.roots[v] is not v:
                    self.offset[v] = self.offset.get(node.inputs[0], 0) + view_offset(node)
        self.outputs = {self.roots[v] for v in graph.outputs}

    def last(self, root: Value) -> float:
        """Index of the last node that reads it; infinite for a value that must stay."""
        if root in self.outputs:
            return inf
        return self.reads[root][-1] if self.reads[root] else self.made.get(root, inf)

    def covers(self, v: Value) -> bool:
        """Whether a value takes all of the buffer of its root."""
        return v.tensor.nbytes == self.roots[v].tensor.nbytes

    def block(self, v: Value) -> Value:
        """The root of the buffer of ``v``: the ``concat`` for operands that are computed in place."""
        root = self.roots[v]
        return self.joint[root][0] if root in self.joint else root

    def join(self, graph: Graph, taken: Collection[Value]) -> None:
        """Find the operands of ``concat`` nodes that can be computed in place: all but the roots in ``taken``.

        They are whole buffers that a node makes, and each has one destination.
        """
        wholes: set[Value] = set()  # their operands lie in them, so they cannot lie in another result themselves
        for node in graph.nodes:
            if node.op.name != "concat" or node.output in taken:
                continue
            for v, offset in zip(node.inputs, joint_offsets(node), strict=False):
                root = self.roots[v]
                unfit = root not in self.made or root in taken or root in wholes or root in self.joint
                if unfit or not self.covers(v) or not v.tensor.size:
                    continue
                self.joint[root] = node.output, offset
                wholes.add(node.output)
                if root in self.outputs:
                    self.outputs.add(node.output)
                self.reads[node.output].extend(self.reads[root])
        for whole in wholes:
            self.reads[whole].sort()


def _in_place(graph: Graph, life: _Life, assign: int) -> Value | None:
    """Return the root that ``assign`` writes if it may be computed in the state's own buffer, else None."""
    node = graph.nodes[assign]
    state, new = node.inputs
    root = life.roots[new]
    if root in life.outputs or root not in life.made or root.tensor.dtype != state.tensor.dtype:
        return None
    born = life.made[root]
    maker = graph.nodes[born]
    if maker.op.is_opaque or not life.covers(new):
        return None
    allowed = overwritable(maker, maker.outputs.index(root))
    if any(life.roots[v] is state and i not in allowed for i, v in enumerate(maker.inputs)):
        return None  # it reads the state through another view too
    if _next(life.reads[state], born) < assign or _next(life.opaque, born) < assign:
        return None
    last = life.reads[root][-1] if life.reads[root] else -1
    written = _next(life.writes[state], assign)
    return None if last >= written or last > _next(life.opaque, assign) else root


def _next(places: Sequence[int], at: int) -> float:
    """The first of some sorted positions behind ``at``; infinite if there is none."""
    k = bisect_right(places, at)
    return places[k] if k < len(places) else inf


def plan(graph: Graph, *, copy_in_below: int = 0, copy_out_below: int = 0, kept: Collection[Value] = (),
         scratch: Mapping[Node, int] | None = None) -> Plan:
    """Return a plan with a slot for every value of ``graph``.

    Inputs of fewer than ``copy_in_below`` bytes get an arena slot of their own; so do outputs of fewer than
    ``copy_out_below`` bytes and the values in ``kept``, of any size. Other outputs own an external buffer. While a node
    of ``scratch`` runs, so many bytes of the arena belong to no value. ``KUSARI_CHECK=1`` checks the plan by
    simulation.
    """
    found = _Planner(graph)
    found.sources(copy_in_below)
    found.outputs(copy_out_below, kept)
    found.states()
    found.results(scratch or {})
    planned = found.plan()
    if os.environ.get("KUSARI_CHECK", "0") not in ("", "0"):
        check_plan(planned, ALIGNMENT_BYTES)
    return planned


class _Planner:
    """Gives each root a slot, in the order of the methods below: earlier ones have the choice.

    ``slots`` are of roots; those in the arena get their offset in the end, from their ``parts``: a block and an offset
    in it. ``open`` are the blocks of roots that will be read again.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, self.life = graph, _Life(graph)
        self.externals = list(graph.sources())
        self.slots: dict[Value, Slot] = {}
        self.parts: dict[Value, tuple[Block, int]] = {}
        self.open: dict[Value, Block] = {}
        self._blocks: list[Block] = []

    def take(self, nbytes: int, born: int) -> Block:
        """Return a new block for a value of so many bytes."""
        self._blocks.append(Block(-(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, born))
        return self._blocks[-1]

    def sources(self, copy_in_below: int) -> None:
        """Sources are external; small inputs are copied to the arena."""
        for i, v in enumerate(self.externals):
            small = i < len(self.graph.inputs) and isinstance(v.type, TensorType) and 0 < v.type.nbytes < copy_in_below
            if small:
                self.parts[v] = self.take(v.tensor.nbytes, -1), 0
            self.slots[v] = Arena(0) if small else External(i)

    def outputs(self, copy_out_below: int, kept: Collection[Value]) -> None:
        """Outputs own an external buffer, but for small ones and those in ``kept``, which are copied."""
        roots = {self.life.roots[v] for v in kept}
        for v in self.graph.outputs:
            root = self.life.roots[v]
            large = isinstance(v.type, TensorType) and v.type.nbytes >= copy_out_below
            if large and root not in self.slots and root not in roots:
                self.slots[root] = External(len(self.externals))
                self.externals.append(v if self.life.covers(v) else root)

    def states(self) -> None:
        """New state is computed in the buffer of the old where it may be."""
        for i, node in enumerate(self.graph.nodes):
            if node.op.name == "assign" and isinstance(self.slots.get(node.inputs[0]), External):
                root = _in_place(self.graph, self.life, i)
                if root is not None and root not in self.slots:
                    self.slots[root] = self.slots[node.inputs[0]]

    def results(self, scratch: Mapping[Node, int]) -> None:
        """Other results lie in the arena: in their ``concat``, in the block of an input that dies, or in a new one."""
        self.life.join(self.graph, self.slots)
        stage = stages(self.graph)  # whose nodes run at the same time
        for i, node in enumerate(self.graph.nodes):
            first, end = stage[i]
            if size := scratch.get(node):
                self.take(size, first).dies = end
            if not node.op.is_view:
                for k, v in enumerate(node.outputs):
                    if v not in self.slots and isinstance(v.type, TensorType):
                        self._place(node, k, i, first)
            for v in dict.fromkeys((*node.inputs, *node.outputs)):
                root = self.life.block(v)
                if root in self.open and self.life.last(root) <= i:
                    self.open.pop(root).dies = end

    def _place(self, node: Node, output: int, at: int, first: int) -> None:
        v = node.outputs[output]
        whole, offset = self.life.joint.get(v, (v, 0))
        block = self.open.get(whole) or (self._inherited(node, output, at, first) if whole is v else None)
        if block is None:
            block = self.take(whole.tensor.nbytes, first)
        self.slots[v], self.parts[v] = Arena(0), (block, offset)
        if whole.tensor.nbytes:
            self.open[whole] = block

    def _inherited(self, node: Node, output: int, at: int, first: int) -> Block | None:
        """Take over the block of an input that dies in ``node`` and may be overwritten by an output; None without one.

        The input has no other reader from node ``first`` on, with which the stage of ``node`` begins.
        """
        if node.op.is_opaque:
            return None
        life, allowed = self.life, overwritable(node, output)
        for i in allowed:
            root = life.roots[node.inputs[i]]
            if root not in self.open or life.last(root) != at or not life.covers(node.inputs[i]):
                continue
            reads = life.reads[root]
            if reads[bisect_left(reads, first)] < at:
                continue
            if all(j in allowed for j, v in enumerate(node.inputs) if life.block(v) is root):
                return self.open.pop(root)
        return None

    def plan(self) -> Plan:
        """Place the blocks in the arena; views lie where their roots do."""
        end = place([b for b in self._blocks if b.size])
        self.slots.update((v, Arena(block.offset + offset)) for v, (block, offset) in self.parts.items())
        every = {v: moved(self.slots[r], self.life.offset.get(v, 0))
                 for v, r in self.life.roots.items() if r in self.slots}
        return Plan(self.graph, every, tuple(self.externals), end)
