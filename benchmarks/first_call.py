"""What compiling costs: the first calls of a static function in new processes, with and without a disk cache.

For each case new processes run the same steps define-by-run, static with an empty cache (cold) and static with the
cache of an earlier process (warm). The figure is the sum of the first three calls (one is recorded, one compiles, one
is the first that only replays) minus that of three calls define-by-run: everything a user waits for, imports
included. The median of ``--rounds`` processes is printed, in milliseconds of time passed and of the main thread's
processor time, which other programs disturb less.

    python benchmarks/first_call.py [--rounds 5] [CASE …]

Seen on two cores of a Zen 4 that other programs used a little (least of five rounds, time passed): mushroom_mlp train
322 cold, 64 warm; infer 237 and 73; mnist_mlp train 367 and 97; infer 162 and 56; whole step 279 and 44.
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
from typing import Any

CASES = {
    "mushroom_mlp train": ((22, 44, 1), "train"), "mushroom_mlp infer": ((22, 44, 1), "infer"),
    "mnist_mlp train": ((784, 1000, 10), "train"), "mnist_mlp infer": ((784, 1000, 10), "infer"),
    "mnist_mlp whole step": ((784, 1000, 10), "whole"),
}
CALLS = 3


def child(case: str, static: bool) -> None:
    """Print the seconds (passed, processor) that the first calls take in this process."""
    import numpy as np

    import kusari
    import kusari.functions as F
    import kusari.links as L
    (n_in, units, n_out), phase = CASES[case]

    class MLP(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l1, self.l2, self.l3 = L.Linear(n_in, units), L.Linear(units, units), L.Linear(units, n_out)

        @kusari.static_graph
        def forward(self, x: Any) -> Any:
            return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))

        @kusari.static_graph
        def loss(self, x: Any, t: Any) -> Any:
            return F.sigmoid_cross_entropy(self(x), t) if n_out == 1 else F.softmax_cross_entropy(self(x), t)

    random = np.random.RandomState(0)
    model = MLP()
    optimizer = (kusari.optimizers.SGD(0.01) if n_out == 1 else kusari.optimizers.Adam()).setup(model)
    x = random.rand(100, n_in).astype("f")
    t = random.randint(0, 2, (100, 1)) if n_out == 1 else random.randint(0, n_out, 100)
    t = t.astype("i")

    def step() -> None:
        if phase == "infer":
            with kusari.using_config("train", False), kusari.no_backprop_mode():
                model(x)
        elif phase == "whole":
            optimizer.update(model.loss, x, t)
        else:
            model.cleargrads()
            model.loss(x, t).backward()
            optimizer.update()

    with kusari.using_config("use_static_graph", static):
        passed, used = time.perf_counter(), time.thread_time()
        for _ in range(CALLS):
            step()
        print(json.dumps((time.perf_counter() - passed, time.thread_time() - used)))


def measure(case: str, static: bool, environ: dict[str, str]) -> tuple[float, float]:
    """Return what ``child`` prints in a new process."""
    text = subprocess.run([sys.executable, __file__, "--child", str(int(static)), case], env=environ, check=True,
                          capture_output=True, text=True).stdout
    passed, used = json.loads(text)
    return passed, used


def main() -> None:
    """Run the cases and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(map(repr, CASES))}")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if options.child is not None:
        child(options.cases[0], bool(options.child))
        return
    print(f"{'milliseconds more than define-by-run':38}{'cold':>8}{'cpu':>8}{'warm':>8}{'cpu':>8}")
    with tempfile.TemporaryDirectory() as scratch:
        environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environ["PYTHONPYCACHEPREFIX"] = os.path.join(scratch, "bytecode")  # as after an installation
        for case in options.cases or CASES:
            found: dict[str, list[tuple[float, float]]] = {"cold": [], "warm": []}
            for turn in range(-1, options.rounds):
                environ["KUSARI_CACHE_DIR"] = os.path.join(scratch, f"{case}{turn}")
                eager, cold, warm = (measure(case, static, environ) for static in (False, True, True))
                if turn >= 0:  # the first turn compiles bytecode
                    for name, times in (("cold", cold), ("warm", warm)):
                        found[name].append((times[0] - eager[0], times[1] - eager[1]))
            row = [1e3 * statistics.median(t[k] for t in found[name]) for name in found for k in (0, 1)]
            print(f"{case:38}" + "".join(f"{ms:8.0f}" for ms in row), flush=True)


if __name__ == "__main__":
    main()
