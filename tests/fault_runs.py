"""Runs in which a rank fails at a random time: ``python tests/fault_runs.py [RUNS] [--first SEED] [--jobs N]``.

Each run starts two or three ranks of `faulty.py`, with a communicator and an optimizer by chance, and sends a signal to
one of them: while it imports, in MPI_Init or in its training; SIGUSR1 has it raise an exception. A run is good if all
ranks end within `MOST_SECONDS`, with an exit code that is not 0 and a cause that is named. The table has a row for each
kind of fault.
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
LATEST_SECONDS = 3.0  # of a fault, from the start of the processes
# The signals, and the line that names the cause: Python's, or that of MPICH's launcher. Its exit code has the bits of
# all exit codes: where SIGINT ends a rank, and the launcher kills the others, 2 | 9.
KINDS = {"SIGKILL": r"SIGNAL: 9|EXIT CODE: 9\b|Killed", "SIGTERM": r"SIGNAL: 15|EXIT CODE: 15\b|Terminated",
         "SIGABRT": r"SIGNAL: 6|EXIT CODE: 6\b|Aborted|Abort", "SIGSEGV": r"SIGNAL: 11|EXIT CODE: 11\b|Segmentation",
         "SIGINT": r"KeyboardInterrupt|SIGNAL: 2|EXIT CODE: (2|130)\b|Interrupt",
         "SIGUSR1": r"(?s)Traceback.*FaultError"}
COMMUNICATORS = ("pure_nccl", "flat", "naive", "hierarchical", "messages", "double")


@dataclass(frozen=True)
class Found:
    """The end of a run: the fault, the exit code, whether its cause is named, seconds from the signal to the end."""

    kind: str
    about: str
    code: int
    named: bool
    seconds: float
    text: str

    @property
    def good(self) -> bool:
        """Whether it is as it should be."""
        return self.named and self.code not in (0, -1) and self.seconds <= MOST_SECONDS


def run(seed: int) -> Found:
    """Do one run."""
    chance = random.Random(seed)
    size = chance.choice((2, 2, 3))
    rank, wait = chance.randrange(size), chance.uniform(0, LATEST_SECONDS)
    kind, way = chance.choice(list(KINDS)), chance.choice(COMMUNICATORS)
    about = f"{kind} to rank {rank} of {size} after {wait:.2f} s, {way}"
    with tempfile.TemporaryDirectory() as folder:
        process = ranks.start([str(ranks.HERE / "faulty.py"), "none", "0"], size, FAULTY_STEPS="1000000",
                              FAULTY_FOLDER=folder, FAULTY_WAY=way)
        begun = time.monotonic()
        pids = Path(folder, "pids")
        there = [*map(str, range(size)), *[f"{rank} can raise"] * (kind == "SIGUSR1")]
        while not all(os.path.lexists(pids / name) for name in there) and process.poll() is None \
                and time.monotonic() - begun < START_SECONDS:
            time.sleep(0.01)
        time.sleep(wait)
        os.kill(int(os.readlink(pids / str(rank))), getattr(signal, kind))
        code, out, err, seconds = ranks.finish(process, MOST_SECONDS)
    return Found(kind, about, code, re.search(KINDS[kind], out + err) is not None, seconds, out + err)


def table(found: list[Found]) -> str:
    """Return a row for each kind of fault."""
    lines = ["| fault | runs | ended with its cause named | median, s | longest, s | exit codes |",
             "|---|---:|---:|---:|---:|---|"]
    for kind in sorted({x.kind for x in found}):
        rows = [x for x in found if x.kind == kind]
        seconds = [x.seconds for x in rows]
        codes = ", ".join(map(str, sorted({x.code for x in rows})))
        lines.append(f"| {kind} | {len(rows)} | {sum(x.good for x in rows)} | "
                     f"{statistics.median(seconds):.1f} | {max(seconds):.1f} | {codes} |")
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
