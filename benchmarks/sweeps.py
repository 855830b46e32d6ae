"""How a training step grows with the batch, with depth and with the length of a sequence.

  python benchmarks/sweeps.py                                  all sweeps: a table each
  python benchmarks/sweeps.py batch --plot sweeps.png
  python benchmarks/sweeps.py sequence --values 5 50 --seconds 0.2
  python benchmarks/sweeps.py --out sweeps.jsonl --minutes 1   again and again, until the file has all points

Each point is a process of its own, define-by-run and compiled (forward and backward; and, as ``whole step``, the
update in the same schedule), with an empty kernel cache. ``step`` is the median step, ``first calls`` the seconds of
the first three, ``kernels`` the distinct kernels that were compiled, ``arena`` what the schedules' frames hold,
``peak`` the largest resident size of the process. What grows linearly has slope 1 in the picture.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from kusari.commands.bench import LIMIT, THREAD_VARIABLES, aligned, figure, machine, positive, progress

MODES = ("eager", "compiled", "whole step")


class Sweep(NamedTuple):
    """A model of which one size takes several values."""

    model: str
    size: str
    values: tuple[int, ...]
    rest: dict[str, Any]
    about: str


SWEEPS = {
    "batch": Sweep("mnist_mlp", "batch", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), {}, "MLP 784-1000-1000-10, Adam"),
    "pictures": Sweep("vgg_cifar", "batch", (1, 2, 4, 8, 16), {"widths": (16, 32, 64)},
                      "VGG of 16 to 64 channels on 32×32, momentum"),
    "depth": Sweep("mnist_mlp", "depth", (2, 5, 10, 20, 50, 100, 200), {"n_in": 64, "units": 64},
                   "MLP of 64 units, batch 100, Adam"),
    "sequence": Sweep("ptb_lstm", "steps", (5, 10, 20, 50, 100, 200, 500), {"vocab": 200, "units": 64},
                      "two LSTM layers of 64 units, 200 words, batch 20, clipped SGD"),
}
METRICS = {"step_ms": "step, ms", "first_s": "first calls, s", "kernels": "kernels", "arena_mb": "arena, MB",
           "peak_mb": "peak, MB"}


def child(model_name: str, mode: str, sizes: dict[str, Any], seconds: float) -> dict[str, Any]:
    """One point, in this process."""
    import numpy as np

    from kusari.commands.models import MODELS, compiled
    from kusari.commands.timing import measure
    from kusari.commands.worker import step_of
    model = MODELS[model_name].at(**sizes)
    np.random.seed(0)
    chain = model.build(compiled(model.chain) if mode != "eager" else None)
    step = step_of(model, chain, "train", mode == "whole step")  # schedules live as long as what they are of
    found = measure(step, seconds)
    import executables  # not before: it imports the compiler
    live = executables.live()
    found["kernels"] = len({kernel.symbol + kernel.text for e, _ in live for kernel in e.program.kernels})
    found["arena_mb"] = sum(f.arena.nbytes for _, frames in live for f in frames) / 2**20
    return found


def point(sweep: Sweep, value: int, mode: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """One point in a new process; None if it fails, which is told."""
    sizes = json.dumps({**sweep.rest, sweep.size: value})
    environment = dict(os.environ)
    if options.threads:
        environment.update({f"{name}_NUM_THREADS": str(options.threads) for name in THREAD_VARIABLES})
    with tempfile.TemporaryDirectory(prefix="kusari-sweep-") as folder:
        environment["KUSARI_CACHE_DIR"] = folder
        command = [sys.executable, __file__, "--child", sweep.model, mode, sizes, "--seconds", str(options.seconds)]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            print(f"{sweep.model} {sizes} {mode}: took longer than {LIMIT} s", file=sys.stderr)
            return None
    if done.returncode:
        print(f"{sweep.model} {sizes} {mode}: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def table(sweep: Sweep, values: list[int], points: Any) -> str:
    """One row per value."""
    shown = {key: ("compiled", "whole step") if key in ("kernels", "arena_mb") else MODES for key in METRICS}
    rows = [[sweep.size, *(f"{METRICS[key]}: {mode}" for key in METRICS for mode in shown[key])]]
    for value in values:
        row = [str(value)]
        for key in METRICS:
            for mode in shown[key]:
                found = points.get((value, mode))
                row.append("-" if found is None else str(found[key]) if key == "kernels" else figure(found[key]))
        rows.append(row)
    return aligned(rows)


def draw(results: dict[str, Any], path: Path, subtitle: str) -> Path:
    """A row of panels per sweep, all axes logarithmic."""
    from kusari.commands.pictures import EAGER, FAST, GRID, SOFT, heading, new_figure, save, style
    looks: dict[str, dict[str, Any]] = {
        "eager": {"color": EAGER, "linewidth": 2}, "compiled": {"color": FAST, "linewidth": 2},
        "whole step": {"color": FAST, "linewidth": 1.6, "linestyle": (0, (3, 2))}}
    height = 1.3 + 2.5 * len(results)
    picture = new_figure(3.1 * len(METRICS), height)
    picture.subplots_adjust(left=0.045, right=0.985, top=1 - 1.45 / height, bottom=0.5 / height, wspace=0.28,
                            hspace=0.62)
    heading(picture, "How a training step grows", subtitle)
    for axes_row, (name, (values, points)) in zip(
            picture.subplots(len(results), len(METRICS), squeeze=False), results.items(), strict=True):
        sweep = SWEEPS[name]
        axes_row[0].text(0, 1.24, f"{sweep.size}: {sweep.about}", transform=axes_row[0].transAxes, fontsize=10,
                         color=SOFT)
        for axes, (key, label) in zip(axes_row, METRICS.items(), strict=True):
            style(axes, label)
            for mode in MODES:
                line = [(v, points[v, mode][key]) for v in values if points.get((v, mode)) and points[v, mode][key]]
                if line:
                    axes.plot(*zip(*line, strict=True), label=mode, marker="o", markersize=3, **looks[mode])
            axes.set_xscale("log")
            axes.set_yscale("log")
            every = 1 if len(values) < 9 else 2  # else labels touch
            axes.set_xticks(values, ["" if i % every else str(v) for i, v in enumerate(values)], fontsize=8)
            axes.minorticks_off()
            low, high = axes.get_ylim()
            if high / low < 20:  # else a single power of ten is all that the axis shows
                axes.set_ylim(low / 2, high * 2)
            ticks = [a * 10.0**b for b in range(-3, 5) for a in (1, 2, 5)]
            axes.set_yticks([t for t in ticks if axes.get_ylim()[0] <= t <= axes.get_ylim()[1]][::2])
            axes.yaxis.set_major_formatter("{x:g}")
            axes.grid(color=GRID, linewidth=0.8)
        axes_row[0].legend(frameon=False, fontsize=8, loc="upper left")
    return save(picture, path)


def main() -> int:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="*", metavar="SWEEP", help=f"of {', '.join(SWEEPS)}")
    parser.add_argument("--values", nargs="+", type=positive(int), help="instead of the sweep's own")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, metavar="MODE",
                        help=f"of {', '.join(MODES)}")
    parser.add_argument("--seconds", type=positive(float), default=0.5, help="time per point (0.5)")
    parser.add_argument("--threads", type=positive(int), help="threads (one per processor)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture")
    parser.add_argument("--out", type=Path, metavar="FILE", help="add every point, as JSON lines; what it has is kept")
    parser.add_argument("--minutes", type=positive(float), metavar="M", help="start nothing after so many minutes")
    parser.add_argument("--report", type=Path, metavar="FILE", help="tables and picture of such a file, no measuring")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        model, mode, sizes = options.child
        print(json.dumps(child(model, mode, json.loads(sizes), options.seconds)))
        return 0
    for each in options.sweeps:
        if each not in SWEEPS:
            parser.error(f"expected one of {', '.join(SWEEPS)}, got {each}")
    records = measured(options) if options.report is None else read(options.report)
    if not records:
        parser.error(f"there are no points in {options.report}")
    results: dict[str, Any] = {}
    for record in records:
        values, points = results.setdefault(record["sweep"], ([], {}))
        if record["value"] not in values:
            values.append(record["value"])
        points[record["value"], record["mode"]] = record["found"]
    where = f"{records[0]['machine']}; training, float32"
    print(where)
    for name, (values, points) in results.items():
        print(f"\n### {SWEEPS[name].size}: {SWEEPS[name].about}\n\n{table(SWEEPS[name], values, points)}")
    if options.plot:
        print(f"\npicture: {draw(results, options.plot, where)}")
    return 0


def read(path: Path) -> list[dict[str, Any]]:
    """The points of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All points that ``--out`` does not have yet; what is measured is added to it as it comes."""
    records = read(options.out) if options.out and options.out.exists() else []
    known = {(r["sweep"], r["value"], r["mode"]) for r in records if r["found"]}  # what failed is tried again
    end = time.monotonic() + 60 * (options.minutes or float("inf"))
    for name in options.sweeps or SWEEPS:
        for value in options.values or SWEEPS[name].values:
            for mode in options.modes:
                if (name, value, mode) in known or time.monotonic() > end:
                    continue
                progress(f"{name} {value} {mode}")
                record = {"machine": machine(options.threads), "sweep": name, "value": value, "mode": mode,
                          "found": point(SWEEPS[name], value, mode, options)}
                records.append(record)
                if options.out:
                    with options.out.open("a", encoding="utf-8") as out:
                        print(json.dumps(record), file=out)
    progress("")
    return records


if __name__ == "__main__":
    sys.exit(main())
