"""Sums in memory that all ranks of a machine share: an MPI window, in which each rank has a part.

A rank writes what it adds to its own part and counts a number up; once all have, two ranks read both parts, and more
ranks add a piece of all parts each, from which all copy. Numbers are added in the order of ranks: sums are the same on
every rank to the bit. Messages of MPI would copy the same data four times more.
"""
from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import Deadlock
from .watch import Place, Watch

__all__ = ["MessageSum", "PairSum", "Region", "SharedSum", "free_bytes", "shared_bytes"]

_LINE_BYTES = 64  # apart, so that ranks do not wait for each other's cache lines
_COUNTERS = "filled in", "added", "read"
_FILLED, _ADDED, _READ = range(3)  # counters of each rank: of sums it has filled in, pieces it has added, rounds read


def free_bytes() -> int:
    """Return how much more memory processes may share; 0 where that is not known."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def shared_bytes(nbytes: int) -> int:
    """Return the bytes of a place in a region for so many."""
    return nbytes + -nbytes % _LINE_BYTES


class Region:
    """Shared memory of ``nbytes`` for each rank; all ranks have to make it together.

    A *round* is one use of it: every sum of a round has a place of its own, and the next round begins when all ranks
    have read the sums of the one before. A round may be left open: then its sums are read until this rank begins the
    next one. Invariant: ranks begin the same sums in the same order, and each adds its pieces in that order, as a
    counter of pieces says that all up to one are there.
    """

    _close: Callable[[], None] | None = None  # what reads the sums of a round that is open for the last time

    def __init__(self, line: Any, watch: Watch, nbytes: int) -> None:
        from mpi4py import MPI

        self.nbytes = nbytes
        self.rank, self.size = line.Get_rank(), line.Get_size()
        self._watch, self._members = watch, watch.members(line)
        head = 3 * self.size * _LINE_BYTES if self.rank == 0 else 0
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})
        self._window = MPI.Win.Allocate_shared(head + nbytes, 1, info, line)
        self._window.Lock_all(MPI.MODE_NOCHECK)
        buffers: list[Any] = [self._window.Shared_query(r)[0] for r in range(self.size)]
        memory = [np.frombuffer(each, np.uint8) for each in buffers]
        head = 3 * self.size * _LINE_BYTES
        self._counters = memory[0][:head].view(np.int64).reshape(3, self.size, -1)[:, :, 0]
        self.parts = [memory[0][head:], *memory[1:]]
        self._counters[:, self.rank] = 0
        self.synchronize()
        line.Barrier()
        self.rounds = self.sums = 0
        self._to_add: deque[SharedSum] = deque()
        self.busy = False

    def begin(self, place: Place) -> None:
        """Begin a round, once all ranks are through with the one before."""
        self.close()
        self.busy = True
        if not self.all_have(_READ, self.rounds):
            self.until(lambda: self.all_have(_READ, self.rounds), place)

    def end(self) -> None:
        """End a round: this rank has read all sums."""
        self.rounds += 1
        self.count(_READ, self.rounds)
        self.busy = False

    def leave_open(self, close: Callable[[], None]) -> None:
        """Let sums be read until ``close`` is called: before the next round begins."""
        self._close = close
        self.busy = False

    def close(self) -> None:
        """End the round that is open, if one is."""
        if self._close is not None:
            close, self._close = self._close, None
            close()
            self.end()

    def start(self, total: SharedSum) -> int:
        """Tell the other ranks that this one's part of a sum is filled in; returns the number of the sum."""
        self.sums += 1
        if total.needs_polls:
            self._to_add.append(total)
        self.count(_FILLED, self.sums)
        return self.sums

    def has_all_parts(self, number: int) -> bool:
        """Whether all ranks have filled in their parts of a sum."""
        return self.all_have(_FILLED, number)

    def has_all_pieces(self, number: int) -> bool:
        """Whether a sum is there; adds this rank's pieces of the sums that all ranks have filled in."""
        while self._to_add and self.has_all_parts(self._to_add[0].number):
            total = self._to_add.popleft()
            total.add_piece(self.rank, self.size)
            self.count(_ADDED, total.number)
        return self.all_have(_ADDED, number)

    def until(self, done: Callable[[], bool], place: Place) -> None:
        """Return when ``done()`` is true: see `Watch.until`."""
        try:
            self._watch.until(done, place.among(self._members))
        except Deadlock as error:
            counters = ", ".join(f"{name} {numbers}" for name, numbers in
                                 zip(_COUNTERS, self._counters.tolist(), strict=True))
            raise Deadlock(f"{error}\n  in the memory that ranks share, by rank: {counters}") from None

    def synchronize(self) -> None:
        """Complete what this rank has written before it goes on."""
        self._window.Sync()

    def count(self, counter: int, number: int) -> None:
        """Tell the other ranks how far this one is; what it wrote before is there when they see that."""
        self.synchronize()
        self._counters[counter, self.rank] = number

    def all_have(self, counter: int, number: int) -> bool:
        """Whether all ranks are so far."""
        if self._counters[counter].min() < number:
            return False
        self.synchronize()
        return True

    def free(self) -> None:
        """Release it, on all ranks together."""
        self.close()
        self._counters, self.parts = np.empty((3, 0)), []
        self._window.Unlock_all()
        self._window.Free()


class _Sum:
    """A sum of flat arrays; ``buffer`` is where this rank writes its own, times ``factor``.

    Reads of the sum give it times ``weight``.
    """

    weight: Any = 1
    needs_polls = True  # to go on before it is waited for

    def __init__(self, buffer: np.ndarray, factor: float) -> None:
        self.buffer = buffer
        self.factor = buffer.dtype.type(factor)

    def write(self, at: int, out: np.ndarray) -> None:
        """Write a part of the sum that is there, from the element ``at`` on, to an array."""
        np.copyto(out, self.total[at:at + out.size].reshape(out.shape), casting="same_kind")

    @property
    def total(self) -> np.ndarray:
        """The sum that is there."""
        return self.buffer


class SharedSum(_Sum):
    """A sum in one place of a region, of which each rank adds a piece of all parts up."""

    def __init__(self, region: Region, start: int, size: int, dtype: Any, factor: float) -> None:
        self._region = region
        self._place: Any = None
        self.parts = [part[start:start + size * np.dtype(dtype).itemsize].view(dtype) for part in region.parts]
        self.number = 0  # among the sums of the region
        super().__init__(self.parts[region.rank], factor)

    @property
    def total(self) -> np.ndarray:
        return self.parts[0]

    def start(self, place: Place) -> None:
        """Tell the other ranks that the buffer is filled."""
        self._place = place
        self.number = self._region.start(self)

    def add_piece(self, k: int, pieces: int) -> None:
        """Add one piece of all parts up, to the first."""
        first, *rest = [np.array_split(part, pieces)[k] for part in self.parts]
        for other in rest:
            first += other

    def poll(self) -> bool:
        """Let the sums of the region go on; returns whether this one is there."""
        return self._region.has_all_pieces(self.number)

    def wait(self) -> None:
        """Return when the sum is there."""
        if not self.poll():
            self._region.until(self.poll, self._place)


class PairSum(SharedSum):
    """The same of two ranks: ``parts`` are added, and the sum multiplied by ``weight``, where they are read."""

    needs_polls = False

    def __init__(self, region: Region, start: int, size: int, dtype: Any, weight: float) -> None:
        super().__init__(region, start, size, dtype, 1.0)
        self.weight = self.buffer.dtype.type(weight)

    def poll(self) -> bool:
        """Whether both ranks have filled their parts."""
        return self._region.has_all_parts(self.number)

    def write(self, at: int, out: np.ndarray) -> None:
        first, second = [part[at:at + out.size].reshape(out.shape) for part in self.parts]
        total = np.add(first, second, out=out if out.dtype == first.dtype else None)
        total *= self.weight
        if total is not out:
            np.copyto(out, total, casting="same_kind")


class MessageSum(_Sum):
    """A sum by messages of MPI, in a buffer of this rank's own; ``reduce`` starts it."""

    def __init__(self, buffer: np.ndarray, factor: float, reduce: Any) -> None:
        super().__init__(buffer, factor)
        self._reduce = reduce
        self._pending: Sequence[Any] = ()

    def start(self, place: Place) -> None:
        """Start to replace the buffer by the sum."""
        self._pending = self._reduce([self.buffer], place)

    def poll(self) -> bool:
        """Let it go on; returns whether the sum is there."""
        return all([pending.poll() for pending in self._pending])

    def wait(self) -> None:
        """Return when the sum is there."""
        for pending in self._pending:
            pending.wait()
