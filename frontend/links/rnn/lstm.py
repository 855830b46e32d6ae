"""LSTM layers."""

from __future__ import annotations

import math
from typing import Any

from ... import functions as F
from ...functions.noise.dropout import reject
from ...initializers import _get_initializer
from ...link import Chain
from ..connection.linear import Linear
from .state import StatefulChain, zeros

__all__ = ["LSTM", "StatefulPeepholeLSTM", "StatefulZoneoutLSTM", "StatelessLSTM"]


class _Weights(Chain):
    """The linear layers of an LSTM, initialized gate by gate: ``upward`` of the input, ``lateral`` of the output."""

    upward: Any
    lateral: Any

    def _make(self, in_size: int | None, out_size: int | None, lateral_init: Any, upward_init: Any, bias_init: Any,
              forget_bias_init: Any) -> None:
        if out_size is None:
            in_size, out_size = None, in_size
        self.state_size: Any = out_size
        self.lateral_init = lateral_init
        self.upward_init = upward_init
        self.bias_init = 0 if bias_init is None else bias_init
        self.forget_bias_init = 1 if forget_bias_init is None else forget_bias_init
        with self.init_scope():
            self.upward = Linear(in_size, 4 * self.state_size, initialW=0)
            self.lateral = Linear(self.state_size, 4 * self.state_size, initialW=0, nobias=True)
        if in_size is not None:
            self._initialize_params()

    def _initialize_params(self) -> None:
        """Draw the first values: a block of rows at a time, laterals first, then the bias of each gate."""
        n = self.state_size
        lateral, upward = _get_initializer(self.lateral_init), _get_initializer(self.upward_init)
        for i in range(0, 4 * n, n):
            lateral(self.lateral.W._array[i:i + n])
            upward(self.upward.W._array[i:i + n])
        bias, forget = _get_initializer(self.bias_init), _get_initializer(self.forget_bias_init)
        gates = self.upward.b._array.reshape(1, n, 4, 1)
        for j in range(4):
            (forget if j == 2 else bias)(gates[:, :, j])

    def _see(self, x: Any) -> None:
        """Initialize the layers for input like ``x``, if that has not been done."""
        if self.upward.W._array is None:
            with self.device.create_context():
                self.upward.in_size = math.prod(x.shape[1:])
                self.upward.W.initialize((4 * self.state_size, self.upward.in_size))
                self._initialize_params()


class LSTM(_Weights, StatefulChain):
    """A fully connected LSTM layer that keeps its cell and its output.

    Call `reset_state` before every new sequence. A batch may get smaller from call to call: sequences are sorted, the
    longest first, and the states of ended ones stay.

    Args:
        in_size: Number of inputs; None (or left out) to see it from the first input.
        out_size: Number of outputs.
        lateral_init: Initializer of ``lateral.W``, gate by gate; by default
            :class:`~kusari.initializers.LeCunNormal`.
        upward_init: Initializer of ``upward.W``, gate by gate; the same by default.
        bias_init: Initializer of the biases of all gates but the forget gates; by default 0.
        forget_bias_init: Initializer of the biases of the forget gates; by default 1.

    Attributes:
        upward (Linear): The layer of the input, with bias.
        lateral (Linear): The layer of the output before.
        c (Variable): The cell; None after `reset_state`.
        h (Variable): The output; None after `reset_state`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.LSTM.html

    >>> lstm = L.LSTM(3, 2)
    >>> for x in np.zeros((4, 1, 3), "float32"):
    ...     h = lstm(x)
    >>> h.shape, h is lstm.h
    ((1, 2), True)
    """

    _states = ("c", "h")

    def __init__(
        self,
        in_size: int | None,
        out_size: int | None = None,
        lateral_init: Any = None,
        upward_init: Any = None,
        bias_init: Any = None,
        forget_bias_init: Any = None,
    ) -> None:
        super().__init__()
        self._make(in_size, out_size, lateral_init, upward_init, bias_init, forget_bias_init)

    def set_state(self, c: Any, h: Any) -> None:
        """Go on from this cell and output.

        Raises:
            TypeError: One of them is not a Variable.
        """
        self._set(c=c, h=h)

    def forward(self, x: Any) -> Any:
        """Do a step.

        Args:
            x: Input, ``(batch, …)``.

        Returns:
            The output, ``(batch, out_size)``.

        Raises:
            TypeError: The batch is larger than that of the call before.
        """
        self._see(x)
        n = x.shape[0]
        gates = self.upward(x)
        h, c, rest = self.h, self.c, None
        if h is not None:
            if h.shape[0] < n:
                raise TypeError("The batch size of x must be equal to or less than the size of the previous state h: "
                                 f"{n} > {h.shape[0]}; call reset_state() before a new sequence")
            if h.shape[0] > n:
                h, rest = F.split_axis(h, [n], 0)
            if n:
                gates = gates + self.lateral(h)
        if c is None:
            c = zeros(self, (n, self.state_size), x.dtype)
        self.c, y = F.lstm(c, gates)
        self.h = y if rest is None else F.concat([y, rest], 0)
        return y


class StatelessLSTM(_Weights):
    """A fully connected LSTM layer that is given its state.

    Args:
        in_size: Number of inputs; None (or left out) to see it from the first input.
        out_size: Number of outputs.
        lateral_init: As for `LSTM`.
        upward_init: As for `LSTM`.
        bias_init: As for `LSTM`.
        forget_bias_init: As for `LSTM`.

    Attributes:
        upward (Linear): The layer of the input, with bias.
        lateral (Linear): The layer of the output before.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.StatelessLSTM.html
    """

    def __init__(
        self,
        in_size: int | None,
        out_size: int | None = None,
        lateral_init: Any = None,
        upward_init: Any = None,
        bias_init: Any = None,
        forget_bias_init: Any = None,
    ) -> None:
        super().__init__()
        self._make(in_size, out_size, lateral_init, upward_init, bias_init, forget_bias_init)

    def forward(self, c: Any, h: Any, x: Any) -> tuple[Any, Any]:
        """Do a step.

        Args:
            c: Cell, ``(batch, out_size)``; None for zeros.
            h: Output of the step before; None for zeros.
            x: Input, ``(batch, …)``.

        Returns:
            The next cell and output.
        """
        self._see(x)
        gates = self.upward(x)
        if h is not None:
            gates = gates + self.lateral(h)
        if c is None:
            c = zeros(self, (x.shape[0], self.state_size), x.dtype)
        return F.lstm(c, gates)


def _gates(x: Any) -> list[Any]:
    """The gates a, i, f, o, which stand unit by unit."""
    x = F.reshape(x, (x.shape[0], x.shape[1] // 4, 4))
    return [x[:, :, j] for j in range(4)]


class StatefulPeepholeLSTM(StatefulChain):
    """An LSTM layer whose gates see the cell as well (peepholes); it keeps its cell and its output.

    Gers & Schmidhuber, `Recurrent Nets That Time and Count <https://ieeexplore.ieee.org/document/861302>`_ (2000).

    Args:
        in_size: Number of inputs.
        out_size: Number of outputs.

    Attributes:
        upward (Linear): The layer of the input, with bias.
        lateral (Linear): The layer of the output before.
        peep_i (Linear): The input gates' view of the cell.
        peep_f (Linear): The forget gates' view of the cell.
        peep_o (Linear): The output gates' view of the next cell.
        c (Variable): The cell; None after `reset_state`.
        h (Variable): The output; None after `reset_state`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.StatefulPeepholeLSTM.html
    """

    _states = ("c", "h")

    def __init__(self, in_size: int | None, out_size: int) -> None:
        super().__init__()
        self.state_size = out_size
        with self.init_scope():
            self.upward = Linear(in_size, 4 * out_size)
            self.lateral = Linear(out_size, 4 * out_size, nobias=True)
            self.peep_i = Linear(out_size, out_size, nobias=True)
            self.peep_f = Linear(out_size, out_size, nobias=True)
            self.peep_o = Linear(out_size, out_size, nobias=True)

    def forward(self, x: Any) -> Any:
        """Do a step: ``x`` is ``(batch, in_size)``, the result ``(batch, out_size)``."""
        gates = self.upward(x)
        if self.h is not None:
            gates = gates + self.lateral(self.h)
        a, i, f, o = _gates(gates)
        c = zeros(self, (x.shape[0], self.state_size), x.dtype) if self.c is None else self.c
        i = F.sigmoid(i + self.peep_i(c))
        f = F.sigmoid(f + self.peep_f(c))
        self.c = F.tanh(a) * i + f * c
        o = F.sigmoid(o + self.peep_o(self.c))
        self.h = o * F.tanh(self.c)
        return self.h


class StatefulZoneoutLSTM(StatefulChain):
    """An LSTM layer in which, in training, parts of cell and output stay what they were.

    Krueger et al., `Zoneout <https://arxiv.org/abs/1606.01305>`_ (2016).

    Args:
        in_size: Number of inputs.
        out_size: Number of outputs.
        c_ratio: Probability that an element of the cell stays.
        h_ratio: Probability that an element of the output stays.

    Attributes:
        upward (Linear): The layer of the input, with bias.
        lateral (Linear): The layer of the output before.
        c (Variable): The cell; None after `reset_state`.
        h (Variable): The output; None after `reset_state`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.StatefulZoneoutLSTM.html
    """

    _states = ("c", "h")

    def __init__(self, in_size: int | None, out_size: int, c_ratio: float = 0.5, h_ratio: float = 0.5,
                 **kwargs: Any) -> None:
        reject(kwargs, train="use kusari.using_config('train', ...)")
        super().__init__()
        self.state_size = out_size
        self.c_ratio = c_ratio
        self.h_ratio = h_ratio
        with self.init_scope():
            self.upward = Linear(in_size, 4 * out_size)
            self.lateral = Linear(out_size, 4 * out_size, nobias=True)

    def set_state(self, c: Any, h: Any) -> None:
        """Go on from this cell and output.

        Raises:
            TypeError: One of them is not a Variable.
        """
        self._set(c=c, h=h)

    def forward(self, x: Any) -> Any:
        """Do a step: ``x`` is ``(batch, in_size)``, the result ``(batch, out_size)``."""
        gates = self.upward(x)
        if self.h is not None:
            gates = gates + self.lateral(self.h)
        nothing = None
        if self.c is None or self.h is None:
            nothing = zeros(self, (x.shape[0], self.state_size), x.dtype)
        c = nothing if self.c is None else self.c
        new_c, new_h = F.lstm(c, gates)
        self.c = F.zoneout(c, new_c, self.c_ratio)
        self.h = F.zoneout(nothing if self.h is None else self.h, new_h, self.h_ratio)
        return self.h
