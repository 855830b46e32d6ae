"""Building graphs: every method appends a node and returns its value."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .expr import Arg, Call, Expr, Lit
from .graph import Node, Value
from .op import Op
from .primitives import PRIMITIVES
from .scalar import cast_name
from .symbol import Formula, tree_of
from .types import TensorType

Number = bool | int | float


class Builder:
    """Collects nodes; types are inferred by the ops' own rules, ``where`` is stamped on every node.

    ``on_card`` says that define-by-run has computed on a graphics card, where draws have other types.

    Invariant: ``nodes`` is in an order that defines every value before its uses.
    """

    on_card = False

    def __init__(self, where: str = "") -> None:
        self.nodes: list[Node] = []
        self.where = where

    def emit(self, op: Op, *inputs: Value, **attrs: Any) -> tuple[Value, ...]:
        """Append a node of ``op`` and return its outputs."""
        if op.types is None:
            raise TypeError(f"{op} has no type rule; its node must be made with observed types")
        outputs = tuple(Value(t) for t in op.types(attrs, *(v.type for v in inputs)))
        self.nodes.append(Node(op, inputs, outputs, attrs, self.where))
        return outputs

    def one(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        """Append a primitive with one output and return it."""
        (value,) = self.emit(PRIMITIVES[name], *inputs, **attrs)
        return value

    def map(self, formula: Formula, *inputs: Value) -> Value:
        """A function of symbols, or a tree, at every point of the inputs: ``b.map(lambda x, m: exp(x - m), x, m)``."""
        return self.one("map", *inputs, expr=tree_of(formula, len(inputs)))

    def call(self, fn: str, *operands: Value | Number) -> Value:
        """One scalar function (``SCALARS``) of values and Python scalars: ``b.call("multiply", x, 2.0)``."""
        values: list[Value] = []
        args: list[Expr] = []
        for x in operands:
            if isinstance(x, Value):
                args.append(Arg(len(values)))
                values.append(x)
            else:
                args.append(Lit(x))
        return self.map(Call(fn, tuple(args)), *values)

    def cast(self, x: Value, dtype: Any) -> Value:
        """``x`` as ``dtype``; ``x`` itself when it is that already."""
        kind = np.dtype(dtype)
        return x if x.tensor.dtype == kind else self.call(cast_name(kind), x)

    def full(self, shape: Sequence[int], value: Number, dtype: Any) -> Value:
        """``value`` at every place of ``shape``."""
        return self.one("full", shape=tuple(int(n) for n in shape), value=value, dtype=np.dtype(dtype).name)

    def reduce(self, fn: str, x: Value, axes: Sequence[int] | int | None = None) -> Value:
        """``sum | prod | max | min | any | all``; reduced axes stay with extent 1."""
        rank = len(x.shape)
        if axes is None:
            axes = range(rank)
        elif isinstance(axes, int):
            axes = (axes,)
        normal = tuple(sorted({a % rank for a in axes}))
        return self.one("reduce", x, fn=fn, axes=normal) if normal else x

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """The same elements under another shape; ``x`` itself when the shape is that already."""
        shape = tuple(int(n) for n in shape)
        return x if x.shape == shape else self.one("reshape", x, shape=shape)

    def transpose(self, x: Value, axes: Sequence[int] | None = None) -> Value:
        """Axes permuted (reversed by default)."""
        rank = len(x.shape)
        order = tuple(reversed(range(rank))) if axes is None else tuple(a % rank for a in axes)
        return x if order == tuple(range(rank)) else self.one("transpose", x, axes=order)

    def broadcast_to(self, x: Value, shape: Sequence[int]) -> Value:
        """NumPy broadcasting."""
        shape = tuple(int(n) for n in shape)
        return x if x.shape == shape else self.one("broadcast_to", x, shape=shape)

    def sum_to(self, x: Value, shape: Sequence[int]) -> Value:
        """Sum ``x`` over the axes along which ``shape`` was broadcast to it."""
        shape = tuple(shape)
        lead = len(x.shape) - len(shape)
        axes = [i for i, n in enumerate(x.shape) if i < lead or (shape[i - lead] == 1 and n != 1)]
        return self.reshape(self.reduce("sum", x, axes) if axes else x, shape)

    def matmul(self, a: Value, b: Value, transa: bool = False, transb: bool = False) -> Value:
        """Matrix product over the last two axes; of float16 it is added up in float32, as NumPy does."""
        half = a.tensor.dtype == np.float16 and b.tensor.dtype == np.float16
        if half:
            a, b = self.cast(a, np.float32), self.cast(b, np.float32)
        y = self.one("matmul", a, b, transa=bool(transa), transb=bool(transb))
        return self.cast(y, np.float16) if half else y

    def arange(self, n: int) -> Value:
        """int32 ``0 … n-1``."""
        return self.one("arange", n=int(n))

    def take(self, x: Value, indices: Value) -> Value:
        """Rows of axis 0."""
        return self.one("take", x, indices)

    def gather(self, x: Value, indices: Value, axis: int) -> Value:
        """The element of every line along ``axis`` that an index names; that axis stays with extent 1."""
        return self.one("gather", x, indices, axis=axis % len(x.shape))

    def scatter_add(self, indices: Value, updates: Value, shape: Sequence[int]) -> Value:
        """Rows added into zeros of ``shape``."""
        return self.one("scatter_add", indices, updates, shape=tuple(shape))

    def slice(self, x: Value, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Value:
        """Normalised basic slicing, one entry per axis."""
        return self.one("slice", x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))

    def part(self, x: Value, start: int, stop: int) -> Value:
        """A slice of rows of axis 0: a view of the operand."""
        return self.one("part", x, start=start, stop=stop)

    def concat(self, xs: Sequence[Value], axis: int) -> Value:
        """Values one after the other along ``axis``."""
        return self.one("concat", *xs, axis=axis % len(xs[0].shape))

    def cumsum(self, x: Value, axis: int, reverse: bool = False) -> Value:
        """Running sums along ``axis``: up to each element, or from it on (``reverse``)."""
        return self.one("cumsum", x, axis=axis % len(x.shape), reverse=bool(reverse))

    def cumprod(self, x: Value, axis: int) -> Value:
        """Products up to each place along ``axis``."""
        return self.one("cumprod", x, axis=axis % len(x.shape))

    def random(self, dist: str, args: Sequence[Number], shape: Sequence[int], dtype: Any) -> Value:
        """A draw from NumPy's global generator."""
        return self.one("random", dist=dist, args=tuple(args), shape=tuple(shape), dtype=np.dtype(dtype).name)

    def assign(self, state: Value, new: Value) -> None:
        """Write ``new`` into the buffer of the param ``state``."""
        self.emit(PRIMITIVES["assign"], state, new)

    def detached(self, x: Value) -> Value:
        """``x`` without a gradient: for values whose gradients are the same whether or not they depend on ``x``."""
        return x

    def apply(self, function: Any, *inputs: Value) -> tuple[Value, ...]:
        """Another function, by its ``lower(b, *inputs)``; its gradient is the one that it states, if it does."""
        return function.lower(self, *inputs)

    def fresh(self, op: Op, inputs: Sequence[Value], types: Sequence[TensorType], **attrs: Any) -> tuple[Value, ...]:
        """Append a node whose output types were observed."""
        outputs = tuple(Value(t) for t in types)
        self.nodes.append(Node(op, tuple(inputs), outputs, attrs, self.where))
        return outputs
