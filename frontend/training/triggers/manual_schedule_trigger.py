"""The trigger that fires at listed points."""

from collections.abc import Iterable
from typing import Any

from ._progress import Progress


class ManualScheduleTrigger:
    """Trigger that fires at given points of training.

    Args:
        points: one number of iterations or epochs, or several.
        unit: ``'epoch'`` or ``'iteration'``.

    Raises:
        ValueError: the unit is something else.
    """

    def __init__(self, points: float | Iterable[float], unit: str) -> None:
        self._progress = Progress(unit)
        self.points = list(points) if isinstance(points, Iterable) else [points]
        self.unit = unit
        self.finished = False

    def __call__(self, trainer: Any) -> bool:
        """Whether one of the points was reached or passed since the last call."""
        before, now = self._progress.step(trainer.updater)
        if now >= max(self.points):
            self.finished = True
        return any(before < point <= now for point in self.points)

    def serialize(self, serializer: Any) -> None:
        """Save or load the progress seen at the last call."""
        self._progress.serialize(serializer)
        try:
            self.finished = bool(serializer("finished", self.finished))
        except KeyError:
            # Files of old versions of Chainer: the points themselves tell.
            seen = self._progress
            at = seen.previous_epoch_detail if self.unit == "epoch" else seen.previous_iteration
            self.finished = at >= max(self.points)
