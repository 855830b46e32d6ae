"""`CupyMemoryProfileHook`: how much GPU memory each function takes."""
from __future__ import annotations

import sys
from typing import Any, TextIO

from ..backends import cuda
from ..function_hook import FunctionHook


class CupyMemoryProfileHook(FunctionHook):
    """Measures the bytes that functions take from CuPy's memory pool.

    Attributes:
        call_history: A list of (label, bytes used, bytes acquired from the device, how many functions it is inside of).

    Raises:
        DeviceError: There is no CuPy or no card.
    """

    name = "CupyMemoryProfileHook"
    table = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB"))}

    def __init__(self) -> None:
        cuda.check_cuda_available()
        self.call_history: list[tuple[str, int, int, int]] = []
        self._started: list[tuple[int, int]] = []

    def _now(self) -> tuple[int, int]:
        pool = cuda.cupy.get_default_memory_pool()
        return pool.used_bytes(), pool.total_bytes()

    def _stop(self, function: Any) -> None:
        used, total = self._started.pop()
        now_used, now_total = self._now()
        self.call_history.append((function._impl_name, max(now_used - used, 0), max(now_total - total, 0),
                                  len(self._started)))

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Read the pool's counters."""
        self._started.append(self._now())

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Record what has been taken since."""
        self._stop(function)

    def backward_preprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Read the pool's counters."""
        self._started.append(self._now())

    def backward_postprocess(self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]) -> None:
        """Record what has been taken since."""
        self._stop(function)

    def total_used_bytes(self) -> int:
        """Return the bytes used by all functions; those of a function inside of another are part of the other's."""
        return sum(used for _, used, _, depth in self.call_history if not depth)

    def total_acquired_bytes(self) -> int:
        """Return the bytes acquired from the device by all functions."""
        return sum(acquired for _, _, acquired, depth in self.call_history if not depth)

    def summary(self) -> dict[str, dict[str, int]]:
        """Return for each label ``used_bytes``, ``acquired_bytes`` and ``occurrence``."""
        found: dict[str, dict[str, int]] = {}
        for label, used, acquired, _ in self.call_history:
            record = found.setdefault(label, {"used_bytes": 0, "acquired_bytes": 0, "occurrence": 0})
            record["used_bytes"] += used
            record["acquired_bytes"] += acquired
            record["occurrence"] += 1
        return found

    def _choose_unit(self, size: int) -> str:
        """Return the largest unit of which there is at least one."""
        return next((unit for unit, factor in reversed(self.table.items()) if size >= factor), "B")

    def print_report(self, unit: str = "auto", file: TextIO | None = None) -> None:
        """Print a table of all functions.

        Args:
            unit (str): ``B``, ``KB``, ``MB`` … ``ZB``; ``auto`` for one for each column, ``auto_foreach`` for one for
                each number.
            file: A file to print to; standard output by default.
        """
        summary = self.summary()

        def size(record: dict[str, int], key: str) -> str:
            chosen = unit if unit in self.table else self._choose_unit(
                record[key] if unit == "auto_foreach" else max(r[key] for r in summary.values()))
            return f"{record[key] / self.table[chosen]:3.2f}{chosen}"

        rows = [("FunctionName", "UsedBytes", "AcquiredBytes", "Occurrence")]
        for name, record in summary.items():
            rows.append((name, size(record, "used_bytes"), size(record, "acquired_bytes"), str(record["occurrence"])))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True)),
                  file=file or sys.stdout)  # fmt: skip
