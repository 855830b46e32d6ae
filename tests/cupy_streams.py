"""Devices, streams, events and pinned memory of the stand-in for CuPy.

A copy from pinned memory on a stream happens when something waits for that stream, and not before: a test sees whoever
reads the array, or writes to the memory, too early.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np


class _State(threading.local):
    """The current device and stream of a thread."""

    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, Stream] = {}


state = _State()
count = 1  # of devices


class Device:
    """``cupy.cuda.Device``."""

    compute_capability = "90"

    def __init__(self, device: Any = None) -> None:
        self.id = state.device if device is None else int(device)
        if not 0 <= self.id < count:
            raise ValueError(f"cudaErrorInvalidDevice: invalid device ordinal {self.id}")
        self._before: list[int] = []

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Device:
        self._before.append(state.device)
        state.device = self.id
        return self

    def __exit__(self, *exc: object) -> None:
        state.device = self._before.pop()

    def use(self) -> None:
        """Make it the current device of the thread."""
        state.device = self.id

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        return 3 << 30, 4 << 30

    @property
    def attributes(self) -> dict[str, int]:
        """The attributes that are asked for."""
        return {"MultiProcessorCount": 4, "ClockRate": 1_000_000}

    def synchronize(self) -> None:
        """Wait for all streams."""
        for stream in list(_streams):
            stream.synchronize()


_streams: list[Any] = []


class Stream:
    """``cupy.cuda.Stream``."""

    null: Any
    captured: list[Callable[[], None]] | None = None  # the work of a graph in the making

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False,
                 priority: Any = None) -> None:
        self.ptr = 0 if null else len(_streams) + 1
        self.null_stream, self.device_id = null, state.device
        self._pending: list[Callable[[], None]] = []
        self._before: list[Stream] = []
        _streams.append(self)

    def __enter__(self) -> Stream:
        self._before.append(get_current_stream())
        self.use()
        return self

    def __exit__(self, *exc: object) -> None:
        self._before.pop().use()

    def use(self) -> Stream:
        """Make it the current stream of the thread, on the current device."""
        state.streams[state.device] = self
        return self

    def add(self, work: Callable[[], None]) -> None:
        """Do something at the latest possible time."""
        self._pending.append(work)

    @property
    def done(self) -> bool:
        """Whether nothing is left to be done."""
        return not self._pending

    def synchronize(self) -> None:
        """Do all that is left."""
        if self.captured is not None:
            raise RuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")
        while self._pending:
            self._pending.pop(0)()

    def record(self, event: Any = None) -> Any:
        """Mark what was begun so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """What comes later on this stream waits for what the event marks."""
        event.synchronize()


class Event:
    """``cupy.cuda.Event``."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self._left: list[Callable[[], None]] = []
        self._stream: Stream | None = None
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        """Mark what was begun on a stream so far."""
        self._stream = get_current_stream() if stream is None else stream
        self._left = list(self._stream._pending)
        self.time = time.perf_counter()

    @property
    def done(self) -> bool:
        """Whether what it marks is done."""
        return self._stream is None or not any(work in self._stream._pending for work in self._left)

    def synchronize(self) -> None:
        """Wait for what it marks."""
        if self._stream is not None:
            for work in self._left:
                if work in self._stream._pending:
                    self._stream._pending.remove(work)
                    work()


def get_elapsed_time(start: Event, end: Event) -> float:
    """``cupy.cuda.get_elapsed_time``: milliseconds."""
    return (end.time - start.time) * 1000


def get_current_stream(device_id: int = -1) -> Any:
    """``cupy.cuda.get_current_stream``."""
    return state.streams.get(state.device if device_id < 0 else device_id, Stream.null)


Stream.null = Stream(null=True)


class PinnedMemoryPointer(np.ndarray):
    """What ``cupy.cuda.alloc_pinned_memory`` returns: a buffer of bytes."""


def alloc_pinned_memory(size: int) -> Any:
    """``cupy.cuda.alloc_pinned_memory``."""
    return np.full(max(int(size), 1), 255, np.uint8).view(PinnedMemoryPointer)


def is_pinned(x: Any) -> bool:
    """Whether an array is one of pinned memory."""
    while x is not None:
        if isinstance(x, PinnedMemoryPointer):
            return True
        x = x.obj if isinstance(x, memoryview) else getattr(x, "base", None)
    return False
