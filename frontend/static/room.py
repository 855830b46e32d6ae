"""Idle frames are released: of schedules used longest ago, and of many calls that were in flight once."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kusari.runtime import frame

IDLE_FRAME_BYTES = 64 << 20  # that idle schedules may hold in any case
WAITING_CALLS = 8            # that may wait for the next time so many are in flight
SETTLING_RATIO = 4           # of calls to waiting ones, after which the unneeded among these are released


def made() -> int:
    """A number that is another one when large frames have been made."""
    return frame.LARGE.made


def make_room(schedules: Iterable[Any], current: Any) -> None:
    """Release the frames of idle schedules, the first of ``schedules`` first.

    The others hold no more than the largest of them or ``IDLE_FRAME_BYTES``: a program that changes between many shapes
    needs the memory of two. Frames are made anew when they are needed again; calls in flight keep theirs.
    """
    sizes = [(s, s.nbytes) for s in schedules if s is not current and hasattr(s, "let_go")]
    total = sum(size for _, size in sizes)
    most = max(IDLE_FRAME_BYTES, getattr(current, "nbytes", 0), *(size for _, size in sizes), 0)
    for schedule, size in sizes:
        if total <= most:
            break
        if size:
            schedule.let_go()
            total -= size - schedule.nbytes


def close_all(calls: list[Any]) -> None:
    """Close all calls that wait, and release their memory; other threads may take some meanwhile."""
    while calls:
        try:
            call = calls.pop()
        except IndexError:
            return
        close = getattr(call, "close", None)
        if close is not None:  # sessions look after their memory themselves
            close()


class Free:
    """Statistics of a list of waiting calls, from which calls that are not needed any more can be told.

    Invariant: the last ones run next, so the first ones are not needed as long as there are always more.
    """

    __slots__ = ("least", "turns")

    def __init__(self) -> None:
        self.least, self.turns = 0, 0

    def settle(self, calls: list[Any]) -> None:
        """Note that a call has come back to ``calls``, which are many; from time to time some are released."""
        count = len(calls) - 1
        self.least = min(self.least, count)
        self.turns += 1
        if self.turns > SETTLING_RATIO * count:
            gone = calls[:max(0, self.least - WAITING_CALLS)]
            del calls[:len(gone)]
            close_all(gone)
            self.least, self.turns = len(calls), 0
