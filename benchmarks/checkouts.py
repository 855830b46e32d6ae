"""Two checkouts side by side: steady steps and first calls of the same models, interleaved.

  python benchmarks/checkouts.py ../before                            this checkout against another
  python benchmarks/checkouts.py ../before --first                    the first calls in place of steps
  python benchmarks/checkouts.py ../before mushroom_mlp --rounds 9 --seconds 1

Both run in processes of their own, which import ``kusari`` from the folder ``typings`` of a checkout
(``tools/link_typings.py`` makes it).

Steps: both processes of a round live side by side and take turns, slices of a twentieth of a second, in changing
order, so that a machine that slows down does so for both. A round's figures are the medians of its slices' medians,
in microseconds, and the median of the ratios of neighbouring slices; each round has two new processes. Printed are
the medians over the rounds and the ratios of all rounds but the outer quarters: below 1 is quicker now.

First calls are in milliseconds, of one process after the other: ``traced`` is the first step of a model, what it
imports included, ``compiled`` the second, and ``again`` the first step of another instance in the same process;
``cold`` are those of a process whose cache on disk is empty, the others of the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS = ("mushroom_mlp", "mnist_mlp", "lenet_cnn", "vgg_cifar", "resnet18", "ptb_lstm", "elementwise",
          "transformer_block")
SMALL = ("mushroom_mlp", "mnist_mlp", "ptb_lstm")
STEPS = {"infer": ("infer", False), "train": ("train", False), "whole step": ("train", True)}
SLICE_SECONDS = 0.05
WARM_STEPS = 12
Figures = tuple[float, float, float]  # before, now, ratio
HERE = Path(__file__).resolve().parent.parent


def first_calls(name: str) -> dict[str, float]:
    """The seconds of the first calls of a static model's loss, and of its backwards."""
    found: dict[str, float] = {}
    for labels in (("traced", "compiled"), ("again",)):
        step = step_of(name, "train", False)
        for i, label in enumerate(labels):
            found[label] = seconds_of(step, i)
    return found


def step_of(name: str, phase: str, whole: bool) -> Callable[[int], Any]:
    """A step of a new static instance of a model."""
    import numpy as np

    from kusari.commands import worker
    from kusari.commands.models import MODELS as ALL
    from kusari.commands.models import compiled
    np.random.seed(0)
    return worker.step_of(ALL[name], ALL[name].build(compiled(ALL[name].chain)), phase, whole)


def seconds_of(step: Callable[[int], Any], i: int) -> float:
    """The seconds of one step."""
    start = time.perf_counter()
    step(i)
    return time.perf_counter() - start


def serve_slices(name: str, kind: str) -> None:
    """For each line of the input, run steps for a slice's time and print the median of their seconds."""
    step = step_of(name, *STEPS[kind])
    i = 0
    while i < WARM_STEPS:
        step(i)
        i += 1
    print("ready", flush=True)
    for _ in sys.stdin:
        seconds: list[float] = []
        while not seconds or sum(seconds) < SLICE_SECONDS:
            seconds.append(seconds_of(step, i))
            i += 1
        print(statistics.median(seconds), flush=True)


def environment(checkout: Path, cache: str) -> dict[str, str]:
    """The environment in which a process imports a checkout's ``kusari``."""
    found = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**found, "PYTHONPATH": str(checkout / "typings"), "PYTHONPYCACHEPREFIX": f"{cache}-bytecode",
            "KUSARI_CACHE_DIR": cache}


class Served:
    """A process that measures slices of one kind of step of a checkout."""

    def __init__(self, environ: dict[str, str], model: str, kind: str) -> None:
        self.title = f"{model}, {kind}, with {environ['PYTHONPATH']}"
        self.process = subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--child", model, kind],
                                        env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        """The next line that the process prints."""
        assert self.process.stdout is not None
        found = self.process.stdout.readline().strip()
        if not found:
            raise SystemExit(f"{self.title} failed with exit status {self.process.wait()}")
        return found

    def slice(self) -> float:
        """The seconds of a step, over one slice."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.line())


def round_of_steps(environs: tuple[dict[str, str], dict[str, str]], model: str, kind: str, seconds: float) -> Figures:
    """One round of a kind of step: the seconds of both, and the ratio."""
    both = Served(environs[0], model, kind), Served(environs[1], model, kind)
    slices: list[tuple[float, float]] = []
    try:
        for one in both:
            one.line()
        for turn in range(max(2, round(seconds / SLICE_SECONDS))):
            found = {i: both[i].slice() for i in ((0, 1) if turn % 2 else (1, 0))}
            slices.append((found[0], found[1]))
    finally:
        for one in both:
            one.process.communicate()
    before, now = ([s[k] for s in slices] for k in (0, 1))
    return statistics.median(before), statistics.median(now), statistics.median(b / a for a, b in slices)


def measured_first_calls(environ: dict[str, str], model: str) -> dict[str, float]:
    """The seconds of first calls, of a process with an empty cache on disk and of the next one."""
    with tempfile.TemporaryDirectory() as empty:
        here = {**environ, "KUSARI_CACHE_DIR": empty}
        cold, warm = (json.loads(_output([__file__, "--child", model, "first"], here)) for _ in range(2))
    return {"traced, cold": cold["traced"], "compiled, cold": cold["compiled"], **warm}


def _output(arguments: list[str], environ: dict[str, str]) -> str:
    run = subprocess.run([sys.executable, "-W", "ignore", *arguments], env=environ, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed with {environ['PYTHONPATH']}:\n{run.stderr}")
    return run.stdout.splitlines()[-1]


def compare(before: Path, model: str, options: argparse.Namespace) -> list[list[str]]:
    """The rows of a model's table."""
    rounds: dict[str, list[Figures]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        environs = environment(before, os.path.join(scratch, "0")), environment(HERE, os.path.join(scratch, "1"))
        for turn in range(options.rounds + 1):
            found: dict[str, Figures] = {}
            if options.first:
                calls = {i: measured_first_calls(environs[i], model) for i in ((0, 1) if turn % 2 else (1, 0))}
                found = {name: (calls[0][name], calls[1][name], calls[1][name] / calls[0][name])
                         for name in calls[0]}
            else:
                found = {kind: round_of_steps(environs, model, kind, options.seconds) for kind in STEPS}
            if turn:  # the first round fills caches
                for name, figures in found.items():
                    rounds.setdefault(name, []).append(figures)
    unit = 1e3 if options.first else 1e6
    rows: list[list[str]] = []
    for name, figures in rounds.items():
        ratios = sorted(ratio for _, _, ratio in figures)
        quarter = len(ratios) // 4
        both = [f"{unit * statistics.median(f[i] for f in figures):.2f}" for i in (0, 1)]
        spread = f"{ratios[quarter]:.3f}-{ratios[-1 - quarter]:.3f}"
        rows.append([f"{model} {name}", *both, f"{statistics.median(ratios):.3f}", spread])
    return rows


def main() -> None:
    """Run the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("models", nargs="*", metavar="MODEL",
                        help=f"of {', '.join(MODELS)}; without, {', '.join(SMALL)}")
    parser.add_argument("--first", action="store_true", help="first calls in place of steps, of all models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of steps of each checkout in a round")
    if sys.argv[1:2] == ["--child"]:
        model, kind = sys.argv[2:]
        if kind == "first":
            print(json.dumps(first_calls(model)))
        else:
            serve_slices(model, kind)
        return
    options = parser.parse_args()
    for checkout in (options.before, HERE):
        if not (checkout / "typings" / "kusari").exists():
            parser.error(f"{checkout} has no folder typings/kusari; run tools/link_typings.py there")
    print(f"{'milliseconds' if options.first else 'microseconds':34}{'before':>12}{'now':>12}{'ratio':>8}  middle half")
    for model in options.models or (MODELS if options.first else SMALL):
        for name, *figures in compare(options.before.resolve(), model, options):
            before, now, ratio, spread = figures
            print(f"{name:34}{before:>12}{now:>12}{ratio:>8}  {spread}", flush=True)


if __name__ == "__main__":
    main()
