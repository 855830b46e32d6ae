"""`CupyMemoryProfileHook`: how much GPU memory each function takes."""
from __future__ import annotations

import sys
from typing import Any, TextIO

from ..backends import cuda
from ..function_hook import FunctionHook


class CupyMemoryProfileHook(FunctionHook):
    """Measures the bytes that functions take from CuPy's memory pool.

    Attributes:
        call_history: A list of (label, bytes used, bytes acquired from the device).

    Raises:
        DeviceError: There is no CuPy or no card.
    """

    name = "CupyMemoryProfileHook"
    table = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}

    def __init__(self) -> None:
        cuda.check_cuda_available()
        self.call_history: list[tuple[str, int, int]] = []
        self._started: list[tuple[int, int]] = []

    def _now(self) -> tuple[int, int]:
        pool = cuda.cupy.get_default_memory_pool()
        return pool.used_bytes(), pool.total_bytes()

    def _stop(self, function: Any) -> None:
        used, total = self._started.pop()
        now_used, now_total = self._now()
        self.call_history.append((function._impl_name, max(now_used - used, 0), max(now_total - total, 0)))

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
        """Return the bytes used by all functions."""
        return sum(used for _, used, _ in self.call_history)

    def total_acquired_bytes(self) -> int:
        """Return the bytes acquired from the device by all functions."""
        return sum(acquired for _, _, acquired in self.call_history)

    def summary(self) -> dict[str, dict[str, int]]:
        """Return for each label ``used_bytes``, ``acquired_bytes`` and ``occurrence``."""
        found: dict[str, dict[str, int]] = {}
        for label, used, acquired in self.call_history:
            record = found.setdefault(label, {"used_bytes": 0, "acquired_bytes": 0, "occurrence": 0})
            record["used_bytes"] += used
            record["acquired_bytes"] += acquired
            record["occurrence"] += 1
        return found

    def print_report(self, unit: str = "KB", file: TextIO | None = None) -> None:
        """Print a table of all functions.

        Args:
            unit (str): ``B``, ``KB``, ``MB`` or ``GB``.
            file: A file to print to; standard output by default.
        """
        rows = [("FunctionName", "UsedBytes", "AcquiredBytes", "Occurrence")]
        for name, record in self.summary().items():
            used, acquired = (record[key] / self.table[unit] for key in ("used_bytes", "acquired_bytes"))
            rows.append((name, f"{used:3.2f}{unit}", f"{acquired:3.2f}{unit}", str(record["occurrence"])))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True)),
                  file=file or sys.stdout)  # fmt: skip
