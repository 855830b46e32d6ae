"""Identities of tensors: each rule is one, written in its docstring, and stands in ``TENSOR_RULES`` under its op."""
from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from kusari.ir import Arg, Call, Expr, Graph, Lit, Node, Value, expr_dtype, substitute, used_args, walk

from .rewrite import Rule, Site, rewrite
from .scalars import simplify
from .tidy import FOLD_ELEMENTS

Values = tuple[Value, ...] | None


def all_of_it(b: Site, node: Node) -> Values:
    """``reshape(x, x.shape) = broadcast_to(x, x.shape) = x[:] = x``"""
    same = node.inputs[0].type == node.output.type and all(s == 1 for s in node.attrs.get("steps", ()))
    return node.inputs if same else None


def twice_the_same(b: Site, node: Node) -> Values:
    """``reshape(reshape(x, s), t) = reshape(x, t)``, and so for ``broadcast_to``"""
    inner = b.producer(node.inputs[0], node.op.name)
    return (b.one(node.op.name, *inner.inputs, **node.attrs),) if inner else None


def reshape_of_part(b: Site, node: Node) -> Values:
    """``reshape(part(x, a, b), s) = part(reshape(x, t), c, d)`` where those are whole rows"""
    inner, shape = b.producer(node.inputs[0], "part"), node.output.shape
    row = prod(shape[1:])
    if inner is None or not shape or not row:
        return None
    x, first = inner.inputs[0], inner.attrs["start"] * prod(inner.output.shape[1:])
    if first % row or x.tensor.size % row:
        return None
    rows = b.reshape(x, (x.tensor.size // row, *shape[1:]))
    return (b.part(rows, first // row, first // row + shape[0]),)


def transpose_as_reshape(b: Site, node: Node) -> Values:
    """``transpose(x, p) = reshape(x, …)`` when ``p`` keeps the order of all axes longer than 1."""
    x = node.inputs[0]
    long = [a for a in node.attrs["axes"] if x.shape[a] != 1]
    return (b.reshape(x, node.output.shape),) if long == sorted(long) or x.tensor.size == 0 else None


def transpose_of_transpose(b: Site, node: Node) -> Values:
    """``transpose(transpose(x, p), q) = transpose(x, p[q])``"""
    inner = b.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    return (b.transpose(inner.inputs[0], [inner.attrs["axes"][a] for a in node.attrs["axes"]]),)


def product_of_transpose(b: Site, node: Node) -> Values:
    """``matmul(xᵀ, y) = matmul(x, y, transa)``, and so for ``y``: transposing the last two axes is free there."""
    inputs = list(node.inputs)
    flags = [node.attrs["transa"], node.attrs["transb"]]
    for i in (0, 1):
        inner = b.producer(inputs[i], "transpose")
        if inner is None:
            continue
        rank = len(inputs[i].shape)
        if rank >= 2 and tuple(inner.attrs["axes"]) == (*range(rank - 2), rank - 1, rank - 2):
            inputs[i], flags[i] = inner.inputs[0], not flags[i]
    return None if tuple(inputs) == node.inputs else (b.matmul(inputs[0], inputs[1], flags[0], flags[1]),)


def broadcast_as_reshape(b: Site, node: Node) -> Values:
    """``broadcast_to(x, s) = reshape(x, s)`` when only axes of extent 1 are added"""
    if node.inputs[0].tensor.size != node.output.tensor.size:
        return None
    return (b.reshape(node.inputs[0], node.output.shape),)


def map_of_broadcast(b: Site, node: Node) -> Values:
    """``f(broadcast_to(x), y) = broadcast_to(f(x, y))``: a value that is the same at many points is computed once"""
    inner = [b.producer(v, "broadcast_to") for v in node.inputs]
    if not any(inner):
        return None
    inputs = [v if n is None else n.inputs[0] for v, n in zip(node.inputs, inner, strict=True)]
    return (b.broadcast_to(b.map(node.attrs["expr"], *inputs), node.output.shape),)


def map_of_distinct(b: Site, node: Node) -> Values:
    """``f(x, x, y) = g(x)`` when ``f`` does not read ``y`` and the shape does not depend on it"""
    used = {node.inputs[i] for i in used_args(node.attrs["expr"])}
    every = dict.fromkeys(node.inputs)
    kept = [v for v in every if v in used]
    if not kept or np.broadcast_shapes(*(v.shape for v in kept)) != node.output.shape:
        kept = list(every)
    if len(kept) == len(node.inputs):
        return None
    return (b.map(on_operands(node.attrs["expr"], node.inputs, kept), *kept),)


def on_operands(expr: Expr, before: Sequence[Value], after: Sequence[Value]) -> Expr:
    """Return ``expr`` of the operands ``before`` as one of those ``after``, among which are all that it reads."""
    return substitute(expr, [Arg(after.index(v) if v in after else 0) for v in before])


def full_of_constant(b: Site, node: Node) -> Values:
    """``full(v, s) = broadcast_to(v, s)`` of a constant ``v``"""
    value = b.constant(np.asarray(node.attrs["value"], node.attrs["dtype"]))
    return (b.one("broadcast_to", value, shape=node.output.shape),)  # of shape (), too: a caller wants a fresh array


def map_of_constants(b: Site, node: Node) -> Values:
    """``f(c)`` of small constants is a constant"""
    arrays = [b.const(v) for v in node.inputs]
    if any(a is None for a in arrays) or node.output.tensor.size > FOLD_ELEMENTS:
        return None
    return (b.constant(node.op.call(node.attrs, *arrays)[0], node.output.tensor.device),)


def map_of_constant(b: Site, node: Node) -> Values:
    """``f(x, c) = (y ↦ f(y, c))(x)`` for a scalar constant of the dtype of all other operands"""
    if len(node.inputs) < 2:
        return None
    for v in node.inputs:
        array = b.const(v)
        if array is None or array.size != 1 or array.dtype.kind not in "fib":
            continue
        rest = [u for u in node.inputs if u is not v]
        value = array.item()
        if not rest or any(u.tensor.dtype != array.dtype for u in rest) or not np.isfinite(value):
            continue
        if np.broadcast_shapes(*(u.shape for u in rest)) != node.output.shape:
            continue
        args = [Lit(value) if u is v else Arg(rest.index(u)) for u in node.inputs]
        expr = substitute(node.attrs["expr"], args)
        if any(isinstance(e, Call) and all(isinstance(a, Lit) for a in e.args) for e in walk(expr)):
            continue  # a function of literals alone is computed in float64
        if expr_dtype(expr, tuple(u.tensor.dtype for u in rest)) == node.output.tensor.dtype:
            return (b.map(expr, *rest),)
    return None


def simpler_map(b: Site, node: Node) -> Values:
    """Identities of scalars: the rules of ``SCALAR_RULES`` inside the expression"""
    dtypes = tuple(v.tensor.dtype for v in node.inputs)
    expr = simplify(node.attrs["expr"], dtypes)
    return None if expr == node.attrs["expr"] else (b.map(expr, *node.inputs),)


def map_identity(b: Site, node: Node) -> Values:
    """``(x ↦ x)(x) = x``"""
    expr = node.attrs["expr"]
    if not isinstance(expr, Arg):
        return None
    x = node.inputs[expr.index]
    return (b.broadcast_to(x, node.output.shape),) if x.tensor.dtype == node.output.tensor.dtype else None


def reduce_of_ones(b: Site, node: Node) -> Values:
    """Reducing an axis of extent 1 does nothing: ``sum(x, a ∪ {1}) = sum(x, a)``"""
    x = node.inputs[0]
    axes = tuple(a for a in node.attrs["axes"] if x.shape[a] != 1)
    if axes == tuple(node.attrs["axes"]):
        return None
    return (b.reduce(node.attrs["fn"], x, axes),)


def reduce_of_reduce(b: Site, node: Node) -> Values:
    """``sum(sum(x, a), b) = sum(x, a ∪ b)``, and so for the others, when the inner one has no other reader"""
    inner = b.producer(node.inputs[0], "reduce")
    if inner is None or inner.attrs["fn"] != node.attrs["fn"] or b.reads(inner.output) > 1:
        return None
    return (b.reduce(node.attrs["fn"], inner.inputs[0], sorted({*inner.attrs["axes"], *node.attrs["axes"]})),)


def reduce_of_broadcast(b: Site, node: Node) -> Values:
    """``sum(broadcast_to(x), a) = n * sum(x, a)``; ``max``, ``min``, ``any`` and ``all`` without the factor"""
    fn: str = node.attrs["fn"]
    inner = b.producer(node.inputs[0], "broadcast_to")
    if inner is None or fn == "prod":
        return None
    x, wide = inner.inputs[0], inner.output
    lead = len(wide.shape) - len(x.shape)
    shape = (1,) * lead + x.shape
    axes: tuple[int, ...] = node.attrs["axes"]
    repeated = [a for a in axes if shape[a] == 1 and wide.shape[a] != 1]
    count = prod(wide.shape[a] for a in repeated)
    if not repeated or not count:
        return None
    narrow = b.broadcast_to(b.reshape(x, shape), [1 if a in repeated else n for a, n in enumerate(wide.shape)])
    y = b.reduce(fn, narrow, axes)
    if fn == "sum":
        dtype = y.tensor.dtype
        limit = np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max if dtype.kind in "iu" else 0
        if count > limit:  # it would not be a number of that dtype
            return None
        y = b.call("multiply", y, float(count) if dtype.kind == "f" else count)
    return (y,)


def slice_of_slice(b: Site, node: Node) -> Values:
    """``x[a:b:s][c:d:t] = x[a + c s:…:s t]``"""
    x = node.inputs[0]
    inner = b.producer(x, "slice")
    if inner is None or not node.output.tensor.size:
        return None
    outer, source = node.attrs, inner.inputs[0]
    starts = [a + c * s for a, s, c in zip(inner.attrs["starts"], inner.attrs["steps"], outer["starts"], strict=True)]
    steps = [s * t for s, t in zip(inner.attrs["steps"], outer["steps"], strict=True)]
    stops = [max(-1, min(n, a + s * count)) for n, a, s, count in zip(
        source.shape, starts, steps, node.output.shape, strict=True)]
    return (b.slice(source, starts, stops, steps),)


def slice_of_rows(b: Site, node: Node) -> Values:
    """``x[a:b] = part(x)``, or a copy of it for an effect or a caller: kernels do not know the numbers of their rows"""
    x, starts, stops = node.inputs[0], node.attrs["starts"], node.attrs["stops"]
    if not node.output.tensor.size or any(s != 1 for s in node.attrs["steps"]) or any(starts[1:]):
        return None
    return (b.map(Arg(0), b.part(x, starts[0], stops[0])),) if tuple(stops[1:]) == x.shape[1:] else None


def concat_of_one(b: Site, node: Node) -> Values:
    """``concat(x) = x``"""
    return node.inputs if len(node.inputs) == 1 else None


def matmul_is_2d(b: Site, node: Node) -> Values:
    """``matmul`` of stacks of one matrix each is the product of the two matrices"""
    if all(len(v.shape) == 2 for v in node.inputs):
        return None
    if any(len(v.shape) < 2 or prod(v.shape[:-2]) != 1 for v in node.inputs):
        return None
    x, y = (b.reshape(v, v.shape[-2:]) for v in node.inputs)
    return (b.reshape(b.matmul(x, y, node.attrs["transa"], node.attrs["transb"]), node.output.shape),)


TENSOR_RULES: dict[str, tuple[Rule, ...]] = {
    "reshape": (all_of_it, twice_the_same, reshape_of_part),
    "transpose": (transpose_as_reshape, transpose_of_transpose),
    "broadcast_to": (all_of_it, broadcast_as_reshape, twice_the_same),
    "map": (map_of_distinct, simpler_map, map_of_constants, map_identity, map_of_broadcast, map_of_constant),
    "full": (full_of_constant,),
    "reduce": (reduce_of_ones, reduce_of_reduce, reduce_of_broadcast),
    "matmul": (product_of_transpose, matmul_is_2d),
    "slice": (all_of_it, slice_of_slice, slice_of_rows),
    "pad_slice": (all_of_it,),
    "concat": (concat_of_one,),
}


def simplify_algebra(graph: Graph) -> Graph:
    """Apply ``TENSOR_RULES`` until none applies."""
    return rewrite(graph, TENSOR_RULES)
