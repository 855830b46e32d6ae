"""Frames that nobody runs in are let go: of schedules used longest ago, and of many calls that were in flight once."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kusari.runtime import frame

ROOM = 64 << 20  # bytes that idle schedules may hold in any case
FEW = 8          # calls that may wait for the next time so many are in flight
SOON = 4         # times as many calls as wait: what none of them has needed is let go


def made() -> int:
    """A number that is another one when large frames have been made."""
    return frame.LARGE.made


def make_room(schedules: Iterable[Any], current: Any) -> None:
    """Let the frames of idle schedules go, the first of ``schedules`` first.

    What is left holds no more than the largest of them or ``ROOM``: whoever changes between many shapes needs the
    memory of two. Frames are made anew where they are needed again; calls in flight keep theirs.
    """
    sizes = [(s, s.nbytes) for s in schedules if s is not current and hasattr(s, "let_go")]
    total = sum(size for _, size in sizes)
    most = max(ROOM, getattr(current, "nbytes", 0), *(size for _, size in sizes), 0)
    for schedule, size in sizes:
        if total <= most:
            break
        if size:
            schedule.let_go()
            total -= size - schedule.nbytes


def close_all(calls: list[Any]) -> None:
    """Let go of all calls that wait, and of their memory; others may take some meanwhile."""
    while calls:
        try:
            call = calls.pop()
        except IndexError:
            return
        close = getattr(call, "close", None)
        if close is not None:  # sessions look after their memory themselves
            close()


class Free:
    """What has to be known of the calls that wait in a list, to see which of them nobody needs any more.

    Invariant: the last ones run next, so that of those at the front nothing is needed while there are always more.
    """

    __slots__ = ("least", "turns")

    def __init__(self) -> None:
        self.least, self.turns = 0, 0

    def settle(self, calls: list[Any]) -> None:
        """Note that a call has come back to ``calls``, which are many; from time to time let some go."""
        count = len(calls) - 1
        self.least = min(self.least, count)
        self.turns += 1
        if self.turns > SOON * count:
            gone = calls[:max(0, self.least - FEW)]
            del calls[:len(gone)]
            close_all(gone)
            self.least, self.turns = len(calls), 0
