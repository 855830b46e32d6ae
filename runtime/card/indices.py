"""Indices out of bounds on a card: found by kernels, told without waiting.

The gathers of a run write a wrong index to a report in the card's memory, which is copied to the host behind the run,
and noted in a flag of the card. Nothing changes parameters or states after that: not in the same run, and not in
another one until the host knows. The host looks at reports that have arrived before each run, and waits only where
`PENDING_CALLS` have not. So an error is raised a few runs later at most, and nothing that it could have spoiled has
changed.
"""
from __future__ import annotations

import ctypes
import functools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kusari.ir import Node

from ..python_rows import LateIndexError, index_error
from .kernels import cupy

PENDING_CALLS = 8
REPORT_BYTES = 16  # of one gather: an index that is out of bounds, and a 1; the flag of a card is such a report, too


@dataclass(frozen=True, eq=False)
class _Report:
    """The copy of a run's report on its way to the host, with the event behind it."""

    number: int
    nodes: Sequence[Node]
    memory: Any
    words: np.ndarray
    event: Any


class Watch:
    """The reports of all runs on one card, in order, and the card's flag."""

    def __init__(self, device: int) -> None:
        self._device = device
        with cupy().cuda.Device(device):
            self.flag = cupy().zeros(REPORT_BYTES // 8, np.int64)
            cupy().cuda.get_current_stream().synchronize()  # once
        self._pending: deque[_Report] = deque()
        self.sent = 0      # the number of the next report
        self._cleared = 0  # that number when the flag was last taken back

    def send(self, nodes: Sequence[Node], memory: Any, stream: Any) -> None:
        """Let the report of a run, whose gathers are ``nodes``, come to the host from ``memory`` of the card."""
        module, count = cupy(), REPORT_BYTES * len(nodes)
        pinned = module.cuda.alloc_pinned_memory(count)  # from a pool
        words = np.frombuffer(pinned, np.int64, count // 8)
        event = module.cuda.Event(disable_timing=True)
        memory.copy_to_host_async(ctypes.c_void_p(words.ctypes.data), count, stream)
        event.record(stream)
        self._pending.append(_Report(self.sent, nodes, pinned, words, event))
        self.sent += 1

    def look(self) -> None:
        """Raise ``LateIndexError`` if a run has had an index out of bounds, as far as that is known."""
        pending = self._pending
        while pending and (len(pending) > PENDING_CALLS or pending[0].event.done):
            report = pending.popleft()
            report.event.synchronize()
            found = report.words.reshape(-1, 2)
            if found[:, 1].any():
                at = int(found[:, 1].argmax())
                with cupy().cuda.Device(self._device):
                    self.flag.fill(0)
                error = index_error(int(found[at, 0]), report.nodes[at], LateIndexError)
                assert isinstance(error, LateIndexError)
                error.number = report.number if report.number >= self._cleared else self.sent
                self._cleared = self.sent  # what runs from now on is done, whatever earlier reports say
                raise error


@functools.cache
def watch(device: int) -> Watch:
    """Return the watch over a card."""
    return Watch(device)
