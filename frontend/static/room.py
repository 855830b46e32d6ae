"""Idle frames are released: of schedules used longest ago, and of many calls that were in flight once."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from kusari.runtime import frame

KEPT_BYTES = 64 << 20  # that idle schedules may hold in any case
KEPT_CALLS = 8         # they may wait for the next time so many are in flight
SETTLED_RATIO = 4      # of calls made to calls that wait, after which unused ones are released


class Holder(Protocol):
    """An owner of frames, of ``nbytes`` in all; ``release`` gives back all but frames in flight."""

    @property
    def nbytes(self) -> int: ...
    def release(self) -> None: ...


def made() -> int:
    """A number that is another one when large frames have been made."""
    return frame.LARGE.made


def free_memory(holders: Iterable[Holder], current: Holder) -> None:
    """Release the frames of idle ``holders``, the first ones first.

    The others hold no more than the largest of them or ``KEPT_BYTES``: code that changes between many shapes needs the
    memory of two. Frames are made anew where they are needed again; calls in flight keep theirs.
    """
    sizes = [(s, s.nbytes) for s in holders if s is not current]
    total = sum(size for _, size in sizes)
    most = max(KEPT_BYTES, current.nbytes, *(size for _, size in sizes))
    for schedule, size in sizes:
        if total <= most:
            break
        if size:
            schedule.release()
            total -= size - schedule.nbytes


def close_all(calls: list[Any]) -> None:
    """Release the memory of all calls that wait; other threads may take some meanwhile."""
    while calls:
        try:
            calls.pop().close()
        except IndexError:
            return


class Free:
    """The use of the calls that wait in a list, to see which of them are not needed any more.

    Invariant: the last ones run next, so that of those at the front nothing is needed while there are always more.
    """

    __slots__ = ("least", "turns")

    def __init__(self) -> None:
        self.least, self.turns = 0, 0

    def settle(self, calls: list[Any]) -> None:
        """Note that a call has come back to ``calls``, which are many; from time to time release some."""
        count = len(calls) - 1
        self.least = min(self.least, count)
        self.turns += 1
        if self.turns > SETTLED_RATIO * count:
            gone = calls[:max(0, self.least - KEPT_CALLS)]
            del calls[:len(gone)]
            close_all(gone)
            self.least, self.turns = len(calls), 0
