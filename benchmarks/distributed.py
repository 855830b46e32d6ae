"""Steps on several ranks: time, share of the communication, bytes, and a prediction for more ranks.

    python benchmarks/distributed.py [--ranks 1 2] [--steps 30] [MODEL …]
    srun --mpi=pmi2 -n 64 python benchmarks/distributed.py --child 30 MODEL …     # on a cluster, below Slurm

For each number of ranks ``mpiexec`` starts that many processes of one thread. A step is
``optimizer.update(model.loss, …)``, whose time is that of the slowest rank; the median is printed:

* *alone*: the optimizer itself, on all ranks at the same time, without communication
* *copied*: the communicator ``dummy``: gradients are copied to buckets and back
* *reduced*: ``pure_nccl``; its *share* is the part of a step beyond *alone*
* *eager*: the same define-by-run

The prediction has a rank's compute time, the latency and the bandwidth that sums of 4 bytes and of 16 MB take here, and
rings: a sum of S bytes over n ranks takes 2 (n - 1) (latency + S / n / bandwidth). Buckets become ready evenly in the
last two thirds of the step, and travel one after the other while it goes on.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS = ("mnist_mlp", "resnet18")
KINDS = ("alone", "copied", "reduced", "eager")
COMMUNICATORS = {"copied": "dummy", "reduced": "pure_nccl", "eager": "pure_nccl"}
MANY = (8, 64, 256, 1024)
LARGE_BYTES = 1 << 24


def stepper(name: str, kind: str, rank: int) -> tuple[Callable[[], Any], Any]:
    """Return a function that does a step, and the communicator."""
    import numpy as np

    from kusari import distributed
    from kusari.commands.models import MODELS as KNOWN
    from kusari.commands.models import compiled

    model = KNOWN[name]
    np.random.seed(0)
    chain = model.build(model.chain if kind == "eager" else compiled(model.chain))
    optimizer: Any = model.optimizer()
    comm = None
    if kind != "alone":
        comm = distributed.create_communicator(COMMUNICATORS[kind])
        optimizer = distributed.create_multi_node_optimizer(optimizer, comm)
    optimizer.setup(chain)
    inputs, labels = model.arrays()
    labels = labels[rank % len(labels)]
    return (lambda: optimizer.update(chain.loss, *inputs, *labels)), comm


def child(names: list[str], steps: int) -> None:
    """Measure on this rank; rank 0 prints a line of JSON."""
    import numpy as np

    from kusari import distributed
    world = distributed.create_communicator("flat")
    found: dict[str, Any] = {"ranks": world.size, "models": {}}

    def timed(call: Callable[[], Any], count: int) -> float:
        seconds: list[float] = []
        for _ in range(count):
            world.allreduce_obj(0)  # all begin together
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return statistics.median(np.max(world.allgather_obj(seconds), axis=0).tolist())
    for name in names:
        row: dict[str, Any] = {}
        made = {kind: stepper(name, kind, world.rank) for kind in KINDS}
        for kind, (step, _) in made.items():
            row[kind] = timed(step, 6)
        for kind, (step, comm) in made.items():
            row[kind] = timed(step, steps)
            if kind == "reduced" and comm is not None:
                run = next(iter(comm.reduction.runs))
                row["buckets"] = [bucket.buffer.nbytes for bucket in run.arrays]
        found["models"][name] = row
    small, large = np.zeros(1, "f"), np.zeros(LARGE_BYTES // 4, "f")
    sums = [timed(lambda x=x: world._sum([x], "sum"), 20) for x in (small, large)]
    found["latency"], found["bandwidth"] = sums[0] / 2, LARGE_BYTES / max(sums[1] - sums[0], 1e-9)
    if world.rank == 0:
        print(json.dumps(found), flush=True)


def predicted(alone: float, buckets: list[int], ranks: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of a step on so many ranks."""
    end = 0.0
    for k, size in enumerate(buckets):
        ready = alone / 3 * (1 + 2 * (k + 1) / len(buckets))
        end = max(end, ready) + 2 * (ranks - 1) * (latency + size / ranks / bandwidth)
    return max(alone, end)


def report(found: dict[str, Any]) -> None:
    """Print the table of one number of ranks."""
    ranks = found["ranks"]
    print(f"\n{ranks} ranks; latency {found['latency'] * 1e6:.0f} us, bandwidth {found['bandwidth'] / 1e9:.1f} GB/s")
    print(f"{'model':18} " + " ".join(f"{kind:>9}" for kind in KINDS) + "    share   reduced per step")
    for name, row in found["models"].items():
        share = 1 - row["alone"] / row["reduced"]
        print(f"{name:18} " + " ".join(f"{row[kind] * 1e3:6.2f} ms" for kind in KINDS)
              + f"   {share:5.1%}   {sum(row['buckets']) / 1e6:.1f} MB in {len(row['buckets'])} buckets")
        if ranks > 1:
            here = predicted(row["alone"], row["buckets"], ranks, found["latency"], found["bandwidth"])
            more = [predicted(row["alone"], row["buckets"], n, found["latency"], found["bandwidth"]) for n in MANY]
            print(f"{'':18} predicted here {here * 1e3:.2f} ms ({here / row['reduced'] - 1:+.0%}); efficiency with "
                  + ", ".join(f"{n}: {row['alone'] / t:.0%}" for n, t in zip(MANY, more, strict=True)))


def main() -> None:
    """Start the ranks, or be one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[*MODELS])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--child", type=int, help="be a rank that does so many steps")
    options = parser.parse_args()
    if options.child:
        return child(options.models, options.child)
    beside = Path(sys.executable).parent / "mpiexec"
    launcher = str(beside) if beside.exists() else "mpiexec"
    threads = {"KUSARI_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for ranks in options.ranks:
        done = subprocess.run(
            [launcher, "-n", str(ranks), sys.executable, __file__, "--child", str(options.steps), *options.models],
            env={**os.environ, **threads}, check=True, stdout=subprocess.PIPE, text=True)
        report(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
