"""How long a step takes on many ranks, simulated from its schedule, its buckets and a network; and a picture of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANY = (8, 16, 32, 64, 128, 256, 512, 1024)
COLUMNS = ("batch for each rank", "one batch for all")  # weak and strong scaling


@dataclass(frozen=True)
class Bucket:
    """Gradients that travel together: bytes, and shares of the step's time before they leave and of their update."""

    nbytes: int
    ready: float
    update: float


@dataclass(frozen=True)
class Network:
    """Seconds until the first byte comes and bytes a second, between neighbours.

    Transfers are ``hidden`` where they take no time of the processors that compute, as those of network cards do;
    ranks of one machine copy through shared memory themselves.
    """

    latency: float
    bandwidth: float
    hidden: bool

    def ring(self, nbytes: float, ranks: int) -> float:
        """Return the seconds of a sum over a ring of ranks."""
        return 2 * (ranks - 1) * (self.latency + nbytes / ranks / self.bandwidth)


@dataclass(frozen=True)
class Line:
    """Seconds of a step on one rank as a line over the share of the batch it has: what stays, and what shrinks."""

    fixed: float
    whole: float

    @classmethod
    def through(cls, shares: Sequence[float], seconds: Sequence[float]) -> Line:
        """Return the line through measured steps with the least squares of relative errors."""
        import numpy as np
        x, y = np.asarray(shares), np.asarray(seconds)
        (fixed, slope), *_ = np.linalg.lstsq(np.stack([1 / y, x / y], 1), np.ones(len(y)), rcond=None)
        return cls(max(float(fixed), 0.0), max(float(slope), 0.0))

    def at(self, share: float) -> float:
        """Return the seconds with a share of the batch."""
        return self.fixed + self.whole * share


def simulated(alone: float, buckets: Sequence[Bucket], ranks: int, network: Network) -> float:
    """Return the seconds of a step whose computation takes ``alone``: one bucket travels at a time, in order.

    A bucket leaves when its gradients are there and the one before has arrived; its update waits for it, and for the
    update before.
    """
    updates = alone * sum(b.update for b in buckets)
    computed = alone - updates  # when the backward is at its end
    arrived = spent = 0.0
    now = computed
    for b in buckets:
        travel = network.ring(b.nbytes, ranks)
        spent += travel
        arrived = max(arrived, b.ready * alone) + travel
        now = max(now, arrived) + alone * b.update
    return now if network.hidden else max(now, alone + spent)


def draw(curves: dict[str, dict[str, list[tuple[int, float]]]], points: dict[str, dict[str, list[tuple[int, float]]]],
         path: Path, about: str) -> Path:
    """Draw efficiencies over ranks, a panel per model: curves as simulated, points as measured."""
    from kusari.commands.pictures import EAGER, FAST, GRID, INK, heading, new_figure, save, style

    picture = new_figure(6 * len(curves), 4.6)
    picture.subplots_adjust(left=0.08, right=0.97, top=0.72, bottom=0.13, wspace=0.25)
    heading(picture, "Efficiency of a step on many ranks", about)
    for (model, lines), axes in zip(curves.items(), picture.subplots(1, len(curves), squeeze=False).flat, strict=True):
        style(axes, model)
        for name, color in zip(COLUMNS, (FAST, EAGER), strict=True):
            axes.plot(*zip(*lines[name], strict=True), color=color, label=f"{name}, simulated")
            if measured := points[model][name]:
                axes.plot(*zip(*measured, strict=True), "o", color=color, markeredgecolor=INK,
                          label=f"{name}, measured here")
        axes.set_xscale("log", base=2)
        axes.set_xticks([n for n, _ in lines[COLUMNS[0]]], labels=[str(n) for n, _ in lines[COLUMNS[0]]])
        axes.minorticks_off()
        axes.set_xlabel("ranks")
        axes.set_ylim(0, 1.1)
        axes.yaxis.set_major_formatter(_percent)
        axes.grid(color=GRID, linewidth=0.8)
        axes.legend(frameon=False, fontsize=8.5)
    return save(picture, path)


def _percent(value: Any, _: Any) -> str:
    return f"{value:.0%}"
