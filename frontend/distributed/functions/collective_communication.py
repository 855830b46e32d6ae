"""Collective communication as functions: the backward of each is another one, on the same ranks."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import backend
from ... import functions as F
from ...dtypes import get_dtype
from ...function_node import FunctionNode
from ...variable import Variable, as_variable

__all__ = ["allgather", "allreduce", "alltoall", "bcast", "gather", "scatter"]


class _Collective(FunctionNode):
    """Function in which all ranks of a communicator take part."""

    def __init__(self, comm: Any, root: int = 0) -> None:
        self.comm = comm
        self.root = root

    @property
    def is_root(self) -> bool:
        """Whether this rank is the root."""
        return self.comm.rank == self.root


def dummy_input() -> Variable:
    """Return an empty Variable, for functions whose inputs are on another rank: backward comes to them through it."""
    return Variable(np.empty(0, get_dtype(None, map_mixed16=np.float32)), name="dummy_var")


def complete(types: Sequence[tuple[Any, Any]], gys: Sequence[Any]) -> list[Any]:
    """Return gradients of outputs, zeros in place of missing ones: other ranks wait for them."""
    device = next((gy.device for gy in gys if gy is not None), backend.CpuDevice())
    return [as_variable(device.send(np.zeros(shape, dtype))) if gy is None else gy
            for (shape, dtype), gy in zip(types, gys, strict=True)]


class AllGather(_Collective):
    """Gives every rank the arrays of all."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gather."""
        ys = self.comm.allgather(inputs[0])
        self._types = [(y.shape, y.dtype) for y in ys]
        return ys

    def backward(self, target_input_indexes: Any, grad_outputs: Any) -> tuple[Any, ...]:
        """Add up the gradients of all ranks."""
        gxs = AllToAll(self.comm).apply(complete(self._types, grad_outputs))
        return (F.sum(F.stack(gxs), axis=0),)


class AllToAll(_Collective):
    """Sends an array to each rank."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Exchange."""
        ys = self.comm.alltoall(inputs)
        self._types = [(y.shape, y.dtype) for y in ys]
        return ys

    def backward(self, target_input_indexes: Any, grad_outputs: Any) -> tuple[Any, ...]:
        """Send the gradients back."""
        return AllToAll(self.comm).apply(complete(self._types, grad_outputs))


class AllReduce(_Collective):
    """Adds up the arrays of all ranks."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add up."""
        return (self.comm.allreduce(inputs[0]),)

    def backward(self, target_input_indexes: Any, grad_outputs: Any) -> tuple[Any, ...]:
        """Add up the gradients of all ranks."""
        return AllReduce(self.comm).apply(grad_outputs)


class Bcast(_Collective):
    """Gives every rank the array of the root; on other ranks its input is empty."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Broadcast."""
        return (self.comm.bcast(inputs[0] if self.is_root else None, root=self.root),)

    def backward(self, target_input_indexes: Any, grad_outputs: Any) -> tuple[Any, ...]:
        """Add up the gradients of all ranks on the root."""
        gxs = Gather(self.comm, self.root).apply(grad_outputs)
        return (F.sum(F.stack(gxs), axis=0),) if self.is_root else (None,)


class Gather(_Collective):
    """Gives the root the arrays of all ranks; the output of the others is empty."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Gather."""
        ys = self.comm.gather(inputs[0], root=self.root)
        if ys is None:
            ys = (inputs[0].reshape(-1)[:0],)
        self._types = [(y.shape, y.dtype) for y in ys]
        return ys

    def backward(self, target_input_indexes: Any, grad_outputs: Any) -> tuple[Any, ...]:
        """Send each rank its gradient."""
        gys = complete(self._types, grad_outputs)
        return Scatter(self.comm, self.root).apply(gys if self.is_root else (dummy_input(),))


class Scatter(_Collective):
    """Gives each rank an array of the root; on other ranks its input is empty."""

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Scatter."""
        return (self.comm.scatter(inputs if self.is_root else None, root=self.root),)

    def backward(self, target_input_indexes: Any, grad_outputs: Any) -> tuple[Any, ...]:
        """Gather the gradients on the root."""
        gxs = Gather(self.comm, self.root).apply(grad_outputs)
        return gxs if self.is_root else (None,)


def allgather(comm: Any, x: Any) -> tuple[Variable, ...]:
    """Return the arrays of all ranks; gradients are added up over the ranks.

    Args:
        comm: A communicator.
        x: A Variable; those of other ranks may have other shapes.

    >>> from kusari import distributed
    >>> comm = distributed.create_communicator("naive")
    >>> distributed.functions.allgather(comm, np.ones(2, "f"))
    (variable([1., 1.]),)
    """
    return AllGather(comm).apply((x,))


def allreduce(comm: Any, x: Any) -> Variable:
    """Return the sum of the Variables of all ranks; gradients are added up over the ranks."""
    return AllReduce(comm).apply((x,))[0]


def alltoall(comm: Any, xs: Any) -> tuple[Variable, ...]:
    """Send ``xs[i]`` to rank ``i``, and return what has come from each; gradients go the way back.

    Raises:
        ValueError: There are more or fewer Variables than ranks.
    """
    if len(xs) != comm.size:
        raise ValueError(f"The length of xs must be same as communicator size: {len(xs)} and {comm.size}")
    return AllToAll(comm).apply(xs)


def bcast(comm: Any, x: Any, root: int = 0) -> Variable:
    """Return the root's Variable on all ranks; gradients are added up on the root.

    Args:
        comm: A communicator.
        x: On the root a Variable; not used elsewhere.
        root: The rank that sends.
    """
    return Bcast(comm, root).apply((x if comm.rank == root else dummy_input(),))[0]


def gather(comm: Any, x: Any, root: int = 0) -> tuple[Variable, ...]:
    """Return the Variables of all ranks on the root; gradients are sent to the ranks.

    On other ranks the result is an empty Variable, from which backward has to start there.
    """
    ys = Gather(comm, root).apply((x,))
    if comm.rank != root:
        ys[0].grad = ys[0].xp.zeros_like(ys[0].array)
    return ys


def scatter(comm: Any, xs: Any, root: int = 0) -> Variable:
    """Return a Variable of the root's; gradients are gathered there.

    Args:
        comm: A communicator.
        xs: On the root a Variable for each rank; not used elsewhere.
        root: The rank that sends.
    """
    return Scatter(comm, root).apply(xs if comm.rank == root else (dummy_input(),))[0]
