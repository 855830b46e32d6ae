"""The memory cell that all LSTMs share: the gates, the next cell and the output.

``c = sum(a i) + sum(f c)`` and ``h = o tanh(c)``, where ``a`` is a hyperbolic tangent and ``i``, ``f``, ``o`` are
sigmoids. LSTMs differ in how many there are of each, and in where they stand in the inputs.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...lazy import lazy
from ...structured import Structured
from ..activation.sigmoids import sigmoid, tanh


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


def _state(a: Sequence[Any], i: Sequence[Any], f: Sequence[Any], c: Sequence[Any]) -> Any:
    """The next cell."""
    total = None
    for x, y in (*zip(a, i, strict=True), *zip(f, c, strict=True)):
        total = x * y if total is None else total + x * y
    return total


class Cell(Structured):
    """Inputs: the cells, then what holds the gates; outputs: the next cell ``c`` and ``h``."""

    layout: Layout

    def lower(self, b: Any, *inputs: Any) -> tuple[Any, ...]:
        layout, p = self.layout, self.layout.pairs
        cells, gates = inputs[:layout.cells], _slices(b, layout, inputs[layout.cells:])
        last = len(gates) - layout.outs
        a, s = [tanh.of(b, x) for x in gates[:p]], [sigmoid.of(b, x) for x in gates[p:last]]
        o = sigmoid.of(b, b.map(lambda *x: _total(x), *gates[last:]) if layout.outs > 1 else gates[last])
        c = b.map(lambda *x: _state(x[:p], x[p:2 * p], x[2 * p:last], x[last:]), *a, *s, *cells)
        return c, b.call("multiply", o, tanh.of(b, c))


def _total(xs: Sequence[Any]) -> Any:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


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


__all__ = ["Cell", "Layout"]
