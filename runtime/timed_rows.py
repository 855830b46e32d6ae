"""Times of rows: a frame's kernels, each called by way of one that notes when a thread begins and ends it.

A timed frame has a second table of instructions, which the native loop walks as it walks the first. Other frames have
neither the table nor any test of it.
"""
from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kusari.ir import Instruction, Kernel

from .frame import Frame, Layout
from .loader import default_loader
from .memory import Array, address_of

# The clock of `time.perf_counter_ns`, so that times of rows and of Python can be compared.
_CLOCKS = {"linux": 1, "darwin": 8}
_WORDS = 3  # of a row and thread: begin, end, the thread that `threading.get_ident` knows

# A row is {kernel, slots, times}.
_TEXT = """
declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()

define internal i64 @now() {{
  %time = alloca [2 x i64], align 8
  %ignored = call i32 @clock_gettime(i32 {clock}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.p = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.p
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  ret i64 %now
}}

define void @timed(ptr %row, i64 %tid, i64 %nth) {{
  %kernel = load ptr, ptr %row
  %slots.p = getelementptr ptr, ptr %row, i64 1
  %slots = load ptr, ptr %slots.p
  %times.p = getelementptr ptr, ptr %row, i64 2
  %times = load ptr, ptr %times.p
  %begin = call i64 @now()
  call void %kernel(ptr %slots, i64 %tid, i64 %nth)
  %end = call i64 @now()
  %first = mul i64 %tid, {words}
  %begin.p = getelementptr i64, ptr %times, i64 %first
  store i64 %begin, ptr %begin.p
  %end.p = getelementptr i64, ptr %begin.p, i64 1
  store i64 %end, ptr %end.p
  %thread = call i64 @pthread_self()
  %thread.p = getelementptr i64, ptr %begin.p, i64 2
  store i64 %thread, ptr %thread.p
  ret void
}}
"""


@dataclass(frozen=True, eq=False)
class Timing:
    """The times of one run of a frame, in nanoseconds of `time.perf_counter_ns`.

    ``native`` has [begin, end, thread] by row and thread, 0 where a thread had no part; it is empty where the system's
    clock cannot be read natively. ``python`` are (instruction, begin, end).
    """

    layout: Layout
    thread: int
    begin: int
    end: int
    native: Array
    python: tuple[tuple[Instruction, int, int], ...]


def _entry() -> int | None:
    """The address of the kernel that times others; None without a clock that native code can read."""
    clock = _CLOCKS.get(sys.platform)
    if clock is None:
        return None
    return default_loader().load_one(Kernel("llvm", "timed", _TEXT.format(clock=clock, words=_WORDS)))


class _TimedFrame:
    """The timed work of one frame; ``restore`` puts the former work back."""

    def __init__(self, frame: Frame, entry: int | None, note: Callable[[Timing], None]) -> None:
        self._frame, self._note = frame, note
        self._python: list[tuple[Instruction, int, int]] = []
        layout = frame.layout
        most = max((s.threads for s in layout.steps), default=1)
        self._times = np.zeros((len(layout.kernels) if entry else 0, most, _WORDS), np.int64)
        self._keep: list[Any] = []
        self._work = frame.work
        if entry is not None:
            times, table = address_of(self._times), frame.table
            rows = (ctypes.c_size_t * (3 * len(layout.kernels) or 1))()
            for i in range(len(layout.kernels)):
                rows[3 * i:3 * i + 3] = [table[3 * i], table[3 * i + 1], times + 8 * _WORDS * most * i]
            start = ctypes.addressof(rows)
            words = [word for i in range(len(layout.kernels)) for word in (entry, start + 24 * i, table[3 * i + 2])]
            timed = (ctypes.c_size_t * max(len(words), 1))(*words)
            self._keep += [rows, timed]
            self._timed = [frame.prepare(step, timed, self._keep) for step in layout.steps]
        else:
            self._timed = list(self._work)

    def begin(self) -> None:
        frame = self._frame
        frame.work = self._timed
        frame.__dict__.update(run=self.run, python=self.python)

    def run(self) -> None:
        """Run the frame's schedule and note the times, also where it raises."""
        self._times[...] = 0
        self._python.clear()
        begin = time.perf_counter_ns()
        try:
            Frame.run(self._frame)
        finally:
            end = time.perf_counter_ns()
            self._note(Timing(self._frame.layout, threading.get_ident(), begin, end, self._times.copy(),
                              tuple(self._python)))

    def python(self, instruction: Instruction) -> None:
        """Let Python run an instruction and note the times."""
        begin = time.perf_counter_ns()
        try:
            Frame.python(self._frame, instruction)
        finally:
            self._python.append((instruction, begin, time.perf_counter_ns()))

    def restore(self) -> None:
        frame = self._frame
        for name in ("python", "run"):  # a closed frame keeps nothing, either
            frame.__dict__.pop(name, None)
        if not frame.closed:
            frame.work = self._work
            frame.shorten()


class RowTimer:
    """Times all frames, of all threads, from ``start`` to ``stop``; ``note`` is called after each run.

    Invariant: there is one at a time.
    """

    def __init__(self, note: Callable[[Timing], None]) -> None:
        self._note = note
        self._entry = _entry()

    def start(self) -> None:
        """Time every frame, also those made from now on."""
        Frame.timer = self
        for frame in list(Frame.every):
            frame.shorten()

    def time(self, frame: Frame) -> None:
        """Time the runs of a frame."""
        timed = frame.__dict__.get("timed")
        if timed is None:
            timed = frame.__dict__["timed"] = _TimedFrame(frame, self._entry, self._note)
        timed.begin()

    def stop(self) -> None:
        """Let all frames run as they did."""
        Frame.timer = None
        for frame in list(Frame.every):
            timed = frame.__dict__.pop("timed", None)
            if timed is not None:
                timed.restore()
