"""What compiling costs: the first calls of a model in new processes, with and without a disk cache.

For each case new processes run the same steps define-by-run, static with an empty cache (cold) and static with the
cache of an earlier process (warm). The extra is what the first three calls (one is recorded, one compiles, one is the
first that only replays) take beyond what they do: the first call beyond the first one define-by-run, the second and the
third beyond a later one. Imports are included; the bytecode of all modules is there, as after an installation. The
median of ``--rounds`` processes is printed, in milliseconds of time passed and of the main thread's processor time,
which other programs disturb less. BLAS has one thread: those that wait would be counted in define-by-run.

    python benchmarks/first_call.py [--rounds 5] [--phase train|whole|infer] [MODEL …]

With ``--rounds 1`` all models take less than four minutes on two cores.

``train`` is a step in parts (zero gradients, static loss, backward, update), ``whole`` is
``optimizer.update(model.loss, ...)``.
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

MODELS = ("mushroom_mlp", "mnist_mlp", "lenet_cnn", "vgg_cifar", "resnet18", "ptb_lstm", "elementwise",
          "transformer_block")
PHASES = ("train", "whole", "infer")
FIRST, LATER = 3, 5  # calls; the best of the later ones is what a call takes


def child(name: str, phase: str, static: bool) -> None:
    """Print the seconds (passed, of the main thread) of each call."""
    import numpy as np

    from kusari.commands.models import MODELS, compiled
    from kusari.commands.worker import step_of
    model = MODELS[name]
    np.random.seed(0)
    chain = model.build(compiled(model.chain) if static else None)
    step = step_of(model, chain, "infer" if phase == "infer" else "train", whole=phase == "whole")
    calls: list[tuple[float, float]] = []
    for i in range(FIRST + LATER):
        passed, used = time.perf_counter(), time.thread_time()
        step(i)
        calls.append((time.perf_counter() - passed, time.thread_time() - used))
    print(json.dumps(calls))


def measure(name: str, phase: str, static: bool, environ: dict[str, str]) -> list[tuple[float, float]]:
    """Return what ``child`` prints in a new process."""
    text = subprocess.run([sys.executable, __file__, "--child", str(int(static)), "--phase", phase, name],
                          env=environ, check=True, capture_output=True, text=True).stdout
    return json.loads(text.splitlines()[-1])


def extra(calls: list[tuple[float, float]], eager: list[tuple[float, float]], clock: int) -> float:
    """Return the seconds that the first calls took beyond what they do."""
    later = min(c[clock] for c in calls[FIRST:])
    return calls[0][clock] - eager[0][clock] + sum(c[clock] - later for c in calls[1:FIRST])


def main() -> None:
    """Run the cases and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--phase", action="append", choices=PHASES, help="all of them by default")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}")
    options = parser.parse_args()
    if unknown := set(options.models) - set(MODELS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    if options.child is not None:
        child(options.models[0], options.phase[0], bool(options.child))
        return
    print(f"{'milliseconds beyond what calls do':38}{'cold':>8}{'cpu':>8}{'warm':>8}{'cpu':>8}")
    with tempfile.TemporaryDirectory() as scratch:
        environ = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environ["PYTHONPYCACHEPREFIX"] = os.path.join(scratch, "bytecode")
        environ["KUSARI_CACHE_DIR"] = os.path.join(scratch, "first")
        environ["OPENBLAS_NUM_THREADS"] = "1"
        for static in (False, True, True):
            for name in ("lenet_cnn", "ptb_lstm"):
                measure(name, "train", static, environ)
        for name in options.models or MODELS:
            for phase in options.phase or PHASES:
                found: dict[str, list[tuple[float, float]]] = {"cold": [], "warm": []}
                for turn in range(options.rounds):
                    environ["KUSARI_CACHE_DIR"] = os.path.join(scratch, f"{name}{phase}{turn}")
                    eager, *ours = (measure(name, phase, static, environ) for static in (False, True, True))
                    for what, calls in zip(found, ours, strict=True):
                        found[what].append((extra(calls, eager, 0), extra(calls, eager, 1)))
                row = [1e3 * statistics.median(t[k] for t in found[what]) for what in found for k in (0, 1)]
                print(f"{name + ' ' + phase:38}" + "".join(f"{ms:8.0f}" for ms in row), flush=True)


if __name__ == "__main__":
    main()
