"""Gathers in place of one-hot sums: sums over an axis with one element that is not zero, as losses take from a row.

The element is gathered by its number from a tensor that is in memory anyway: an array from outside, the result of a
product or a convolution. Maps on the way are computed for the one element.
"""
from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from kusari.ir import Arg, Call, Expr, Graph, Lit, Node, Value, substitute, used_args

from .patterns import P
from .rewrite import Site, rewrite

LARGE_ELEMENTS = 1 << 13  # of the sum: from this size on a gather is faster
MOST_GATHERS = 4          # in place of one sum
STREAMED = frozenset(("map", "reduce", "broadcast_to", "fused"))  # not written to memory if fused with their readers
ONE_OF_A_ROW = P.where(P.test, P.value, 0)
INDICES = np.dtype(np.int32)


def gather_one_hot(graph: Graph) -> Graph:
    """``sum(where(arange(n) == t, f(x, …), 0), axis) = f(x[t], …)`` where ``t`` was gathered from ``arange(n)``."""
    if not any(n.op.name == "take" for n in graph.nodes):
        return graph
    return rewrite(graph, {"reduce": (_gather,)})


def _gather(b: Site, node: Node) -> tuple[Value, ...] | None:
    """``sum(where(arange(n) == t, f(x, …), 0), axis) = f(x[t], …)``"""
    axes: tuple[int, ...] = node.attrs["axes"]
    chosen = b.producer(node.inputs[0], "map")
    if node.attrs["fn"] != "sum" or len(axes) != 1 or chosen is None or node.inputs[0].tensor.size < LARGE_ELEMENTS:
        return None
    axis, shape = axes[0], node.inputs[0].shape
    found = ONE_OF_A_ROW.match(chosen.attrs["expr"])
    position = None if found is None else _position(b, found["test"], chosen.inputs, axis, shape)
    if found is None or position is None:
        return None
    pick = _Pick(b, axis, shape, position)
    y = pick.map(found["value"], chosen.inputs)
    if y is None or pick.count > MOST_GATHERS or y.tensor.dtype.kind != node.output.tensor.dtype.kind:
        return None
    return (b.broadcast_to(b.cast(y, node.output.tensor.dtype), node.output.shape),)


def _position(b: Site, test: Expr, operands: Sequence[Value], axis: int, shape: tuple[int, ...]) -> Value | None:
    """The position along ``axis`` of the only element for which ``test`` holds; None if there may be none, or more."""
    if (found := P.equal(P.arg1, P.arg2).match(test)) is None:
        return None
    one, two = (operands[a.index] for a in found.values() if isinstance(a, Arg))
    for numbers, position in ((one, two), (two, one)):
        if _along(numbers, axis, shape) and _numbers(b, numbers) and not _along(position, axis, shape):
            made = b.producer(position, "reshape")
            taken = b.producer(made.inputs[0] if made else position, "take")
            if taken is not None and _numbers(b, taken.inputs[0]) and taken.inputs[0].shape == (shape[axis],):
                return position
    return None


def _numbers(b: Site, v: Value) -> bool:
    """Whether ``v`` counts from 0 on along its only axis that is longer than 1."""
    made = b.producer(v, "reshape")
    source = made.inputs[0] if made else v
    return max(v.shape, default=0) == v.tensor.size and b.producer(source, "arange") is not None


def _along(v: Value, axis: int, shape: tuple[int, ...]) -> bool:
    """Whether ``v``, broadcast to ``shape``, differs along ``axis``."""
    own = axis - len(shape) + len(v.shape)
    return own >= 0 and v.shape[own] != 1


class _Pick:
    """Gathers the element at ``position`` along an axis of operands that broadcast to ``shape``, which becomes 1."""

    def __init__(self, b: Site, axis: int, shape: tuple[int, ...], position: Value) -> None:
        self.b, self.axis, self.shape, self.position = b, axis, shape, position
        self.count = 0

    def map(self, expr: Expr, operands: Sequence[Value]) -> Value | None:
        """``expr`` of the elements; None if one of them would have to be written first."""
        used = used_args(expr)
        if not used:
            return None
        found = [self.of(operands[i]) for i in used]
        values = [v for v in found if v is not None]
        if len(values) < len(used):
            return None
        return self.b.map(substitute(expr, [Arg(used.index(i)) if i in used else Arg(0) for i in range(len(operands))]),
                          *values)

    def of(self, v: Value) -> Value | None:
        """The elements of ``v``."""
        if not _along(v, self.axis, self.shape):
            return v
        made = self.b.producer(v)
        if made is None or self._is_written(v, made):
            return self._taken(v)
        if made.op.name == "map":
            return self.map(made.attrs["expr"], made.inputs)
        return self.of(made.inputs[0]) if made.op.name == "broadcast_to" else None

    def _is_written(self, v: Value, made: Node) -> bool:
        """Whether ``v`` is in memory: a source, the result of a product, or a view or an epilogue of such a value."""
        source = self._source(v)
        if source is None or source.op.name not in STREAMED:
            return True
        makers = [self._source(u) for u in made.inputs if u.shape == v.shape] if made.op.name == "map" else []
        return any(m is not None and m.op.name not in STREAMED for m in makers)

    def _source(self, v: Value) -> Node | None:
        """The node that makes ``v``, or the value it is a view of; None for arrays from outside."""
        made = self.b.producer(v)
        while made is not None and made.op.is_view:
            made = self.b.producer(made.inputs[0])
        return made

    def _taken(self, v: Value) -> Value:
        b, rank = self.b, len(self.shape)
        shape = (1,) * (rank - len(v.shape)) + v.shape
        self.count += 1
        kind = INDICES if v.tensor.size <= np.iinfo(INDICES).max else np.dtype(np.int64)
        values = [b.reshape(self.position, (1,) * (rank - len(self.position.shape)) + self.position.shape)]
        index = _scaled(Arg(0), prod(shape[self.axis + 1:]), kind)
        for i, n in enumerate(shape):
            if i != self.axis and n != 1:
                values.append(b.reshape(b.arange(n), tuple(n if k == i else 1 for k in range(rank))))
                index = Call("add", (index, _scaled(Arg(len(values) - 1), prod(shape[i + 1:]), kind)))
        return b.take(b.reshape(v, (v.tensor.size,)), b.map(index, *values))


def _scaled(number: Expr, stride: int, kind: np.dtype[np.generic]) -> Expr:
    number = number if kind == INDICES else Call(kind.name, (number,))
    return number if stride == 1 else Call("multiply", (number, Lit(stride)))
