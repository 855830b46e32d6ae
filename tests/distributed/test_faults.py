"""Faults of one rank end the job on all ranks, with a cause that names it."""
from __future__ import annotations

import re
from pathlib import Path

import fault_runs
import mpi_ranks as ranks
import pytest

SCRIPT = str(ranks.HERE / "faulty.py")
MOST_SECONDS = 60  # a hang, and no measure: machines may be busy


@ranks.needs_mpi
@pytest.mark.slow
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
def test_an_exception_before_mpi_runs_ends_ranks_that_wait_for_it() -> None:
    program = "import os, kusari.distributed as d\nif os.environ['PMI_RANK'] == '1': 1 // 0\nd.create_communicator()"
    code, _, err, _ = ranks.run(["-c", program], seconds=MOST_SECONDS)
    assert code not in (0, -1) and err.lstrip().startswith("Traceback"), err
    assert "ZeroDivisionError" in err and "uncaught exception before MPI_Init(); SIGTERM ends all ranks" in err, err


@ranks.needs_mpi
@pytest.mark.slow
def test_scripts_under_the_alias_end_all_ranks_before_they_import_anything(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os\nif os.environ['PMI_RANK'] == '1': 1 // 0\nimport chainermn\n"
                      "chainermn.create_communicator()\n")
    code, _, err, _ = ranks.run(["-m", "kusari", "run", str(script)], seconds=MOST_SECONDS)
    assert code not in (0, -1) and "ZeroDivisionError" in err and "SIGTERM ends all ranks" in err, err


@ranks.needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "said"), [("SIGSEGV", "Segmentation fault"), ("SIGABRT", "Aborted")])
def test_ranks_that_crash_print_where(kind: str, said: str) -> None:
    program = ("import kusari.distributed as d, os, signal\ncomm = d.create_communicator()\n"
               f"def crash():\n    os.kill(os.getpid(), signal.{kind})\n"
               "if comm.rank == 1: crash()\ncomm.allreduce_obj(1)\n")
    code, _, err, _ = ranks.run(["-c", program], seconds=MOST_SECONDS)
    assert code not in (0, -1) and f"Fatal Python error: {said}" in err and "in crash" in err, err


@ranks.needs_mpi
@pytest.mark.slow
def test_scripts_under_the_alias_end_all_ranks() -> None:
    code, _, err, _ = ranks.run(["-m", "kusari", "run", SCRIPT, "raise", "1"], seconds=MOST_SECONDS)
    assert code not in (0, -1) and "MPI_Abort() ends all ranks" in err, err


@ranks.needs_mpi
@pytest.mark.slow
def test_ranks_that_fail_at_random_times_end_all() -> None:
    found = [fault_runs.run(seed) for seed in range(16)]  # `python tests/fault_runs.py 500` has more
    assert all(x.good for x in found), "\n".join(f"{x.about}: exit code {x.code}, {x.seconds:.1f} s\n{x.text}"
                                                for x in found if not x.good)
