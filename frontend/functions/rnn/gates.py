"""The memory cell that all LSTMs share: the gates' values, their gradient, and what the compiler makes of both.

``c = sum(a i) + sum(f c)`` and ``h = o tanh(c)``, where ``a`` is a hyperbolic tangent and ``i``, ``f``, ``o`` are
sigmoids. LSTMs differ in how many there are of each, and in where they stand in the inputs.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kusari.ir.symbol import tanh as tanh_

from ... import backend
from ...configuration import using_config
from ...function_node import FunctionNode
from ...lazy import lazy
from ..activation.sigmoids import sigmoid, tanh
from ..math.identity import identity


@dataclass(frozen=True)
class Layout:
    """Which gates a cell has, and where they stand in its inputs.

    ``orders`` has for each input after the cells the letters of its gates, as they stand in axis 1: block after block,
    or (``interleaved``) together for each unit.
    """

    cells: int
    orders: tuple[str, ...]
    interleaved: bool

    @lazy
    def gates(self) -> tuple[tuple[int, int], ...]:
        """(input, position) of every gate: all a, then i, f and o."""
        return tuple([(k, j) for wanted in "aifo" for k, order in enumerate(self.orders)
                      for j, letter in enumerate(order) if letter == wanted])

    @lazy
    def pairs(self) -> int:
        """How many a there are, each with an i."""
        return "".join(self.orders).count("a")

    @lazy
    def outs(self) -> int:
        """How many o there are, which are added."""
        return "".join(self.orders).count("o")

    def split(self, shape: tuple[int, ...], order: str) -> tuple[tuple[int, ...], int]:
        """The shape of an input with its gates as an axis, and that axis."""
        n, width, *rest = shape
        gates = len(order)
        units = width // gates
        return ((n, units, gates, *rest), 2) if self.interleaved else ((n, gates, units, *rest), 1)


def _sigmoid_tree(x: Any) -> Any:
    return tanh_(x * 0.5) * 0.5 + 0.5


def _state(a: Sequence[Any], i: Sequence[Any], f: Sequence[Any], c: Sequence[Any]) -> Any:
    """The next cell."""
    total = None
    for x, y in (*zip(a, i, strict=True), *zip(f, c, strict=True)):
        total = x * y if total is None else total + x * y
    return total


def _gradients(a: Sequence[Any], i: Sequence[Any], f: Sequence[Any], o: Any, c: Sequence[Any], t: Any, gc: Any,
               gh: Any) -> tuple[Any, list[Any]]:
    """The gradient of the next cell, and those of all gates (before the sigmoids); of ``gc`` and ``gh`` one may be
    None. ``t`` is the hyperbolic tangent of the next cell.
    """
    through = None if gh is None else gh * o * (1 - t * t)
    g = through if gc is None else gc if through is None else gc + through
    return g, [*[g * y * (1 - x * x) for x, y in zip(a, i, strict=True)],
               *[g * x * y * (1 - y) for x, y in zip(a, i, strict=True)],
               *[g * x * y * (1 - y) for x, y in zip(c, f, strict=True)],
               None if gh is None else gh * t * o * (1 - o)]


class Cell(FunctionNode):
    """Inputs: the cells, then what holds the gates; outputs: the next cell ``c`` and ``h``."""

    layout: Layout

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs(tuple(range(len(inputs))))
        layout = self.layout
        cells, xs = inputs[:layout.cells], inputs[layout.cells:]
        if _stands_in(xs):
            # An array that stands for others has no place for each element: nothing is written.
            *_, f, o = gates = _functional(layout, xs)
            p = layout.pairs
            cells = [c if type(c) is type(f) else 0 * f for c in cells]
            c = _state(gates[:p], gates[p:2 * p], gates[2 * p:-1], cells)
            return c, o * c
        g = _activations(layout, xs)
        p = layout.pairs
        c = _state(g[:p], g[p:2 * p], g[2 * p:-1], cells)
        h = backend.get_array_module(c).tanh(c)
        h *= g[-1]
        return c, h

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        given = tuple([g for g in grad_outputs if g is not None])
        node = CellGrad(self.layout, grad_outputs[0] is not None, grad_outputs[1] is not None)
        return node.apply((*self.get_retained_inputs(), *given))

    def lower(self, b: Any, *inputs: Any) -> tuple[Any, ...]:
        layout = self.layout
        cells = inputs[:layout.cells]
        gates = _slices(b, layout, inputs[layout.cells:])
        p, q = layout.pairs, layout.outs
        k = layout.cells

        def next_cell(*x: Any) -> Any:
            s = [tanh_(v) for v in x[:p]] + [_sigmoid_tree(v) for v in x[p:2 * p + k]]
            return _state(s[:p], s[p:2 * p], s[2 * p:], x[2 * p + k:])

        def output(c: Any, *o: Any) -> Any:
            return _sigmoid_tree(_total(o)) * tanh_(c)
        used = [*gates[:len(gates) - q], *cells]
        c = b.cast(b.map(next_cell, *used), cells[0].tensor.dtype)
        h = b.cast(b.map(output, c, *gates[-q:]), cells[0].tensor.dtype)
        return c, h


def _total(xs: Sequence[Any]) -> Any:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def _activations(layout: Layout, xs: Sequence[Any]) -> Any:
    """All gates after their functions, in one array: a, i, f, o (one, the sum)."""
    xp = backend.get_array_module(*xs)
    parts: list[Any] = []
    for x, order in zip(xs, layout.orders, strict=True):
        shape, axis = layout.split(x.shape, order)
        x = x.reshape(shape)
        parts.append([x[:, :, j] if axis == 2 else x[:, j] for j in range(len(order))])
    gates = [parts[k][j] for k, j in layout.gates]
    g = xp.empty((len(gates) - layout.outs + 1, *gates[0].shape), xs[0].dtype)
    for place, part in zip(g, gates, strict=False):
        place[...] = part
    for part in gates[len(gates) - layout.outs + 1:]:
        g[-1] += part
    s = g[layout.pairs:]
    s *= 0.5
    xp.tanh(g, out=g)
    s *= 0.5
    s += 0.5
    return g


def _stands_in(xs: Sequence[Any]) -> bool:
    """Whether only shapes and dtypes matter: gradients are being derived."""
    return all(isinstance(x, np.ndarray) and type(x) is not np.ndarray for x in xs)


def _functional(layout: Layout, xs: Sequence[Any]) -> list[Any]:
    """Arrays like the gates."""
    found: list[Any] = []
    for k, j in layout.gates[:len(layout.gates) - layout.outs + 1]:
        shape, axis = layout.split(xs[k].shape, layout.orders[k])
        x = xs[k].reshape(shape)
        found.append(1 * (x[:, :, j] if axis == 2 else x[:, j]))
    return found


def _slices(b: Any, layout: Layout, xs: Sequence[Any]) -> list[Any]:
    """The gates before their functions: parts of the inputs, all of one shape."""
    found: list[Any] = []
    for k, j in layout.gates:
        shape, axis = layout.split(xs[k].shape, layout.orders[k])
        x = b.reshape(xs[k], shape)
        starts, stops = [0] * len(shape), list(shape)
        starts[axis], stops[axis] = j, j + 1
        part = b.slice(x, starts, stops, (1,) * len(shape))
        found.append(b.reshape(part, (*shape[:axis], *shape[axis + 1:])))
    return found


class CellGrad(FunctionNode):
    """The gradient of a ``Cell``: inputs are its inputs, then the gradients of its outputs that there are."""

    def __init__(self, layout: Layout, has_gc: bool, has_gh: bool) -> None:
        super().__init__()
        self.layout = layout
        self.has_gc = has_gc
        self.has_gh = has_gh

    def _taken_apart(self, inputs: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """Cells, what holds the gates, and the gradients of both outputs or None."""
        layout = self.layout
        given = iter(inputs[layout.cells + len(layout.orders):])
        gc = next(given) if self.has_gc else None
        gh = next(given) if self.has_gh else None
        return inputs[:layout.cells], inputs[layout.cells:layout.cells + len(layout.orders)], gc, gh

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.retain_inputs(tuple(range(len(inputs))))
        layout = self.layout
        cells, xs, gc, gh = self._taken_apart(inputs)
        if _stands_in(xs):
            f = _functional(layout, xs)[2 * layout.pairs:-1]
            return (*f, *[1 * x for x in xs])
        xp = backend.get_array_module(*inputs)
        g = _activations(layout, xs)
        p = layout.pairs
        a, i, f, o = g[:p], g[p:2 * p], g[2 * p:-1], g[-1]
        t = None if gh is None else xp.tanh(_state(a, i, f, cells))
        total, gates = _gradients(a, i, f, o, cells, t, gc, gh)
        gxs: list[Any] = []
        gates += [gates[-1]] * (layout.outs - 1)
        for k, (x, order) in enumerate(zip(xs, layout.orders, strict=True)):
            shape, axis = layout.split(x.shape, order)
            gx = xp.empty(shape, x.dtype)
            for (where, j), gate in zip(layout.gates, gates, strict=True):
                if where == k:
                    place = gx[:, :, j] if axis == 2 else gx[:, j]
                    place[...] = 0 if gate is None else gate
            gxs.append(gx.reshape(x.shape))
        return (*[total * y for y in f], *gxs)

    def backward(self, indexes: tuple[int, ...], grad_outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        from ...backprop import grad
        with using_config("enable_backprop", True):
            # Inputs may depend on each other (an h on an earlier c); these do not, so derivatives are partial ones.
            xs: Any = [identity(x) for x in self.get_retained_inputs()]
            pairs = [(y, g) for y, g in zip(self._composed(xs), grad_outputs, strict=True) if g is not None]
        return tuple(grad([y for y, _ in pairs], [xs[i] for i in indexes], [g for _, g in pairs],
                          enable_double_backprop=True))

    def _composed(self, inputs: Sequence[Any]) -> list[Any]:
        """The same values by functions, to be differentiated again."""
        from ..array.join import concat, stack
        from ..array.shape import reshape
        layout = self.layout
        cells, xs, gc, gh = self._taken_apart(inputs)
        gates = []
        for k, j in layout.gates:
            shape, axis = layout.split(xs[k].shape, layout.orders[k])
            x = reshape(xs[k], shape)
            gates.append(x[:, :, j] if axis == 2 else x[:, j])
        p, outs = layout.pairs, layout.outs
        a, o = [tanh(x) for x in gates[:p]], sigmoid(_total(gates[-outs:]))
        s = [sigmoid(x) for x in gates[p:len(gates) - outs]]
        i, f = s[:p], s[p:]
        t = None if gh is None else tanh(_state(a, i, f, cells))
        total, parts = _gradients(a, i, f, o, cells, t, gc, gh)
        if parts[-1] is None:
            parts[-1] = 0 * total
        parts += [parts[-1]] * (outs - 1)
        where = dict(zip(layout.gates, parts, strict=True))
        gxs = []
        for k, (x, order) in enumerate(zip(xs, layout.orders, strict=True)):
            mine = [where[k, j] for j in range(len(order))]
            gxs.append(reshape(stack(mine, 2), x.shape) if layout.interleaved else concat(mine, 1))
        return [*[total * y for y in f], *gxs]

    def lower(self, b: Any, *inputs: Any) -> tuple[Any, ...]:
        layout = self.layout
        cells, xs, gc, gh = self._taken_apart(inputs)
        dtype = cells[0].tensor.dtype
        gates = _slices(b, layout, xs)
        p, outs = layout.pairs, layout.outs
        k = layout.cells

        def made(formula: Callable[..., Any], *values: Any) -> Any:
            return b.cast(b.map(formula, *values), dtype)
        a = [made(tanh_, x) for x in gates[:p]]
        s = [made(_sigmoid_tree, x) for x in gates[p:2 * p + k]]
        i, f = s[:p], s[p:]
        o = made(lambda *x: _sigmoid_tree(_total(x)), *gates[-outs:])
        named: dict[str, Any] = {"o": o}
        if gh is not None:
            named["t"] = made(lambda *x: tanh_(_state(x[:p], x[p:2 * p], x[2 * p:2 * p + k], x[2 * p + k:])),
                              *a, *i, *f, *cells)
            named["gh"] = gh
        if gc is not None:
            named["gc"] = gc
        order = [*a, *i, *f, *cells, *named.values()]

        def all_of(*x: Any) -> tuple[Any, list[Any]]:
            rest = dict(zip(named, x[2 * p + 2 * k:], strict=True))
            return _gradients(x[:p], x[p:2 * p], x[2 * p:2 * p + k], rest["o"], x[2 * p + k:2 * p + 2 * k],
                              rest.get("t"), rest.get("gc"), rest.get("gh"))
        total = made(lambda *x: all_of(*x)[0], *order)
        found: list[Any] = []
        for at in range(2 * p + k):  # each reads the gradient of the next cell, computed once
            x, y = (a[at], i[at]) if at < p else (a[at - p], i[at - p]) if at < 2 * p else (
                cells[at - 2 * p], f[at - 2 * p])
            found.append(made(_gate_a if at < p else _gate_s, total, x, y))
        if gh is not None:
            found += [made(lambda g, t, o: g * t * o * (1 - o), named["gh"], named["t"], o)] * outs
        else:
            found += [b.full(total.shape, 0.0, dtype)] * outs
        where = dict(zip(layout.gates, found, strict=True))
        gxs = []
        for n, (x, letters) in enumerate(zip(xs, layout.orders, strict=True)):
            whole, axis = layout.split(x.shape, letters)
            single = (*whole[:axis], 1, *whole[axis + 1:])
            gxs.append(b.reshape(b.concat([b.reshape(where[n, j], single) for j in range(len(letters))], axis),
                                 x.shape))
        return (*[made(lambda g, y: g * y, total, y) for y in f], *gxs)


def _gate_a(g: Any, a: Any, i: Any) -> Any:
    return g * i * (1 - a * a)


def _gate_s(g: Any, x: Any, s: Any) -> Any:
    return g * x * s * (1 - s)


__all__ = ["Cell", "CellGrad", "Layout"]
