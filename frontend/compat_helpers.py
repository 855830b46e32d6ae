"""Helpers of Chainer's modules that programs import and Kusari itself has no use for."""
from __future__ import annotations

import functools
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np

from .links.model.vision.pretrained import crops

__all__ = ["PerformanceWarning", "ProgressBar", "oversample"]


class PerformanceWarning(RuntimeWarning):
    """Says that something takes longer than it need; nothing of Kusari's warns like that."""


def oversample(images: Sequence[Any], crop_dims: tuple[int, int]) -> np.ndarray:
    """Return the corners and the middle of images, each also mirrored.

    Args:
        images: Arrays of channels, height and width.
        crop_dims: Height and width of the parts.
    """
    return crops(np.stack(images), *crop_dims)


def _fp16_mixed_precision_helper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Let a ``forward`` compute in float32 where its inputs are float16; results are float16 if all floats are."""

    @functools.wraps(fn)
    def wrapper(self: Any, in_data: tuple[Any, ...]) -> Any:
        half = all(x.dtype.kind != "f" or x.dtype == np.float16 for x in in_data)
        found = fn(self, tuple([x.astype(np.float32) if x.dtype == np.float16 else x for x in in_data]))
        if not half:
            return found
        return tuple([y.astype(np.float16) if y is not None and y.dtype == np.float32 else y for y in found])

    return wrapper


class ProgressBar:
    """The base of bars on the terminal: `get_lines` gives the lines, ``update()`` draws them anew."""

    def __init__(self, bar_length: int | None = None, out: TextIO | None = None) -> None:
        self._bar_length = 50 if bar_length is None else bar_length
        self._out = sys.stdout if out is None else out
        self._recent_timing: deque[tuple[int, float, float]] = deque(maxlen=100)

    def update_speed(self, iteration: int, epoch_detail: float) -> tuple[float, float]:
        """Return iterations and epochs in a second, over the last hundred calls."""
        self._recent_timing.append((iteration, epoch_detail, time.perf_counter()))
        (old, old_detail, began), now = self._recent_timing[0], self._recent_timing[-1][2]
        span = now - began
        return ((iteration - old) / span, (epoch_detail - old_detail) / span) if span else (np.inf, np.inf)

    def get_lines(self) -> Sequence[str]:
        """Return the lines, each with its end; to be defined."""
        raise NotImplementedError(f"{type(self).__name__} has to define get_lines")

    def update(self) -> None:
        """Draw the lines, and go back to the first."""
        self.erase_console()
        lines = self.get_lines()
        self._out.write("".join(lines))
        self.move_cursor_up(len(lines))
        self.flush()

    def close(self) -> None:
        """Remove the lines."""
        self.erase_console()
        self.flush()

    def erase_console(self) -> None:
        """Erase all that is below the cursor."""
        self._out.write("\033[J")

    def move_cursor_up(self, n: int) -> None:
        """Move the cursor by lines."""
        self._out.write(f"\033[{n}A")

    def flush(self) -> None:
        """Flush the stream, where it can be."""
        if hasattr(self._out, "flush"):
            self._out.flush()
