"""What ``side_by_side.py`` has measured, as Markdown tables and as a picture."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kusari.commands.bench import aligned, figure

TOLERANCE = 1e-4  # relative difference of losses above which a row is not the same computation
OURS = "kusari"
NOTES = """\
`a (b–c)`: median of the rounds' medians (fastest–slowest round). `~` others used the processors during a round that
counts. `≠` the losses differ by more than 1e-4 from those of most: not the same computation, left out of the ratios.
`error`: see below. Ratios are taken within a round, then their median."""

COLD = {"Seconds of the first three calls, empty caches": "first_s",
        "Processor seconds of the same": "first_cpu_s",
        "Processor seconds from the start of the process to the end of the third call": "process_cpu_s"}


@dataclass
class Column:
    """One library's variant on one model and phase: the least disturbed measurement of each round, or an error."""

    rounds: dict[int, dict[str, Any]] = field(default_factory=dict)
    error: str | None = None
    agrees: bool = True

    @property
    def usable(self) -> bool:
        """Whether it may be compared with."""
        return self.error is None and bool(self.rounds) and self.agrees

    def values(self, key: str) -> list[float]:
        """A figure of each round, in order; rounds that lack it are left out."""
        return [r[key] for _, r in sorted(self.rounds.items()) if r[key] is not None]

    def median(self, key: str) -> float | None:
        """The median over the rounds."""
        values = self.values(key)
        return statistics.median(values) if values else None


Key = tuple[str, str]
"""Model and phase, or library and variant."""


class Results:
    """All measurements of one run; ``cells[model, phase][library, variant]``, in the order they came in."""

    def __init__(self, records: Iterable[dict[str, Any]]) -> None:
        self.run: dict[str, Any] = {}
        self.cells: dict[Key, dict[Key, Column]] = {}
        for record in records:
            if record["kind"] == "run":
                self.run = record
                continue
            row = self.cells.setdefault((record["model"], record["phase"]), {})
            column = row.setdefault((record["library"], record["variant"]), Column())
            if "error" in record:
                column.error = record["error"]
                continue
            known = column.rounds.get(record["round"])
            if known is None or (record["others"] or 0) < (known["others"] or 0):
                column.rounds[record["round"]] = record
        for row in self.cells.values():
            compare(list(row.values()))

    @classmethod
    def read(cls, *paths: Path) -> Results:
        """From files of one JSON object per line; the rounds of a further file are further rounds."""
        records: list[dict[str, Any]] = []
        for path in paths:
            before = 1 + max((r["round"] for r in records if "round" in r), default=-1)
            for line in filter(str.strip, path.read_text(encoding="utf-8").splitlines()):
                record = json.loads(line)
                records.append({**record, "round": before + record["round"]} if "round" in record else record)
        return cls(records)

    def phases(self) -> list[str]:
        """The phases that were measured."""
        return list(dict.fromkeys(phase for _, phase in self.cells))

    def columns(self, phase: str) -> list[Key]:
        """The libraries and variants of a phase, ours first."""
        found = dict.fromkeys(key for (_, p), row in self.cells.items() if p == phase for key in row)
        return sorted(found, key=lambda key: key[0] != OURS)


def compare(columns: list[Column]) -> None:
    """Mark the columns whose first losses are not those of most."""
    values = [r["values"] for c in columns for r in c.rounds.values()]
    if not values:
        return
    usual = [statistics.median(each) for each in zip(*values, strict=True)]
    for column in columns:
        column.agrees = all(abs(a - b) <= TOLERANCE * max(abs(b), 1e-30)
                            for r in column.rounds.values() for a, b in zip(r["values"], usual, strict=True))


def name(key: Key) -> str:
    """A library and its variant in words."""
    return " ".join(filter(None, key))


def step(column: Column) -> str:
    """Milliseconds with their spread and marks."""
    if column.error is not None:
        return "error"
    values = column.values("step_ms")
    text = figure(statistics.median(values))
    if len(values) > 1:
        text += f" ({figure(min(values))}–{figure(max(values))})"
    marks = "~" * any(r["disturbed"] for r in column.rounds.values()) + "≠" * (not column.agrees)
    return " ".join(filter(None, (text, marks)))


def first(column: Column) -> str:
    """Seconds of the first three calls with an empty cache, and with a full one where that differs."""
    values = column.values("first_s")
    if not values:
        return "-"
    return " / ".join([figure(values[0]), *([figure(statistics.median(values[1:]))] if values[1:] else [])])


def best(row: dict[Key, Column], ours: bool, metric: str = "step_ms") -> tuple[Key, Column] | None:
    """The quickest of ours or of the peers; of first calls, only of those that compile."""
    usable = [(key, c) for key, c in row.items()
              if c.usable and (key[0] == OURS) == ours and (metric == "step_ms" or key[1] != "eager")]
    return min(usable, key=lambda found: found[1].median(metric) or 0.0, default=None)


def ratio(above: Column, below: Column, metric: str = "step_ms") -> tuple[float, float, float] | None:
    """How many times as long ``above`` takes, within each round: median, smallest, largest."""
    both = [above.rounds[i][metric] / below.rounds[i][metric] for i in below.rounds if i in above.rounds]
    return (statistics.median(both), min(both), max(both)) if both else None


def ratio_cell(above: tuple[Key, Column] | None, below: tuple[Key, Column] | None, metric: str = "step_ms") -> str:
    """The same as text; a dash where one of both is missing."""
    found = ratio(above[1], below[1], metric) if above and below else None
    if found is None:
        return "-"
    return f"**{found[0]:.2f}** ({found[1]:.2f}–{found[2]:.2f})"


def ratios(results: Results) -> str:
    """The table that says who wins."""
    rows = [["model", "phase", "best of ours", "best peer", "ours, ms", "peer, ms", "best peer ÷ ours",
             "Chainer ÷ ours, eager"]]
    found: list[float] = []
    for (model, phase), row in results.cells.items():
        ours, peer = best(row, True), best(row, False)
        chainer = ("chainer", "eager"), row.get(("chainer", "eager"), Column())
        own = ("kusari", "eager"), row.get(("kusari", "eager"), Column())
        rows.append([model, phase, *(name(c[0]) if c else "-" for c in (ours, peer)),
                     *(figure(c[1].median("step_ms")) if c else "-" for c in (ours, peer)),
                     ratio_cell(peer, ours), ratio_cell(chainer, own)])
        if ours and peer and (each := ratio(peer[1], ours[1])):
            found.append(each[0])
    mean = f"\n\nGeometric mean of {len(found)} rows: {statistics.geometric_mean(found):.2f}." if found else ""
    return aligned(rows, left=4) + mean


def cold_ratios(results: Results, metric: str) -> str:
    """The table that says who compiles with less."""
    rows = [["model", "phase", "ours", "peer", "ours, s", "peer, s", "peer ÷ ours"]]
    found: list[float] = []
    for (model, phase), row in results.cells.items():
        both = ours, peer = best(row, True, metric), best(row, False, metric)
        rows.append([model, phase, *(name(c[0]) if c else "-" for c in both),
                     *(figure(c[1].median(metric)) if c else "-" for c in both), ratio_cell(peer, ours, metric)])
        if ours and peer and (each := ratio(peer[1], ours[1], metric)):
            found.append(each[0])
    mean = f"\n\nGeometric mean of {len(found)} rows: {statistics.geometric_mean(found):.2f}." if found else ""
    return aligned(rows, left=4) + mean


def phase_table(results: Results, phase: str, cell: Callable[[Column], str]) -> str:
    """One row per model, one column per variant."""
    columns = results.columns(phase)
    rows = [["model", *map(name, columns)]]
    for (model, p), row in results.cells.items():
        if p == phase:
            rows.append([model, *(cell(row[key]) if key in row else "-" for key in columns)])
    return aligned(rows)


def libraries(results: Results) -> str:
    """Versions and the threads that each library says it uses."""
    found: dict[str, list[str]] = {}
    for row in results.cells.values():
        for (library, _), column in row.items():
            for record in column.rounds.values():
                found[library] = [library, record["version"], record["python"], record["threads"]]
    return aligned([["library", "version", "Python", "threads"], *found.values()], left=4)


def text(results: Results) -> str:
    """The whole report."""
    run = results.run
    rounds = max(len(column.rounds) for row in results.cells.values() for column in row.values())
    parts = [f"{run['machine']}; {rounds} rounds of {run['seconds']:g} s, {run['threads']} threads.", NOTES]
    if run.get("cold"):
        for title, metric in COLD.items():
            parts += [f"### {title}", cold_ratios(results, metric)]
    else:
        parts += ["### Best peer ÷ ours", ratios(results)]
    for phase in () if run.get("cold") else results.phases():
        what = {"train": "Training", "infer": "Inference"}[phase]
        parts += [f"### {what}: milliseconds per step", phase_table(results, phase, step),
                  f"### {what}: seconds of the first three calls",
                  "The first round, where caches on disk are empty / the other rounds.",
                  phase_table(results, phase, first),
                  f"### {what}: peak resident memory, MB",
                  phase_table(results, phase, lambda c: figure(c.median("peak_mb")))]
    parts += ["### Libraries", libraries(results)]
    errors = [f"- {model}, {phase}, {name(key)}: `{column.error}`" for (model, phase), row in results.cells.items()
              for key, column in row.items() if column.error is not None]
    if errors:
        parts += ["### Errors", "\n".join(errors)]
    return "\n\n".join(parts)


def draw(results: Results, path: Path) -> Path:
    """One panel per model and phase: a bar per variant, the quickest on top."""
    from kusari.commands.pictures import EAGER, FAST, GRID, INK, heading, new_figure, save, style

    panels = [(key, sorted(((k, c) for k, c in row.items() if c.usable), key=lambda kc: kc[1].median("step_ms") or 0))
              for key, row in results.cells.items()]
    panels = [panel for panel in panels if panel[1]]
    across = 2 if len(panels) > 1 else 1
    down = -(-len(panels) // across)
    bars_high, between = 0.15 + 0.27 * max(len(bars) for _, bars in panels), 0.75  # inches
    height = 1.45 + down * (bars_high + between)
    picture = new_figure(6 * across, height)
    picture.subplots_adjust(left=0.12 if across == 2 else 0.22, right=0.94, top=1 - 1.25 / height,
                            bottom=(between - 0.3) / height, wspace=0.42, hspace=between / bars_high)
    heading(picture, "Milliseconds per step", results.run["machine"])
    for (key, bars), axes in zip(panels, picture.subplots(down, across, squeeze=False).flat, strict=False):
        style(axes, ", ".join(key))
        values = [c.median("step_ms") or 0.0 for _, c in bars]
        spread = [[v - min(c.values("step_ms")) for v, (_, c) in zip(values, bars, strict=True)],
                  [max(c.values("step_ms")) - v for v, (_, c) in zip(values, bars, strict=True)]]
        drawn = axes.barh([name(k) for k, _ in bars], values, height=0.6, xerr=spread, ecolor=INK,
                          color=[FAST if k[0] == OURS else EAGER for k, _ in bars])
        axes.bar_label(drawn, [figure(v) for v in values], padding=5, fontsize=8.5, color=INK)
        axes.set_xlim(0, max(max(values) * 1.15, max(map(sum, zip(values, spread[1], strict=True))) * 1.12))
        axes.grid(axis="x", color=GRID, linewidth=0.8)
        axes.invert_yaxis()
    for axes in picture.axes[len(panels):]:
        axes.set_visible(False)
    return save(picture, path)
