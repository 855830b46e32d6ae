"""Single functions, compiled, beside NumPy and PyTorch: whole calls on arrays of float32, without gradients.

  python benchmarks/functions.py --python torch=PEERS/bin/python
  python benchmarks/functions.py "softmax 32x32000" "matmul 1x4096 4096x4096" --threads 1

A case is a function and the shapes of its arrays. Each library has a process of its own, and they take turns: in every
turn each measures a case for ``--seconds``, its best time counts. The table has medians of the turns; ratios are taken
within a turn. ``kernels`` are the native rows of ours, each run alone, without Python and without memory for results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from peers.functions import read

from kusari.commands.bench import THREAD_VARIABLES, aligned, figure, machine, positive
from kusari.ir.threads import thread_limit

WORKER = Path(__file__).parent / "peers" / "worker.py"
CASES = ("sum 4000000", "column-sum 65536x64", "max 4096x256", "softmax 1x131072", "softmax 32x32000",
         "softmax 512x1000", "softmax 4096x64", "softmax 1024x10", "layer-norm 1024x256", "exp 1000000",
         "tanh 1000000", "gelu 1000000", "log2 16384", "power 16384 16384", "matmul 1x4096 4096x4096",
         "matmul 64x64 64x64", "matmul 512x512 512x512", "linear 100x784 1000x784", "linear 64x64 4096x64",
         "transpose 1000x1000")


class Library:
    """A process that measures for one library."""

    def __init__(self, name: str, interpreter: str, threads: int) -> None:
        environment = dict(os.environ, PYTHONWARNINGS="ignore")
        environment.update({f"{v}_NUM_THREADS": str(threads) for v in THREAD_VARIABLES})
        self.name = name
        self.process = subprocess.Popen([interpreter, str(WORKER), "functions", name, str(threads)], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, case: str, seconds: float) -> dict[str, float]:
        """What ``peers.functions.Server`` says of a case."""
        assert self.process.stdin and self.process.stdout
        print(json.dumps([case, seconds]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} failed at {case}")
        return json.loads(line)

    def close(self) -> None:
        """Let it end."""
        self.process.communicate()


def spread(values: list[float]) -> str:
    """Median, least and most of ratios."""
    return f"**{statistics.median(values):.2f}** ({min(values):.2f}–{max(values):.2f})"


def table(cases: list[str], libraries: list[Library], turns: int, seconds: float) -> str:
    """One row per case."""
    names = [library.name for library in libraries]
    rows = [["µs", "kernels", *names, *(f"{name} ÷ kusari" for name in names[1:])]]
    for case in cases:
        found: list[dict[str, dict[str, float]]] = []
        for turn in range(turns):
            order = libraries[turn % len(libraries):] + libraries[:turn % len(libraries)]
            found.append({library.name: library.measure(case, seconds) for library in order})
        results = [measured["result"] for measured in found[0].values()]
        if max(results) - min(results) > 1e-4 * max(results):
            raise SystemExit(f"{case}: the libraries compute something else: {dict(zip(names, results, strict=True))}")

        def median(name: str, key: str, found: list[Any] = found) -> str:
            return figure(statistics.median(turn[name][key] for turn in found), 1e-6)

        rows.append([case, median("kusari", "kernels"), *(median(name, "call") for name in names),
                     *(spread([turn[name]["call"] / turn["kusari"]["call"] for turn in found]) for name in names[1:])])
    return aligned(rows)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="a function and its shapes, in one argument")
    parser.add_argument("--python", metavar="torch=PATH", help="an interpreter that has PyTorch")
    parser.add_argument("--turns", type=positive(int), default=5, help="turns (5)")
    parser.add_argument("--seconds", type=positive(float), default=0.05, help="time per library and turn (0.05)")
    parser.add_argument("--threads", type=positive(int), help="threads of every library (one per processor)")
    options = parser.parse_args()
    for case in options.cases:
        try:
            read(case)
        except ValueError as error:
            parser.error(str(error))
    threads = options.threads or thread_limit()
    interpreters = {"kusari": sys.executable, "numpy": sys.executable}
    if options.python:
        library, _, path = options.python.partition("=")
        if library != "torch" or not path:
            parser.error(f"--python: expected torch=PATH, got {options.python}")
        interpreters["torch"] = path
    libraries = [Library(name, path, threads) for name, path in interpreters.items()]
    print(f"{machine(threads)}; {options.turns} turns of {options.seconds:g} s\n")
    print(table(options.cases or list(CASES), libraries, options.turns, options.seconds))
    for library in libraries:
        library.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
