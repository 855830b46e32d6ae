"""Single kernels against what this machine can do: products, convolutions, losses, normalizations, an update.

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

from kusari.commands.bench import THREAD_VARIABLES, aligned, figure, machine, positive

NAMES = ("convolution 3×3", "convolution 3×3, stride 2", "convolution 5×5", "convolution 1×1", "elementwise", "softmax",
         "softmax cross entropy", "layer norm", "batch norm", "adam")  # of kernel_cases, which imports all of Kusari
FOOTPRINTS = (1 << 16, 1 << 20, 1 << 23, 1 << 27)


def roof_table(threads: int, seconds: float) -> str:
    """What the machine can do, with one thread and with all."""
    from kusari.static.verify.roof import bandwidth, peak
    counts = sorted({1, threads})
    rows = [["", *(f"{n} thread{'s' * (n > 1)}" for n in counts)],
            ["multiply-adds, GFLOP/s", *(figure(peak(n) / 1e9) for n in counts)]]
    for size in FOOTPRINTS:
        speeds = [figure(bandwidth(size, n, seconds) / 1e9) for n in counts]
        rows.append([f"triad on {size >> 10:,} KiB, GB/s", *speeds])
    return aligned(rows)


def gemm_table(seconds: float, vectors: bool) -> str:
    """The products of the benchmark's networks, forward and gradients; ``vectors``: those of one row or column."""
    from gemm import SHAPES, product

    from kusari.static.compile.target import host_target
    from kusari.static.verify.roof import best, limit
    rows = [["product", "m×n×k", "threads", "µs", "GFLOP/s", "of the roof", "OpenBLAS µs", "OpenBLAS ÷ ours"]]
    for name, m, n, k, transa, transb in SHAPES:
        if (min(m, n) == 1) != vectors:
            continue
        frame, blas = product(m, n, k, transa, transb, host_target(), None)
        used = max(step.threads for step in frame.layout.steps)
        own, other = best([frame.run, blas], seconds)
        flops = 2.0 * m * n * k
        roof = limit(flops, 4.0 * (m * k + k * n + m * n), used)
        rows.append([name, f"{m}×{n}×{k}", str(used), figure(own, 1e-6), figure(flops / own / 1e9), f"{roof / own:.0%}",
                     figure(other, 1e-6), f"{other / own:.2f}"])
    return aligned(rows)


def rows_table(name: str) -> str:
    """The native rows of a case's schedules; equal ones are added up, and so are those of a convolution."""
    import executables
    import numpy as np
    from kernel_cases import CASES, CONVOLUTIONS, arithmetic

    from kusari.static.verify.roof import limit, peak
    make, graph_name = CASES[name]
    before = [executable for executable, _ in executables.live()]
    keep = make(np.random.RandomState(0))
    rows = [[name, "rows", "threads", "µs", "GFLOP/s", "GB/s", "of the roof"]]
    for executable, frames in executables.live():
        graph = executable.plan.graph
        if executable in before or not frames or graph_name not in (None, graph.name):
            continue
        where = "backward" if graph.name.endswith("_backward") else graph_name or "forward"
        groups: dict[tuple[str, int, float], list[executables.Timed]] = {}
        for row in executables.profile(executable, frames[0]):
            groups.setdefault((row.kernel.symbol, row.threads, row.moved), []).append(row)
        for (symbol, threads, moved), same in groups.items():
            seconds, flops = sum(row.seconds for row in same), same[0].kernel.flops * len(same)
            roof = sum(limit(row.kernel.flops, row.moved, row.threads, row.footprint) for row in same)
            rows.append([f"{where}: {symbol}", str(len(same)), str(threads), figure(seconds, 1e-6),
                         figure(flops / seconds / 1e9), figure(moved * len(same) / seconds / 1e9),
                         f"{roof / seconds:.0%}"])
        if name in CONVOLUTIONS:  # against the arithmetic of its definition, which Winograd's algorithm undercuts
            every = [row for same in groups.values() for row in same]
            seconds, threads = sum(row.seconds for row in every), max(row.threads for row in every)
            flops = arithmetic(*CONVOLUTIONS[name]) * (2 if where == "backward" else 1)
            rows.append([f"{where}: all", str(len(every)), str(threads), figure(seconds, 1e-6),
                         figure(flops / seconds / 1e9), "-", f"{flops / peak(threads) / seconds:.0%}"])
    del keep
    return aligned(rows)


def main() -> int:
    """Measure and print."""
    names = ("gemm", "gemv", *NAMES)
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
    from kusari.ir.threads import thread_limit
    threads = thread_limit()
    print(f"{machine(threads)}\n\n{roof_table(threads, options.seconds)}", flush=True)
    for name in options.kernels or names:
        table = gemm_table(options.seconds, name == "gemv") if name in ("gemm", "gemv") else rows_table(name)
        print(f"\n{table}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
