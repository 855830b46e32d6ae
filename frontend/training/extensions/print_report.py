"""The log as a table on the terminal."""

import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from ..extension import Extension
from .log_report import LogReport

_WIDTH = 10  # of a column at least; %g needs no more than that for most numbers
_CLEAR = "\033[J"  # to the end of the screen: what a progress bar has left there


class PrintReport(Extension):
    """Extension that prints the entries of a log as a table, a row for every new one.

    Args:
        entries: names of the values, one column each.
        log_report: the log: the name of a :class:`LogReport` in the trainer, or a LogReport of its own.
        out: stream to print to; ``None`` is the standard output.

    Raises:
        ValueError: at the first call, when the trainer has no extension of that name.
    """

    def __init__(
        self, entries: Sequence[str], log_report: str | LogReport = "LogReport", out: TextIO | None = None
    ) -> None:
        self._entries = list(entries)
        self._log_report = log_report
        self._out = out
        self._printed = 0
        self._widths = [max(_WIDTH, len(entry)) for entry in self._entries]
        self._header: str | None = "  ".join(
            f"{entry:{width}}" for entry, width in zip(self._entries, self._widths, strict=True)
        )

    def initialize(self, trainer: Any) -> None:
        """Initialize a log of its own."""
        if isinstance(self._log_report, LogReport):
            self._log_report.initialize(trainer)

    def __call__(self, trainer: Any) -> None:
        """Print the header, once, and the rows that are new."""
        out = sys.stdout if self._out is None else self._out
        if self._header is not None:
            out.write(self._header + "\n")
            self._header = None
        if isinstance(self._log_report, LogReport):
            log_report = self._log_report
            log_report(trainer)
        else:
            log_report = trainer.get_extension(self._log_report)
        log = log_report.log
        while self._printed < len(log):
            out.write(self._clear(out) + self._row(log[self._printed]) + "\n")
            self._printed += 1
        flush = getattr(out, "flush", None)
        if flush is not None:
            flush()

    def _clear(self, out: TextIO) -> str:
        """The escape sequence that clears a progress bar, for terminals that know it."""
        return "" if os.name == "nt" and not out.isatty() else _CLEAR

    def _row(self, entry: dict[str, Any]) -> str:
        """One row: numbers as ``%g`` prints them, anything else as text."""
        cells: list[str] = []
        for name, width in zip(self._entries, self._widths, strict=True):
            value = entry.get(name, "")
            text = f"{value:g}" if isinstance(value, (int, float)) else str(value)
            cells.append(f"{text:<{width}}  ")
        return "".join(cells)

    def serialize(self, serializer: Any) -> None:
        """Save or load a log of its own."""
        if isinstance(self._log_report, LogReport):
            self._log_report.serialize(serializer["_log_report"])
