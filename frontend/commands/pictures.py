"""The pictures of the commands, drawn with Matplotlib (extra ``examples``) straight into a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import CommandError, require

if TYPE_CHECKING:
    from .bench import Case
    from .demo import Run

INK, SOFT, GRID = "#1b2430", "#6b7684", "#e4e8ee"
EAGER, FAST = "#f2a65a", "#2563a8"


def new_figure(width: float, height: float) -> Any:
    """An empty figure that needs no display."""
    figure = require("matplotlib.figure", "examples").Figure(figsize=(width, height), dpi=150)
    figure.set_facecolor("white")
    return figure


def style(axes: Any, title: str) -> None:
    """Quiet axes: a heading at the left, two spines, no tick marks."""
    axes.set_title(title, loc="left", fontsize=11, color=INK, fontweight="bold", pad=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
    axes.tick_params(which="both", length=0, labelsize=9, colors=SOFT)
    axes.set_axisbelow(True)


def save(figure: Any, path: Path) -> Path:
    """Write the picture and return where it is."""
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot write the picture {path}: {error}") from None
    return path.resolve()


def heading(figure: Any, title: str, subtitle: str) -> None:
    """Title and subtitle, left, above everything."""
    inches = figure.get_figheight()
    figure.text(0.035, 1 - 0.34 / inches, title, fontsize=15, fontweight="bold", color=INK, va="center")
    figure.text(0.035, 1 - 0.63 / inches, subtitle, fontsize=9.5, color=SOFT, va="center")


def draw_demo(eager: Run, fast: Run, difference: float, accuracy: float, path: Path) -> Path:
    """Loss curves, one on the other, and the milliseconds of a step."""
    figure = new_figure(10, 4.9)
    curves, bars = figure.subplots(1, 2, width_ratios=[2.5, 1])
    figure.subplots_adjust(left=0.075, right=0.97, top=0.755, bottom=0.115, wspace=0.2)
    heading(
        figure,
        f"The same training, {eager.step_ms / fast.step_ms:.1f}× as fast",
        f"MLP 784-1000-1000-10 on 4,000 handwritten digits, Adam, batches of 100; {accuracy:.1%} right on 1,000 others",
    )

    style(curves, f"Loss of each step: the curves differ by at most {difference:.0e}")
    steps = range(1, len(eager.losses) + 1)
    curves.plot(steps, eager.losses, color=EAGER, linewidth=4.5, alpha=0.75, label=eager.name, solid_capstyle="round")
    curves.plot(steps, fast.losses, color=FAST, linewidth=1, label=fast.name)
    curves.set_yscale("log")
    curves.set_xlim(1, len(eager.losses))
    curves.set_xlabel("step", color=SOFT, fontsize=9)
    curves.grid(axis="y", color=GRID, linewidth=0.8)
    curves.legend(frameon=False, fontsize=9, labelcolor=INK, loc="upper right")

    style(bars, "Milliseconds per step")
    values = [eager.step_ms, fast.step_ms]
    drawn = bars.bar([eager.name, fast.name], values, color=[EAGER, FAST], width=0.6)
    bars.bar_label(drawn, [f"{value:.2f}" for value in values], padding=4, fontsize=11, color=INK, fontweight="bold")
    bars.set_yticks([])
    bars.spines["left"].set_visible(False)
    bars.tick_params(axis="x", labelsize=10, labelcolor=INK)
    bars.set_ylim(0, max(values) * 1.12)
    return save(figure, path)


def draw_benchmark(cases: list[Case], machine: str, path: Path) -> Path:
    """One bar per case: how many times faster the compiled step is, with both times beside it."""
    figure = new_figure(9, 1.9 + 0.5 * len(cases))
    inches = figure.get_figheight()
    axes = figure.subplots()
    figure.subplots_adjust(left=0.2, right=0.96, top=1 - 0.95 / inches, bottom=0.65 / inches)
    heading(figure, "Speed-up of the compiled step over define-by-run", machine)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(GRID)
    axes.tick_params(length=0, labelsize=10, colors=INK)
    axes.tick_params(axis="x", labelsize=9, labelcolor=SOFT)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color=GRID, linewidth=0.8)

    names = [f"{case.model}, {case.phase}" for case in cases]
    drawn = axes.barh(names, [case.speedup for case in cases], color=FAST, height=0.55)
    labels = [
        f"{case.speedup:.1f}×   {case.median('eager', 'step_ms'):.3g} → {case.median(case.fast, 'step_ms'):.3g} ms"
        for case in cases
    ]
    axes.bar_label(drawn, labels, padding=5, fontsize=9.5, color=INK)
    axes.axvline(1, color=EAGER, linewidth=2)
    axes.set_xlabel("orange: define-by-run", color=SOFT, fontsize=9, loc="left")
    axes.set_xlim(0, max(1.0, *(case.speedup for case in cases)) * 1.45)
    axes.xaxis.set_major_formatter("{x:g}×")
    axes.invert_yaxis()
    return save(figure, path)
