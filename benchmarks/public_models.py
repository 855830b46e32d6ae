"""Models of public repositories, define-by-run beside `@static_graph`: what becomes of them, how fast, how equal.

  python benchmarks/public_models.py --root ../public                 all rows, as a table in Markdown
  python benchmarks/public_models.py --root ../public capsules bert   some of them
  python benchmarks/public_models.py --list                           names, and the repositories they need

``--root`` has the checkouts as ``OWNER/NAME``. Each row runs in a process of its own, under the alias ``chainer``, on
one thread unless KUSARI_NUM_THREADS and OPENBLAS_NUM_THREADS say otherwise; a repository that is not there is passed
over with a word.

A row is a model with its loss, or with several losses and their optimizers. Two instances with equal parameters take
the same steps of SGD with momentum on the same data, a smaller batch and another rate among them, are evaluated, and
get back the parameters of a file; one of them has its losses decorated. The difference is the largest one of all losses
and of parameters at the end, relative to the largest value; where it is more than rounding usually gives, so is that of
two instances without decoration of which one starts with the last bits of its parameters changed. Ratios are processor
time define-by-run / compiled, the median of rounds in which both take turns; a call is the losses alone, without
gradients, a step has ``backward()`` and ``update()`` as well.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from public_rows import ROWS
from public_rows.rows import Row

COMPARED_STEPS = 5
ROUNDS = 3
RATE = 1e-4
SLICE_SECONDS = 0.05  # of one turn
ROUNDING = 1e-5  # a difference from which on it is asked what the rounding of parameters alone gives
# -- one row -----------------------------------------------------------------------------------------------------------


class Side:
    """One of the two instances of a row."""

    def __init__(self, made: Row, static: bool) -> None:
        import kusari
        np.random.seed(0)
        case = made.build()
        self.model = case.model
        losses = case.loss if isinstance(case.loss, tuple) else (case.loss,)
        self.losses = [kusari.static_graph(loss) if static else loss for loss in losses]
        self.parts = [*case.model] if isinstance(case.loss, tuple) else [case.model]  # each with its optimizer
        self.data = [case.arguments(np.random.RandomState(i)) for i in range(COMPARED_STEPS)]
        several = case.fewer is not None and all(len(x) > 1 for x in self.data[0])
        self.fewer = case.fewer(self.data[0]) if case.fewer is not None and several else None
        self.optimizers: list[Any] = []

    def call(self, i: int) -> Any:
        for loss in self.losses:
            found = loss(self.model, *self.data[i % len(self.data)])
        return found

    def step(self, i: int) -> list[float]:
        return self.step_of(self.data[i % len(self.data)])

    def step_of(self, args: tuple[Any, ...]) -> list[float]:
        import chainer
        found = []
        for i, loss in enumerate(self.losses):
            y = loss(self.model, *args)
            self.model.cleargrads()
            y.backward()
            if i == len(self.optimizers):  # parameters without shapes have them now
                self.optimizers.append(chainer.optimizers.MomentumSGD(RATE).setup(self.parts[i]))
            self.optimizers[i].update()
            found.append(float(y.array))
        return found

    def steps(self) -> tuple[list[float], Any]:
        """Take steps, and what a run has besides: a smaller last batch, another rate, evaluation, a snapshot."""
        import chainer
        losses = []
        for i in range(COMPARED_STEPS):
            np.random.seed(i)
            losses += self.step(i)
        for _ in range(3 if self.fewer is not None else 0):
            losses += self.step_of(self.fewer)
        saved = io.BytesIO()
        chainer.serializers.save_npz(saved, self.model)
        for optimizer in self.optimizers:
            optimizer.lr *= 0.5
        losses += self.step(0)
        for _ in range(3):
            with chainer.using_config("train", False), chainer.no_backprop_mode():
                losses.append(float(self.call(1).array))
        saved.seek(0)
        chainer.serializers.load_npz(saved, self.model)
        losses += self.step(1)
        arrays = [p.array.ravel() for _, p in sorted(self.model.namedparams()) if p.array is not None]
        return losses, np.concatenate(arrays)


def difference(a: Any, b: Any) -> float:
    """Return the largest difference of two arrays, relative to the largest value."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    if not a.size or np.array_equal(a, b, equal_nan=True):
        return 0.0
    return float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30))


def ratio(plain: Callable[[int], Any], static: Callable[[int], Any]) -> float:
    """Return the processor time of one relative to the other's, which take turns."""
    for f in (plain, static):
        for i in range(COMPARED_STEPS):  # all data: objects among them may be traced one by one
            f(i)
    begin = time.process_time()
    static(0)
    count = max(1, int(SLICE_SECONDS / max(time.process_time() - begin, 1e-6)))
    found = []
    for turn in range(ROUNDS):
        seconds = {}
        for f in (plain, static) if turn % 2 else (static, plain):
            begin = time.process_time()
            for i in range(count):
                f(i)
            seconds[f] = time.process_time() - begin
        found.append(seconds[plain] / seconds[static])
    return statistics.median(found)


def verdict(losses: list[Any]) -> str:
    """Return what became of decorated losses."""
    entries = [entry for loss in losses for cache in loss.static.caches() for entry in cache.entries.values()]
    faults = [str(entry.fault).replace(f"{Path.cwd()}/", "") for entry in entries if entry.fault is not None]
    if faults:
        return f"falls back: {faults[0]}"
    schedules = [entry.schedule for entry in entries if entry.schedule is not None]
    if not schedules:
        return "traced only"
    by_python = sorted({row.node.op.name for s in schedules for c in s.compiled for row in c.program.instructions
                        if row.kernel is None and not row.node.op.name.startswith(("report", "check", "random"))})
    return f"split: Python runs {', '.join(by_python)}" if by_python else "compiled"


def measured(name: str) -> dict[str, Any]:
    """Return the figures of one row, in this process."""
    import kusari
    warnings.simplefilter("ignore")
    made = ROWS[name]
    made.build()  # what it imports may draw numbers
    plain, static = Side(made, False), Side(made, True)
    (losses, parameters), (others, changed) = plain.steps(), static.steps()
    apart = max(difference(losses, others), difference(parameters, changed))
    step = ratio(plain.step, static.step)
    with kusari.no_backprop_mode():
        call = ratio(plain.call, static.call)
    found = {"verdict": verdict(static.losses), "call": call, "step": step, "difference": apart}
    return found if apart < ROUNDING else {**found, "rounding": by_rounding(made)}


def by_rounding(made: Row) -> float:
    """Return the difference of two sides that run define-by-run, one with the last bits of its parameters changed."""
    plain, other = Side(made, False), Side(made, False)
    for side in (plain, other):
        np.random.seed(0)
        side.call(0)  # parameters without shapes have them now
    for p in other.model.params():
        if p.array is not None and p.dtype.kind == "f":
            p.array[...] *= 1 + np.finfo(p.dtype).eps * np.random.RandomState(1).choice([-1, 0, 1], p.shape)
    (losses, parameters), (others, changed) = plain.steps(), other.steps()
    return max(difference(losses, others), difference(parameters, changed))


# -- the table ---------------------------------------------------------------------------------------------------------


def results(root: Path, names: list[str]) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Yield the names of rows with their figures, or a word why there are none."""
    for name in names:
        made = ROWS[name]
        home = root / made.repository
        if not home.is_dir():
            yield name, "not there"
            continue
        paths = [home / made.folder, home, *(root / other for other in made.needs)]
        env = {"KUSARI_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ, "PYTHONPATH": os.pathsep.join(
            [*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])}
        done = subprocess.run([sys.executable, __file__, "--one", name], cwd=home, env=env, capture_output=True,
                              text=True, check=False)
        lines = done.stdout.splitlines()
        if done.returncode == 0 and lines:
            yield name, json.loads(lines[-1])
        else:
            yield name, "fails: " + (done.stderr.strip().splitlines() or ["?"])[-1]


def line(name: str, found: dict[str, Any] | str) -> str:
    """Return a line of the table."""
    made = ROWS[name]
    head = f"| `{name}` | {made.repository} | {made.what} |"
    if isinstance(found, str):
        return f"{head} {found} | | | |"
    rounding = f" (rounding alone: {found['rounding']:.0e})" if "rounding" in found else ""
    return (f"{head} {found['verdict']} | {found['call']:.2f} | {found['step']:.2f} | "
            f"{found['difference']:.0e}{rounding} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="rows; all without any")
    parser.add_argument("--root", type=Path, default=Path("public"), help="the folder of the checkouts")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        import kusari.compat
        sys.path.remove(str(Path(__file__).resolve().parent))  # whose modules have names of those of repositories
        kusari.compat.install()
        print("\n" + json.dumps(measured(args.names[0])))
        return
    names = args.names or [*ROWS]
    if args.list:
        print("\n".join(f"{name:28}{ROWS[name].repository}" for name in names))
        return
    print("| row | repository | model | `@static_graph` | call | step | difference |\n|---|---|---|---|---|---|---|")
    for name, found in results(args.root.resolve(), names):
        print(line(name, found), flush=True)


if __name__ == "__main__":
    main()
