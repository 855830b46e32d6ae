"""Waits that end: ranks that wait long tell the others where, and ranks that end tell that they do.

A rank waits by polling. Once it has waited for `ANNOUNCED_AFTER` it tells all others what it waits for, and tells them
again when it goes on. A rank that knows that all others wait, and that none has gone on for `SETTLED_AFTER`, asks them,
`ROUNDS` times: one that has not been running, or has news of its own on the way, does not answer that it still waits.
When all have answered it raises `Deadlock`, which lists them, and tells the others to do so. A rank whose program has
ended tells so too: who waits for it raises `RankGone`.
"""
from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..errors import Deadlock, RankGone

__all__ = ["Place", "Watch"]

SPINNING_SECONDS = 0.002  # before other processes may have the core
YIELDING_SECONDS = 0.05  # before naps
NAP_SECONDS = 0.0002
LISTEN_SECONDS = 0.2  # between looks at what other ranks tell
ANNOUNCED_AFTER = 2.0
SETTLED_AFTER = 2.0
ROUNDS = 3  # of questions: what a rank does as it looks may let another one go on, and that one a third
LEAVING_SECONDS = 1.0  # that a rank which ends waits for the others before it tells them
_NOTE = 7  # the tag of notes


@dataclass(frozen=True)
class Place:
    """Who waits for what: an operation at a line of the user's, for one peer or for all; printed in messages."""

    operation: str
    line: str
    peer: int | None = None
    peers: tuple[int, ...] = ()  # ranks of the watch

    def among(self, peers: tuple[int, ...]) -> Place:
        """The place with the ranks of the watch that are waited for."""
        return replace(self, peers=peers)

    def __str__(self) -> str:
        return f"{self.operation} at {self.line}"


class Watch:
    """The state of the other ranks of one communicator, and of all that are split off it, as far as it is known."""

    _all: list[tuple[Any, Watch]] = []

    def __init__(self, mpi_comm: Any) -> None:
        from mpi4py import MPI

        self._line = mpi_comm.Dup()
        self._complete = MPI.Request.Testall
        self._group = mpi_comm.Get_group()
        self.rank: int = mpi_comm.Get_rank()
        self.size: int = mpi_comm.Get_size()
        self._waiting: dict[int, tuple[str, int]] = {}  # where, and the number of the wait
        self._gone: set[int] = set()
        self._changed = 0.0  # when a note came last
        self._number = 0  # of this rank's waits that were announced
        self._asked: list[tuple[int, int]] = []  # questions to answer: who asks, and its number
        self._question = 0  # the number of this rank's last one
        self._rounds = -1  # that all have answered; -1 before the first was asked
        self._answered: set[int] = set()  # who still waits, of those asked
        self._found = False  # whether another rank has found that this wait does not end
        self._notes: list[Any] = []
        atexit.register(self._leave)

    @classmethod
    def of(cls, mpi_comm: Any) -> Watch:
        """Return the watch of a communicator, which all ranks must ask for together the first time."""
        for other, watch in cls._all:
            if other == mpi_comm:
                return watch
        watch = cls(mpi_comm)
        cls._all.append((mpi_comm, watch))
        return watch

    def members(self, line: Any) -> tuple[int, ...]:
        """Return the ranks here of the ranks of a communicator."""
        group = line.Get_group()
        return tuple(group.Translate_ranks(list(range(line.Get_size())), self._group))

    def complete(self, requests: list[Any]) -> bool:
        """Whether all requests are complete."""
        return self._complete(requests)

    def wait(self, requests: list[Any], place: Place) -> None:
        """Return when all requests are complete."""
        if not self._complete(requests):
            self.until(lambda: self._complete(requests), place)

    def until(self, done: Callable[[], bool], place: Place) -> None:
        """Return when ``done()`` is true.

        Raises:
            RankGone: a rank that is waited for has ended its program.
            Deadlock: all ranks wait, and none goes on.
        """
        now = start = listened = time.monotonic()
        announced = False
        while not done():
            now = time.monotonic()
            if now - start > SPINNING_SECONDS:
                self._line.iprobe(tag=_NOTE)  # what others still wait for goes on, also where this is no wait for MPI
                time.sleep(0 if now - start < YIELDING_SECONDS else NAP_SECONDS)
            if now - listened > LISTEN_SECONDS:
                listened = now
                self._listen()
                if done():  # what came before the note counts
                    break
                self._check(place, announced, now)
                if not announced and now - start > ANNOUNCED_AFTER:
                    announced, self._found = True, False  # what was told of an earlier wait is over
                    self._number += 1
                    self._tell(("waits", str(place), self._number))
        if announced:
            self._number += 1
            self._tell(("goes on",))

    def _tell(self, note: tuple[Any, ...], to: int | None = None) -> None:
        self._notes = [r for r in self._notes if not r.Test()]
        others = [other for other in range(self.size) if other != self.rank] if to is None else [to]
        self._notes += [self._line.isend(note, other, _NOTE) for other in others]

    def _listen(self) -> None:
        from mpi4py import MPI

        status = MPI.Status()
        while self._line.iprobe(MPI.ANY_SOURCE, _NOTE, status):
            source = status.Get_source()
            note = self._line.recv(source=source, tag=_NOTE)
            if note[0] == "asks":
                self._asked.append((source, note[1]))
            elif note[0] == "still waits":
                self._answered.update([source] if note[1] == self._question else [])
            elif note[0] == "for ever":
                self._found = self._found or note[1] == self._number
            else:
                self._changed = time.monotonic()
                self._rounds, self._answered = -1, set()
                self._waiting.pop(source, None)
                if note[0] == "waits":
                    self._waiting[source] = note[1:]
                elif note[0] == "ends":
                    self._gone.add(source)

    def _check(self, place: Place, announced: bool, now: float) -> None:
        gone = sorted(self._gone.intersection(place.peers))
        if gone:
            who = ", ".join(map(str, gone))
            raise RankGone(
                f"rank {who} has ended its program, and rank {self.rank} waits for it in {place}. Every rank has to "
                "make the same calls: look for a loop with fewer iterations, a return or a sys.exit() on that rank.")
        for source, question in self._asked:
            self._tell(("still waits", question), source)
        self._asked.clear()
        if announced and (self._found or len(self._waiting) == self.size - 1 and now - self._changed > SETTLED_AFTER):
            if not self._found and not self._all_still_wait():
                return
            for other, (_, number) in self._waiting.items():
                self._tell(("for ever", number), other)
            self._found, self._rounds = False, -1
            where = {self.rank: str(place), **{rank: text for rank, (text, _) in self._waiting.items()}}
            table = "\n".join(f"  rank {rank} waits in {where[rank]}" for rank in sorted(where))
            raise Deadlock(f"every rank waits for another one:\n{table}")

    def _all_still_wait(self) -> bool:
        """Whether all ranks have answered all rounds; begins the next one where they have answered the last."""
        if self._rounds >= 0 and len(self._answered) < self.size - 1:
            return False
        self._rounds += 1
        if self._rounds == ROUNDS:
            return True
        self._question, self._answered = self._question + 1, set()
        self._tell(("asks", self._question))
        return False

    def _leave(self) -> None:
        """Tell the other ranks that this one ends, unless they end at the same time."""
        from mpi4py import MPI

        if MPI.Is_finalized() or self.size == 1:
            return
        everyone = self._line.Ibarrier()
        start = time.monotonic()
        told = False
        while not everyone.Test():
            waited = time.monotonic() - start
            if waited > LEAVING_SECONDS and not told:
                told = True
                self._tell(("ends",))
            self._listen()
            time.sleep(0.001 if waited < LEAVING_SECONDS else 0.01)
        self._listen()
