"""Checks that run on several ranks, and the way to run them: one start of ``mpiexec`` for all checks of some modules.

A module of checks (``checks_*.py``) has functions ``check_…(comm)``, each of which all ranks call. `run_all` runs them
and prints a line of JSON for each; the tests beside it read these.
"""
from __future__ import annotations

import fcntl
import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent / "distributed"
MARK = "check result: "
SECONDS = 300  # until ranks that hang are killed; they share cores with other tests


def missing() -> str:
    """Return why several processes cannot be started here; empty where they can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed: pip install 'kusari[mpi]'"
    return "" if mpiexec() else "there is no mpiexec: pip install mpich"


def mpiexec() -> str | None:
    """Return the program that starts ranks: that beside this Python first."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


needs_mpi = pytest.mark.skipif(bool(missing()), reason=missing())


def start(arguments: list[str], size: int = 2, **variables: str) -> subprocess.Popen[str]:
    """Start a Python program on ``size`` ranks."""
    launcher = mpiexec()
    assert launcher is not None
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "KUSARI_NUM_THREADS": "1",
           "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]), **variables}
    return subprocess.Popen([launcher, "-n", str(size), sys.executable, "-W", "ignore::FutureWarning", *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
                            cwd=tempfile.gettempdir())


def finish(process: subprocess.Popen[str], seconds: float = SECONDS) -> tuple[int, str, str, float]:
    """Wait for it; returns its exit code, what it has printed, errors, and how long it took."""
    began = time.monotonic()
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return -1, out, f"{err}\nstill running after {seconds} s", seconds
    return process.returncode, out, err, time.monotonic() - began


def run(arguments: list[str], size: int = 2, seconds: float = SECONDS, **variables: str) -> tuple[int, str, str, float]:
    """Run a Python program on ``size`` ranks."""
    return finish(start(arguments, size, **variables), seconds)


@functools.cache
def results(modules: tuple[str, ...], size: int = 2, variables: tuple[tuple[str, str], ...] = (),
            ) -> dict[str, list[str]]:
    """Run all checks of modules once; returns for each the errors of the ranks, empty where it holds.

    Tests that several processes run share the results: one of them runs the checks, the others wait.
    """
    own_run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if own_run is None:
        return _results(modules, size, variables)
    key = "-".join([*modules, str(size), *(value for _, value in variables)])
    place = Path(tempfile.gettempdir()) / f"kusari-checks-{own_run}-{key}.json"
    with open(place, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if text := file.read():
            return json.loads(text)
        found = _results(modules, size, variables)
        file.write(json.dumps(found))
    return found


def _results(modules: tuple[str, ...], size: int, variables: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    seconds = SECONDS * max(1, size // 2)  # many ranks share the cores
    code, out, err, _ = run([str(HERE / "every_check.py"), *modules], size, seconds, **dict(variables))
    found: dict[str, list[str]] = {}
    for line in out.splitlines():
        if line.startswith(MARK):
            name, errors = json.loads(line[len(MARK):])
            found[name] = errors
    if code != 0:
        found["the end"] = [f"exit code {code}\n{out[-2000:]}\n{err[:3000]}\n…\n{err[-3000:]}"]
    return found


def names(module: str) -> list[str]:
    """Return the names of the checks of a module, without importing it."""
    text = (HERE / f"{module}.py").read_text("utf-8")
    return [line.partition("(")[0].removeprefix("def ") for line in text.splitlines() if line.startswith("def check_")]


def require(modules: tuple[str, ...], name: str, size: int = 2, **variables: str) -> None:
    """Fail the test if the check did on some rank; the checks of ``modules`` are run together."""
    found = results(modules, size, tuple(sorted(variables.items())))
    assert name in found, "\n".join(found.get("the end", ["it was not run"]))
    assert not any(found[name]), "\n".join(found[name])


def run_all(module: dict[str, Any]) -> None:
    """Run the checks of a module on this rank, and have rank 0 print the results of all ranks."""
    from kusari import distributed

    comm = distributed.create_communicator("flat")
    checks: list[Callable[..., Any]] = [value for name, value in module.items() if name.startswith("check_")]
    for check in checks:
        error = ""
        try:
            check(comm)
        except Exception:
            error = f"rank {comm.rank}: {traceback.format_exc()}"
            print(error, file=sys.stderr, flush=True)  # where ranks are no longer in step, no results come
        errors = comm.gather_obj(error)
        if errors is not None:
            print(MARK + json.dumps([check.__name__, errors]), flush=True)


def raised(kind: type[BaseException], text: str, call: Callable[[], Any]) -> None:
    """Check that a call raises."""
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error} does not say {text!r}"
        return
    raise AssertionError(f"nothing was raised, but {kind.__name__} {text!r} should have been")
