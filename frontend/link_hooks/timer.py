"""A link hook that measures time."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..link_hook import ForwardPostprocessArgs, ForwardPreprocessArgs, LinkHook

__all__ = ["TimerHook"]


class TimerHook(LinkHook):
    """Measures the time that the forward computation of links takes; on a GPU, of the work they launch.

    Attributes:
        call_history: ``(name of the link's class, seconds)`` for each call, inner calls before outer ones.

    >>> hook = kusari.link_hooks.TimerHook()
    >>> with hook:
    ...     y = L.Linear(2, 3)(np.ones((1, 2), "float32"))
    >>> [name for name, seconds in hook.call_history]
    ['Linear']
    """

    name = "TimerHook"
    table = {"sec": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

    def __init__(self) -> None:
        self.call_history: list[tuple[str, float]] = []
        self._running: list[Any] = []

    def forward_preprocess(self, args: ForwardPreprocessArgs) -> None:
        """Note the time."""
        self._running.append(self._now(args.link.xp))

    def forward_postprocess(self, args: ForwardPostprocessArgs) -> None:
        """Record the time since then."""
        start, stop = self._running.pop(), self._now(args.link.xp)
        if isinstance(stop, float):
            seconds = stop - start
        else:
            stop.synchronize()
            seconds = args.link.xp.cuda.get_elapsed_time(start, stop) / 1000
        self.call_history.append((type(args.link).__name__, seconds))

    @staticmethod
    def _now(xp: Any) -> Any:
        if xp.__name__ != "cupy":
            return time.perf_counter()
        event = xp.cuda.Event()
        event.record()
        return event

    def total_time(self) -> float:
        """Return the seconds of all calls together."""
        return sum(seconds for _, seconds in self.call_history)

    def summary(self) -> dict[str, dict[str, float]]:
        """Return ``{class name: {'elapsed_time': seconds, 'occurrence': calls}}``."""
        found: dict[str, dict[str, float]] = {}
        for name, seconds in self.call_history:
            record = found.setdefault(name, {"elapsed_time": 0.0, "occurrence": 0})
            record["elapsed_time"] += seconds
            record["occurrence"] += 1
        return found

    def print_report(self, unit: str = "auto", file: Any = None) -> None:
        """Print the summary as a table.

        Args:
            unit: ``'sec'``, ``'ms'``, ``'us'``, ``'ns'``, ``'auto'`` (one that suits the total) or
                ``'auto_foreach'`` (one per line).
            file: Where to print; the standard output by default.
        """
        if unit not in (*self.table, "auto", "auto_foreach"):
            known = ", ".join((*self.table, "auto", "auto_foreach"))
            raise ValueError(f"unit should be one of {known}, but is {unit!r}")
        summary = self.summary()
        longest = max((record["elapsed_time"] for record in summary.values()), default=0.0)
        rows = [("LinkName", "ElapsedTime", "Occurrence")]
        for name, record in summary.items():
            seconds = record["elapsed_time"]
            chosen = unit if unit in self.table else self._suitable(longest if unit == "auto" else seconds)
            rows.append((name, f"{seconds * self.table[chosen]:.2f}{chosen}", str(record["occurrence"])))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        for row in rows:
            cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            print("  ".join(cells), file=file or sys.stdout)

    def _suitable(self, seconds: float) -> str:
        return next((unit for unit, factor in self.table.items() if seconds * factor >= 1), "ns")
