"""`profile`: the time of define-by-run's functions and of the rows of compiled code, by thread, with the user's lines.

It costs nothing unless one is open: functions are seen by a hook that all threads have meanwhile, rows by a second
table of instructions that frames have meanwhile (`kusari.runtime.timed_rows`).
"""
from __future__ import annotations

import linecache
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any

from kusari.runtime.frame import Layout
from kusari.runtime.timed_rows import RowTimer, Timing

from .. import progress, tape
from ..callsite import short, user_location
from ..explanation import Explanation, Section, Table
from ..function_hook import FunctionHook
from ..static.step.reduction import ENDS, START
from .events import BACKWARD, CALL, FORWARD, KERNEL, PYTHON, REDUCTION, Event, own_times, trace, write

MOST_EVENTS_ROWS = 1_000_000  # kept; later ones are counted only
SHOWN_LINES_ROWS = 12
SHOWN_NAMES_ROWS = 12
NAME_CHARACTERS = 40
SOURCE_CHARACTERS = 60
REST = "waiting, Python"  # what calls of compiled code take beside their kernels, where these are timed
_open: list[profile] = []


class profile:
    """A profile of all that runs inside ``with kusari.profile() as p:``, of all threads.

    ``print(p)`` shows the lines of your program, the functions and the kernels that took longest; a notebook shows the
    same as HTML. ``p.save("trace.json")`` writes a trace for https://ui.perfetto.dev or ``chrome://tracing``: the
    functions of define-by-run, forward and backward; calls of compiled code and the rows of their schedules; tracing
    and compiling. Compiled code goes on running meanwhile, and hooks of functions see the same as ever.

    Args:
        path: A file to write the trace to when the block ends.

    Raises:
        RuntimeError: Another profile is open.

    Example:
        >>> import numpy as np, kusari, kusari.functions as F
        >>> with kusari.profile() as p:
        ...     y = F.relu(np.ones(3, np.float32))
        >>> [(event.name, event.kind) for event in p.events]
        [('ReLU', 'forward')]
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = path
        self._events: list[Event] = []
        self._threads: dict[int, str] = {}  # names
        self._hook = _Hook(self)
        self._rows: weakref.WeakKeyDictionary[Layout, tuple[tuple[str, str], ...]] = weakref.WeakKeyDictionary()
        self._timer: RowTimer | None = None
        self._lost = 0
        self._gives_way = False  # to one inside, whose events it takes over: that of `python -m kusari run`
        self.begin = self.end = 0

    def __enter__(self) -> profile:
        if _open and not _open[-1]._gives_way:
            raise RuntimeError("a profile is open already: close it before you open another")
        if _open:
            _open[-1]._stop()
        _open.append(self)
        self._timer = RowTimer(self._run)
        self._name_threads()
        self._start()
        self.begin = time.perf_counter_ns()
        return self

    def __exit__(self, *exc: object) -> None:
        self.end = time.perf_counter_ns()
        if _open[-1] is not self:  # one inside was entered and never left
            _open[-1].__exit__()
        self._stop()
        _open.remove(self)
        self._name_threads()
        if _open:
            _open[-1].add(self._events)
            _open[-1]._start()
        if self._path is not None:
            self.save(self._path)

    def _start(self) -> None:
        assert self._timer is not None
        progress.listeners.append(self._work)
        tape.hook_all_threads({"kusari.profile": self._hook})
        self._timer.start()

    def _stop(self) -> None:
        assert self._timer is not None
        self._timer.stop()
        tape.hook_all_threads(None)
        progress.listeners.remove(self._work)

    @classmethod
    def of_a_script(cls) -> profile:
        """Return a profile inside which the script may have one of its own, whose events are then in both."""
        made = cls()
        made._gives_way = True
        return made

    def _name_threads(self) -> None:
        self._threads.update((thread.ident, thread.name) for thread in threading.enumerate() if thread.ident)

    def add(self, events: Iterable[Event]) -> None:
        """Keep some events, as far as there is room."""
        found = list(events)
        if len(self._events) + len(found) > MOST_EVENTS_ROWS:
            self._lost += len(found)
        else:
            self._events += found
        for thread in {e.thread for e in found}.difference(self._threads):
            self._name_threads()
            self._threads.setdefault(thread, f"thread {thread}")

    def _work(self, kind: str, name: str, begin: int, end: int) -> None:
        self.add([Event(name, kind, threading.get_ident(), begin, end, short(user_location()))])

    def _run(self, timing: Timing) -> None:
        """Add the events of one run of compiled code."""
        layout = timing.layout
        rows = self._rows.get(layout)
        if rows is None:
            rows = self._rows[layout] = tuple(
                (r.kernel.symbol, r.node.where) for r in layout.native if r.kernel is not None)
        found = [Event(layout.plan.graph.name, CALL, timing.thread, timing.begin, timing.end,
                       short(user_location()))]
        for i, of_row in enumerate(timing.native.tolist()):
            ran = [row for row in of_row if row[1]]
            own = any(thread == timing.thread for _, _, thread in ran)
            found += [Event(rows[i][0], KERNEL, thread, begin, end, rows[i][1], own and thread != timing.thread)
                      for begin, end, thread in ran]
        found += [Event(r.node.op.name, PYTHON, timing.thread, begin, end, r.node.where)
                  for r, begin, end in timing.python]
        begun = {r.node.attrs["bucket"]: begin for r, begin, _ in timing.python if r.node.op is START}
        found += [Event(f"bucket {k}", REDUCTION, timing.thread, begun[k], end) for r, _, end in timing.python
                  if r.node.op in ENDS and (k := r.node.attrs["bucket"]) in begun]
        self.add(found)

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, in the order of their ends."""
        return tuple(self._events)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a file, in the format of Chrome's traces."""
        write(path, trace(self._events, self._threads, self.begin))

    def __str__(self) -> str:
        return str(self.explanation)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.explanation._repr_html_()

    @property
    def explanation(self) -> Explanation:
        """The tables, as a report."""
        lines: dict[tuple[str, ...], list[int]] = {}
        names: dict[tuple[str, ...], list[int]] = {}
        rest = REST if any(event.kind == KERNEL for event in self._events) else CALL
        for event, own in own_times(self._events):
            if not event.shared:
                kind = rest if event.kind == CALL else event.kind
                for into, key in ((lines, (event.line,)), (names, (event.name, kind))):
                    counts = into.setdefault(key, [0, 0])
                    counts[0] += own
                    counts[1] += 1
        total = sum(own for own, _ in lines.values())
        wall = (self.end or time.perf_counter_ns()) - self.begin
        files = _files()
        first = f"profile of {_time(wall)}: {_time(total)} in {len(self._events)} functions, calls and kernels"
        lost = [f"  {self._lost} more events came when {MOST_EVENTS_ROWS} were kept"] * bool(self._lost)
        by_line = [(*row, key[0], _source(key[0], files)) for key, row in _longest(lines, total, SHOWN_LINES_ROWS)]
        by_name = [(*row, key[1], _cut(key[0], NAME_CHARACTERS)) for key, row in _longest(
            names, total, SHOWN_NAMES_ROWS)]
        return Explanation((
            Section(0, first, tuple(lost)),
            Section(2, "by line", (Table(("time", "of all", "times", "line", "source"), tuple(by_line)),)),
            Section(2, "by function and kernel",
                    (Table(("time", "of all", "times", "kind", "name"), tuple(by_name)),))))


class _Hook(FunctionHook):
    """The hook of a profile, which all threads have: begin and end of functions, and the lines that applied them."""

    name = "kusari.profile"

    def __init__(self, owner: profile) -> None:
        self._owner = owner
        self._lines: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._local = threading.local()

    def _begin(self, function: Any) -> None:
        self._local.__dict__.setdefault("running", []).append((function, time.perf_counter_ns()))

    def _end(self, function: Any, kind: str) -> None:
        end = time.perf_counter_ns()
        running = self._local.__dict__.get("running", [])
        while running:  # one that has raised is still there
            known, begin = running.pop()
            if known is function:
                line = self._lines.get(function, "")
                self._owner.add([Event(function.label, kind, threading.get_ident(), begin, end, line)])
                return

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        self._lines[function] = short(user_location())
        self._begin(function)

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        self._end(function, FORWARD)

    def backward_preprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        self._begin(function)

    def backward_postprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        self._end(function, BACKWARD)


def _longest(found: dict[tuple[str, ...], list[int]], total: int, most: int) -> list[tuple[tuple[str, ...], tuple[
        str, str, str]]]:
    """Return the keys that took longest with cells: time, its share, how often."""
    longest = sorted(found.items(), key=lambda item: -item[1][0])[:most]
    return [(key, (_time(own), f"{own / max(total, 1):.0%}", str(count))) for key, (own, count) in longest]


def _time(nanoseconds: float) -> str:
    """Nanoseconds for people."""
    if nanoseconds >= 1e9:
        return f"{nanoseconds / 1e9:,.2f} s"
    return f"{nanoseconds / 1e6:,.2f} ms" if nanoseconds >= 1e6 else f"{nanoseconds / 1e3:,.1f} µs"


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}..."


def _files() -> dict[str, str]:
    """Return the paths of modules and of cells of notebooks, by the names of files; none where two have one name."""
    found: dict[str, str] = {}
    modules = [getattr(module, "__file__", None) for name, module in list(sys.modules.items())
               if not name.startswith("kusari.")]
    for path in [*modules, *linecache.cache]:
        if isinstance(path, str):
            name = os.path.basename(path)
            found[name] = path if found.get(name, path) == path else ""
    return found


def _source(line: str, files: dict[str, str]) -> str:
    """Return the source of a ``file.py:31``, if it can be found."""
    name, _, number = line.rpartition(":")
    path = files.get(name) or (name if name.startswith("<") else "")
    return _cut(linecache.getline(path, int(number)).strip(), SOURCE_CHARACTERS) if path and number.isdigit() else ""
