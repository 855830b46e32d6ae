"""A progress bar on the terminal."""

import datetime
import os
import sys
import time
from typing import Any, TextIO

from ..extension import Extension


class ProgressBar(Extension):
    """Extension that shows on the terminal how far training has come, its speed and the time left.

    Args:
        training_length: length of the training, a pair like ``(20, 'epoch')``; ``None`` asks the trainer's
            stop trigger.
        update_interval: number of iterations between two updates.
        bar_length: length of the bar in characters.
        out: stream to print to; ``None`` is the standard output.
    """

    def __init__(
        self,
        training_length: tuple[float, str] | None = None,
        update_interval: int = 100,
        bar_length: int = 50,
        out: TextIO | None = None,
    ) -> None:
        self.training_length = training_length
        self._update_interval = update_interval
        self._bar_length = bar_length
        self._out = out
        self._recent: list[tuple[int, float, float]] = []  # iteration, epoch detail and time of the last updates

    def __call__(self, trainer: Any) -> None:
        """Redraw the bar, if it is time to."""
        if self.training_length is None:
            length = getattr(trainer.stop_trigger, "get_training_length", None)
            if length is None:
                raise TypeError("the progress bar cannot know how long training takes: pass training_length=(n, unit)")
            self.training_length = length()
        updater = trainer.updater
        if updater.iteration % self._update_interval:
            return
        out = sys.stdout if self._out is None else self._out
        lines = self._lines(updater)
        # The cursor goes back to the first line, so that the next output overwrites the bar.
        out.write("\033[J" + "".join(line + "\n" for line in lines) + f"\033[{len(lines)}A")
        out.flush()

    def finalize(self) -> None:
        """Clear the bar."""
        out = sys.stdout if self._out is None else self._out
        if self._recent or os.name != "nt":
            out.write("\033[J")
            out.flush()

    def _lines(self, updater: Any) -> list[str]:
        """The four lines of the bar."""
        assert self.training_length is not None
        length, unit = self.training_length
        iteration, detail = updater.iteration, updater.epoch_detail
        now = time.perf_counter()
        self._recent.append((iteration, detail, now))
        del self._recent[:-100]
        old_iteration, old_detail, old = self._recent[0]
        seconds = now - old
        speed = (iteration - old_iteration) / seconds if seconds > 0 else float("inf")
        if unit == "iteration":
            done, rate = iteration / length, speed
            left = length - iteration
        else:
            done, left = detail / length, length - detail
            rate = (detail - old_detail) / seconds if seconds > 0 else float("inf")
        remaining = datetime.timedelta(seconds=max(left, 0.0) / rate if rate > 0 else 0.0)
        fraction = detail - int(detail)
        return [
            self._bar("total", done),
            self._bar("this epoch", fraction),
            f"{iteration:10} iter, {updater.epoch} epoch / {length} {unit}s",
            f"{speed:10.5g} iters/sec. Estimated time to finish: {remaining}.",
        ]

    def _bar(self, name: str, rate: float) -> str:
        """One bar with its label and percentage."""
        marks = int(min(max(rate, 0.0), 1.0) * self._bar_length)
        return f"{name:>10} [{'#' * marks}{'.' * (self._bar_length - marks)}] {rate:6.2%}"
