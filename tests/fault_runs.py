"""Runs in which a rank fails at a random time: ``python tests/fault_runs.py [RUNS] [--first SEED] [--jobs N]``.

Each run starts two or three ranks of `faulty.py`, with a communicator and an optimizer by chance, and sends a signal to
one of them: at a random time after its start, after it has imported the package (before, in and after MPI_Init), or in
its training. SIGUSR1 and SIGINT have it raise an exception, the others end it. A run is good if all ranks end within
`MOST_SECONDS`, with an exit code that is not 0 and a cause that is named. The table has a row for each kind of fault.
"""
from __future__ import annotations

import argparse
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import mpi_ranks as ranks

MOST_SECONDS = 20.0
START_SECONDS = 120.0  # that processes may take to be there on a busy machine
LATEST_SECONDS = {"started": 0.5, "imported": 1.0, "training": 2.0}  # of a fault, from the time when ranks are so far
EXCEPTIONS = {"SIGUSR1": "FaultError: a fault", "SIGINT": "KeyboardInterrupt"}
CRASHES = {"SIGABRT": "Fatal Python error: Aborted", "SIGSEGV": "Fatal Python error: Segmentation fault"}
KINDS = ("SIGKILL", "SIGTERM", *EXCEPTIONS, *CRASHES)
COMMUNICATORS = ("pure_nccl", "flat", "naive", "hierarchical", "messages", "double")


@dataclass(frozen=True)
class Found:
    """The end of a run: the fault, the exit code, who has named its cause, seconds from the signal to the end."""

    kind: str
    phase: str
    about: str
    code: int
    named: str
    seconds: float
    text: str

    @property
    def good(self) -> bool:
        """Whether it is as it should be."""
        return bool(self.named) and self.code not in (0, -1) and self.seconds <= MOST_SECONDS


def named(kind: str, phase: str, text: str) -> str:
    """Return who has named the cause: the rank by its traceback, or the launcher by the signal; empty where nobody has.

    MPICH's launcher ends the other ranks with SIGKILL, and prints the bits of all exit codes together, as 9 | 6.
    """
    said = {**EXCEPTIONS, **CRASHES}.get(kind)
    if said is not None and said in text and ("Traceback" in text or "most recent call first" in text):
        return "traceback"
    number = getattr(signal, kind)
    of_launcher = any(re.search(rf"EXIT CODE: {n}\b|\(signal {n}\)", text) for n in (number, number | signal.SIGKILL))
    return "launcher" if of_launcher and (said is None or phase == "started") else ""


def run(seed: int) -> Found:
    """Do one run."""
    chance = random.Random(seed)
    size = chance.choice((2, 2, 3))
    rank, kind, way = chance.randrange(size), chance.choice(KINDS), chance.choice(COMMUNICATORS)
    phase = chance.choice(("imported", "training", "training") if kind in EXCEPTIONS else
                          ("started", "imported", "training", "training"))
    wait = chance.uniform(0, LATEST_SECONDS[phase])
    about = f"{kind} to rank {rank} of {size}, {phase} for {wait:.2f} s, {way}"
    with tempfile.TemporaryDirectory() as folder:
        process = ranks.start([str(ranks.HERE / "faulty.py"), "none", "0"], size, FAULTY_FOLDER=folder, FAULTY_WAY=way)
        begun = time.monotonic()
        pids = [Path(folder, phase, str(r)) for r in range(size)]
        while not all(map(os.path.lexists, pids)) and process.poll() is None \
                and time.monotonic() - begun < START_SECONDS:
            time.sleep(0.01)
        time.sleep(wait)
        os.kill(int(os.readlink(pids[rank])), getattr(signal, kind))
        code, out, err, seconds = ranks.finish(process, MOST_SECONDS)
    return Found(kind, phase, about, code, named(kind, phase, out + err), seconds, out + err)


def table(found: list[Found]) -> str:
    """Return a row for each kind of fault and the time when it came."""
    lines = ["| signal | when | runs | ended with a named cause | by the rank's traceback | median, s | longest, s |",
             "|---|---|---:|---:|---:|---:|---:|"]
    for kind, phase in sorted({(x.kind, x.phase) for x in found}):
        rows = [x for x in found if (x.kind, x.phase) == (kind, phase)]
        seconds = [x.seconds for x in rows]
        lines.append(f"| {kind} | {phase} | {len(rows)} | {sum(x.good for x in rows)} | "
                     f"{sum(x.named == 'traceback' for x in rows)} | "
                     f"{statistics.median(seconds):.1f} | {max(seconds):.1f} |")
    bad = sum(not x.good for x in found)
    return "\n".join([*lines, f"{len(found)} runs, {bad} without a named cause or not in time"])


def main() -> int:
    """Do the runs and print the table; returns 1 where one was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int, nargs="?", default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    options = parser.parse_args()
    with ThreadPoolExecutor(options.jobs) as pool:
        found: list[Found] = []
        for done in pool.map(run, range(options.first, options.first + options.runs)):
            found.append(done)
            if not done.good:
                print(f"NOT GOOD: {done.about}: exit code {done.code}, {done.seconds:.1f} s\n{done.text}", flush=True)
            if len(found) % 50 == 0:
                print(f"{len(found)} runs, {sum(not x.good for x in found)} not good", flush=True)
    print(table(found))
    return int(not all(x.good for x in found))


if __name__ == "__main__":
    sys.exit(main())
