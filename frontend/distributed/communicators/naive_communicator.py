"""The communicator that adds up each gradient by itself."""
from __future__ import annotations

from .mpi_communicator_base import MpiCommunicatorBase

__all__ = ["NaiveCommunicator"]


class NaiveCommunicator(MpiCommunicatorBase):
    """Communicator with one allreduce for each gradient; the only one that works without MPI, as a single rank."""

    name = "naive"

    @property
    def bucket_bytes(self) -> float:
        """Nothing: a bucket ends with its first gradient."""
        return 0
