"""One measurement, or the preparation of a model, in an interpreter of its own; prints one line of JSON.

``worker.py measure LIBRARY VARIANT MODEL train|infer FOLDER THREADS SECONDS`` or ``worker.py prepare MODEL FOLDER
[tiny|SIZES [no]]``, the last without an exported model; started by ``side_by_side.py``, which sets the variables that
libraries read their threads from.
``worker.py card LIBRARY MODEL FOLDER CARD ROUNDS SECONDS VARIANT …``; started by ``gpu.py``, prints a line for each
measurement.
``worker.py operations LIBRARY SECONDS``; started by ``overhead.py``. ``worker.py functions LIBRARY THREADS``; started
by ``functions.py``, answers every line with one.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
BENCHMARKS = HERE.parents[1]
TIMING = HERE.parents[2] / "frontend" / "commands" / "timing.py"


def timing() -> Any:
    """Kusari's timing module, also where Kusari is not installed."""
    spec = importlib.util.spec_from_file_location("timing", TIMING)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pin(threads: int) -> None:
    """Keep to as many processors as threads: some libraries (XLA) have no other way to be told."""
    if hasattr(os, "sched_setaffinity"):
        processors = sorted(os.sched_getaffinity(0))
        if threads < len(processors):
            os.sched_setaffinity(0, processors[:threads])


def measure(library: str, variant: str, model: str, phase: str, folder: str, threads: str, seconds: str,
            ) -> dict[str, Any]:
    """Build the peer's step and time it."""
    pin(int(threads))
    from peers.case import load
    peer = importlib.import_module("peers.on_" + library)
    clock = timing()
    case = load(model, phase, variant, int(threads), Path(folder))
    step, value = peer.build(case)
    case.weights.clear()  # the model has them now
    start = clock.settled_megabytes()
    found = clock.measure(step, float(seconds), value)
    return dict(found, start_mb=start, version=peer.version(), threads=peer.threads())


def measure_card(library: str, model: str, folder: str, card: str, rounds: str, seconds: str, *variants: str) -> None:
    """Time the variants (``train:eager``) on a card, in rounds, each step until the card has done it."""
    from peers.case import load
    peer = importlib.import_module("peers.on_" + library)
    clock = timing()
    steps: dict[str, Any] = {}
    for name in variants:
        phase, _, variant = name.partition(":")
        try:
            step, value = peer.build(load(model, phase, variant, 1, Path(folder), int(card)))
            steps[name] = finished(step, peer.synchronize), value
        except Exception as error:
            tell(library, model, name, error=f"{type(error).__name__}: {error}"[:300])
    first: dict[str, Any] = {}
    for turn in range(int(rounds)):
        for name in list(steps):
            try:
                found = clock.measure(steps[name][0], float(seconds), steps[name][1] if turn == 0 else None)
            except Exception as error:
                del steps[name]
                tell(library, model, name, error=f"{type(error).__name__}: {error}"[:300])
                continue
            first.setdefault(name, found["values"])
            tell(library, model, name, round=turn, **{**found, "values": first[name]}, version=peer.version(),
                 threads="-", disturbed=False)


def finished(step: Any, synchronize: Any) -> Any:
    """A step that ends when the card has done it."""
    def done(i: int) -> Any:
        result = step(i)
        synchronize()
        return result
    return done


def tell(library: str, model: str, name: str, **facts: Any) -> None:
    """Print a measurement of a card."""
    phase, _, variant = name.partition(":")
    print(json.dumps({"kind": "step", "model": model, "phase": phase, "library": library, "variant": variant, **facts}),
          file=sys.__stdout__, flush=True)


def serve(library: str, threads: str) -> None:
    """Measure every case that stdin names, until it ends."""
    from peers.functions import Server
    pin(int(threads))
    server = Server(library, int(threads))
    for line in sys.stdin:
        print(json.dumps(server(*json.loads(line))), file=sys.__stdout__, flush=True)


def main(arguments: list[str]) -> int:
    """Do what the command line says; what libraries print goes to stderr."""
    sys.path[0] = str(BENCHMARKS)
    if arguments[0] == "card":
        with contextlib.redirect_stdout(sys.stderr):
            measure_card(*arguments[1:])
        return 0
    if arguments[0] == "functions":
        with contextlib.redirect_stdout(sys.stderr):
            serve(*arguments[1:])
        return 0
    with contextlib.redirect_stdout(sys.stderr):
        if arguments[0] == "prepare":
            from peers.on_kusari import prepare
            prepare(arguments[1], Path(arguments[2]), *arguments[3:])
            found: dict[str, Any] = {}
        elif arguments[0] == "operations":
            from peers.operations import measure as measure_operations
            found = measure_operations(arguments[1], float(arguments[2]))
        else:
            found = measure(*arguments[1:])
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
