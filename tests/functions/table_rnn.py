"""The rows of recurrent functions."""
from __future__ import annotations

from typing import Any

import numpy as np
from functions.table import Row, draw, sigmoid

import kusari.functions as F


def _cell(cells: Any, a: Any, i: Any, f: Any, o: Any) -> tuple[Any, Any]:
    """The next cell and output, as in papers."""
    c = sum(np.tanh(x) * sigmoid(y) for x, y in zip(a, i, strict=True))
    c = c + sum(x * sigmoid(y) for x, y in zip(cells, f, strict=True))
    return c, np.tanh(c) * sigmoid(o)


def _lstm(c: Any, x: Any) -> tuple[Any, Any]:
    a, i, f, o = (x[:, j::4] for j in range(4))
    n = len(x)
    new, h = _cell([c[:n]], [a], [i], [f], o)
    return np.concatenate([new, c[n:]]), h


def _slstm(c1: Any, c2: Any, x1: Any, x2: Any) -> tuple[Any, Any]:
    (a1, i1, f1, o1), (a2, i2, f2, o2) = ([x[:, j::4] for j in range(4)] for x in (x1, x2))
    return _cell([c1, c2], [a1, a2], [i1, i2], [f1, f2], o1 + o2)


def _tree(*inputs: Any) -> tuple[Any, Any]:
    *cells, x = inputs
    a, i, o, *f = np.split(x, 3 + len(cells), 1)
    return _cell(cells, [a], [i], f, o)


def _gru(w: Any, b: Any, x: Any, h: Any) -> Any:
    r, z = (sigmoid(x @ w[k].T + h @ w[k + 3].T + b[k] + b[k + 3]) for k in (0, 1))
    n = np.tanh(x @ w[2].T + b[2] + r * (h @ w[5].T + b[5]))
    return (1 - z) * n + z * h


def _sequences(step: Any, states: Any, xs: Any, both: bool) -> Any:
    """One layer over sorted sequences, row by row: the last states, the outputs."""
    last = [s.astype("d").copy() for s in states]
    ys = [np.zeros((len(x), states[0].shape[2] * (1 + both))) for x in xs]
    units = states[0].shape[2]
    for direction in range(1 + both):
        for row in range(len(xs[0])):
            state = [s[direction, row:row + 1] for s in last]
            times = [t for t, x in enumerate(xs) if row < len(x)]
            for t in times[::-1] if direction else times:
                state = step(direction, xs[t][row:row + 1], *state)
                ys[t][row, direction * units:(direction + 1) * units] = state[0][0]
            for s, new in zip(last, state, strict=True):
                s[direction, row] = new[0]
    return (*last, *ys)


def _n_lstm(both: bool) -> Row:
    d = 1 + both
    ws, bs = draw(d, 8, 3, 3, low=-1, high=1), draw(d, 8, 3, seed=1)
    xs = draw(2, 3), draw(2, 3, seed=2), draw(1, 3, seed=3)
    hx, cx = draw(d, 2, 3), draw(d, 2, 3, seed=4)

    def step(k: int, x: Any, h: Any, c: Any, w: Any, b: Any) -> Any:
        i, f, a, o = (x @ w[k][j].T + h @ w[k][j + 4].T + b[k][j] + b[k][j + 4] for j in range(4))
        new, y = _cell([c], [a], [i], [f], o)
        return [y, new]

    def call(hx: Any, cx: Any, w: Any, b: Any, *xs: Any) -> Any:
        run = F.n_step_bilstm if both else F.n_step_lstm
        weights = [[[v[k, j] for j in range(8)] for k in range(d)] for v in (w, b)]
        hy, cy, ys = run(1, 0.5, hx, cx, *weights, list(xs))
        return (hy, cy, *ys)
    return Row(f"n_step_{'bi' * both}lstm", call, (hx, cx, ws, bs, *xs), lambda hx, cx, w, b, *xs: _sequences(
        lambda k, x, h, c: step(k, x, h, c, w, b), (hx, cx), xs, both), tolerance=1e-4)


def _n_one(name: str, count: int, run: Any, step: Any, both: bool) -> Row:
    d = 1 + both
    xs = draw(2, 3), draw(2, 3, seed=2), draw(1, 3, seed=3)

    def call(hx: Any, w: Any, b: Any, *xs: Any) -> Any:
        weights = [[[v[k, j] for j in range(count)] for k in range(d)] for v in (w, b)]
        hy, ys = run(1, 0.5, hx, *weights, list(xs))
        return (hy, *ys)
    return Row(name, call, (draw(d, 2, 3), draw(d, count, 3, 3, low=-1, high=1), draw(d, count, 3, seed=1), *xs),
               lambda hx, w, b, *xs: _sequences(lambda k, x, h: [step(w[k], b[k], x, h)], (hx,), xs, both),
               tolerance=1e-4)


def recurrent() -> list[Row]:
    """Cells, and networks over sequences."""
    c, x = draw(3, 2), draw(3, 8)

    def simple(f: Any) -> Any:
        return lambda w, b, x, h: f(x @ w[0].T + h @ w[1].T + b[0] + b[1])
    return [
        Row("lstm", F.lstm, (c, x), _lstm),
        Row("lstm c", lambda c, x: F.lstm(c, x)[0], (c, x), lambda c, x: _lstm(c, x)[0]),
        Row("lstm h", lambda c, x: F.lstm(c, x)[1], (c, x), lambda c, x: _lstm(c, x)[1]),
        Row("lstm ended", F.lstm, (draw(4, 2), x), _lstm),
        Row("lstm image", F.lstm, (draw(2, 2, 3, 1), draw(2, 8, 3, 1)), _lstm),
        Row("slstm", F.slstm, (c, draw(3, 2, seed=1), x, draw(3, 8, seed=1)), _slstm),
        Row("slstm h", lambda *xs: F.slstm(*xs)[1], (c, draw(3, 2, seed=1), x, draw(3, 8, seed=1)),
            lambda *xs: _slstm(*xs)[1]),
        Row("tree_lstm", F.tree_lstm, (c, x), _tree),
        Row("tree_lstm two", F.tree_lstm, (c, draw(3, 2, seed=1), draw(3, 10)), _tree),
        Row("tree_lstm c", lambda *xs: F.tree_lstm(*xs)[0], (c, draw(3, 2, seed=1), draw(3, 10)),
            lambda *xs: _tree(*xs)[0]),
        _n_lstm(False), _n_lstm(True),
        _n_one("n_step_gru", 6, F.n_step_gru, _gru, False), _n_one("n_step_bigru", 6, F.n_step_bigru, _gru, True),
        _n_one("n_step_rnn", 2, F.n_step_rnn, simple(np.tanh), False),
        _n_one("n_step_birnn", 2, lambda *a: F.n_step_birnn(*a, activation="relu"),
               simple(lambda x: np.maximum(x, 0)), True),
    ]
