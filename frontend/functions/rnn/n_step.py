"""Stacked recurrent networks over whole sequences of different lengths."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import tape as _tape
from ...configuration import config
from ...errors import InvalidType
from ...tape import composed
from ...variable import Variable, as_variable
from ..activation.rectifiers import relu
from ..activation.sigmoids import sigmoid, tanh
from ..array.join import concat, separate, split_axis, stack
from ..array.shape import reshape
from ..connection.linear import linear
from ..noise.dropout import dropout, reject
from .lstm import lstm
from .n_step_onnx import Layer

#: A step: what the inputs contribute, the state (h, or h and c), what the state is multiplied by -> the next state.
Step = Callable[[Any, tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]


class Kind:
    """One kind of recurrent unit: how many weights it has, and a step of it.

    Of ``gates`` pairs of matrices the first half belongs to the input, the second to the state, as cuDNN has them.
    """

    def __init__(self, name: str, gates: int, cells: int, prepare: Callable[..., tuple[Any, ...]], step: Step) -> None:
        self.name = name
        self.gates = gates
        self.cells = cells
        self.prepare = prepare
        self.step = step


def _lstm_weights(w: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    """Matrices whose rows are the gates a, i, f, o unit by unit; one bias takes both."""
    units = w[0].shape[0]

    def rows(parts: Sequence[Any]) -> Any:
        order = [parts[2], parts[0], parts[1], parts[3]]
        return reshape(stack(order, 1), (4 * units, *order[0].shape[1:]))
    return rows(w[:4]), rows(b[:4]) + rows(b[4:]), (rows(w[4:]), None)


def _lstm_step(x: Any, state: tuple[Any, ...], recurrent: tuple[Any, ...]) -> tuple[Any, ...]:
    h, c = state
    c, h = lstm(c, x + linear(h, *recurrent))
    return h, c


def _gru_weights(w: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    return concat(w[:3], 0), concat(b[:3], 0), (concat(w[3:], 0), concat(b[3:], 0))


def _gru_step(x: Any, state: tuple[Any, ...], recurrent: tuple[Any, ...]) -> tuple[Any, ...]:
    h, = state
    xr, xz, xn = split_axis(x, 3, 1)
    hr, hz, hn = split_axis(linear(h, *recurrent), 3, 1)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    n = tanh(xn + r * hn)
    return n + z * (h - n),


def _rnn_weights(w: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    return w[0], b[0] + b[1], (w[1], None)


def _tanh_step(x: Any, state: tuple[Any, ...], recurrent: tuple[Any, ...]) -> tuple[Any, ...]:
    return tanh(x + linear(state[0], *recurrent)),


def _relu_step(x: Any, state: tuple[Any, ...], recurrent: tuple[Any, ...]) -> tuple[Any, ...]:
    return relu(x + linear(state[0], *recurrent)),


LSTM = Kind("LSTM", 4, 2, _lstm_weights, _lstm_step)
GRU = Kind("GRU", 3, 1, _gru_weights, _gru_step)
RNNS = {"tanh": Kind("Tanh", 1, 1, _rnn_weights, _tanh_step), "relu": Kind("Relu", 1, 1, _rnn_weights, _relu_step)}


def _along(kind: Kind, x: Any, lengths: Sequence[int], state: tuple[Any, ...], w: Sequence[Any], b: Sequence[Any],
           backwards: bool) -> tuple[tuple[Any, ...], Any]:
    """One layer in one direction: ``x`` has all rows of the first step, then those of the second …

    The matrix product with the inputs is one for all steps. Returns the last state of every sequence, and the outputs
    as ``x`` has its rows.
    """
    W, bias, recurrent = kind.prepare(w, b)
    contributions = _cut(linear(x, W, bias), lengths)
    outputs: list[Any] = []
    if not backwards:
        ended: list[tuple[Any, ...]] = []  # the states of sequences that have ended, the shortest first
        for part, n in zip(contributions, lengths, strict=True):
            if n < state[0].shape[0]:
                parts = [split_axis(s, [n], 0) for s in state]
                state = tuple([p[0] for p in parts])
                ended.append(tuple([p[1] for p in parts]))
            state = kind.step(part, state, recurrent)
            outputs.append(state[0])
        if ended:
            state = tuple([concat(list(parts), 0) for parts in zip(state, *reversed(ended), strict=True)])
        return state, concat(outputs, 0)
    first, state = state, tuple([_rows(s, 0, lengths[-1]) for s in state])
    for part, n in zip(reversed(contributions), reversed(lengths), strict=True):
        now = state[0].shape[0]
        if n > now:
            state = tuple([concat([s, _rows(f, now, n)], 0) for s, f in zip(state, first, strict=True)])
        state = kind.step(part, state, recurrent)
        outputs.append(state[0])
    outputs.reverse()
    if lengths[0] < first[0].shape[0]:
        state = tuple([concat([s, _rows(f, lengths[0], f.shape[0])], 0) for s, f in zip(state, first, strict=True)])
    return state, concat(outputs, 0)


def _whole(kind: Kind, x: Any, lengths: Sequence[int], states: Sequence[Any], ws: Any,
           bs: Any) -> tuple[Any, tuple[Any, ...]]:
    """One layer, all its directions, as one node: for exports."""
    steps, batch, count = len(lengths), lengths[0], 2 * kind.gates

    def run(*inputs: Any) -> tuple[Any, ...]:
        x, *rest = inputs
        first, weights = rest[:kind.cells], rest[kind.cells:]
        ys, found = [], []
        for k in range(len(ws)):
            own = weights[2 * count * k:2 * count * (k + 1)]
            state, y = _along(kind, reshape(x, (steps * batch, -1)), lengths, tuple([s[k] for s in first]),
                              own[:count], own[count:], k == 1)
            found.append(state)
            ys.append(y)
        y = reshape(concat(ys, 1), (steps, batch, -1))
        return (y, *[stack(list(parts), 0) for parts in zip(*found, strict=True)])
    node = Layer(kind.name, kind.cells, kind.gates, len(ws), run)
    weights = [p for w, b in zip(ws, bs, strict=True) for p in (*w, *b)]
    y, *found = node.apply((reshape(x, (steps, batch, -1)), *states, *weights))
    return reshape(y, (steps * batch, -1)), tuple(found)


def _rows(x: Any, start: int, stop: int) -> Any:
    return x if start == 0 and stop == x.shape[0] else x[start:stop]


def _cut(x: Any, lengths: Sequence[int]) -> Any:
    """The rows of each step."""
    if lengths[0] == lengths[-1]:
        return split_axis(x, len(lengths), 0)
    return split_axis(x, np.cumsum(lengths[:-1]).tolist(), 0) if len(lengths) > 1 else (x,)


def _checked(xs: Any, states: Sequence[Any], ws: Any, name: str) -> tuple[int, ...]:
    """Return how many sequences there are in each step; raises where inputs do not fit together."""
    if not isinstance(xs, (list, tuple)):
        raise TypeError(f"xs must be list or tuple, not {type(xs).__name__}")
    if not xs:
        raise InvalidType("len(xs) > 0", "0 == 0")
    lengths = tuple([x.shape[0] for x in xs])
    for before, after in zip(lengths, lengths[1:], strict=False):
        if after > before:
            raise InvalidType("xs[t].shape[0] >= xs[t + 1].shape[0] (longest sequence first)", f"{before} < {after}")
    for state in states:
        units = ws[0][0].shape[0]
        expected = (len(ws), lengths[0], units)
        if state.ndim != 3 or state.shape != expected:
            raise InvalidType(f"{name}: the state's shape == {expected} (layers * directions, batch, units)",
                              f"{tuple(state.shape)}")
    size = ws[0][0].shape[1]
    for x in xs:
        if x.ndim != 2 or x.shape[1] != size:
            raise InvalidType(f"xs[t].ndim == 2 and xs[t].shape[1] == ws[0][0].shape[1] == {size}",
                              f"shape {tuple(x.shape)}")
    return lengths


def n_step(kind: Kind, n_layers: int, dropout_ratio: float, states: Sequence[Any], ws: Any, bs: Any, xs: Any,
           bidirectional: bool) -> tuple[Any, ...]:
    """Run all layers over all steps; returns the last states, each (layers * directions, batch, units), and outputs."""
    if any(s is None for s in states):
        raise TypeError(f"{kind.name}: the first states must be arrays, got None; give zeros of shape "
                        "(layers * directions, batch, units), or use the link, which makes them")
    states = [as_variable(s) for s in states]
    lengths = _checked(xs, states, ws, kind.name)
    directions = 2 if bidirectional else 1
    split = [separate(s, 0) for s in states]
    last: list[tuple[Any, ...]] = []
    x: Any = concat(list(xs), 0)
    whole = len(set(lengths)) == 1 and getattr(_tape.current.tape, "whole_layers", False) and not config.enable_backprop
    for layer in range(n_layers):
        first = layer * directions
        if whole and not (layer and bidirectional and config.train):
            dropped = dropout(x, dropout_ratio) if layer else x
            of_layer = [s[first:first + directions] for s in states]
            x, found = _whole(kind, dropped, lengths, of_layer, ws[first:first + directions],
                              bs[first:first + directions])
            last += [tuple([s[k] for s in found]) for k in range(directions)]
            continue
        outputs: list[Any] = []
        for direction in range(directions):
            at = first + direction
            dropped = dropout(x, dropout_ratio) if layer else x
            state, y = _along(kind, dropped, lengths, tuple([s[at] for s in split]), ws[at], bs[at], direction == 1)
            last.append(state)
            outputs.append(y)
        x = concat(outputs, 1) if bidirectional else outputs[0]
    return (*[stack(list(parts), 0) for parts in zip(*last, strict=True)], _cut(x, lengths))


_REMOVED = {"train": "use kusari.using_config('train', ...)",
            "use_cudnn": "use kusari.using_config('use_cudnn', ...)"}


@composed()
def n_step_lstm(n_layers: int, dropout_ratio: float, hx: Any, cx: Any, ws: Any, bs: Any, xs: Any,
                **kwargs: Any) -> tuple[Variable, Variable, tuple[Variable, ...]]:
    """Stacked LSTM over sequences: ``n_layers`` layers, dropout between them.

    ``i = sigmoid(W0 x + W4 h + b0 + b4)``, ``f = sigmoid(W1 x + W5 h + b1 + b5)``,
    ``a = tanh(W2 x + W6 h + b2 + b6)``, ``o = sigmoid(W3 x + W7 h + b3 + b7)``,
    ``c' = f c + i a`` and ``h' = o tanh(c')``.

    Args:
        n_layers: Number of layers.
        dropout_ratio: Ratio of the dropout before every layer but the first, in training.
        hx: First outputs, ``(layers, batch, units)``, one row per sequence.
        cx: First cells, of the same shape.
        ws: For every layer a list of eight matrices: the first four (units, inputs), the others (units, units).
        bs: For every layer a list of eight vectors.
        xs: For every step a ``(sequences, inputs)`` with the sequences that go on so far, longest first.

    Returns:
        tuple: The last outputs and cells, like ``hx`` and ``cx``, and a tuple of the last layer's outputs, one per
        step.

    Raises:
        InvalidType: Shapes do not fit, or sequences are not sorted.
        TypeError: ``xs`` is not a list or tuple, or a keyword is unknown.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.n_step_lstm.html
    """
    reject(kwargs, **_REMOVED)
    return n_step(LSTM, n_layers, dropout_ratio, (hx, cx), ws, bs, xs, False)


@composed()
def n_step_bilstm(n_layers: int, dropout_ratio: float, hx: Any, cx: Any, ws: Any, bs: Any, xs: Any,
                  **kwargs: Any) -> tuple[Variable, Variable, tuple[Variable, ...]]:
    """Stacked bidirectional LSTM over sequences; see `n_step_lstm`.

    Every layer runs forwards and backwards; the next one reads both outputs, concatenated.

    Args:
        n_layers: Number of layers.
        dropout_ratio: Ratio of the dropout before every layer but the first, in training; each direction has its own.
        hx: First outputs, ``(2 layers, batch, units)``: forwards, backwards, layer by layer.
        cx: First cells, of the same shape.
        ws: Lists of eight matrices in the order of ``hx``; from the second layer on there are ``2 units`` inputs.
        bs: Lists of eight vectors.
        xs: For every step a ``(sequences, inputs)``, longest first.

    Returns:
        tuple: The last outputs and cells, and a tuple of outputs ``(sequences, 2 units)``.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.n_step_bilstm.html
    """
    reject(kwargs, **_REMOVED)
    return n_step(LSTM, n_layers, dropout_ratio, (hx, cx), ws, bs, xs, True)


@composed()
def n_step_gru(n_layers: int, dropout_ratio: float, hx: Any, ws: Any, bs: Any, xs: Any,
               **kwargs: Any) -> tuple[Variable, tuple[Variable, ...]]:
    """Stacked gated recurrent units over sequences; arguments as for `n_step_lstm`, with six matrices and vectors.

    ``r = sigmoid(W0 x + W3 h + b0 + b3)``, ``z = sigmoid(W1 x + W4 h + b1 + b4)``,
    ``n = tanh(W2 x + b2 + r (W5 h + b5))`` and ``h' = (1 - z) n + z h``.

    Returns:
        tuple: The last outputs, like ``hx``, and a tuple of the last layer's outputs, one per step.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.n_step_gru.html
    """
    reject(kwargs, **_REMOVED)
    return n_step(GRU, n_layers, dropout_ratio, (hx,), ws, bs, xs, False)


@composed()
def n_step_bigru(n_layers: int, dropout_ratio: float, hx: Any, ws: Any, bs: Any, xs: Any,
                 **kwargs: Any) -> tuple[Variable, tuple[Variable, ...]]:
    """Stacked bidirectional gated recurrent units over sequences; see `n_step_gru` and `n_step_bilstm`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.n_step_bigru.html
    """
    reject(kwargs, **_REMOVED)
    return n_step(GRU, n_layers, dropout_ratio, (hx,), ws, bs, xs, True)


def _activation(name: str) -> Kind:
    if name not in RNNS:
        raise ValueError(f'Invalid activation: "{name}". Please select from [{",".join(RNNS)}]')
    return RNNS[name]


@composed()
def n_step_rnn(n_layers: int, dropout_ratio: float, hx: Any, ws: Any, bs: Any, xs: Any, activation: str = "tanh",
               **kwargs: Any) -> tuple[Variable, tuple[Variable, ...]]:
    """Stacked simple recurrent units over sequences, ``h' = f(W0 x + W1 h + b0 + b1)``; arguments as `n_step_lstm`'s.

    Args:
        n_layers: Number of layers.
        dropout_ratio: Ratio of the dropout before every layer but the first, in training.
        hx: First outputs, ``(layers, batch, units)``.
        ws: For every layer a list of two matrices, (units, inputs) and (units, units).
        bs: For every layer a list of two vectors.
        xs: For every step a ``(sequences, inputs)``, longest first.
        activation: ``"tanh"`` or ``"relu"``.

    Returns:
        tuple: The last outputs, like ``hx``, and a tuple of the last layer's outputs, one per step.

    Raises:
        ValueError: There is no such activation.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.n_step_rnn.html
    """
    reject(kwargs, **_REMOVED)
    return n_step(_activation(activation), n_layers, dropout_ratio, (hx,), ws, bs, xs,
                  False)


@composed()
def n_step_birnn(n_layers: int, dropout_ratio: float, hx: Any, ws: Any, bs: Any, xs: Any, activation: str = "tanh",
                 **kwargs: Any) -> tuple[Variable, tuple[Variable, ...]]:
    """Stacked bidirectional simple recurrent units over sequences; see `n_step_rnn` and `n_step_bilstm`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.functions.n_step_birnn.html
    """
    reject(kwargs, **_REMOVED)
    return n_step(_activation(activation), n_layers, dropout_ratio, (hx,), ws, bs, xs,
                  True)
