"""The stop trigger that gives up when nothing improves any more."""

import operator
import warnings
from typing import Any

from ...reporter import DictSummary
from .interval_trigger import get_trigger


class EarlyStoppingTrigger:
    """Trigger that fires when a reported value has stopped improving: a trainer's ``stop_trigger``.

    Args:
        check_trigger: when the mean of the value since the last check is compared.
        monitor: name of the value in the observation.
        patience: number of checks in a row without improvement that are waited for; default 3.
        mode: ``'min'`` or ``'max'``, the direction of an improvement; ``'auto'`` takes ``'max'`` when the name
            contains ``accuracy`` and ``'min'`` otherwise.
        verbose: print the reason for stopping.
        max_trigger: the latest end of training.

    Raises:
        ValueError: ``mode`` is something else.

    Example:
        >>> from kusari.training.triggers import EarlyStoppingTrigger
        >>> EarlyStoppingTrigger(monitor="validation/main/loss", max_trigger=(50, "epoch")).get_training_length()
        (50, 'epoch')
    """

    def __init__(
        self,
        check_trigger: Any = (1, "epoch"),
        monitor: str = "main/loss",
        patience: int | None = None,
        mode: str = "auto",
        verbose: bool = False,
        max_trigger: Any = (100, "epoch"),
        **kwargs: Any,
    ) -> None:
        # The parameter was once misspelt; scripts that spell it so still mean this one.
        patience = kwargs.pop("patients", None) if patience is None else patience
        if kwargs:
            raise TypeError(f"unexpected keyword argument(s) {', '.join(map(repr, kwargs))}")
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"mode must be 'auto', 'min' or 'max', got {mode!r}")
        if mode == "auto":
            mode = "max" if "accuracy" in monitor else "min"
        self.monitor = monitor
        self.patience = 3 if patience is None else patience
        self.verbose = verbose
        self.already_warning = False
        self._better = operator.lt if mode == "min" else operator.gt
        self._max_trigger: Any = get_trigger(max_trigger)
        self._interval_trigger: Any = get_trigger(check_trigger)
        self._summary = DictSummary()
        self.best: float | None = None
        self.count = 0
        if verbose:
            print(f"early stopping: an improvement of {monitor} is a {'lower' if mode == 'min' else 'higher'} value")

    def __call__(self, trainer: Any) -> bool:
        """Whether to stop: patience has run out, or the end given by ``max_trigger`` is reached."""
        observation = trainer.observation
        if self.monitor in observation:
            self._summary.add({self.monitor: observation[self.monitor]})
        if self._max_trigger(trainer):
            return True
        if not self._interval_trigger(trainer):
            return False
        mean = self._summary.compute_mean()
        self._summary = DictSummary()
        if self.monitor not in mean:
            # At iteration 0 nothing was reported yet, later it is a misspelt name.
            if not self.already_warning and trainer.updater.iteration > 0:
                self.already_warning = True
                warnings.warn(f"{self.monitor} is not in the observation: early stopping cannot watch it", stacklevel=2)
            return False
        value = float(mean[self.monitor])
        if self.best is None or self._better(value, self.best):
            self.best = value
            self.count = 0
            return False
        self.count += 1
        if self.count < self.patience:
            return False
        if self.verbose:
            print(f"Epoch {trainer.updater.epoch}: early stopping")
        return True

    def get_training_length(self) -> tuple[float, str]:
        """(period, unit) of the latest end."""
        return self._max_trigger.get_training_length()

    def serialize(self, serializer: Any) -> None:
        """Save or load the best value, the patience spent and the interval under way."""
        for name, trigger in (("interval_trigger", self._interval_trigger), ("max_trigger", self._max_trigger)):
            hook = getattr(trigger, "serialize", None)
            if hook is not None:
                hook(serializer[name])
        try:
            self._summary.serialize(serializer["summary"])
            self.count = int(serializer("count", self.count))
            best = serializer("best", self.best)
        except KeyError:  # Chainer's snapshots do not have them
            return
        self.best = None if best is None else float(best)
