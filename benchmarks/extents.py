"""Training steps whose batch changes: kernels for any extent beside kernels of each extent's own.

  python benchmarks/extents.py                              a perceptron and a transformer's block
  python benchmarks/extents.py mnist_mlp --extents 24

Two equal models meet the same extents, with an empty cache: one shares kernels from the third extent on, the other
never does. Printed are the kernels that were compiled, and the seconds of the first three steps of all extents. Then
the steps of a few extents are timed in turns; ``ratio`` is that of the medians, above 1 where shared ones are slower.
"""
from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from typing import Any

MODELS = ("mnist_mlp", "transformer_block")
FIRST, ROUNDS, STEPS = 3, 40, 10


def train(name: str, extents: list[int], shares: bool) -> tuple[list[Any], int, float]:
    """Return a step for each extent, the kernels that were compiled, and the seconds of the first steps."""
    import numpy as np

    from kusari.commands.models import MODELS as KNOWN
    from kusari.commands.models import compiled
    from kusari.commands.worker import whole_step
    from kusari.runtime import Loader, ObjectCache
    from kusari.runtime import loader as loading
    from kusari.static.compile import families
    families.ALONE_SIGNATURES = 2 if shares else len(extents)
    loading._default = Loader(ObjectCache(None))
    np.random.seed(0)
    model = KNOWN[name]
    chain = model.build(compiled(model.chain))
    optimizer = model.updater(chain)
    steps: list[Any] = []
    start = time.perf_counter()
    for n in extents:
        steps.append(whole_step(chain, optimizer, *model.at(batch=n).arrays()))
        for i in range(FIRST):
            steps[-1](i)
    return steps, loading._default.report.compiled, time.perf_counter() - start


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--extents", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KUSARI_CACHE_DIR"] = folder
        for name in options.models:
            extents = [10 + 7 * i % 53 for i in range(options.extents)]
            (ours, kernels, seconds), (alone, more, longer) = (train(name, extents, s) for s in (True, False))
            print(f"{name}: {kernels} kernels, first {seconds:.1f} s; "
                  f"each its own {more} kernels, first {longer:.1f} s")
            for k in range(2, len(extents), max(1, len(extents) // 4)):
                times: tuple[list[float], list[float]] = ([], [])
                for _ in range(ROUNDS):
                    for step, found in zip((ours[k], alone[k]), times, strict=True):
                        step(0)
                        start = time.perf_counter()
                        for i in range(STEPS):
                            step(i)
                        found.append((time.perf_counter() - start) / STEPS)
                a, b = map(statistics.median, times)
                print(f"  {extents[k]:4}: {a * 1e3:.3f} ms, its own {b * 1e3:.3f} ms, ratio {a / b:.2f}")


if __name__ == "__main__":
    main()
