"""What Python costs: per compiled step, part by part, and per function of define-by-run beside Chainer's.

  python benchmarks/overhead.py
  python benchmarks/overhead.py steps                                          only compiled steps
  python benchmarks/overhead.py guards                                         only guards
  python benchmarks/overhead.py loops                                          only plain loops beside whole steps
  python benchmarks/overhead.py loops --optimizer Adam --schedule              the same, with another rate in each step
  python benchmarks/overhead.py rows --models resnet18                         what each kernel takes, alone and in turn
  python benchmarks/overhead.py operations --python chainer=PY39/bin/python    only define-by-run

Guards: what it takes to see that all that a call reads besides its arguments is as it was; ``after a change``, that is,
once an attribute of any link has been assigned.

Loops: processor time of ``cleargrads``, a static loss, ``backward``, ``update`` and a read of the loss, and of whole
steps, which hand out no loss: both in one process in turns of a twentieth of the time, medians of the turns.

Rows, only where they are asked for: the native rows of a step, those of one kernel added up. ``alone``: best times,
each row run over and over; ``in turn``: medians where all rows run one after the other, so that each finds in the
caches what the others have left there.

Steps: ``step`` is a step as it runs, ``kernels`` the sum of the best times of its native rows, each run alone
(``Executable.profile``, less what entering native code takes), ``Python`` the same step with its native rows switched
off, ``floor`` the sum of both, and ``above`` what the step takes beyond it: waking threads, barriers, caches that a row
finds cold. All are best times, in microseconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from kusari.commands.bench import THREAD_VARIABLES, aligned, figure, machine, positive

WORKER = Path(__file__).parent / "peers" / "worker.py"
STEPS = ("infer", "train", "whole step")
SETTLE = 120  # steps after which every frame that will be needed exists, and all that is usual is written


@lru_cache(maxsize=1)
def models() -> dict[str, Any]:
    """Those of ``python -m kusari bench``, and the survey's."""
    from peers.survey_sequences import SURVEY

    from kusari.commands.models import MODELS
    return {**MODELS, **SURVEY}


def train_by(optimizer: str) -> None:
    """Let models be trained by an optimizer of Kusari's, as it is by default."""
    from kusari import optimizers
    for name, model in models().items():
        models()[name] = dataclasses.replace(model, optimizer=getattr(optimizers, optimizer))


def parts_of(name: str, step: str) -> tuple[Callable[[], Any], dict[str, Callable[[], Any]], Any]:
    """A compiled step of a model, the parts it consists of, and what must stay alive for them."""
    import numpy as np

    import kusari
    from kusari.commands.models import compiled
    model = models()[name]
    np.random.seed(0)
    chain = model.build(compiled(model.chain))
    x, labels = model.arrays("infer" if step == "infer" else "train")
    t = labels[0]
    if step == "infer":
        def infer() -> Any:
            with kusari.using_config("train", False), kusari.no_backprop_mode():
                return chain(*x)

        return infer, {}, (chain, x)
    optimizer = model.updater(chain)
    if step == "whole step":
        return lambda: optimizer.update(chain.loss, *x, *t), {}, (chain, optimizer, x, labels)
    loss: list[Any] = [None]

    def forward() -> None:
        loss[0] = chain.loss(*x, *t)

    parts: dict[str, Callable[[], Any]] = {
        "cleargrads": chain.cleargrads, "forward": forward, "backward": lambda: loss[0].backward(),
        "update": optimizer.update, "read": lambda: float(loss[0].array)}

    def train() -> None:
        for part in parts.values():
            part()

    return train, parts, (chain, optimizer, x, labels)


def steps_table(models: list[str], seconds: float) -> tuple[str, str]:
    """The table of steps, and that of the Python of a training step's parts."""
    import executables

    from kusari.static.verify.roof import best
    rows = [["model", "step", "rows", "threads", "step µs", "kernels", "Python", "floor", "above"]]
    inside = [["model", "cleargrads", "forward", "backward", "update", "read the loss"]]
    for name in models:
        for kind in STEPS:
            before = {id(executable) for executable, _ in executables.live()}
            step, parts, keep = parts_of(name, kind)
            for _ in range(SETTLE):
                step()
            # The schedules of this step: those that came with it and have frames to run in.
            mine = [(e, frames) for e, frames in executables.live() if id(e) not in before and frames]
            (whole,) = best([step], seconds)
            with executables.native_rows_off():
                (python,) = best([step], seconds)
                if parts:
                    inside.append([name, *(figure(t, 1e-6) for t in timed_parts(parts, seconds))])
            kernels = sum(row.seconds for e, frames in mine for row in executables.profile(e, frames[0]))
            threads = max((e.threads for e, _ in mine), default=1)
            count = sum(e.report.instructions for e, _ in mine)
            rows.append([name, kind, str(count), str(threads),
                         *(figure(t, 1e-6) for t in (whole, kernels, python, kernels + python)),
                         f"{(whole - kernels - python) * 1e6:.2f}"])
            del step, parts, keep
    return aligned(rows, left=2), aligned(inside)


def rows_table(name: str, kind: str) -> str:
    """The kernels of a step, alone and in turn."""
    import executables
    before = {id(executable) for executable, _ in executables.live()}
    step, _, keep = parts_of(name, kind)
    for _ in range(SETTLE):
        step()
    rows = [[f"{name}, {kind}", "rows", "µs alone", "in turn"]]
    total = [0, 0.0, 0.0]
    for executable, frames in executables.live():
        if id(executable) in before or not frames:
            continue
        turns = executables.in_turn(executable, frames[0])
        groups: dict[str, list[Any]] = {}
        for row, (kernel, seconds) in zip(executables.profile(executable, frames[0]), turns, strict=True):
            assert kernel is row.kernel
            group = groups.setdefault(kernel.symbol, [0, 0.0, 0.0])
            for sums in (group, total):
                sums[0], sums[1], sums[2] = sums[0] + 1, sums[1] + row.seconds, sums[2] + seconds
        rows += [[symbol, str(n), figure(alone, 1e-6), figure(turn, 1e-6)]
                 for symbol, (n, alone, turn) in groups.items()]
    del keep
    rows.append(["all", str(total[0]), figure(total[1], 1e-6), figure(total[2], 1e-6)])
    return aligned(rows)


def timed_parts(parts: dict[str, Callable[[], Any]], seconds: float) -> list[float]:
    """The best seconds of each part, run in their order, clock included."""
    import time
    clock = time.perf_counter
    found = [float("inf")] * len(parts)
    end = clock() + seconds
    first = True
    while first or clock() < end:
        first = False
        for i, part in enumerate(parts.values()):
            start = clock()
            part()
            found[i] = min(found[i], clock() - start)
    return found


def loops_table(names: list[str], seconds: float, schedule: bool) -> str:
    """Plain loops beside whole steps, on a model of their own each; with a ``schedule`` each step has another rate."""
    import statistics
    import time

    import numpy as np

    from kusari.commands.models import compiled
    from kusari.commands.worker import step_of
    rows = [["model", "whole step µs", "plain loop", "loop ÷ whole"]]
    for name in names:
        model, steps = models()[name], {}
        optimizers: list[Any] = []
        kept = dataclasses.replace(model, optimizer=lambda make=model.optimizer, made=optimizers: made.append(make())
                                   or made[-1])
        for whole in (True, False):
            np.random.seed(0)
            steps[whole] = step_of(kept, model.build(compiled(model.chain)), "train", whole)
        hyper = [optimizer.hyperparam for optimizer in optimizers]
        rate = "lr" if "lr" in vars(hyper[0]) else "alpha"

        def turn(whole: bool, count: int, steps: Any = steps, hyper: Any = hyper, rate: str = rate) -> float:
            entries = vars(hyper[not whole])
            begin = time.process_time()
            for i in range(count):
                if schedule:
                    entries[rate] *= 0.9999999
                steps[whole](i)
            return (time.process_time() - begin) / count
        turn(True, SETTLE), turn(False, SETTLE)
        count = max(1, int(seconds / 20 / max(turn(True, SETTLE), 1e-7)))
        taken: dict[bool, list[float]] = {True: [], False: []}
        for k in range(40):
            for whole in (bool(k % 2), not k % 2):
                taken[whole].append(turn(whole, count))
        one, other = statistics.median(taken[True]), statistics.median(taken[False])
        rows.append([name, figure(one, 1e-6), figure(other, 1e-6), f"{other / one:.2f}"])
    return aligned(rows)


def guards_table(seconds: float) -> str:
    """The guards of models of a few links, by the number of links."""
    import timeit

    import numpy as np

    import kusari
    import kusari.functions as F
    import kusari.links as L

    class Model(kusari.Chain):
        def __init__(self, links: int) -> None:
            super().__init__()
            self.scale, self.act = 1.0, F.relu
            with self.init_scope():
                self.layers = kusari.ChainList(*[L.Linear(4, 4) for _ in range(links)])

        @kusari.static_graph
        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = self.act(layer(x)) * self.scale
            return x

    def best(f: Callable[[], Any]) -> float:
        number = max(1, int(seconds / 10 / min(timeit.repeat(f, number=10, repeat=3)) * 10))
        return min(timeit.repeat(f, number=number, repeat=10)) / number

    rows = [["links", "guards", "µs per call", "after a change"]]
    x = np.ones((2, 4), "f")
    for links in (2, 20, 100):
        model = Model(links)
        model(x)
        recording = Model.forward.static.recorded((model, x), {})

        def change(model: Any = model) -> None:
            model.scale = 1.0

        def changed(model: Any = model, check: Any = recording.check) -> None:
            model.scale = 1.0
            check()

        rows.append([str(links), str(len(recording.checks.guards)), figure(best(recording.check), 1e-6),
                     figure(best(changed) - best(change), 1e-6)])
    return aligned(rows)


def operations_table(interpreters: dict[str, str], seconds: float) -> str:
    """Define-by-run, function by function, beside Chainer where an interpreter has it."""
    environment = dict(os.environ, PYTHONWARNINGS="ignore")
    environment.update({f"{name}_NUM_THREADS": "1" for name in THREAD_VARIABLES})
    found: dict[str, dict[str, dict[str, float]]] = {}
    for library, interpreter in interpreters.items():
        done = subprocess.run([interpreter, str(WORKER), "operations", library, str(seconds)], env=environment,
                              capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{library} in {interpreter} failed: {done.stderr.strip().splitlines()[-1]}")
        found[library] = json.loads(done.stdout.splitlines()[-1])
    kinds = {"plain": "no graph", "graph": "forward", "backward": "and backward"}
    rows = [["µs per call", "NumPy alone", *(f"{library}, {text}" for text in kinds.values() for library in found),
             *(["Chainer ÷ Kusari"] if len(found) > 1 else [])]]
    for name, ours in found["kusari"].items():
        row = [name, figure(ours["numpy"]), *(figure(found[lib][name][kind]) for kind in kinds for lib in found)]
        if len(found) > 1:
            row.append(f"{found['chainer'][name]['backward'] / ours['backward']:.2f}")
        rows.append(row)
    return aligned(rows)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("steps", "operations", "guards", "loops", "rows"),
                        help="all but rows")
    parser.add_argument("--step", choices=STEPS, default="infer", help="whose rows (infer)")
    parser.add_argument("--models", nargs="+", default=["mushroom_mlp", "mnist_mlp"], metavar="MODEL",
                        help="models of side_by_side.py (mushroom_mlp mnist_mlp)")
    parser.add_argument("--optimizer", metavar="CLASS", help="one of Kusari's, by default the model's own")
    parser.add_argument("--schedule", action="store_true", help="loops: another rate in each step")
    parser.add_argument("--seconds", type=positive(float), default=0.5, help="time per figure (0.5)")
    parser.add_argument("--python", metavar="chainer=PATH", help="an interpreter that has Chainer")
    options = parser.parse_args()
    interpreters = {"kusari": sys.executable}
    if options.python:
        library, _, path = options.python.partition("=")
        if library != "chainer" or not path:
            parser.error(f"--python: expected chainer=PATH, got {options.python}")
        interpreters["chainer"] = path
    for model in options.models:
        if model not in models():
            parser.error(f"expected models of {', '.join(models())}, got {model}")
    if options.optimizer:
        train_by(options.optimizer)
    from kusari.ir.threads import thread_limit
    print(machine(thread_limit()))
    if options.what in (None, "guards"):
        print(f"\n{guards_table(options.seconds)}")
    if options.what in (None, "steps"):
        steps, parts = steps_table(options.models, options.seconds)
        print(f"\n{steps}\n\nThe Python of a training step, native rows switched off, in µs:\n\n{parts}")
    if options.what in (None, "loops"):
        print(f"\n{loops_table(options.models, options.seconds, options.schedule)}")
    for model in options.models if options.what == "rows" else ():
        print(f"\n{rows_table(model, options.step)}")
    if options.what in (None, "operations"):
        print(f"\n{operations_table(interpreters, options.seconds / 10)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
