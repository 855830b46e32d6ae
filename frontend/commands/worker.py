"""One measurement of ``python -m kusari bench``, in a process of its own: prints one line of JSON.

``python -m kusari.commands.worker MODEL eager|compiled train|infer SECONDS``
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import no_backprop_mode, using_config
from .models import MODELS, Model, compiled

WARM_UP = 0.25
FIRST = 3
LEAST = 5


def peak_megabytes() -> float | None:
    """The largest resident size of this process so far; None where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def training_step(model: Model, chain: Any) -> Callable[[int], Any]:
    """Zero the gradients, forward, loss, backward, update, read the loss."""
    x, labels = model.data(np.random.RandomState(1))
    optimizer = model.optimizer().setup(chain)

    def step(i: int) -> float:
        chain.cleargrads()
        loss = chain.loss(x, labels[i % len(labels)])
        loss.backward()
        optimizer.update()
        return float(loss.array)

    return step


def inference_step(model: Model, chain: Any) -> Callable[[int], Any]:
    """One forward without gradients."""
    x, _ = model.data(np.random.RandomState(1))

    def step(i: int) -> Any:
        with using_config("train", False), no_backprop_mode():
            return chain(x)

    return step


def measure(step: Callable[[int], Any], seconds: float) -> dict[str, Any]:
    """Time the first call, then the steps of ``seconds`` after a warm-up."""
    clock = time.perf_counter
    begin = clock()
    step(0)
    first = clock() - begin
    i = 1
    end = clock() + WARM_UP
    while i < FIRST or clock() < end:
        step(i)
        i += 1
    times: list[float] = []
    end = clock() + seconds
    while len(times) < LEAST or clock() < end:
        begin = clock()
        step(i)
        times.append(clock() - begin)
        i += 1
    return {"step_ms": statistics.median(times) * 1e3, "first_s": first, "steps": len(times)}


def main(arguments: list[str]) -> int:
    """Measure one case and print it."""
    name, mode, phase, seconds = arguments
    model = MODELS[name]
    np.random.seed(0)
    chain = (compiled(model.chain) if mode == "compiled" else model.chain)()
    make = training_step if phase == "train" else inference_step
    result = measure(make(model, chain), float(seconds))
    print(json.dumps({**result, "peak_mb": peak_megabytes()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
