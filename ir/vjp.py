"""Reverse differentiation of graphs: for each primitive the gradients of its operands from those of its results.

A row of `VJPS` is ``row(b, node, gys, wanted)``: it builds, with ``b``, the gradient of each operand that is wanted.
Gradients of results (None for zero) have their rank, and extent 1 along axes where they do not differ: the gradient of
a sum is not spread over what was added up until something needs all its elements.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from math import prod
from typing import Any

from .builder import Builder
from .expr import Arg, Call, Expr, Lit, substitute, used_args, walk
from .graph import Node, Value
from .pooling import pool_windows
from .primitives import PRIMITIVES
from .symbol import Symbol, derivative, expr_of, where

Gradients = Sequence[Value | None]
Row = Callable[[Builder, Node, Gradients, Sequence[bool]], Gradients]
VJPS: dict[str, Row] = {}


def pull_back(b: Builder, nodes: Sequence[Node], seeds: Mapping[Value, Value], wanted: Iterable[Value],
              row_of: Callable[[Node], Row] | None = None) -> list[Value | None]:
    """Return the gradients of ``wanted`` given those of results (``seeds``); None where nothing depends on them.

    Invariant: a gradient has the type of its value. Raises ``TypeError`` for an op that has no row.
    """
    targets = list(wanted)
    reached = {v for v in targets if v.tensor.dtype.kind == "f"}
    for n in nodes:
        if not reached.isdisjoint(n.inputs):
            reached.update([v for v in n.outputs if v.tensor.dtype.kind == "f"])
    terms: dict[Value, list[Value]] = {v: [g] for v, g in seeds.items()}

    def total(v: Value) -> Value | None:
        return _total(b, terms[v]) if v in terms else None
    for n in reversed(nodes):
        flags = [v in reached for v in n.inputs]
        if not any(flags) or terms.keys().isdisjoint(n.outputs):
            continue
        gys = [total(v) for v in n.outputs]
        row = VJPS.get(n.op.name) if row_of is None or n.op.name in VJPS else row_of(n)
        if row is None:
            raise TypeError(f"{n.op.name} has no row of gradients")
        for x, g, flag in zip(n.inputs, row(b, n, gys, flags), flags, strict=True):
            if flag and g is not None:
                terms.setdefault(x, []).append(_ranked(b, g, len(x.shape)))
    found = [total(v) if v in reached else None for v in targets]
    return [None if g is None else b.broadcast_to(b.cast(g, v.tensor.dtype), v.shape)
            for v, g in zip(targets, found, strict=True)]


def _total(b: Builder, terms: Sequence[Value]) -> Value:
    """The sum of terms; slices of it among zeros, which follow each other, are joined."""
    if len(terms) > 1 and (parts := _parts(b, terms)) is not None:
        return b.concat(*parts)
    return reduce(lambda x, y: b.call("add", x, y), terms)


def _parts(b: Builder, terms: Sequence[Value]) -> tuple[list[Value], int] | None:
    """The slices of their sum that terms consist of, and the axis; None for other terms."""
    makers = {n.outputs[0]: n for n in b.nodes if n.op.name == "pad_slice"}
    if not all(v in makers for v in terms):
        return None
    shape = terms[0].shape
    pads = [makers[v] for v in terms]
    for axis, n in enumerate(shape):
        pads.sort(key=lambda p: p.attrs["starts"][axis])
        borders = [0, *[p.attrs["stops"][axis] for p in pads]]
        if all(set(p.attrs["steps"]) == {1} and p.attrs["starts"][axis] == at and all(
                (start, stop) == (0, m) for i, (start, stop, m) in enumerate(zip(
                    p.attrs["starts"], p.attrs["stops"], shape, strict=True)) if i != axis)
               for p, at in zip(pads, borders, strict=False)) and borders[-1] == n:
            return [p.inputs[0] for p in pads], axis
    return None


def _ranked(b: Builder, g: Value, rank: int) -> Value:
    return b.reshape(g, (1,) * (rank - len(g.shape)) + g.shape)


def _whole(b: Builder, g: Value, like: Value) -> Value:
    """A gradient with all its elements."""
    return b.broadcast_to(g, like.shape)


def _row(*names: str) -> Callable[[Row], Row]:
    """Decorator: the row of some primitives."""
    def keep(row: Row) -> Row:
        VJPS.update(dict.fromkeys(names, row))
        return row
    return keep


def _alone(name: str) -> Callable[[Callable[[Builder, Node, Value], Value]], None]:
    """Decorator: the row of a primitive whose last operand alone has a gradient, from all of its result's."""
    def keep(gradient: Callable[[Builder, Node, Value], Value]) -> None:
        def row(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
            g = gys[0]
            assert g is not None
            last = gradient(b, node, _whole(b, g, node.outputs[0])) if wanted[-1] else None
            return [*[None] * (len(node.inputs) - 1), last]
        VJPS[name] = row
    return keep


# Elementwise, and sums

@_row("map")
def _map(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    (g,), xs, expr = gys, node.inputs, node.attrs["expr"]
    assert g is not None
    n = len(xs)
    found: list[Value | None] = []
    for i, x in enumerate(xs):
        tree = derivative(expr, i, Arg(n)) if wanted[i] else None
        if tree is None:
            found.append(None)
            continue
        # A derivative that contains the value itself reads the result rather than computing it again.
        tree = _with_result(tree, expr, Arg(n + 1))
        found.append(b.cast(_summed(b, tree, (*xs, g, node.output), x.shape, node.output.shape), x.tensor.dtype))
    return found


@lru_cache(maxsize=4096)
def _with_result(tree: Expr, old: Expr, new: Expr) -> Expr:
    done: dict[Expr, Expr] = {}
    for e in walk(tree):
        done[e] = new if e == old and isinstance(e, Call) else (
            Call(e.fn, tuple([done[a] for a in e.args])) if isinstance(e, Call) else e)
    return done[tree]


def mapped(b: Builder, tree: Expr, operands: Sequence[Value]) -> Value:
    """A tree at every point of those operands that it reads."""
    used = used_args(tree)
    if tree == Arg(used[0]):
        return operands[used[0]]
    renamed: list[Expr] = [Arg(used.index(i) if i in used else 0) for i in range(len(operands))]
    return b.map(substitute(tree, renamed), *[operands[i] for i in used])


def _summed(b: Builder, tree: Expr, operands: Sequence[Value], shape: tuple[int, ...],
            whole: tuple[int, ...]) -> Value:
    """The tree, whose value has the shape ``whole``, summed to ``shape``; extents that were not spread stay 1.

    ``sum(a * b) = a * sum(b)``: factors that are alike along the axes are multiplied afterwards, once for each sum.
    """
    rank = len(whole)
    lead = rank - len(shape)
    axes = {i for i, n in enumerate(whole) if i < lead or (shape[i - lead] == 1 != n)}

    def varies(e: Expr) -> bool:
        shapes = [operands[i].shape for i in used_args(e)]
        return any(s[i - rank] != 1 for s in shapes for i in axes if i >= rank - len(s))
    if not axes:
        return mapped(b, tree, operands)
    inside: list[Expr] = []
    outside: list[Expr] = []
    below: list[Expr] = []
    sign = 1
    for e, divides in _factors(tree):
        if e == Lit(-1):
            sign = -sign
        elif divides:
            (inside if varies(e) else below).append(Call("true_divide", (Lit(1.0), e)) if varies(e) else e)
        else:
            (inside if varies(e) else outside).append(e)
    spread: list[int] = []
    if inside:
        terms = _ranked(b, mapped(b, expr_of(_product(inside)), operands), rank)
        spread = [i for i in sorted(axes) if terms.shape[i] != 1]
        outside.append(Arg(len(operands)))
        operands = [*operands, b.reduce("sum", terms, spread)]
    count = prod(whole[i] for i in axes if i not in spread)
    made = _product(outside) * sign
    for e in below:
        made = made / Symbol(e)
    y = _ranked(b, mapped(b, expr_of(made if count == 1 else made * float(count)), operands), rank)
    return b.reshape(y, y.shape[lead:])


def _product(factors: Sequence[Expr]) -> Any:
    made = Symbol(factors[0])
    for e in factors[1:]:
        made = made * Symbol(e)
    return made


def _factors(tree: Expr, divides: bool = False) -> list[tuple[Expr, bool]]:
    """The factors of a product, each with whether the others are divided by it."""
    if isinstance(tree, Call) and tree.fn == "multiply":
        return [f for e in tree.args for f in _factors(e, divides)]
    if isinstance(tree, Call) and tree.fn == "true_divide":
        return _factors(tree.args[0], divides) + _factors(tree.args[1], not divides)
    if isinstance(tree, Call) and tree.fn == "negative":
        return [(Lit(-1), False), *_factors(tree.args[0], divides)]
    return [(tree, divides)]


@_row("reduce")
def _reduce(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    (g,), (x,), fn = gys, node.inputs, node.attrs["fn"]
    assert g is not None
    if fn == "sum":
        return [g]

    def slope(g: Symbol, y: Symbol, x: Symbol) -> Symbol:  # a product's: of elements that are not 0
        return g * y / x if fn == "prod" else where(x == y, g, 0)
    return [b.map(slope, g, node.output, x)]


@_alone("cumsum")
def _cumsum(b: Builder, node: Node, g: Value) -> Value:
    return b.cumsum(g, node.attrs["axis"], not node.attrs["reverse"])


@_alone("cumprod")
def _cumprod(b: Builder, node: Node, g: Value) -> Value:  # of elements that are not 0
    along = b.cumsum(b.call("multiply", g, node.output), node.attrs["axis"], reverse=True)
    return b.call("true_divide", along, node.inputs[0])


# Moves

@_alone("reshape")
def _reshape(b: Builder, node: Node, g: Value) -> Value:
    return b.reshape(g, node.inputs[0].shape)


@_row("transpose")
def _transpose(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    axes: tuple[int, ...] = node.attrs["axes"]
    assert gys[0] is not None
    return [b.transpose(gys[0], [axes.index(i) for i in range(len(axes))])]


@_row("broadcast_to")
def _broadcast_to(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    assert gys[0] is not None
    return [_summed(b, Arg(0), (gys[0],), node.inputs[0].shape, node.output.shape)]


@_alone("slice")
def _slice(b: Builder, node: Node, g: Value) -> Value:
    if g.shape == node.inputs[0].shape:  # axes turned round
        return b.slice(g, *[node.attrs[k] for k in ("starts", "stops", "steps")])
    return b.one("pad_slice", g, shape=node.inputs[0].shape, **node.attrs)


@_alone("pad_slice")
def _pad_slice(b: Builder, node: Node, g: Value) -> Value:
    return b.slice(g, *[node.attrs[k] for k in ("starts", "stops", "steps")])


@_alone("part")
def _part(b: Builder, node: Node, g: Value) -> Value:
    shape = node.inputs[0].shape
    return b.one("pad_slice", g, shape=shape, starts=(node.attrs["start"], *(0,) * (len(shape) - 1)),
                 stops=(node.attrs["stop"], *shape[1:]), steps=(1,) * len(shape))


@_row("concat")
def _concat(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    assert gys[0] is not None
    g, at = _whole(b, gys[0], node.output), 0
    axis: int = node.attrs["axis"]
    found: list[Value] = []
    for x in node.inputs:
        starts, stops = [0] * len(x.shape), list(g.shape)
        starts[axis], stops[axis] = at, at + x.shape[axis]
        found.append(b.slice(g, starts, stops, (1,) * len(x.shape)))
        at += x.shape[axis]
    return found


@_row("gather")
def _gather(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    assert gys[0] is not None
    (x, indices), axis = node.inputs, node.attrs["axis"]
    return [b.one("put", _whole(b, gys[0], node.output), indices, axis=axis, n=x.shape[axis]), None]


@_row("put")
def _put(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    assert gys[0] is not None
    return [b.gather(_whole(b, gys[0], node.output), node.inputs[1], node.attrs["axis"]), None]


@_row("take")
def _take(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    assert gys[0] is not None
    x, indices = node.inputs
    return [b.scatter_add(indices, _whole(b, gys[0], node.output), x.shape), None]


@_alone("scatter_add")
def _scatter_add(b: Builder, node: Node, g: Value) -> Value:
    return b.take(g, node.inputs[0])


# Products

@_row("matmul")
def _matmul(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    assert gys[0] is not None
    (a, c), ta, tc, g = node.inputs, node.attrs["transa"], node.attrs["transb"], _whole(b, gys[0], node.output)
    found: list[Value | None] = [None, None]
    if wanted[0]:
        ga = b.matmul(c, g, tc, True) if ta else b.matmul(g, c, False, not tc)
        found[0] = b.cast(b.sum_to(ga, a.shape), a.tensor.dtype)
    if wanted[1]:
        gc = b.matmul(g, a, True, ta) if tc else b.matmul(a, g, not ta, False)
        found[1] = b.cast(b.sum_to(gc, c.shape), c.tensor.dtype)
    return found


@_row("conv", "conv_input", "conv_weight")
def _conv(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    """Each of the three is linear in both operands, and the others give its gradients."""
    assert gys[0] is not None
    (first, second), g = node.inputs, _whole(b, gys[0], node.output)
    how = {k: v for k, v in node.attrs.items() if k != "size"}
    makers = {"conv": (("conv_input", (g, second), first), ("conv_weight", (first, g), second)),
              "conv_input": (("conv", (g, second), first), ("conv_weight", (g, first), second)),
              "conv_weight": (("conv_input", (second, g), first), ("conv", (first, g), second))}[node.op.name]
    return [b.one(name, *operands, size=x.shape[2:], **how) if flag else None
            for (name, operands, x), flag in zip(makers, wanted, strict=True)]


@_row("pool")
def _pool(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    assert gys[0] is not None
    (x,), attrs, places = node.inputs, node.attrs, node.outputs[1:]
    if attrs["fn"] == "max" and not places:
        places = b.emit(PRIMITIVES["pool"], x, **{**attrs, "places": True})[1:]
    how = {k: attrs[k] for k in ("kernel", "stride", "pad")}
    return [b.one("unpool", _whole(b, gys[0], node.outputs[0]), *places, size=x.shape[2:], **how)]


@_row("unpool")
def _unpool(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    assert gys[0] is not None
    (x, *places), attrs, g = node.inputs, node.attrs, _whole(b, gys[0], node.output)
    how = {k: attrs[k] for k in ("kernel", "stride", "pad")}
    if not places:
        return [b.one("pool", g, fn="sum", size=x.shape[2:], places=False, **how)]
    windows = pool_windows(attrs, g.shape[2:], x.shape[2:])
    extents = [max(r, p + n) for r, p, n in zip(windows.reach, windows.pad, windows.size, strict=True)]
    stops = [p + n for p, n in zip(windows.pad, windows.size, strict=True)]
    lead = g.shape[:2]
    padded = b.one("pad_slice", g, shape=(*lead, *extents), starts=(0, 0, *windows.pad), stops=(*lead, *stops),
                   steps=(1,) * len(g.shape))

    def chosen(tap: int) -> Callable[[Symbol, Symbol], Symbol]:
        return lambda place, piece: where(place == tap, piece, 0)
    terms: list[Value] = []
    for i, tap in enumerate(windows.taps()):
        ends = [t + (o - 1) * s + 1 if o else t for t, o, s in zip(tap, windows.out, windows.stride, strict=True)]
        piece = b.slice(padded, (0, 0, *tap), (*lead, *ends), (1, 1, *windows.stride))
        terms.append(b.map(chosen(i), places[0], piece))
    return [reduce(lambda y, z: b.call("add", y, z), terms), None]


@_row("assign", "arange", "full", "random")
def _none(b: Builder, node: Node, gys: Gradients, wanted: Sequence[bool]) -> Gradients:
    return [None] * len(node.inputs)

