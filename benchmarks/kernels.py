"""Single kernels against what this machine can do: products, losses, normalizations, an optimizer's update.

  python benchmarks/kernels.py                     everything, with one thread per processor
  python benchmarks/kernels.py --threads 1 gemm
  python benchmarks/kernels.py "layer norm" --seconds 0.5

First the roof: multiply-adds by a generated kernel, bandwidth by a triad of several footprints. Then a table row per
kernel: its best time, GFLOP/s, GB/s, and which part of the roof that is: the larger of arithmetic over peak and bytes
over the bandwidth of a triad with the same footprint, over the time. Products are also compared with NumPy's OpenBLAS,
taking turns; it may use as many threads, and decides like ours how many are worth it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from kusari.commands.bench import THREAD_VARIABLES, aligned, figure, machine, positive

FOOTPRINTS = (1 << 16, 1 << 20, 1 << 23, 1 << 27)


def roof_table(threads: int, seconds: float) -> str:
    """What the machine can do, with one thread and with all."""
    from roof import bandwidth, peak
    counts = sorted({1, threads})
    rows = [["", *(f"{n} thread{'s' * (n > 1)}" for n in counts)],
            ["multiply-adds, GFLOP/s", *(figure(peak(n) / 1e9) for n in counts)]]
    for size in FOOTPRINTS:
        speeds = [figure(bandwidth(size, n, seconds) / 1e9) for n in counts]
        rows.append([f"triad on {size >> 10:,} KiB, GB/s", *speeds])
    return aligned(rows)


def gemm_table(seconds: float) -> str:
    """The products of the benchmark's networks: forward, gradients of inputs and of weights."""
    from gemm import SHAPES, product
    from roof import best, limit

    from kusari.static.target import host_target
    rows = [["product", "m×n×k", "threads", "µs", "GFLOP/s", "of the roof", "OpenBLAS µs", "OpenBLAS ÷ ours"]]
    for name, m, n, k, transa, transb in SHAPES:
        frame, blas = product(m, n, k, transa, transb, host_target(), None)
        used = max(step.threads for step in frame.layout.steps)
        own, other = best([frame.run, blas], seconds)
        flops = 2.0 * m * n * k
        roof = limit(flops, 4.0 * (m * k + k * n + m * n), used)
        rows.append([name, f"{m}×{n}×{k}", str(used), figure(own, 1e-6), figure(flops / own / 1e9), f"{roof / own:.0%}",
                     figure(other, 1e-6), f"{other / own:.2f}"])
    return aligned(rows)


def differentiated(function: Callable[..., Any], x: Any, *rest: Any) -> list[Any]:
    """Run a static function forward and backward until it is compiled; returns what must stay alive."""
    import kusari
    static = kusari.static_graph(strict=True)(function)
    variable = kusari.Variable(x)
    keep: list[Any] = [static, variable, *rest]
    for _ in range(3):
        variable.cleargrad()
        y = static(variable, *rest)
        y.grad = y.array if y.size > 1 else None
        y.backward()
        keep.append(y)
    return keep


def softmax_cross_entropy(random: Any) -> list[Any]:
    """Softmax cross entropy of 1,000 rows of 1,000 classes, and its gradient."""
    import kusari.functions as F
    labels = random.randint(0, 1000, 1000).astype("int32")
    return differentiated(lambda x, t: F.softmax_cross_entropy(x, t), random.rand(1000, 1000).astype("f"), labels)


def layer_norm(random: Any) -> list[Any]:
    """Layer normalization of 1,024 rows of 256, and its gradients."""
    import kusari.functions as F
    gamma, beta = random.rand(256).astype("f"), random.rand(256).astype("f")
    return differentiated(lambda x, g, b: F.layer_normalization(x, g, b),
                          random.rand(1024, 256).astype("f"), gamma, beta)


def batch_norm(random: Any) -> list[Any]:
    """Batch normalization and ReLU of 32 images of 64 channels, 32 by 32, and their gradients."""
    import kusari.functions as F
    gamma, beta = random.rand(64).astype("f"), random.rand(64).astype("f")
    return differentiated(lambda x, g, b: F.relu(F.batch_normalization(x, g, b)),
                          random.rand(32, 64, 32, 32).astype("f"), gamma, beta)


def adam(random: Any) -> list[Any]:
    """Adam on the 1.8 million parameters of mnist_mlp, in one foreach."""
    from kusari.commands.models import MODELS, compiled
    model = MODELS["mnist_mlp"]
    chain = model.build(compiled(model.chain))
    optimizer = model.updater(chain)
    x, labels = model.arrays()
    for t in labels[:3]:
        chain.cleargrads()
        chain.loss(*x, *t).backward()
        optimizer.update()
    return [chain, optimizer, x, labels]


CASES: dict[str, tuple[Callable[[Any], list[Any]], str | None]] = {
    "softmax cross entropy": (softmax_cross_entropy, None),
    "layer norm": (layer_norm, None),
    "batch norm": (batch_norm, None),
    "adam": (adam, "update"),
}
"""How to get schedules compiled, and the name of the only graph that counts (else all)."""


def rows_table(name: str) -> str:
    """The native rows of a case's schedules."""
    import executables
    import numpy as np
    from roof import limit
    make, graph_name = CASES[name]
    before = [executable for executable, _ in executables.live()]
    keep = make(np.random.RandomState(0))
    rows = [[name, "threads", "µs", "GFLOP/s", "GB/s", "of the roof"]]
    for executable, frames in executables.live():
        graph = executable.plan.graph
        if executable in before or not frames or graph_name not in (None, graph.name):
            continue
        for row in executables.profile(executable, frames[0]):
            roof = limit(row.kernel.flops, row.moved, row.threads, row.footprint)
            where = "backward" if graph.name.endswith("_backward") else graph_name or "forward"
            rows.append([f"{where}: {row.kernel.symbol}", str(row.threads), figure(row.seconds, 1e-6),
                         figure(row.kernel.flops / row.seconds / 1e9), figure(row.moved / row.seconds / 1e9),
                         f"{roof / row.seconds:.0%}"])
    del keep
    return aligned(rows)


def main() -> int:
    """Measure and print."""
    names = ("gemm", *CASES)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"of {', '.join(names)}")
    parser.add_argument("--threads", type=positive(int), help="threads (one per processor)")
    parser.add_argument("--seconds", type=positive(float), default=0.3, help="time per product and footprint (0.3)")
    options = parser.parse_args()
    for each in options.kernels:
        if each not in names:
            parser.error(f"expected one of {', '.join(names)}, got {each}")
    threads = options.threads
    if threads and os.environ.get("KUSARI_NUM_THREADS") != str(threads):
        # NumPy's BLAS reads its number of threads when it is loaded, and it is loaded already.
        os.environ.update({f"{name}_NUM_THREADS": str(threads) for name in THREAD_VARIABLES})
        os.execv(sys.executable, [sys.executable, *sys.argv])
    from kusari.runtime.target import thread_limit
    threads = thread_limit()
    print(f"{machine(threads)}\n\n{roof_table(threads, options.seconds)}", flush=True)
    for name in options.kernels or names:
        table = gemm_table(options.seconds) if name == "gemm" else rows_table(name)
        print(f"\n{table}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
