"""Indices out of bounds on a card: found by kernels, told without waiting.

The gathers of a run write what is wrong to a report in the card's memory, which is copied to the host behind the run.
All that would change state in the same run does nothing then. The host looks at copies that have arrived whenever it
comes by, and waits only where `PENDING_CALLS` runs have not told yet. So an error is raised at the latest some runs
later, and nothing that it could have spoiled has changed.
"""
from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kusari.ir import Node

from ..python_rows import index_error
from .kernels import cupy

PENDING_CALLS = 8
REPORT_BYTES = 16  # of one gather: a number that is out of bounds, and a 1


@dataclass(frozen=True, eq=False)
class _Report:
    """A copy on its way to the host, with the event behind it."""

    memory: Any
    words: np.ndarray
    event: Any


class Reports:
    """The reports of an executable's runs, of which ``nodes`` are the gathers."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self.nbytes = REPORT_BYTES * len(nodes)
        self._pending: deque[_Report] = deque()
        self._free: list[_Report] = []

    def send(self, memory: Any, stream: Any) -> None:
        """Let the report of a run, in ``memory`` of the card, come to the host."""
        if len(self._pending) >= PENDING_CALLS:
            self.look(wait=True)
        report = self._free.pop() if self._free else self._new()
        memory.copy_to_host_async(ctypes.c_void_p(report.words.ctypes.data), self.nbytes, stream)
        report.event.record(stream)
        self._pending.append(report)

    def look(self, wait: bool = False) -> None:
        """Raise ``IndexError`` if a run has had an index out of bounds; with ``wait``, look at one at least."""
        pending = self._pending
        while pending and (wait or pending[0].event.done):
            report = pending.popleft()
            if wait:
                report.event.synchronize()
                wait = False
            found = report.words.reshape(-1, 2).copy()
            self._free.append(report)
            if found[:, 1].any():
                at = int(found[:, 1].argmax())
                raise index_error(int(found[at, 0]), self._nodes[at])

    def _new(self) -> _Report:
        module = cupy()
        memory = module.cuda.alloc_pinned_memory(self.nbytes)
        words = np.frombuffer(memory, np.int64, self.nbytes // 8)
        return _Report(memory, words, module.cuda.Event(disable_timing=True))
