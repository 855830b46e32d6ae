"""Faults of one rank end the job on all ranks, with a cause that names it."""
from __future__ import annotations

import os
import random
import re
import signal
import tempfile
import time

import mpi_ranks as ranks
import pytest

SCRIPT = str(ranks.HERE / "faulty.py")
MOST_SECONDS = 60  # a hang, and no measure: machines may be busy


@ranks.needs_mpi
@pytest.mark.parametrize(("kind", "said"), [
    ("raise", r"(?s)^[^*]*Traceback.*ZeroDivisionError: the cause.*uncaught exception on rank 1; MPI_Abort"),
    *[pytest.param(*case, marks=pytest.mark.slow) for case in (
        ("raise in a thread", r"(?s)ZeroDivisionError.*uncaught exception on rank 1; MPI_Abort"),
        ("exit", r"rank 1 has ended its program, and rank 0 waits for it in \w+ at .*faulty.py"),
        ("return", r"rank 1 has ended its program, and rank 0 waits for it in \w+ at .*faulty.py"),
        ("kill", r"KILLED BY SIGNAL|EXIT STRING: Killed|EXIT CODE: 9"),
        ("other call", r"(?s)ranks do not make the same call:.*|every rank waits for another one"),
        ("message", r"(?s)every rank waits for another one:\n  rank 0 waits in \w+ at .*faulty.py.*"
                    r"rank 1 waits in recv\(source=0\) at .*faulty.py:\d+, in fail"),
        ("skip", r"ranks do not make the same call|every rank waits"),
        ("shape", r"ranks do not make the same call|every rank waits"))],
])
def test_one_rank_ends_all(kind: str, said: str) -> None:
    code, out, err, _ = ranks.run([SCRIPT, kind.replace(" ", "_"), "1"], seconds=MOST_SECONDS)
    assert code not in (0, -1), out + err
    assert re.search(said, out + err), out + err


@ranks.needs_mpi
def test_an_exception_is_the_first_that_is_printed() -> None:
    _, _, err, _ = ranks.run([SCRIPT, "raise", "0"], seconds=MOST_SECONDS)
    assert err.lstrip().startswith("Traceback"), err


@ranks.needs_mpi
@pytest.mark.slow
def test_scripts_under_the_alias_end_all_ranks() -> None:
    code, _, err, _ = ranks.run(["-m", "kusari", "run", SCRIPT, "raise", "1"], seconds=MOST_SECONDS)
    assert code not in (0, -1) and "MPI_Abort() ends all ranks" in err, err


def random_fault(seed: int, size: int = 2) -> tuple[str, int, str, float]:
    """Kill a rank at a random time; returns what was done, the exit code, all output and the seconds until the end."""
    chance = random.Random(seed)
    rank, wait = chance.randrange(size), chance.uniform(0, 2.0)
    kind = chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGSEGV))
    with tempfile.TemporaryDirectory() as folder:
        process = ranks.start([SCRIPT, "none", "0"], size, FAULTY_STEPS="1000000", FAULTY_PIDS=folder)
        while len(os.listdir(folder)) < size and process.poll() is None:
            time.sleep(0.01)
        time.sleep(wait)
        os.kill(int(os.readlink(os.path.join(folder, str(rank)))), kind)
    code, out, err, seconds = ranks.finish(process, MOST_SECONDS)
    return f"{signal.Signals(kind).name} to rank {rank} after {wait:.2f} s", code, out + err, seconds


@ranks.needs_mpi
@pytest.mark.slow
def test_killed_ranks_end_all() -> None:
    for seed in range(50):
        what, code, text, _ = random_fault(seed)
        assert code not in (0, -1) and re.search("BAD TERMINATION|signal|Traceback", text), f"{what}: {code}\n{text}"


if __name__ == "__main__":  # the table of such runs
    import sys

    worst = 0.0
    kinds: dict[str, int] = {}
    for seed in range(int(sys.argv[1])):
        what, code, text, seconds = random_fault(seed)
        cause = next(iter(re.findall(r"EXIT STRING: (.*)|(EXIT CODE: \d+)|(uncaught exception)", text)), ("no cause",))
        named = "; ".join(filter(None, cause))
        kinds[f"{what.split()[0]}: exit code {code}, {named}"] = kinds.get(
            f"{what.split()[0]}: exit code {code}, {named}", 0) + 1
        worst = max(worst, seconds)
    for text, count in sorted(kinds.items()):
        print(f"{count:4d}  {text}")
    print(f"the longest took {worst:.1f} s from the signal to the end")
