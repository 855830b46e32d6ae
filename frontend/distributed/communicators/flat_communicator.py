"""Communicators that add up all gradients at once, or in large parts."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..transport.channel import Complete
from ..transport.watch import Place
from .mpi_communicator_base import MpiCommunicatorBase

__all__ = ["DummyCommunicator", "FlatCommunicator", "NonCudaAwareCommunicator", "SingleNodeCommunicator"]


class FlatCommunicator(MpiCommunicatorBase):
    """Communicator with one allreduce for all gradients of one dtype."""

    name = "flat"

    @property
    def bucket_bytes(self) -> float:
        """No limit: all gradients of a dtype are one bucket."""
        return math.inf


class NonCudaAwareCommunicator(FlatCommunicator):
    """Communicator like ``flat``; gradients on cards travel through host memory, as they do in all but pure_nccl."""

    name = "non_cuda_aware"


class SingleNodeCommunicator(MpiCommunicatorBase):
    """Communicator of ranks on one machine.

    Raises:
        ValueError: There are several.
    """

    name = "single_node"

    def _find_machines(self) -> None:
        super()._find_machines()
        if self.inter_size > 1:
            raise ValueError(f"the communicator single_node is for one machine, but there are {self.inter_size}: "
                             "take pure_nccl, hierarchical or two_dimensional")


class DummyCommunicator(FlatCommunicator):
    """Communicator that copies gradients to buckets and back, and adds up nothing: a step without communication."""

    name = "dummy"

    @property
    def shares(self) -> bool:
        """False: nothing is added up."""
        return False

    def reduce_buffers(self, buffers: Sequence[np.ndarray], place: Place) -> list[Any]:
        """Multiply flat arrays, as if all ranks had the same: means are this rank's own gradients."""
        for buffer in buffers:
            buffer *= self.size
        return [Complete()] * len(buffers)
