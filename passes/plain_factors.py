"""Factors of products as kernels of a graphics card take them, which may be halves and have one dtype and batch.

A half that a product reads as float32 is read as it is: in half the bytes, and by tensor cores. Its sums are float32 as
before, so the cast behind such a product becomes a part of its kernel. Moves between the cast and the product move
halves. Factors of two dtypes get that of the result, those of bools are counted, and a batch that is broadcast in part
becomes whole, by copies of its matrices.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from kusari.ir import CONVOLUTIONS, Arg, Builder, Call, Graph, Node, Value

from .order import Versions
from .tidy import remove_dead

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)
MOVES = frozenset(("reshape", "transpose", "broadcast_to", "slice", "part", "concat", "pad_slice"))


def plain_factors(graph: Graph) -> Graph:
    """Rewrite products and convolutions that are not of one float dtype already; the same graph without any."""
    halves = _Halves(graph)
    nodes: list[Node] = []
    for i, node in enumerate(graph.nodes):
        if node.op.name == "matmul":
            nodes += _product(node, i, halves)
        elif node.op.name in CONVOLUTIONS:
            nodes += _convolution(node, i, halves)
        else:
            nodes.append(node)
    return graph if tuple(nodes) == tuple(graph.nodes) else remove_dead(graph.with_nodes(nodes))


@dataclass(frozen=True)
class _Cast:
    """A float32 made of a half by the node at a position."""

    position: int
    source: Value


class _Halves:
    """The halves behind float32 values, through casts and moves."""

    def __init__(self, graph: Graph) -> None:
        self._versions = Versions(graph)
        self._made = {v: i for i, n in enumerate(graph.nodes) for v in n.outputs}
        self._nodes = graph.nodes
        self._casts: dict[Value, tuple[_Cast, ...]] = {}  # behind a value; empty if it is no half
        self._moved: dict[Value, Value] = {}

    def casts(self, v: Value) -> tuple[_Cast, ...]:
        """All casts behind ``v``; empty if anything else is there."""
        if v not in self._casts:
            self._casts[v] = self._found(v)
        return self._casts[v]

    def _found(self, v: Value) -> tuple[_Cast, ...]:
        i = self._made.get(v, -1)
        if i < 0 or v.tensor.dtype != SINGLE:
            return ()
        node = self._nodes[i]
        if node.op.name == "map":
            cast = node.attrs["expr"] == Call("float32", (Arg(0),)) and node.inputs[0].tensor.dtype == HALF
            return (_Cast(i, node.inputs[0]),) if cast and node.inputs[0].shape == v.shape else ()
        if node.op.name not in MOVES or not node.inputs:
            return ()
        behind = [self.casts(x) for x in node.inputs]
        return tuple([c for found in behind for c in found]) if all(behind) else ()

    def has(self, v: Value, position: int) -> bool:
        """Whether the node at ``position`` could read halves in place of ``v``: nothing has written to them since."""
        before = self._versions.before
        found = self.casts(v)
        return bool(found) and all(before(c.position, c.source) == before(position, c.source) for c in found)

    def of(self, v: Value, nodes: list[Node]) -> Value:
        """The halves behind ``v``; moves of them are appended to ``nodes`` when they are first asked for."""
        node = self._nodes[self._made[v]]
        if node.op.name == "map":
            return node.inputs[0]
        if v not in self._moved:
            b = Builder(node.where)
            inputs = [self.of(x, nodes) for x in node.inputs]
            self._moved[v] = b.one(node.op.name, *inputs, **node.attrs)
            nodes += b.nodes
        return self._moved[v]


def _convolution(node: Node, position: int, halves: _Halves) -> list[Node]:
    if not all(halves.has(v, position) for v in node.inputs):
        return [node]
    nodes: list[Node] = []
    inputs = tuple([halves.of(v, nodes) for v in node.inputs])
    return [*nodes, Node(node.op, inputs, node.outputs, {**node.attrs, "wide": True}, node.where)]


def _product(node: Node, position: int, halves: _Halves) -> list[Node]:
    b = Builder(node.where)
    a, c = node.inputs
    dtype, wide = node.output.tensor.dtype, False
    if halves.has(a, position) and halves.has(c, position):
        a, c, wide = halves.of(a, b.nodes), halves.of(c, b.nodes), True
    elif dtype.kind == "b":
        a, c = b.cast(a, np.int32), b.cast(c, np.int32)
    else:
        a, c = b.cast(a, dtype), b.cast(c, dtype)
        wide = dtype == HALF
    batch = node.output.shape[:-2]
    a, c = _whole(b, a, batch), _whole(b, c, batch)
    if (a, c) == node.inputs and not wide:
        return [node]
    attrs = {**node.attrs, "wide": True} if wide else dict(node.attrs)
    b.cast(b.one("matmul", a, c, **attrs), dtype)
    last = b.nodes.pop()
    return [*b.nodes, Node(last.op, last.inputs, node.outputs, last.attrs, node.where)]


def _whole(b: Builder, v: Value, batch: Sequence[int]) -> Value:
    """A factor with all matrices of ``batch``, or one for all of them."""
    count = prod(v.shape[:-2])
    return v if count in (1, prod(batch)) else b.broadcast_to(v, (*batch, *v.shape[-2:]))
