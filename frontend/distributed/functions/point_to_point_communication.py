"""Sending and receiving as functions: gradients go the way back."""
from __future__ import annotations

from typing import Any

import numpy as np

from ... import backend
from ...function_node import FunctionNode
from ...variable import Variable, as_variable
from .collective_communication import complete, dummy_input

__all__ = ["recv", "send"]


class _Point(FunctionNode):
    """Function between two ranks."""

    def __init__(self, comm: Any, peer_rank: int, peer_tag: int) -> None:
        self.comm = comm
        self.peer_rank = peer_rank
        self.peer_tag = peer_tag

    @property
    def label(self) -> str:
        """The name with the other rank."""
        return f"{type(self).__name__} (peer_rank: {self.peer_rank})"


class Send(_Point):
    """Sends its inputs but the last, which is there to be differentiated; its output is empty."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Send."""
        xs = inputs[:-1]
        self.comm.send(xs[0] if len(xs) == 1 else xs, self.peer_rank, self.peer_tag)
        return (backend.get_array_module(*inputs).empty(0, np.float32),)

    def backward(self, target_input_indexes: Any, grad_outputs: Any) -> tuple[Any, ...]:
        """Receive the gradients."""
        inputs = self.inputs or ()
        found = Recv(self.comm, self.peer_rank, self.peer_tag).apply((dummy_input(),))
        # The other rank may have been sent arrays of this memory while these are elsewhere.
        gxs = [gx if i in target_input_indexes else None for i, gx in enumerate(found)]
        return (*gxs, *[None] * (len(inputs) - len(gxs)))


class Recv(_Point):
    """Receives what `Send` sends; its input is there to be differentiated."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Receive."""
        found = self.comm.recv(self.peer_rank, self.peer_tag)
        ys = found if isinstance(found, tuple) else (found,)
        self._types = [(y.shape, y.dtype) for y in ys]
        self._input_types = [(x.shape, x.dtype) for x in inputs]
        return ys

    def backward(self, target_input_indexes: Any, grad_outputs: Any) -> tuple[Any, ...]:
        """Send the gradients, missing ones as zeros."""
        Send(self.comm, self.peer_rank, self.peer_tag).apply(
            (*complete(self._types, grad_outputs), dummy_input()))
        return tuple(complete(self._input_types, [None] * len(self._input_types)))


def send(x: Any, communicator: Any, rank: int, tag: int = 0) -> Variable:
    """Send a Variable, or a tuple of Variables, to a rank.

    Args:
        x: The Variable or Variables.
        communicator: A communicator.
        rank: The rank that receives.
        tag: A number to tell messages apart.

    Returns:
        An empty Variable: the delegate. Backward receives gradients as it comes to it, so it has to be what the model
        returns, or be given to `recv` or `pseudo_connect`.

    Raises:
        ValueError: ``rank`` is this one.
    """
    _require_other(communicator, rank)
    xs = tuple(x) if isinstance(x, (tuple, list)) else (x,)
    dummy = Variable(backend.get_array_module(*xs).empty(0, np.float32), name="dummy_var")
    (delegate,) = Send(communicator, rank, tag).apply((*xs, dummy))
    return as_delegate(delegate)


def as_delegate(variable: Variable) -> Variable:
    """Give an empty Variable a gradient, so that backward can start from it."""
    variable.name = "delegate_variable"
    if variable.array.size == 0:
        variable.grad = variable.xp.zeros_like(variable.array)
    return variable


def recv(communicator: Any, rank: int, delegate_variable: Any = None, tag: int = 0, force_tuple: bool = False) -> Any:
    """Receive a Variable, or a tuple of Variables, from a rank; backward sends their gradients.

    Args:
        communicator: A communicator.
        rank: The rank that sends.
        delegate_variable: What an earlier `send` has returned, so that backward comes to it.
        tag: A number to tell messages apart.
        force_tuple: Return a tuple of a single Variable, too.

    Raises:
        ValueError: ``rank`` is this one.
    """
    _require_other(communicator, rank)
    if delegate_variable is not None:
        delegate_variable.name = "delegate_variable"
    before = dummy_input() if delegate_variable is None else as_variable(delegate_variable)
    ys = Recv(communicator, rank, tag).apply((before,))
    return ys[0] if len(ys) == 1 and not force_tuple else ys


def _require_other(communicator: Any, rank: int) -> None:
    if rank == communicator.rank:
        raise ValueError("rank must be different from communicator rank, otherwise deadlock occurs")
