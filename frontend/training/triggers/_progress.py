"""The base of triggers that count iterations or epochs: the progress of training at their last look."""

import warnings
from typing import Any


def check_unit(unit: Any) -> None:
    """Raise ValueError unless ``unit`` is one that training is counted in."""
    if unit not in ("epoch", "iteration"):
        raise ValueError(f"Trigger unit must be either 'epoch' or 'iteration', got {unit!r}.")


class Progress:
    """The last seen iteration and epoch detail.

    Invariant: :meth:`step` returns the interval (from, to] that passed since the call before, in ``unit``.
    """

    def __init__(self, unit: str) -> None:
        check_unit(unit)
        self.unit = unit
        self.previous_iteration = 0
        self.previous_epoch_detail = 0.0

    def step(self, updater: Any) -> tuple[float, float]:
        """The progress at the last call and now."""
        now_iteration, now_detail = updater.iteration, updater.epoch_detail
        if self.unit == "epoch":
            before, now = self.previous_epoch_detail, now_detail
            # A trigger that was loaded from a file without this entry asks the updater.
            if before < 0:
                before = updater.previous_epoch_detail
        else:
            before, now = self.previous_iteration, now_iteration
            if before < 0:
                before = now - 1
        self.previous_iteration, self.previous_epoch_detail = now_iteration, now_detail
        return before, now

    def serialize(self, serializer: Any) -> None:
        """Save or load what was seen last; files of old versions of Chainer lack it."""
        try:
            self.previous_iteration = int(serializer("previous_iteration", self.previous_iteration))
            self.previous_epoch_detail = float(serializer("previous_epoch_detail", self.previous_epoch_detail))
        except KeyError:
            warnings.warn("the file does not say what the trigger saw last: it is guessed from the current iteration, "
                          "which is wrong unless the trigger was called in the one before", UserWarning, stacklevel=4)
            self.previous_iteration = -1
            self.previous_epoch_detail = -1.0
