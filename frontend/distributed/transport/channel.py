"""Channels: the few operations on flat arrays and bytes that communicators are made of.

Nothing here blocks in MPI: each operation is started and then polled, so that a wait can find out that it will never
end (`Watch`). Ranks must start the collective operations of one channel in the same order; communicators see to that.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import MPIMissing
from .shared import Region
from .watch import Place, Watch

__all__ = ["Channel", "Complete", "Lone", "Mpi", "launched_ranks", "world"]

PIECE_BYTES = 1 << 28  # of one message: MPI counts in 31 bits
_LAUNCHERS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
ADVICE = ("mpi4py and an MPI library are needed for more than one process: pip install 'kusari[mpi]' brings both "
          "(mpi4py and MPICH); where MPI is there already, pip install mpi4py")


class Pending(Protocol):
    """An operation that has been started."""

    def wait(self) -> None:
        """Return when it is complete."""
        ...

    def poll(self) -> bool:
        """Let it go on, and return whether it is complete."""
        ...


class Channel(Protocol):
    """The interface of channels; ``place`` is who waits for what, for messages."""

    rank: int
    size: int
    mpi_comm: Any

    def split(self, color: int, key: int) -> Channel:
        """Return the channel of the ranks with the same color."""
        ...

    def exchange(self, payload: bytes, place: Place) -> list[bytes]:
        """Give all ranks the bytes of all."""
        ...

    def gather(self, payload: bytes, lengths: Sequence[int], root: int, place: Place) -> list[bytes] | None:
        """Give the root the bytes of all, whose lengths are known everywhere."""
        ...

    def bcast(self, buffer: np.ndarray, root: int, place: Place) -> None:
        """Overwrite a flat array with the root's."""
        ...

    def alltoall(self, sent: Sequence[np.ndarray], received: Sequence[np.ndarray], place: Place) -> None:
        """Send a flat array to each rank, and fill one from each."""
        ...

    def allreduce(self, buffer: np.ndarray, place: Place) -> Pending:
        """Start to replace a flat array by its sum over the ranks."""
        ...

    def share(self, nbytes: int) -> Region | None:
        """Return memory of so many bytes for each rank that all share; None where ranks are on several machines."""
        ...

    def send(self, payload: Sequence[np.ndarray], dest: int, tag: int, place: Place) -> None:
        """Send flat arrays; returns when they may be overwritten."""
        ...

    def recv(self, received: Sequence[np.ndarray], source: int, tag: int, place: Place) -> None:
        """Fill flat arrays with what one call of `send` has sent."""
        ...

    def recv_header(self, source: int | None, tag: int | None, status: Any, place: Place) -> tuple[bytes, int, int]:
        """Return the bytes of the next header, its source and its tag; None stands for any."""
        ...

    def send_header(self, payload: bytes, dest: int, tag: int, place: Place) -> None:
        """Send a header."""
        ...

    def free(self) -> None:
        """Release what MPI holds for it."""
        ...


def launched_ranks() -> int:
    """Return how many processes a launcher says there are; 1 without a launcher."""
    for name in _LAUNCHERS:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 1


def world() -> Any:
    """Return MPI's communicator of all processes.

    Raises:
        MPIMissing: mpi4py, or the MPI library, is not installed.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the second where mpi4py finds no library
        raise MPIMissing(f"{error}. {ADVICE}.") from error
    return MPI.COMM_WORLD


class Complete:
    """An operation that was complete at once."""

    def wait(self) -> None:
        """Return at once."""

    def poll(self) -> bool:
        """Return True."""
        return True


class Lone:
    """The channel of a single rank; needs no MPI."""

    rank = 0
    size = 1
    mpi_comm = None

    def split(self, color: int, key: int) -> Lone:
        """Return another one."""
        return Lone()

    def exchange(self, payload: bytes, place: Place) -> list[bytes]:
        """Return the only bytes."""
        return [payload]

    def gather(self, payload: bytes, lengths: Sequence[int], root: int, place: Place) -> list[bytes] | None:
        """Return the only bytes."""
        return [payload]

    def bcast(self, buffer: np.ndarray, root: int, place: Place) -> None:
        """Leave the array as it is."""

    def alltoall(self, sent: Sequence[np.ndarray], received: Sequence[np.ndarray], place: Place) -> None:
        """Copy."""
        received[0][...] = sent[0]

    def allreduce(self, buffer: np.ndarray, place: Place) -> Pending:
        """Leave the array as it is: the sum of one."""
        return Complete()

    def share(self, nbytes: int) -> None:
        """Return None: there is no other rank."""

    # Never called: there is no other rank, and communicators refuse to send to their own.
    send: Any = None
    recv: Any = None
    send_header: Any = None
    recv_header: Any = None

    def free(self) -> None:
        """Do nothing."""


class _Started:
    """Requests of MPI, and the arrays that they use."""

    def __init__(self, watch: Watch, requests: list[Any], place: Place, arrays: Any) -> None:
        self._watch, self._requests, self._place, self._arrays = watch, requests, place, arrays

    def wait(self) -> None:
        """Return when all are complete."""
        if self._requests:
            self._watch.wait(self._requests, self._place)
            self._requests = []

    def poll(self) -> bool:
        """Let them go on, and return whether all are complete."""
        if self._requests and self._watch.complete(self._requests):
            self._requests = []
        return not self._requests


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(lengths[:-1], dtype=np.int64).tolist()]


class Mpi:
    """A channel of MPI's: duplicates of a communicator, on which nothing else is sent."""

    def __init__(self, mpi_comm: Any, watch: Watch | None = None) -> None:
        self.mpi_comm = mpi_comm
        self.rank: int = mpi_comm.Get_rank()
        self.size: int = mpi_comm.Get_size()
        self._line: Any = mpi_comm.Dup()
        self._sums = mpi_comm.Dup()  # apart: ranks that do different things are not to take one for the other
        self._watch = Watch.of(mpi_comm) if watch is None else watch
        self._members = self._watch.members(self._line)

    def _wait(self, requests: list[Any], place: Place) -> None:
        self._watch.wait(requests, self._located(place))

    def _located(self, place: Place) -> Place:
        """The place with the ranks of the watch in place of those of this channel."""
        peers = self._members if place.peer is None else (self._members[place.peer],)
        return place.among(peers)

    def split(self, color: int, key: int) -> Mpi:
        """Return the channel of the ranks with the same color."""
        return Mpi(self.mpi_comm.Split(color, key), self._watch)

    def exchange(self, payload: bytes, place: Place) -> list[bytes]:
        """Give all ranks the bytes of all."""
        lengths = np.empty(self.size, np.int64)
        self._wait([self._line.Iallgather(np.array([len(payload)], np.int64), lengths)], place)
        total = np.empty(int(lengths.sum()), np.uint8)
        counts, starts = lengths.tolist(), _starts(lengths.tolist())
        if total.size <= PIECE_BYTES:
            mine = np.frombuffer(payload, np.uint8)
            self._wait([self._line.Iallgatherv(mine, [total, (counts, starts)])], place)
        else:
            for rank, (count, start) in enumerate(zip(counts, starts, strict=True)):
                part = total[start:start + count]
                if rank == self.rank:
                    part[...] = np.frombuffer(payload, np.uint8)
                self.bcast(part, rank, place)
        return [total[s:s + n].tobytes() for n, s in zip(counts, starts, strict=True)]

    def gather(self, payload: bytes, lengths: Sequence[int], root: int, place: Place) -> list[bytes] | None:
        """Give the root the bytes of all, by messages: their sum may be more than MPI counts."""
        mine = np.frombuffer(payload, np.uint8)
        if self.rank != root:
            self._wait(self._pieces(self._line.Isend, mine, root, 0), place)
            return None
        found = [mine if rank == root else np.empty(n, np.uint8) for rank, n in enumerate(lengths)]
        requests = [r for rank, array in enumerate(found) if rank != root
                    for r in self._pieces(self._line.Irecv, array, rank, 0)]
        self._wait(requests, place)
        return [array.tobytes() for array in found]

    def bcast(self, buffer: np.ndarray, root: int, place: Place) -> None:
        """Overwrite a flat array with the root's."""
        flat = buffer.view(np.uint8)
        self._wait([self._line.Ibcast(flat[i:i + PIECE_BYTES], root) for i in range(0, flat.size, PIECE_BYTES)], place)

    def alltoall(self, sent: Sequence[np.ndarray], received: Sequence[np.ndarray], place: Place) -> None:
        """Send a flat array to each rank, and fill one from each."""
        requests: list[Any] = []
        for rank, array in enumerate(received):
            if rank == self.rank:
                array[...] = sent[rank]
            else:
                requests += self._pieces(self._line.Irecv, array.view(np.uint8), rank, 0)
        for offset in range(1, self.size):  # each rank begins with another one
            rank = (self.rank + offset) % self.size
            requests += self._pieces(self._line.Isend, sent[rank].view(np.uint8), rank, 0)
        self._wait(requests, place)

    def allreduce(self, buffer: np.ndarray, place: Place) -> Pending:
        """Start to replace a flat array by its sum over the ranks."""
        from mpi4py import MPI

        step = PIECE_BYTES // buffer.itemsize
        requests = [self._sums.Iallreduce(MPI.IN_PLACE, buffer[i:i + step]) for i in range(0, buffer.size, step)]
        return _Started(self._watch, requests, self._located(place), buffer)

    def share(self, nbytes: int) -> Region | None:
        """Return memory of so many bytes for each rank that all share; None where ranks are on several machines."""
        from mpi4py import MPI

        machine = self._sums.Split_type(MPI.COMM_TYPE_SHARED)
        everyone = machine.Get_size() == self.size
        machine.Free()
        return Region(self._sums, self._watch, nbytes) if everyone else None

    def send(self, payload: Sequence[np.ndarray], dest: int, tag: int, place: Place) -> None:
        """Send flat arrays; returns when they may be overwritten."""
        self._wait([r for array in payload for r in self._pieces(self._line.Isend, array.view(np.uint8), dest, tag)],
                   place)

    def recv(self, received: Sequence[np.ndarray], source: int, tag: int, place: Place) -> None:
        """Fill flat arrays with what one call of `send` has sent."""
        self._wait([r for array in received
                    for r in self._pieces(self._line.Irecv, array.view(np.uint8), source, tag)], place)

    def send_header(self, payload: bytes, dest: int, tag: int, place: Place) -> None:
        """Send a header; complete when it is received, so that a rank never runs ahead of the one it sends to."""
        self._wait([self._line.Issend(np.frombuffer(payload, np.uint8), dest, tag)], place)

    def recv_header(self, source: int | None, tag: int | None, status: Any, place: Place) -> tuple[bytes, int, int]:
        """Return the bytes of the next header, its source and its tag; None stands for any."""
        from mpi4py import MPI

        status = MPI.Status() if status is None else status
        found: list[Any] = []

        def arrived() -> bool:
            message = self._line.Improbe(MPI.ANY_SOURCE if source is None else source,
                                         MPI.ANY_TAG if tag is None else tag, status)
            if message is not None:
                found.append(message)
            return bool(found)
        self._watch.until(arrived, self._located(place))
        buffer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        self._wait([found[0].Irecv(buffer)], place)
        return buffer.tobytes(), status.Get_source(), status.Get_tag()

    def free(self) -> None:
        """Release what MPI holds for it."""
        if self._line is not None:
            self._line.Free()
            self._sums.Free()
            self._line = None

    @staticmethod
    def _pieces(start: Any, array: np.ndarray, rank: int, tag: int) -> list[Any]:
        """Start one message for each piece of an array of bytes; at least one."""
        return [start(array[i:i + PIECE_BYTES], rank, tag) for i in range(0, max(array.size, 1), PIECE_BYTES)]
