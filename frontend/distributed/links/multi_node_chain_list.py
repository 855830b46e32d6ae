"""Models of parts on several ranks."""
from __future__ import annotations

from collections import deque
from typing import Any

from ...link import ChainList
from ..functions import pseudo_connect, recv, send

__all__ = ["MultiNodeChainList"]


class MultiNodeChainList(ChainList):
    """Chain list whose children get their inputs from other ranks, or send their outputs there.

    Children run in the order in which they were added, and backward in the reversed order. One of them at most has
    ``rank_out=None``: the model returns its output, and an empty Variable if there is none.

    Args:
        comm: A communicator.

    Example::

        class Model0(chainermn.MultiNodeChainList):  # on rank 0
            def __init__(self, comm):
                super().__init__(comm)
                self.add_link(MLP(10000, 5000, 2000), rank_in=None, rank_out=1)
                self.add_link(MLP(100, 50, 10), rank_in=1, rank_out=None)

        class Model1(chainermn.MultiNodeChainList):  # on rank 1
            def __init__(self, comm):
                super().__init__(comm)
                self.add_link(MLP(2000, 500, 100), rank_in=0, rank_out=0)
    """

    def __init__(self, comm: Any) -> None:
        super().__init__()
        self._comm = comm
        self._rank_inouts: list[tuple[list[int] | None, list[int] | None]] = []

    def add_link(self, link: Any, rank_in: Any = None, rank_out: Any = None) -> None:
        """Add a child.

        Args:
            link: The child.
            rank_in: The rank, or ranks, whose outputs are its inputs; None for the model's own inputs.
            rank_out: The rank, or ranks, that its output is sent to; None for the model's output.

        Raises:
            ValueError: Another child gives the model's output already.
        """
        if rank_out is None and any(out is None for _, out in self._rank_inouts):
            raise ValueError(
                "MultiNodeChainList cannot have more than two computational graph component whose rank_out is None")
        super().add_link(link)
        self._rank_inouts.append((_ranks(rank_in), _ranks(rank_out)))

    def forward(self, *inputs: Any) -> Any:
        """Run the children; returns the model's output, or an empty Variable from which backward starts."""
        own: deque[Any] = deque()  # outputs of this rank that are inputs here
        output: Any = None
        delegate: Any = None
        for i, (child, (rank_in, rank_out)) in enumerate(zip(self.children(), self._rank_inouts, strict=True)):
            if rank_in is None:
                given = inputs if i == 0 or delegate is None else pseudo_connect(delegate, *inputs)
                x = child(*given)
            else:
                received: list[Any] = []
                for rank in rank_in:
                    received.append(self._input_from(rank, own, delegate))
                    delegate = _first(received[-1])
                delegate = None  # backward comes to it through the inputs
                x = child(*received)
            if rank_out is None:
                output = delegate = x
            else:
                delegate = self._output_to(x, rank_out, own, delegate)
        if own:
            raise ValueError("Communication queue is not empty at the end of forward. "
                             "Make sure if all rank_in and rank_out correspond each other.")
        if output is None or output is delegate:
            return delegate
        (output,) = pseudo_connect(delegate, output)
        return output

    def _input_from(self, rank: int, own: deque[Any], delegate: Any) -> Any:
        if rank != self._comm.rank:
            return recv(self._comm, rank, delegate_variable=delegate)
        x = own.popleft()
        return x if delegate is None else pseudo_connect(delegate, x)[0]

    def _output_to(self, x: Any, ranks: list[int], own: deque[Any], delegate: Any) -> Any:
        """Send an output to ranks; returns the delegate, through which backward comes to all of them."""
        for i, rank in enumerate(ranks):
            if delegate is not None and (i or rank == self._comm.rank):
                x = pseudo_connect(delegate, *_tuple(x))
                x = x if len(x) > 1 else x[0]
            if rank == self._comm.rank:
                own.append(x)
                delegate = _first(x)
            else:
                delegate = send(x, self._comm, rank)
        return delegate


def _ranks(ranks: Any) -> list[int] | None:
    return [ranks] if isinstance(ranks, int) else ranks


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _first(x: Any) -> Any:
    return x[0] if isinstance(x, tuple) else x
