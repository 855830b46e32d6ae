"""Recurrent networks over several ranks."""
from __future__ import annotations

from typing import Any

from ...link import Chain
from ...links.rnn.n_step import _NStep
from ..functions import pseudo_connect, recv, send

__all__ = ["create_multi_node_n_step_rnn"]


def create_multi_node_n_step_rnn(actual_link: Any, communicator: Any, rank_in: int | None = None,
                                 rank_out: int | None = None) -> Any:
    """Make a link of a stacked RNN whose states come from one rank and go to another.

    It takes the RNN's inputs without the states, and returns its outputs and a delegate: an empty Variable that
    backward has to start from where ``rank_out`` is given.

    Args:
        actual_link: ``NStepLSTM``, ``NStepGRU``, ``NStepRNNTanh``, ``NStepRNNReLU``, or one of them in two directions.
        communicator: A communicator.
        rank_in: The rank whose final states are the initial ones; None begins with zeros.
        rank_out: The rank that the final states are sent to.

    Raises:
        ValueError: ``actual_link`` is something else.
    """
    return _MultiNodeNStepRNN(actual_link, communicator, rank_in, rank_out)


class _MultiNodeNStepRNN(Chain):
    """The link that `create_multi_node_n_step_rnn` makes."""

    actual_rnn: Any

    def __init__(self, link: Any, communicator: Any, rank_in: int | None, rank_out: int | None) -> None:
        if not isinstance(link, _NStep):
            raise ValueError("link must be NStepRNN and its inherited link")
        super().__init__(actual_rnn=link)
        self.communicator = communicator
        self.rank_in = rank_in
        self.rank_out = rank_out
        self.n_cells = link.n_cells

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        """Run the RNN; returns its outputs and the delegate, which is None where nothing is sent."""
        states: list[Any] = [None] * self.n_cells
        if self.rank_in is not None:
            states = [recv(self.communicator, self.rank_in) for _ in range(self.n_cells)]
        outputs = self.actual_rnn(*states, *inputs)
        delegate: Any = None
        if self.rank_out is not None:
            for state in outputs[:-1]:
                if delegate is not None:
                    (state,) = pseudo_connect(delegate, state)
                delegate = send(state, self.communicator, self.rank_out)
        return (*outputs, delegate)
