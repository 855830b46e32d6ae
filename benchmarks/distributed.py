"""Steps on several ranks: time, share of the communication, bytes, beside PyTorch, and what more ranks would give.

    python benchmarks/distributed.py [--ranks 1 2] [--steps 30] [--torch PY/bin/python] [--plot FILE] [MODEL …]
    srun --mpi=pmi2 -n 64 python benchmarks/distributed.py --child 30 MODEL …     # on a cluster, below Slurm

For each number of ranks ``mpiexec`` starts that many processes of one thread. A step is
``optimizer.update(model.loss, …)``, whose time is that of the slowest rank; the median is printed:

* *alone*: the optimizer itself, on all ranks at the same time, without communication
* *copied*: the communicator ``dummy``: gradients are copied to buckets and back
* *reduced*: ``pure_nccl``; its *share* is the part of a step beyond *alone*
* *messages*: the same by messages of MPI in place of memory that the ranks of a machine share
* *eager*: *reduced* define-by-run
* *strong*, *divided*: *reduced* and *messages* with the batch divided among the ranks
* *ddp*: PyTorch's ``DistributedDataParallel`` over gloo (``--torch``), the quicker of eager and ``torch.compile``

The simulation (``scaling.py``) has the schedule's buckets with their places in it, the time of a rank alone with the
whole batch, a half, a quarter and an eighth of it, and the latency and the bandwidth at which gradients of 4 bytes and
of 16 MB are replaced by their means here, or those of a network (``--latency --bandwidth``), whose transfers take no
processor time. It has messages, as there are between machines: each line says how far it is from *messages* and
*divided* with each number of ranks.
"""
from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scaling import COLUMNS, MANY, Bucket, Line, Network, draw, simulated

HERE = Path(__file__).resolve().parent
MODELS = ("mnist_mlp", "resnet18")
KINDS = ("alone", "copied", "reduced", "messages", "eager", "strong", "divided")
BY_MESSAGES = ("messages", "divided")
DIVIDED = ("strong", "divided")
COMMUNICATORS = {"copied": "dummy"}  # the others pure_nccl
SHARES = (1.0, 0.5, 0.25, 0.125)
LARGE_BYTES = 1 << 24
WARM_UP_STEPS = 6
ROUNDS = 6
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("KUSARI", "OMP", "OPENBLAS", "MKL")}


def stepper(name: str, kind: str, rank: int, share: float = 1.0) -> tuple[Callable[[], Any], Any]:
    """Return a function that does a step on a share of the batch, and the optimizer."""
    import numpy as np

    from kusari import distributed
    from kusari.commands.models import MODELS as KNOWN
    from kusari.commands.models import compiled

    model = KNOWN[name]
    np.random.seed(0)
    chain = model.build(model.chain if kind == "eager" else compiled(model.chain))
    optimizer: Any = model.optimizer()
    if kind != "alone":
        comm = distributed.create_communicator(COMMUNICATORS.get(kind, "pure_nccl"))
        comm.set_config("shared_memory", kind not in BY_MESSAGES)
        optimizer = distributed.create_multi_node_optimizer(optimizer, comm)
    optimizer.setup(chain)
    inputs, labels = model.arrays()
    batch = [x[:max(1, round(len(x) * share))] for x in (*inputs, *labels[rank % len(labels)])]
    return (lambda: optimizer.update(chain.loss, *batch)), optimizer


def mean_of(nbytes: int) -> Callable[[], Any]:
    """Return a function that replaces a gradient of so many bytes by its mean over the ranks."""
    import numpy as np

    import kusari
    from kusari import distributed
    link: Any = kusari.Link()
    with link.init_scope():
        link.W = kusari.Parameter(np.zeros(nbytes // 4, "f"))
    link.W.grad = np.zeros_like(link.W.array)
    comm = distributed.create_communicator("pure_nccl")
    comm.set_config("shared_memory", False)
    comm.multi_node_mean_grad(link)
    comm.set_config("checked_updates", 0)
    return lambda: comm.multi_node_mean_grad(link)


def buckets_of(optimizer: Any) -> list[dict[str, float]]:
    """Return the buckets of a compiled step: bytes, counted shares of the step before their start and of updates."""
    from kusari.ir.costs import node_picoseconds
    (_, step), = vars(optimizer.actual_optimizer)["_steps"].by_loss.values()
    rows = [x.node for x in step.compiled.program.instructions]
    total = sum(map(node_picoseconds, rows))
    found: list[dict[str, float]] = []  # none on one rank
    latest: dict[str, float] = {}
    before = 0
    for node in rows:
        if node.op.name == "start_reduction":
            found.append({"nbytes": sum(v.tensor.nbytes for v in node.inputs), "ready": before / total, "update": 0})
        elif node.op.name == "finish_reduction":
            latest = found[node.attrs["bucket"]]
        elif node.op.name == "foreach" and latest:
            latest["update"] += node_picoseconds(node) / total
        before += node_picoseconds(node)
    return found


def child(names: list[str], steps: int) -> None:
    """Measure on this rank; rank 0 prints a line of JSON."""
    import numpy as np

    from kusari import distributed
    world = distributed.create_communicator("flat")
    found: dict[str, Any] = {"ranks": world.size, "models": {}}

    def seconds_of(call: Callable[[], Any], count: int) -> list[float]:
        """Return the seconds of calls, each those of the slowest rank."""
        seconds: list[float] = []
        for _ in range(count):
            world.allreduce_obj(0)  # all begin together
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return np.max(world.allgather_obj(seconds), axis=0).tolist()
    for name in names:
        row: dict[str, Any] = {}
        made = {kind: stepper(name, kind, world.rank, 1 / world.size if kind in DIVIDED else 1.0) for kind in KINDS}
        parts = [stepper(name, "alone", world.rank, share)[0] for share in SHARES]
        calls = [*(step for step, _ in made.values()), *parts]
        for call in calls:
            seconds_of(call, WARM_UP_STEPS)
        seconds: list[list[float]] = [[] for _ in calls]
        for _ in range(ROUNDS):  # in turns, so that others at work on the machine disturb all alike
            for found_now, call in zip(seconds, calls, strict=True):
                seconds_of(call, 1)
                found_now += seconds_of(call, -(-steps // ROUNDS))
        medians = [statistics.median(x) for x in seconds]
        row.update(zip(made, medians, strict=False))
        row["parts"] = medians[len(made):]
        row["buckets"] = buckets_of(made["messages"][1])
        found["models"][name] = row
    sums = [statistics.median(seconds_of(mean_of(nbytes), 20)) for nbytes in (4, LARGE_BYTES)]
    found["latency"], found["bandwidth"] = sums[0] / 2, LARGE_BYTES / max(sums[1] - sums[0], 1e-9)
    if world.rank == 0:
        print(json.dumps(found), flush=True)


def beside(python: str, names: list[str], ranks: int, steps: int) -> dict[str, float]:
    """Return the seconds of the quicker of PyTorch's variants for each model."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        about: dict[str, Any] = {"port": free.getsockname()[1], "ranks": ranks, "steps": steps, "models": {}}
        free.close()
        for name in names:
            where = about["models"][name] = str(Path(folder, name))
            os.mkdir(where)
            subprocess.run([sys.executable, str(HERE / "peers" / "worker.py"), "prepare", name, where], check=True,
                           stdout=subprocess.DEVNULL)
        every = [subprocess.Popen([python, str(HERE / "peers" / "on_ddp.py"), json.dumps({**about, "rank": rank})],
                                  env={**os.environ, **ONE_THREAD}, stdout=subprocess.PIPE, text=True)
                 for rank in range(ranks)]
        printed = [process.communicate()[0] for process in every]
        if any(process.returncode for process in every):
            raise SystemExit(f"PyTorch's ranks failed: {[process.returncode for process in every]}")
    return {name: min(row.values()) for name, row in json.loads(printed[0].splitlines()[-1]).items()}


def report(found: dict[str, Any], ddp: dict[str, float]) -> None:
    """Print the table of one number of ranks."""
    ranks = found["ranks"]
    print(f"\n{ranks} rank{'s' * (ranks > 1)}; latency {found['latency'] * 1e6:.0f} us, bandwidth "
          f"{found['bandwidth'] / 1e9:.1f} GB/s")
    print(f"{'milliseconds':18} " + " ".join(f"{kind:>8}" for kind in (*KINDS, *["ddp"] * bool(ddp)))
          + "    share   reduced per step")
    for name, row in found["models"].items():
        times = [*(row[kind] for kind in KINDS), *([ddp[name]] if ddp else [])]
        size = sum(bucket["nbytes"] for bucket in row["buckets"])
        share = 1 - row["alone"] / row["reduced"]
        print(f"{name:18} " + " ".join(f"{t * 1e3:8.2f}" for t in times)
              + f"   {share:6.1%}   {size / 1e6:.1f} MB in {len(row['buckets'])} buckets"
              + (f"; reduced / ddp {row['reduced'] / ddp[name]:.2f}" if ddp else ""))


def curves(name: str, rows: dict[int, dict[str, Any]], here: Network, there: Network,
           ) -> tuple[dict[str, list[tuple[int, float]]], dict[str, list[tuple[int, float]]]]:
    """Print how far the simulation is from what was measured, and efficiencies; return these and measured ones.

    ``rows`` has what was measured with each number of ranks; the simulation is made from that with most.
    """
    row = rows[max(rows)]
    buckets = [Bucket(int(b["nbytes"]), b["ready"], b["update"]) for b in row["buckets"]]
    line = Line.through(SHARES, row["parts"])

    def seconds(n: int, network: Network) -> tuple[float, float]:
        strong = row["parts"][0] if n == 1 else line.at(1 / n)
        return simulated(row["alone"], buckets, n, network), simulated(strong, buckets, n, network)
    base = row["alone"], row["parts"][0]
    shown: dict[str, list[tuple[int, float]]] = {}
    measured: dict[str, list[tuple[int, float]]] = {}
    for i, (kind, title) in enumerate(zip(BY_MESSAGES, COLUMNS, strict=True)):
        found = {n: seconds(n, there)[i] for n in (1, 2, 4, *MANY)}
        shown[title] = [(n, base[i] / t / (n if i else 1)) for n, t in found.items()]
        measured[title] = [(n, each["alone"] / each[kind] / (n if i else 1)) for n, each in rows.items()]
        errors = [f"{own * 1e3:.2f} ms with {n} ({own / each[kind] - 1:+.0%})" for n, each in rows.items()
                  if (own := seconds(n, here)[i])]
        print(f"{name:18} {title}: simulated here {', '.join(errors)}; efficiency with "
              + ", ".join(f"{n}: {e:.0%}" for n, e in shown[title] if n in MANY))
    return shown, measured


def main() -> None:
    """Start the ranks, or be one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[*MODELS])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--latency", type=float, help="of a network, in microseconds (as measured here)")
    parser.add_argument("--bandwidth", type=float, help="of a network, in GB/s (as measured here)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw efficiencies")
    parser.add_argument("--child", type=int, metavar="STEPS", help="be a rank that does so many steps")
    options = parser.parse_args()
    if options.child:
        return child(options.models, options.child)
    mpiexec = Path(sys.executable).parent / "mpiexec"
    launcher = str(mpiexec) if mpiexec.exists() else "mpiexec"
    found: dict[str, Any] = {}
    every_row: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in options.models}
    for ranks in options.ranks:
        done = subprocess.run(
            [launcher, "-n", str(ranks), sys.executable, __file__, "--child", str(options.steps), *options.models],
            env={**os.environ, **ONE_THREAD}, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        for name, row in found["models"].items():
            every_row[name][ranks] = row
        report(found, beside(options.torch, options.models, ranks, options.steps) if options.torch else {})
    if found["ranks"] == 1:
        return None
    here = Network(found["latency"], found["bandwidth"], hidden=False)
    given = options.latency is not None or options.bandwidth is not None
    there = Network(here.latency if options.latency is None else options.latency / 1e6,
                    here.bandwidth if options.bandwidth is None else options.bandwidth * 1e9, given)
    print(f"\nsimulated: {there.latency * 1e6:.0f} us, {there.bandwidth / 1e9:.1f} GB/s, transfers "
          + ("beside the computation" if given else "by the processors that compute"))
    every = {name: curves(name, rows, here, there) for name, rows in every_row.items()}
    if options.plot:
        about = f"{there.latency * 1e6:.0f} µs and {there.bandwidth / 1e9:.1f} GB/s between neighbours of a ring"
        simulation, measured = ({name: each[i] for name, each in every.items()} for i in range(2))
        print(f"picture: {draw(simulation, measured, options.plot, about)}")
    return None


if __name__ == "__main__":
    main()
