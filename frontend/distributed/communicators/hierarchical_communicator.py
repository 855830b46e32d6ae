"""Communicators that add up within machines first, so that less goes between them."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..transport.channel import Complete
from ..transport.watch import Place
from .mpi_communicator_base import MpiCommunicatorBase

__all__ = ["HierarchicalCommunicator", "TwoDimensionalCommunicator"]


class HierarchicalCommunicator(MpiCommunicatorBase):
    """Communicator that adds up on each machine, then among the first ranks of machines, then tells the others."""

    name = "hierarchical"

    def _find_machines(self) -> None:
        super()._find_machines()
        self._inside = self._channel.split(self.inter_rank, self.rank)
        self._between = self._channel.split(self.intra_rank, self.rank)

    def reduce_buffers(self, buffers: Sequence[np.ndarray], place: Place) -> list[Any]:
        """Replace flat arrays by their sums over all ranks."""
        for buffer in buffers:
            self._inside.allreduce(buffer, place).wait()
            if self.intra_rank == 0:
                self._between.allreduce(buffer, place).wait()
            self._inside.bcast(buffer, 0, place)
        return [Complete()] * len(buffers)

    def finalize(self) -> None:
        """Release what the communicator holds."""
        self._inside.free()
        self._between.free()
        super().finalize()


class TwoDimensionalCommunicator(HierarchicalCommunicator):
    """Communicator whose ranks each add up a part on their machine, and that part among machines.

    All ranks of a machine send at once, where ``hierarchical`` has one that does.

    Raises:
        ValueError: Machines have different numbers of ranks.
    """

    name = "two_dimensional"

    def _find_machines(self) -> None:
        super()._find_machines()
        counts = [len(machine) for machine in self._machines]
        if len(set(counts)) > 1:
            raise ValueError(f"the communicator two_dimensional needs the same number of ranks on each machine, but "
                             f"there are {counts}: take hierarchical")

    def reduce_buffers(self, buffers: Sequence[np.ndarray], place: Place) -> list[Any]:
        """Replace flat arrays by their sums over all ranks."""
        count = self.intra_size
        for buffer in buffers:
            parts = np.array_split(buffer, count)
            received = [np.empty_like(parts[self.intra_rank]) for _ in range(count)]
            self._inside.alltoall(parts, received, place)
            mine = np.sum(received, axis=0, dtype=buffer.dtype)
            self._between.allreduce(mine, place).wait()
            found = self._inside.exchange(mine.tobytes(), place)
            for part, values in zip(parts, found, strict=True):
                part[...] = np.frombuffer(values, buffer.dtype)
        return [Complete()] * len(buffers)
