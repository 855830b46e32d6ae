"""A picture of how the values of parameters are spread, over time."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import backend
from ...variable import Variable
from ..extension import Extension
from ..trigger import get_trigger
from . import _plotting
from ._files import atomic_write


class VariableStatisticsPlot(Extension):
    """Extension that plots mean, deviation and percentiles of parameters and gradients over the iterations.

    Without matplotlib it warns once and does nothing.

    Args:
        targets: a variable, a link, or a list of them.
        max_sample_size: number of points in time that are kept: beyond it, a random one gives way.
        report_data: whether to look at values.
        report_grad: whether to look at gradients.
        plot_mean: whether to plot mean.
        plot_std: whether to plot the standard deviation around the mean.
        percentile_sigmas: percentiles to plot, between 0 and 100.
        trigger: when the picture is saved; values are taken at every iteration.
        filename: name of the picture. Default ``'statistics.png'``; ``file_name`` is another word for it.
        figsize: size of the picture in inches.
        marker: marker of the points, as matplotlib names them.
        grid: whether to draw a grid.
    """

    def __init__(
        self,
        targets: Any,
        max_sample_size: int = 1000,
        report_data: bool = True,
        report_grad: bool = True,
        plot_mean: bool = True,
        plot_std: bool = True,
        percentile_sigmas: Sequence[float] | float = (0, 0.13, 2.28, 15.87, 50, 84.13, 97.72, 99.87, 100),
        trigger: Any = (1, "epoch"),
        filename: str | None = None,
        figsize: tuple[float, float] | None = None,
        marker: str | None = None,
        grid: bool = True,
        **kwargs: Any,
    ) -> None:
        other_word = kwargs.pop("file_name", "statistics.png")
        if kwargs:
            raise TypeError(f"unexpected keyword argument(s) {', '.join(map(repr, kwargs))}")
        self._available = _plotting.available()
        self._variables: list[Variable] = []
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            self._variables.extend([target] if isinstance(target, Variable) else target.params())
        if not self._variables:
            raise ValueError("there is no variable to plot")
        if not (plot_mean or plot_std or percentile_sigmas):
            raise ValueError("nothing to plot: mean, standard deviation and percentiles are all switched off")
        self._kinds = ["data"] * report_data + ["grad"] * report_grad
        self._sigmas = tuple(np.atleast_1d(percentile_sigmas).tolist())
        self._plot_mean = plot_mean
        self._plot_std = plot_std
        self._trigger: Any = get_trigger(trigger)
        self._filename = other_word if filename is None else filename
        self._figsize = figsize
        self._marker = marker
        self._grid = grid
        self._max = max_sample_size
        self._random = np.random.RandomState(0)  # its own: looking at parameters must not change the training
        self._seen = 0
        self._samples: dict[str, list[tuple[int, list[float]]]] = {kind: [] for kind in self._kinds}

    @staticmethod
    def available() -> bool:
        """Whether plots can be made; warns when matplotlib is missing."""
        return _plotting.available()

    def __call__(self, trainer: Any) -> None:
        """Take the statistics of this iteration; draw when it is time."""
        if not self._available:
            return
        iteration = trainer.updater.iteration
        self._seen += 1
        # Reservoir sampling: every iteration so far is equally likely to be among those kept.
        slot = self._seen - 1 if self._seen <= self._max else int(self._random.randint(self._seen))
        for kind, samples in self._samples.items():
            row = self._statistics(kind)
            if row is None:
                continue
            if slot >= len(samples):
                if len(samples) < self._max:
                    samples.append((iteration, row))
            else:
                samples[slot] = (iteration, row)
        if self._trigger(trainer):
            self._draw(os.path.join(trainer.out, self._filename))

    def _statistics(self, kind: str) -> list[float] | None:
        """Mean, standard deviation and percentiles of all values together."""
        arrays = [a for a in (getattr(v, kind) for v in self._variables) if a is not None]
        if not arrays:
            return None
        xp = backend.get_array_module(arrays[0])
        values = xp.concatenate([a.ravel() for a in arrays])
        return [float(values.mean()), float(values.std()), *(float(xp.percentile(values, s)) for s in self._sigmas)]

    def _draw(self, path: str) -> None:
        """Draw one panel for values and one for gradients."""
        kinds = [kind for kind, samples in self._samples.items() if samples]
        if not kinds:
            return
        figure = _plotting.new_figure(figsize=self._figsize or (6 * len(kinds), 4))
        for i, kind in enumerate(kinds):
            axes = figure.add_subplot(1, len(kinds), i + 1)
            samples = sorted(self._samples[kind])
            x = np.array([iteration for iteration, _ in samples])
            mean, std, *percentiles = np.array([row for _, row in samples]).T
            for sigma, y in zip(self._sigmas, percentiles, strict=True):
                strength = 1 - abs(sigma - 50) / 60
                axes.plot(x, y, marker=self._marker, color="tab:blue", alpha=strength, label=f"{sigma:g} %")
            if self._plot_std:
                axes.fill_between(x, mean - std, mean + std, color="tab:orange", alpha=0.3, label="mean ± std")
            if self._plot_mean:
                axes.plot(x, mean, marker=self._marker, color="tab:red", label="mean")
            axes.set_title(kind)
            axes.set_xlabel("iteration")
            axes.grid(self._grid, alpha=0.4)
        legend = figure.axes[-1].legend(bbox_to_anchor=(1.02, 1), loc="upper left", borderaxespad=0.0)
        with atomic_write(path) as temporary:
            figure.savefig(temporary, bbox_extra_artists=(legend,), bbox_inches="tight")
