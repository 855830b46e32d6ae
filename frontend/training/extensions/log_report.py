"""The log of a training: means of reported values, as JSON."""

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from ...reporter import DictSummary
from ..extension import Extension
from ..trigger import get_trigger
from ._files import atomic_write


class LogReport(Extension):
    """Extension that writes the means of reported values, epoch by epoch, to a JSON file.

    Every entry also has ``epoch``, ``iteration`` and ``elapsed_time``. The file is replaced as a whole, so a
    reader never sees half of it.

    Args:
        keys: names of the values to log; ``None`` logs all.
        trigger: the interval over which means are taken; not the extension's own trigger, which is every
            iteration.
        postprocess: called with every new entry, a dict, which it may change.
        filename: name of the file in the trainer's ``out`` directory, in which ``{key}`` stands for values of
            the entry; by default ``'log'``. ``log_name`` is another
            word for it, which writes no file where it is ``None``.
    """

    def __init__(
        self,
        keys: Iterable[str] | None = None,
        trigger: Any = (1, "epoch"),
        postprocess: Callable[[dict[str, Any]], Any] | None = None,
        filename: str | None = None,
        **kwargs: Any,
    ) -> None:
        other_word = kwargs.pop("log_name", "log")
        if kwargs:
            raise TypeError(f"unexpected keyword argument(s) {', '.join(map(repr, kwargs))}")
        self._keys = None if keys is None else list(keys)
        self._trigger: Any = get_trigger(trigger)
        self._postprocess = postprocess
        self._filename = other_word if filename is None else filename
        self._log: list[dict[str, Any]] = []
        self._summary = DictSummary()

    @property
    def log(self) -> list[dict[str, Any]]:
        """The entries so far."""
        return self._log

    def __call__(self, trainer: Any) -> None:
        """Add this iteration's values, and make an entry at the end of the interval and before training."""
        observation = trainer.observation
        if self._keys is None:
            self._summary.add(observation)
        else:
            self._summary.add({key: observation[key] for key in self._keys if key in observation})
        if not trainer.is_before_training and not self._trigger(trainer):
            return
        entry: dict[str, Any] = {key: float(mean) for key, mean in self._summary.compute_mean().items()}
        updater = trainer.updater
        entry["epoch"] = updater.epoch
        entry["iteration"] = updater.iteration
        entry["elapsed_time"] = trainer.elapsed_time
        if self._postprocess is not None:
            self._postprocess(entry)
        self._log.append(entry)
        self._summary = DictSummary()
        if self._filename is not None:
            path = os.path.join(trainer.out, self._filename.format(**entry))
            with atomic_write(path) as temporary, open(temporary, "w") as file:
                json.dump(self._log, file, indent=4)

    def serialize(self, serializer: Any) -> None:
        """Save or load the interval, the sums so far and the entries."""
        if hasattr(self._trigger, "serialize"):
            self._trigger.serialize(serializer["_trigger"])
        self._summary.serialize(serializer["_summary"])
        # In place: PrintReport and others may hold the list.
        self._log[:] = json.loads(str(serializer("_log", json.dumps(self._log))))
