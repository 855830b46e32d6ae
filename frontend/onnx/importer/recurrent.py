"""Recurrent layers, step by step: RNN, GRU and LSTM with default activations."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import functions as F
from ...variable import as_variable
from .program import Step
from .registry import Table, is_float

TABLE = Table()
Cell = Callable[[Any, list[Any]], list[Any]]
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def _parts(x: Any, count: int, axis: int) -> list[Any]:
    return list(F.split_axis(x, count, axis)) if count > 1 else [as_variable(x)]


def _rnn_cell(step: Step, w: Any, r: Any, wb: Any, rb: Any, peephole: Any) -> Cell:
    return lambda x, state: [F.tanh(F.linear(x, w, wb) + F.linear(state[0], r, rb))]


def _gru_cell(step: Step, w: Any, r: Any, wb: Any, rb: Any, peephole: Any) -> Cell:
    first = not step("linear_before_reset", 0)

    def cell(x: Any, state: list[Any]) -> list[Any]:
        h = state[0]
        xz, xr, xh = _parts(F.linear(x, w, wb), 3, 1)
        rz, rr, rh = _parts(r, 3, 0)
        bz, br, bh = _parts(rb, 3, 0)
        z = F.sigmoid(xz + F.linear(h, rz, bz))
        reset = F.sigmoid(xr + F.linear(h, rr, br))
        new = F.tanh(xh + (F.linear(reset * h, rh, bh) if first else reset * F.linear(h, rh, bh)))
        return [(1 - z) * new + z * h]
    return cell


def _lstm_cell(step: Step, w: Any, r: Any, wb: Any, rb: Any, peephole: Any) -> Cell:
    def cell(x: Any, state: list[Any]) -> list[Any]:
        h, c = state
        i, o, f, a = _parts(F.linear(x, w, wb) + F.linear(h, r, rb), 4, 1)
        if peephole is not None:
            pi, po, pf = [F.broadcast_to(p, c.shape) for p in _parts(peephole, 3, 0)]
            i, f = i + pi * c, f + pf * c
            c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(a)
            return [F.sigmoid(o + po * c) * F.tanh(c), c]
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(a)
        return [F.sigmoid(o) * F.tanh(c), c]
    return cell


_CELLS = {"RNN": (_rnn_cell, 1), "GRU": (_gru_cell, 3), "LSTM": (_lstm_cell, 4)}


@TABLE.add(*_CELLS)
def _recurrent(step: Step, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None,
               peephole: Any = None) -> Any:
    directions = w.shape[0]
    usual = _DEFAULTS[step.operator] * directions
    if not is_float(x) or lengths is not None or step("clip") or step("input_forget", 0) or (
            step("activations") or usual) != usual:
        return NotImplemented
    make, gates = _CELLS[step.operator]
    batch_first = step("layout", 0)
    x = F.swapaxes(x, 0, 1) if batch_first else as_variable(x)
    length, batch = x.shape[:2]
    units = r.shape[2]
    states = 2 if step.operator == "LSTM" else 1
    first = [F.swapaxes(s, 0, 1) if s is not None and batch_first else s for s in (h, c)[:states]]
    zeros = np.zeros((batch, units), x.dtype)
    outputs: list[list[Any]] = []
    last: list[list[Any]] = [[] for _ in range(states)]
    backward = step("direction", "forward")
    for d in range(directions):
        bias = np.zeros(2 * gates * units, x.dtype) if b is None else as_variable(b)[d]
        wb, rb = _parts(bias, 2, 0)
        cell = make(step, as_variable(w)[d], as_variable(r)[d], wb, rb,
                    None if peephole is None else as_variable(peephole)[d])
        state = [as_variable(zeros) if s is None else as_variable(s)[d] for s in first]
        order = range(length - 1, -1, -1) if backward == "reverse" or d else range(length)
        rows: dict[int, Any] = {}
        for t in order:
            state = cell(x[t], state)
            rows[t] = state[0]
        outputs.append([rows[t] for t in range(length)])
        for kept, s in zip(last, state, strict=True):
            kept.append(s)
    y = F.stack([F.stack([rows[t] for rows in outputs]) for t in range(length)])
    ends = [F.stack(kept) for kept in last]
    if batch_first:
        y = F.transpose(y, (2, 0, 1, 3))
        ends = [F.swapaxes(end, 0, 1) for end in ends]
    return (y, *ends)
