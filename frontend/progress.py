"""Work that may take seconds (compiling, exporting, benchmarks) shows how far it is, and profiles hear of it.

Nothing is shown before ``PATIENCE_SECONDS``. On a terminal there is a bar then, which goes when the work is done;
elsewhere a line now and then, each after twice the time of the one before. ``KUSARI_PROGRESS=0`` switches both off.
"""
from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from . import environment

PATIENCE_SECONDS = 2.0
REDRAW_SECONDS = 0.2
BAR_CHARACTERS = 24

#: Called when some work is done with its kind, its name, and its begin and end by ``time.perf_counter_ns``.
listeners: list[Callable[[str, str, int, int], None]] = []
_outer = threading.local()


def current() -> Work | None:
    """Return the work that this thread shows."""
    return getattr(_outer, "work", None)


class Work:
    """Some work that may take long: a context manager, to be told of each ``step``.

    ``kind`` and ``name`` make a text, as in "compiling loss". Of work inside other work only the outer is shown; the
    steps of the inner are those of the outer then.

    Example:
        >>> with Work("counting", "sheep") as work:
        ...     for i in range(3):
        ...         work.step(f"{i + 1} of 3 sheep", (i + 1) / 3)
    """

    def __init__(self, kind: str, name: str, file: TextIO | None = None, patience: float = PATIENCE_SECONDS) -> None:
        self.kind, self.name = kind, name
        self._file: Any = sys.stderr if file is None else file
        self._patience = patience
        self._at: tuple[str, float | None] = "", None
        self._over: threading.Event | None = None  # of work that is shown
        self._shown = False

    def __enter__(self) -> Work:
        self._begin = time.perf_counter_ns()
        if current() is None and self._file is not None and environment.flag("PROGRESS", True):
            _outer.work = self
            self._over = threading.Event()
            self._thread = threading.Thread(target=self._show, name="kusari-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        end = time.perf_counter_ns()
        for listener in list(listeners):
            listener(self.kind, self.name, self._begin, end)
        if self._over is not None:
            del _outer.work
            self._over.set()
            if self._shown:
                self._thread.join()

    def step(self, text: str, share: float | None = None) -> None:
        """Note how far the work is, as a text and as a part of the whole if that is known."""
        (current() or self)._at = text, share

    def _show(self) -> None:
        """Show the work until it is over; runs in a thread of its own."""
        over, wait = self._over, self._patience
        assert over is not None
        try:
            bar = self._file.isatty()
            while not over.wait(wait):
                self._shown = True
                seconds = (time.perf_counter_ns() - self._begin) / 1e9
                wait = REDRAW_SECONDS if bar else seconds
                text, share = self._at
                what = f"{self.kind} {self.name}, {seconds:.0f} s" + f": {text}" * bool(text)
                if bar and share is not None:
                    full = int(BAR_CHARACTERS * share)
                    what = f"{'━' * full}{'─' * (BAR_CHARACTERS - full)} {what}"
                self._write(f"\r\x1b[K{what}" if bar else f"{what}\n")
            if self._shown and bar:
                self._write("\r\x1b[K")
        except (OSError, ValueError):  # closed meanwhile, or it cannot write the bar's characters
            pass

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()
