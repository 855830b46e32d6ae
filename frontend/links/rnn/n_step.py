"""Stacked recurrent networks over lists of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import functions as F
from ... import tape
from ...errors import InvalidType
from ...functions.noise.dropout import reject
from ...initializers import _get_initializer
from ...link import ChainList, Link
from ...parameter import Parameter
from .state import zeros

__all__ = ["NStepBiGRU", "NStepBiLSTM", "NStepBiRNNReLU", "NStepBiRNNTanh", "NStepGRU", "NStepLSTM", "NStepRNNReLU",
           "NStepRNNTanh"]


class _NStep(ChainList):
    """Layers as links, with the parameters ``w0`` … and ``b0`` … of each; with two directions they alternate."""

    n_weights: int
    n_cells: int = 1
    use_bi_direction = False

    def __init__(
        self,
        n_layers: int,
        in_size: int,
        out_size: int,
        dropout: float,
        *,
        initialW: Any = None,
        initial_bias: Any = None,
        **kwargs: Any,
    ) -> None:
        reject(kwargs, use_cudnn="use kusari.using_config('use_cudnn', ...)",
               use_bi_direction="use the link of that name, NStepBi…")
        super().__init__()
        self.n_layers = n_layers
        self.dropout = dropout
        self.out_size = out_size
        self.direction = 2 if self.use_bi_direction else 1
        W, b = _get_initializer(initialW), _get_initializer(0 if initial_bias is None else initial_bias)
        for layer in range(n_layers):
            for _ in range(self.direction):
                link = Link()
                with link.init_scope():
                    for j in range(self.n_weights):
                        inputs = out_size if j >= self.n_weights // 2 else (
                            in_size if layer == 0 else out_size * self.direction)
                        setattr(link, f"w{j}", Parameter(W, (out_size, inputs)))
                        setattr(link, f"b{j}", Parameter(b, (out_size,)))
                self.append(link)

    @property
    def ws(self) -> list[list[Parameter]]:
        """The matrices of every layer (and direction)."""
        return [[getattr(link, f"w{j}") for j in range(self.n_weights)] for link in self]

    @property
    def bs(self) -> list[list[Parameter]]:
        """The biases of every layer (and direction)."""
        return [[getattr(link, f"b{j}") for j in range(self.n_weights)] for link in self]

    def init_hx(self, xs: Any) -> Any:
        """Return zeros for the state of as many sequences as ``xs`` has."""
        return zeros(self, (self.n_layers * self.direction, len(xs), self.out_size), xs[0].dtype)

    def rnn(self, *args: Any) -> Any:
        """The function that runs all layers over sorted, transposed sequences."""
        raise NotImplementedError

    def _run(self, states: tuple[Any, ...], xs: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
        reject(kwargs, train="use kusari.using_config('train', ...)")
        if not isinstance(xs, (list, tuple)) or not xs:
            raise TypeError(f"{type(self).__name__} expects a list of sequences, at least one, got {type(xs).__name__}"
                            + (" of length 0" if isinstance(xs, (list, tuple)) else ""))
        lengths = [len(x) for x in xs]
        if not all(lengths):
            raise InvalidType("sequences of one step or more", f"lengths {lengths}",
                              f"\nInvalid operation in: {type(self).__name__}")
        order = np.argsort([-n for n in lengths], kind="stable").astype(np.int32)
        mixed = bool((order[1:] < order[:-1]).any())
        back = np.argsort(order)
        indices = _indices(self, order) if mixed else None

        def sorted_(state: Any) -> Any:
            if state is None:
                return self.init_hx(xs)
            expected = (len(self.ws), len(xs), self.out_size)
            if state.shape != expected:
                raise InvalidType(f"the state's shape == {expected} (layers * directions, sequences, units)",
                                  f"{tuple(state.shape)}", f"\nInvalid operation in: {type(self).__name__}")
            return F.permutate(state, indices, axis=1) if mixed else state
        *last, ys = self.rnn(self.n_layers, self.dropout, *[sorted_(s) for s in states], self.ws, self.bs,
                             _transposed(self, [xs[i] for i in order], [lengths[i] for i in order]))
        if mixed:
            inverse = _indices(self, back)
            last = [F.permutate(s, inverse, axis=1) for s in last]
        outputs = _back(self, ys, [lengths[i] for i in order])
        return (*last, [outputs[i] for i in back])


def _places(lengths: list[int]) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Where the rows of each step are among all sequences' rows, one after the other; and how many rows steps have."""
    starts = np.cumsum([0, *lengths[:-1]])
    batches = [sum(n > t for n in lengths) for t in range(lengths[0])]
    return np.concatenate([starts[:n] + t for t, n in enumerate(batches)]).astype(np.int32), batches


def _indices(link: Any, places: np.ndarray[Any, Any]) -> Any:
    """Indices on the link's device; they depend on lengths only, so a traced call may use them."""
    return tape.constant(link.device.send(places))


def _cut(x: Any, lengths: list[int]) -> Any:
    return F.split_axis(x, np.cumsum(lengths[:-1]).tolist(), 0) if len(lengths) > 1 else (x,)


def _even(lengths: list[int]) -> bool:
    """Whether to say it without indices, which exports for any number of sequences."""
    return lengths[0] == lengths[-1] > 0 and getattr(tape.active(), "whole_layers", False)


def _transposed(link: Any, xs: list[Any], lengths: list[int]) -> Any:
    """Rows by step of sequences that are sorted by length."""
    if _even(lengths):
        return F.separate(F.stack(xs, 1), 0)
    places, batches = _places(lengths)
    x = F.concat(xs, 0) if len(xs) > 1 else xs[0]
    if len(xs) > 1:
        x = F.permutate(x, _indices(link, places))
    return _cut(x, batches)


def _back(link: Any, ys: Any, lengths: list[int]) -> Any:
    """Rows by sequence of what has rows by step."""
    if _even(lengths):
        return F.separate(F.stack(list(ys), 1), 0)
    places, _ = _places(lengths)
    y = F.concat(list(ys), 0) if len(ys) > 1 else ys[0]
    if len(lengths) > 1:
        y = F.permutate(y, _indices(link, np.argsort(places)))
    return _cut(y, lengths)


class _NStepLSTM(_NStep):
    n_weights = 8
    n_cells = 2

    def forward(self, hx: Any, cx: Any, xs: Any, **kwargs: Any) -> tuple[Any, Any, list[Any]]:
        """Run over sequences.

        Args:
            hx: First outputs, ``(layers * directions, batch, out_size)``; None for zeros.
            cx: First cells, of the same shape; None for zeros.
            xs: A list of sequences, ``(length, in_size)``, in any order.

        Returns:
            The last outputs, the last cells, and a list of outputs ``(length, directions * out_size)``.

        Raises:
            TypeError: ``xs`` is not a list of sequences, or a keyword is unknown.
            InvalidType: Shapes do not fit.
        """
        return self._run((hx, cx), xs, kwargs)


class _NStepOne(_NStep):
    def forward(self, hx: Any, xs: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        """Run over sequences.

        Args:
            hx: First outputs, ``(layers * directions, batch, out_size)``; None for zeros.
            xs: A list of sequences, ``(length, in_size)``, in any order.

        Returns:
            The last outputs, and a list of outputs ``(length, directions * out_size)``.

        Raises:
            TypeError: ``xs`` is not a list of sequences, or a keyword is unknown.
            InvalidType: Shapes do not fit.
        """
        return self._run((hx,), xs, kwargs)


class NStepLSTM(_NStepLSTM):
    """Stacked LSTM over a list of sequences of any lengths: :func:`~kusari.functions.n_step_lstm` with its weights.

    Args:
        n_layers: Number of layers.
        in_size: Number of inputs.
        out_size: Number of outputs of every layer.
        dropout: Ratio of the dropout between layers, in training.
        initialW: Initializer of all matrices; by default :class:`~kusari.initializers.LeCunNormal`.
        initial_bias: Initializer of all biases; by default 0.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.NStepLSTM.html

    >>> lstm = L.NStepLSTM(2, 3, 4, dropout=0.5)
    >>> h, c, ys = lstm(None, None, [np.zeros((n, 3), "float32") for n in (2, 5)])
    >>> h.shape, [y.shape for y in ys]
    ((2, 2, 4), [(2, 4), (5, 4)])
    """

    def rnn(self, *args: Any) -> Any:
        """Apply :func:`~kusari.functions.n_step_lstm`."""
        return F.n_step_lstm(*args)


class NStepBiLSTM(_NStepLSTM):
    """Stacked bidirectional LSTM over a list of sequences; arguments as for `NStepLSTM`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.NStepBiLSTM.html
    """

    use_bi_direction = True

    def rnn(self, *args: Any) -> Any:
        """Apply :func:`~kusari.functions.n_step_bilstm`."""
        return F.n_step_bilstm(*args)


class NStepGRU(_NStepOne):
    """Stacked gated recurrent units over a list of sequences; arguments as for `NStepLSTM`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.NStepGRU.html
    """

    n_weights = 6

    def rnn(self, *args: Any) -> Any:
        """Apply :func:`~kusari.functions.n_step_gru`."""
        return F.n_step_gru(*args)


class NStepBiGRU(_NStepOne):
    """Stacked bidirectional gated recurrent units over a list of sequences; arguments as for `NStepLSTM`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.NStepBiGRU.html
    """

    n_weights = 6
    use_bi_direction = True

    def rnn(self, *args: Any) -> Any:
        """Apply :func:`~kusari.functions.n_step_bigru`."""
        return F.n_step_bigru(*args)


class NStepRNNTanh(_NStepOne):
    """Stacked simple recurrent units (tanh) over a list of sequences; arguments as for `NStepLSTM`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.NStepRNNTanh.html
    """

    n_weights = 2

    def rnn(self, *args: Any) -> Any:
        """Apply :func:`~kusari.functions.n_step_rnn`."""
        return F.n_step_rnn(*args, activation="tanh")


class NStepRNNReLU(_NStepOne):
    """Stacked simple recurrent units (ReLU) over a list of sequences; arguments as for `NStepLSTM`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.NStepRNNReLU.html
    """

    n_weights = 2

    def rnn(self, *args: Any) -> Any:
        """Apply :func:`~kusari.functions.n_step_rnn`."""
        return F.n_step_rnn(*args, activation="relu")


class NStepBiRNNTanh(_NStepOne):
    """Stacked bidirectional simple recurrent units (tanh) over a list of sequences; arguments as for `NStepLSTM`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.NStepBiRNNTanh.html
    """

    n_weights = 2
    use_bi_direction = True

    def rnn(self, *args: Any) -> Any:
        """Apply :func:`~kusari.functions.n_step_birnn`."""
        return F.n_step_birnn(*args, activation="tanh")


class NStepBiRNNReLU(_NStepOne):
    """Stacked bidirectional simple recurrent units (ReLU) over a list of sequences; arguments as for `NStepLSTM`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.NStepBiRNNReLU.html
    """

    n_weights = 2
    use_bi_direction = True

    def rnn(self, *args: Any) -> Any:
        """Apply :func:`~kusari.functions.n_step_birnn`."""
        return F.n_step_birnn(*args, activation="relu")
