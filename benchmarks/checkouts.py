"""Two checkouts side by side: steady steps and first calls of the same models, in interleaved rounds.

  python benchmarks/checkouts.py ../before                            this checkout against another
  python benchmarks/checkouts.py ../before --first                    the first calls in place of steps
  python benchmarks/checkouts.py ../before mushroom_mlp --rounds 9 --seconds 1

Each measurement is a process of its own, which imports ``kusari`` from the folder ``typings`` of a checkout
(``tools/link_typings.py`` makes it). In a round both run one after the other, and the order changes from round to
round, so that a machine that slows down does so for both. Printed are the medians over the rounds of ``before`` and
``now``, and the median of the ratios within rounds, with the middle half of those: below 1 is quicker now.

Steps are in microseconds: the tenth percentile of a measurement. First calls are in milliseconds: ``traced`` is the
first step of a model, what it imports included, ``compiled`` the second, and ``again`` the first step of another
instance in the same process; ``cold`` are those of a process whose cache on disk is empty, the others of the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS = ("mushroom_mlp", "mnist_mlp", "lenet_cnn", "vgg_cifar", "resnet18", "ptb_lstm", "elementwise",
          "transformer_block")
SMALL = ("mushroom_mlp", "mnist_mlp", "ptb_lstm")
STEPS = {"infer": ("compiled", "infer"), "train": ("compiled", "train"), "whole step": ("whole step", "train")}
HERE = Path(__file__).resolve().parent.parent


def first_calls(name: str) -> dict[str, float]:
    """The seconds of the first calls of a static model's loss, and of its backwards."""
    import time

    import numpy as np

    from kusari.commands.models import MODELS as ALL
    from kusari.commands.models import compiled
    from kusari.commands.worker import step_of
    model = ALL[name]
    kind = compiled(model.chain)
    found: dict[str, float] = {}
    for labels in (("traced", "compiled"), ("again",)):
        np.random.seed(0)
        step: Callable[[int], Any] = step_of(model, model.build(kind), "train")
        for i, label in enumerate(labels):
            start = time.perf_counter()
            step(i)
            found[label] = time.perf_counter() - start
    return found


def measured(checkout: Path, model: str, cache: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds by what was measured, of a checkout in a new process."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environ.update(PYTHONPATH=str(checkout / "typings"),
                   PYTHONPYCACHEPREFIX=f"{cache}-bytecode", KUSARI_CACHE_DIR=cache)
    if options.first:
        with tempfile.TemporaryDirectory() as empty:
            environ["KUSARI_CACHE_DIR"] = empty
            cold, warm = (json.loads(_output([__file__, "--child", model, str(checkout)], environ)) for _ in range(2))
        return {"traced, cold": cold["traced"], "compiled, cold": cold["compiled"], **warm}
    found: dict[str, float] = {}
    for name, (mode, phase) in STEPS.items():
        text = _output(["-m", "kusari.commands.worker", model, mode, phase, str(options.seconds)], environ)
        found[name] = float(json.loads(text)["p10_ms"]) / 1e3
    return found


def _output(arguments: list[str], environ: dict[str, str]) -> str:
    run = subprocess.run([sys.executable, "-W", "ignore", *arguments], env=environ, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed with {environ['PYTHONPATH']}:\n{run.stderr}")
    return run.stdout.splitlines()[-1]


def compare(before: Path, model: str, options: argparse.Namespace) -> list[list[str]]:
    """The rows of a model's table."""
    rounds: list[tuple[dict[str, float], dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as scratch:
        caches = {checkout: os.path.join(scratch, str(i)) for i, checkout in enumerate((before, HERE))}
        for turn in range(options.rounds + 1):
            order = (before, HERE) if turn % 2 else (HERE, before)
            found = {checkout: measured(checkout, model, caches[checkout], options) for checkout in order}
            if turn:  # the first round fills caches
                rounds.append((found[before], found[HERE]))
    unit = 1e3 if options.first else 1e6
    rows: list[list[str]] = []
    for name in rounds[0][0]:
        ratios = sorted(b[name] / a[name] for a, b in rounds)
        quarter = len(ratios) // 4
        both = [f"{unit * statistics.median(r[i][name] for r in rounds):.2f}" for i in (0, 1)]
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
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement of steps")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(first_calls(options.child)))
        return
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
