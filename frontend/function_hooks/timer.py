"""`TimerHook`: how long each function takes."""
from __future__ import annotations

import sys
import time
from typing import Any, TextIO

import numpy

from ..backends import cuda
from ..function_hook import FunctionHook


class TimerHook(FunctionHook):
    """Measures the time of every forward and backward computation.

    Attributes:
        call_history: A list of pairs of a function's label and the seconds it took; no function is kept alive.

    Example:
        >>> import kusari, numpy as np
        >>> hook = kusari.function_hooks.TimerHook()
        >>> with hook:
        ...     y = kusari.functions.relu(np.ones(3, np.float32))
        >>> [label for label, seconds in hook.call_history]
        ['ReLU']
    """

    name = "TimerHook"
    table = {"sec": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

    def __init__(self) -> None:
        self.call_history: list[tuple[str, float]] = []
        # A stack: functions may apply functions while they run.
        self._started: list[Any] = []
        self._total = 0.0  # of the outermost

    def _start(self, on_gpu: bool) -> None:
        if on_gpu:
            event = cuda.Event()
            event.record()
            self._started.append(event)
        else:
            self._started.append(time.perf_counter())

    def _stop(self, function: Any, on_gpu: bool) -> None:
        started = self._started.pop()
        if on_gpu:
            stop = cuda.Event()
            stop.record()
            stop.synchronize()
            seconds = cuda.cupy.cuda.get_elapsed_time(started, stop) / 1000
        else:
            seconds = time.perf_counter() - started
        self.call_history.append((function._impl_name, seconds))
        if not self._started:
            self._total += seconds

    @staticmethod
    def _on_gpu(arrays: tuple[Any, ...]) -> bool:
        return any(not isinstance(x, numpy.ndarray) and cuda.is_cupy_array(x) for x in arrays)

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Start the clock."""
        self._start(self._on_gpu(in_data))

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Stop the clock."""
        self._stop(function, self._on_gpu(in_data))

    def backward_preprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Start the clock."""
        self._start(self._on_gpu((*in_data, *out_grad)))

    def backward_postprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Stop the clock."""
        self._stop(function, self._on_gpu((*in_data, *out_grad)))

    def total_time(self) -> float:
        """Return the total time in seconds; that of a function applied by another is part of the other's."""
        return self._total

    def summary(self) -> dict[str, dict[str, Any]]:
        """Return for each label the total ``elapsed_time`` in seconds and the ``occurrence``, how often it ran."""
        found: dict[str, dict[str, Any]] = {}
        for label, seconds in self.call_history:
            record = found.setdefault(label, {"elapsed_time": 0, "occurrence": 0})
            record["elapsed_time"] += seconds
            record["occurrence"] += 1
        return found

    def _choose_unit(self, second: float) -> str:
        """Return the unit in which a time has the fewest digits that still are not all behind the point."""
        factor = 1.0
        for unit in ("sec", "ms", "us"):
            if second * factor >= 1:
                return unit
            factor *= 1000.0
        return "ns"

    def print_report(self, unit: str = "auto", file: TextIO | None = None) -> None:
        """Print a table of all functions.

        Args:
            unit (str): ``auto``, ``auto_foreach``, ``sec``, ``ms``, ``us`` or ``ns``.
            file: A file to print to; standard output by default.
        """
        summary = self.summary()
        if unit != "auto" and unit != "auto_foreach" and unit not in self.table:
            raise ValueError(f"unit must be auto, auto_foreach, sec, ms, us or ns, not {unit!r}.")
        if unit == "auto":
            unit = self._choose_unit(max((r["elapsed_time"] for r in summary.values()), default=1.0))
        rows = [("FunctionName", "ElapsedTime", "Occurrence")]
        for name, record in summary.items():
            one = self._choose_unit(record["elapsed_time"]) if unit == "auto_foreach" else unit
            rows.append((name, f"{record['elapsed_time'] * self.table[one]:3.2f}{one}", str(record["occurrence"])))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True)),
                  file=file or sys.stdout)  # fmt: skip
