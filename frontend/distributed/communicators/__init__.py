"""Communicators: `create_communicator` and the classes of the names it takes."""
from __future__ import annotations

import warnings
from typing import Any

from ..errors import MPIMissing
from ..global_except_hook import add_by_default
from ..transport.channel import ADVICE, launched_ranks, world
from .communicator_base import CommunicatorBase
from .flat_communicator import DummyCommunicator, FlatCommunicator, NonCudaAwareCommunicator, SingleNodeCommunicator
from .hierarchical_communicator import HierarchicalCommunicator, TwoDimensionalCommunicator
from .mpi_communicator_base import MpiCommunicatorBase
from .naive_communicator import NaiveCommunicator
from .pure_nccl_communicator import PureNcclCommunicator

__all__ = ["CommunicatorBase", "create_communicator"]

_CLASSES: dict[str, type[MpiCommunicatorBase]] = {kind.name: kind for kind in (
    PureNcclCommunicator, HierarchicalCommunicator, TwoDimensionalCommunicator, SingleNodeCommunicator,
    FlatCommunicator, NaiveCommunicator, NonCudaAwareCommunicator, DummyCommunicator)}


def create_communicator(
    communicator_name: str = "pure_nccl", mpi_comm: Any = None, *, allreduce_grad_dtype: Any = None, **kwargs: Any,
) -> MpiCommunicatorBase:
    """Create a communicator; all processes have to do so together.

    The kinds differ in how they add up gradients; all other operations are the same. Arrays on cards go through host
    memory, but for the gradients of ``pure_nccl``.

    ================= ==================================================================== =========================
    name              gradients are added up                                               to be taken for
    ================= ==================================================================== =========================
    pure_nccl         on cards by NCCL, in host memory by MPI in buckets                   nearly everything
    hierarchical      on each machine, then by one rank of each, which tells the others    slow networks
    two_dimensional   on each machine in parts, each part between machines                 fast networks, many cards
    single_node       in buckets; refuses to run on several machines                       one machine
    flat              all at once by MPI                                                   small models
    naive             one by one by MPI; alone, without MPI, where that is not installed   tests
    non_cuda_aware    as flat; the name promises that MPI sees host memory only            MPI without CUDA
    dummy             not at all: the time of a step without communication                 measurements
    ================= ==================================================================== =========================

    Args:
        communicator_name: One of these names.
        mpi_comm: mpi4py's communicator; by default that of all processes.
        allreduce_grad_dtype: The dtype in which gradients travel; only with ``pure_nccl``.

    An exception that ends a process ends those of the other ranks: see `global_except_hook`.

    Raises:
        ValueError: There is no communicator of this name, or it does not take the option.
        MPIMissing: MPI is not installed, and there are several processes or the name is another than ``naive``.

    Source: https://docs.chainer.org/en/v7.8.1/chainermn/reference/index.html#communicators

    >>> from kusari import distributed
    >>> comm = distributed.create_communicator("naive")
    >>> comm.rank, comm.size, comm.allreduce_obj(3)
    (0, 1, 3)
    """
    if communicator_name not in _CLASSES:
        raise ValueError(f'Unrecognized communicator: "{communicator_name}"; there are {", ".join(_CLASSES)}')
    kind = _CLASSES[communicator_name]
    if allreduce_grad_dtype is not None and kind is not PureNcclCommunicator:
        raise ValueError("allreduce_grad_dtype is only available at 'pure_nccl' communicator.")
    if "batched_copy" in kwargs:
        warnings.warn("The option 'batched_copy' is enabled by default, is deprecated and has no effect",
                      DeprecationWarning, stacklevel=2)
        del kwargs["batched_copy"]
    if kwargs:
        raise TypeError(f"unexpected keyword argument(s) {', '.join(map(repr, kwargs))}")
    if mpi_comm is None:
        try:
            mpi_comm = world()
        except MPIMissing as error:
            if kind is not NaiveCommunicator:
                raise MPIMissing(f"{error} For one process there is create_communicator('naive').") from None
            if launched_ranks() > 1:
                raise MPIMissing(f"this process was started as one of {launched_ranks()}. {ADVICE}") from None
    made = kind(mpi_comm)
    if allreduce_grad_dtype is not None:
        made.set_config("allreduce_grad_dtype", allreduce_grad_dtype)
    if made.size > 1:
        add_by_default()
    return made
