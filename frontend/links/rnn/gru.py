"""Gated recurrent units."""

from __future__ import annotations

from typing import Any

from ... import functions as F
from ...link import Chain
from ..connection.linear import Linear
from .state import StatefulChain, zeros

__all__ = ["GRU", "StatefulGRU", "StatefulMGU", "StatelessGRU", "StatelessMGU"]


class _GRUWeights(Chain):
    """The six linear layers of a gated recurrent unit: of the input (W) and of the output before (U)."""

    def _make(self, in_size: int | None, out_size: int, init: Any, inner_init: Any, bias_init: Any) -> None:
        def of_input() -> Linear:
            return Linear(in_size, out_size, initialW=init, initial_bias=bias_init)

        def of_state() -> Linear:
            return Linear(out_size, out_size, initialW=inner_init, initial_bias=bias_init)
        with self.init_scope():
            self.W_r = of_input()
            self.U_r = of_state()
            self.W_z = of_input()
            self.U_z = of_state()
            self.W = of_input()
            self.U = of_state()

    def _step(self, h: Any, x: Any) -> Any:
        r = F.sigmoid(self.W_r(x) + self.U_r(h))
        z = F.sigmoid(self.W_z(x) + self.U_z(h))
        new = F.tanh(self.W(x) + self.U(r * h))
        return F.linear_interpolate(z, new, h)


class StatelessGRU(_GRUWeights):
    """A gated recurrent unit that is given its state.

    ``r = sigmoid(W_r x + U_r h)``, ``z = sigmoid(W_z x + U_z h)``, ``n = tanh(W x + U (r h))`` and
    ``h' = (1 - z) h + z n``: Cho et al., `On the Properties of Neural Machine Translation
    <https://www.aclweb.org/anthology/W14-4012>`_ (2014).

    Args:
        in_size: Number of inputs; None to see it from the first input.
        out_size: Number of outputs.
        init: Initializer of the weights ``W`` of the input; by default :class:`~kusari.initializers.LeCunNormal`.
        inner_init: Initializer of the weights ``U`` of the state; the same by default.
        bias_init: Initializer of all biases; by default 0.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.StatelessGRU.html
    """

    def __init__(self, in_size: int | None, out_size: int, init: Any = None, inner_init: Any = None,
                 bias_init: Any = None) -> None:
        super().__init__()
        self._make(in_size, out_size, init, inner_init, bias_init)

    def forward(self, h: Any, x: Any) -> Any:
        """Return the output that follows ``h`` (batch, out_size) on the input ``x`` (batch, in_size)."""
        return self._step(h, x)


class StatefulGRU(_GRUWeights, StatefulChain):
    """A gated recurrent unit that keeps its output; for its formulas and arguments see `StatelessGRU`.

    Attributes:
        h (Variable): The output; None after `reset_state`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.StatefulGRU.html
    """

    _states = ("h",)

    def __init__(self, in_size: int | None, out_size: int, init: Any = None, inner_init: Any = None,
                 bias_init: Any = 0) -> None:
        super().__init__()
        self._make(in_size, out_size, init, inner_init, bias_init)
        self.state_size = out_size

    def set_state(self, h: Any) -> None:
        """Go on from this output.

        Raises:
            TypeError: It is not a Variable.
        """
        self._set(h=h)

    def forward(self, x: Any) -> Any:
        """Do a step: ``x`` is ``(batch, in_size)``, the result ``(batch, out_size)``."""
        if self.h is None:  # as if it were zero, but the biases of what it is multiplied by take no part
            self.h = F.sigmoid(self.W_z(x)) * F.tanh(self.W(x))
        else:
            self.h = self._step(self.h, x)
        return self.h


class GRU(StatefulGRU):
    """The gated recurrent unit that keeps its output: another name of `StatefulGRU`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.GRU.html
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do a step.

        Raises:
            ValueError: There is not one argument: the state is given to `StatelessGRU` only.
        """
        if len(args) + len(kwargs) != 1:
            raise ValueError("GRU keeps its state and takes an input only; StatelessGRU takes the state and an input")
        return super().__call__(*args, **kwargs)


class _MGUWeights(Chain):
    """The two linear layers of a minimal gated unit, of output and input concatenated."""

    def _make(self, in_size: int, out_size: int) -> None:
        with self.init_scope():
            self.W_f = Linear(in_size + out_size, out_size)
            self.W_h = Linear(in_size + out_size, out_size)

    def _step(self, h: Any, x: Any) -> Any:
        f = F.sigmoid(self.W_f(F.concat([h, x])))
        new = F.tanh(self.W_h(F.concat([f * h, x])))
        return F.linear_interpolate(f, new, h)


class StatelessMGU(_MGUWeights):
    """A minimal gated unit that is given its state.

    ``f = sigmoid(W_f [h, x])``, ``n = tanh(W_h [f h, x])`` and ``h' = (1 - f) h + f n``: Zhou et al., `Minimal Gated
    Unit for Recurrent Neural Networks <https://arxiv.org/abs/1603.09420>`_ (2016).

    Args:
        n_inputs: Number of inputs.
        n_units: Number of outputs.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.StatelessMGU.html
    """

    def __init__(self, n_inputs: int, n_units: int) -> None:
        super().__init__()
        self._make(n_inputs, n_units)

    def forward(self, h: Any, x: Any) -> Any:
        """Return the output that follows ``h`` (batch, n_units) on the input ``x`` (batch, n_inputs)."""
        return self._step(h, x)


class StatefulMGU(_MGUWeights, StatefulChain):
    """A minimal gated unit that keeps its output; for its formulas see `StatelessMGU`.

    Args:
        in_size: Number of inputs.
        out_size: Number of outputs.

    Attributes:
        h (Variable): The output; None after `reset_state`.

    Source: https://docs.chainer.org/en/v7.8.1/reference/generated/chainer.links.StatefulMGU.html
    """

    _states = ("h",)

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        self._make(in_size, out_size)
        self._state_size = out_size

    def set_state(self, h: Any) -> None:
        """Go on from this output.

        Raises:
            TypeError: It is not a Variable.
        """
        self._set(h=h)

    def forward(self, x: Any) -> Any:
        """Do a step: ``x`` is ``(batch, in_size)``, the result ``(batch, out_size)``."""
        h = zeros(self, (x.shape[0], self._state_size), x.dtype) if self.h is None else self.h
        self.h = self._step(h, x)
        return self.h
