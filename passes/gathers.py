"""Gathers of one element of each line: as a lookup by its number, or as a sum of the elements whose number it is.

A lookup reads nothing but the element, from a tensor that is in memory anyway: an array from outside, the result of a
product or a convolution; maps on the way are computed for the one element. A sum is fused with what makes the tensor.
"""
from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from kusari.ir import Arg, Call, Expr, Graph, Lit, Node, Symbol, Value, used_args
from kusari.ir.symbol import where

from .algebra import on_operands
from .rewrite import Site, rewrite

LARGE_ELEMENTS = 1 << 13  # of the tensor: from this size on a lookup is faster
MOST_GATHERS = 4          # in place of one sum
STREAMED = frozenset(("map", "reduce", "broadcast_to", "fused"))  # not written to memory if fused with their readers
INDICES = np.dtype(np.int32)


def expand_gathers(graph: Graph) -> Graph:
    """``gather(f(x, …), t, axis)``: ``f(x[t], …)``, or ``sum(where(arange(n) == t, f(x, …), 0), axis)``."""
    if not any(n.op.name == "gather" for n in graph.nodes):
        return graph
    return rewrite(graph, {"gather": (_expand,)})


def _expand(b: Site, node: Node) -> tuple[Value, ...]:
    """``gather(f(x, …), t, axis)``: ``f(x[t], …)``, or ``sum(where(arange(n) == t, f(x, …), 0), axis)``"""
    (x, t), shape = node.inputs, node.inputs[0].shape
    axis: int = node.attrs["axis"]
    numbers = b.arange(shape[axis])
    position = b.take(numbers, t)  # from 0 on; a lookup reports an index that is out of range
    if x.tensor.size >= LARGE_ELEMENTS:
        pick = _Pick(b, axis, shape, position)
        y = pick.of(x)
        if y is not None and pick.count <= MOST_GATHERS:
            return (b.broadcast_to(b.cast(y, x.tensor.dtype), node.output.shape),)
    numbers = b.reshape(numbers, tuple([n if i == axis else 1 for i, n in enumerate(shape)]))
    chosen = b.map(_chosen, numbers, position, x)
    return (b.reduce("sum", b.cast(chosen, x.tensor.dtype), axis),)


def _chosen(number: Symbol, position: Symbol, x: Symbol) -> Symbol:
    return where(number == position, x, 0)


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
        used = [operands[i] for i in used_args(expr)]
        found = [self.of(v) for v in used]
        values = [v for v in found if v is not None]
        return self.b.map(on_operands(expr, operands, used), *values) if 0 < len(values) == len(used) else None

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
