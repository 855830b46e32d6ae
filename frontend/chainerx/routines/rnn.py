"""Recurrent networks of several layers."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functions as F
from ..apply import apply

__all__ = ["n_step_bigru", "n_step_bilstm", "n_step_birnn", "n_step_gru", "n_step_lstm", "n_step_rnn"]


def _recurrent(function: Callable[..., Any], states: int) -> Any:
    """A function of sequences as ChainerX has it: no dropout, lists for tuples."""
    names = ("hx", "cx")[:states]

    def routine(n_layers: int, *args: Any, **kwargs: Any) -> Any:
        *given, = args
        for name in (*names, "ws", "bs", "xs")[len(given):]:
            given.append(kwargs.pop(name))
        hidden, rest = given[:states], given[states:states + 3]
        extra = given[states + 3:]

        def run(*xs: Any) -> Any:
            return function(n_layers, 0.0, *xs, *extra, **kwargs)

        return tuple([list(one) if isinstance(one, tuple) else one for one in apply(run, *hidden, *rest)])

    routine.__name__ = function.__name__
    routine.__doc__ = (f"Return the last states and the outputs of each step, see `kusari.functions."
                       f"{function.__name__}`, without dropout.")
    return routine


n_step_lstm, n_step_bilstm = _recurrent(F.n_step_lstm, 2), _recurrent(F.n_step_bilstm, 2)
n_step_gru, n_step_bigru = _recurrent(F.n_step_gru, 1), _recurrent(F.n_step_bigru, 1)
n_step_rnn, n_step_birnn = _recurrent(F.n_step_rnn, 1), _recurrent(F.n_step_birnn, 1)
