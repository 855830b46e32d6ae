"""Curves of reported values."""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...reporter import DictSummary
from ..extension import Extension
from ..trigger import get_trigger
from . import _plotting
from ._files import atomic_write


class PlotReport(Extension):
    """Extension that plots the means of reported values over time and saves the picture at every interval.

    Without matplotlib it warns once and does nothing.

    Args:
        y_keys: names of the values, one curve each.
        x_key: what is on the other axis: ``'iteration'``, ``'epoch'``, ``'elapsed_time'`` or a reported value.
        trigger: the interval over which means are taken; not the extension's own trigger, which is every
            iteration.
        postprocess: called with figure, axes and summary before the picture is saved.
        filename: name of the picture in the trainer's ``out`` directory; its ending says which format.
            Default ``'plot.png'``; ``file_name`` is another word for it.
        marker: marker of the points, as matplotlib names them; ``None`` is none.
        grid: whether to draw a grid.
    """

    def __init__(
        self,
        y_keys: str | Sequence[str],
        x_key: str = "iteration",
        trigger: Any = (1, "epoch"),
        postprocess: Callable[..., Any] | None = None,
        filename: str | None = None,
        marker: str | None = "x",
        grid: bool = True,
        **kwargs: Any,
    ) -> None:
        other_word = kwargs.pop("file_name", "plot.png")
        if kwargs:
            raise TypeError(f"unexpected keyword argument(s) {', '.join(map(repr, kwargs))}")
        self._available = _plotting.available()
        self._y_keys = [y_keys] if isinstance(y_keys, str) else list(y_keys)
        self._x_key = x_key
        self._trigger: Any = get_trigger(trigger)
        self._postprocess = postprocess
        self._filename = other_word if filename is None else filename
        self._marker = marker
        self._grid = grid
        self._summary = DictSummary()
        self._curves: dict[str, list[list[float]]] = {key: [] for key in self._y_keys}

    @staticmethod
    def available() -> bool:
        """Whether plots can be made; warns when matplotlib is missing."""
        return _plotting.available()

    def __call__(self, trainer: Any) -> None:
        """Add this iteration's values; draw at the end of the interval and before training."""
        if not self._available:
            return
        observation = trainer.observation
        keys = self._y_keys if self._x_key in ("iteration", "epoch", "elapsed_time") else [*self._y_keys, self._x_key]
        self._summary.add({key: observation[key] for key in keys if key in observation})
        if not trainer.is_before_training and not self._trigger(trainer):
            return
        stats: dict[str, Any] = {key: float(mean) for key, mean in self._summary.compute_mean().items()}
        stats.update(
            epoch=trainer.updater.epoch, iteration=trainer.updater.iteration, elapsed_time=trainer.elapsed_time
        )
        self._summary = DictSummary()
        if self._x_key in stats:
            for key in self._y_keys:
                if key in stats:
                    self._curves[key].append([stats[self._x_key], stats[key]])
        self._draw(os.path.join(trainer.out, self._filename))

    def _draw(self, path: str) -> None:
        """Draw all curves and save the picture."""
        figure = _plotting.new_figure(figsize=(8, 4.8))
        axes = figure.add_subplot(111)
        axes.set_xlabel(self._x_key)
        if self._grid:
            axes.grid(True, alpha=0.4)
        drawn = False
        for key, points in self._curves.items():
            if points:
                x, y = np.array(points).T
                axes.plot(x, y, marker=self._marker, label=key)
                drawn = True
        if drawn:
            if self._postprocess is not None:
                self._postprocess(figure, axes, self._summary)
            # Beside the curves: with many of them a legend inside hides what it explains.
            legend = axes.legend(bbox_to_anchor=(1.02, 1), loc="upper left", borderaxespad=0.0)
            with atomic_write(path) as temporary:
                figure.savefig(temporary, bbox_extra_artists=(legend,), bbox_inches="tight")

    def serialize(self, serializer: Any) -> None:
        """Save or load the curves, the sums so far and the interval."""
        key = f"_plot_{self._filename}"
        try:
            curves = json.loads(str(serializer(key, json.dumps(self._curves))))
        except KeyError:
            return
        for name in self._curves:
            self._curves[name] = curves.get(name, [])
        try:
            self._summary.serialize(serializer["_summary"])
            if hasattr(self._trigger, "serialize"):
                self._trigger.serialize(serializer["_trigger"])
        except KeyError:  # Chainer's snapshots do not have them
            return
