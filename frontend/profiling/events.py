"""Events of a profile: their times without those of the events inside, and the file that trace viewers read."""
from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORWARD, BACKWARD = "forward", "backward"  # of define-by-run's functions
CALL, KERNEL, PYTHON = "compiled", "kernel", "python"  # runs of compiled programs, and their rows
REDUCTION = "reduction"  # of a bucket of gradients over several processes, beside what the thread does
_PLAIN = frozenset((FORWARD, KERNEL))  # whose names say enough


@dataclass(frozen=True)
class Event:
    """One thing that a thread did: between ``begin`` and ``end``, in nanoseconds; ``line`` is the user's.

    ``kind`` is one of the words above, or that of some long work: ``"tracing"``, ``"compiling"``.
    """

    name: str
    kind: str
    thread: int
    begin: int
    end: int
    line: str = ""
    shared: bool = False  # another thread runs the same row, and it is counted there


def own_times(events: Iterable[Event]) -> Iterator[tuple[Event, int]]:
    """Yield each event with its nanoseconds without those of the events inside it."""
    for _, found in sorted(_by_thread(events).items()):
        around: list[tuple[Event, int]] = []
        for event in found:
            while around and around[-1][0].end <= event.begin:
                yield _close(around)
            around.append((event, event.end - event.begin))
        while around:
            yield _close(around)


def _close(around: list[tuple[Event, int]]) -> tuple[Event, int]:
    """Take the innermost event, whose time is not that of the one around it."""
    event, own = around.pop()
    if around:
        outer, left = around[-1]
        around[-1] = outer, left - (event.end - event.begin)
    return event, max(own, 0)


def _by_thread(events: Iterable[Event]) -> dict[int, list[Event]]:
    """The events of each thread in order of their beginning, outer ones first; none that go on beside others."""
    found: dict[int, list[Event]] = {}
    for event in sorted(events, key=lambda e: (e.begin, -e.end)):
        if event.kind != REDUCTION:
            found.setdefault(event.thread, []).append(event)
    return found


def trace(events: Sequence[Event], threads: Mapping[int, str], begin: int) -> dict[str, Any]:
    """Return a trace in Chrome's format, which Perfetto and ``chrome://tracing`` show, in µs from ``begin`` on."""
    process = os.getpid()
    numbers = {thread: i for i, thread in enumerate(dict.fromkeys([*threads, *(e.thread for e in events)]), 1)}
    rows: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "Kusari"}}]
    for thread, number in numbers.items():
        about = {"thread_name": {"name": threads.get(thread, f"thread {number}")},
                 "thread_sort_index": {"sort_index": number}}
        rows += [{"ph": "M", "name": name, "pid": process, "tid": number, "args": args} for name, args in about.items()]
    for found in _by_thread(events).values():
        rows += [{"ph": "X", "name": e.name if e.kind in _PLAIN else f"{e.name} ({e.kind})", "cat": e.kind,
                  "pid": process, "tid": numbers[e.thread], "ts": (e.begin - begin) / 1000,
                  "dur": (e.end - e.begin) / 1000, "args": {"line": e.line} if e.line else {}} for e in found]
    beside = [e for e in events if e.kind == REDUCTION]
    rows += [{"ph": phase, "name": e.name, "cat": e.kind, "id": i, "pid": process, "tid": numbers[e.thread],
              "ts": (at - begin) / 1000} for i, e in enumerate(beside) for phase, at in (("b", e.begin), ("e", e.end))]
    return {"traceEvents": rows, "displayTimeUnit": "ms"}


def write(path: str | os.PathLike[str], made: dict[str, Any]) -> None:
    """Write a trace to a file."""
    Path(path).write_text(json.dumps(made), encoding="utf-8")
