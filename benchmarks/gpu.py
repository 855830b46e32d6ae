"""A graphics card put to the test: the tests that need one, then Kusari beside PyTorch and JAX; writes gpu.md.

  make gpu                                      with the Python of PYTHON=…, which has CuPy, and torch and jax if it can
  python benchmarks/gpu.py --minutes 20         the survey to its end, too
  python benchmarks/gpu.py --skip-tests mnist_mlp

Nothing is downloaded. All stops when the minutes are over (9). What says most comes first, and what takes longest last:
torch.compile searches for kernels (``max-autotune``). The report is written anew after each group of tests and each
measured model, so that a run that is cut off leaves one, which says what was not run; all that was printed is in
gpu.log beside it. The exit code is 0 when the tests passed, 1 when not (or when they could not be run), and 2 without a
card, in which case nothing is written.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import report
from peers.survey_sequences import SURVEY

from kusari.backends import cuda
from kusari.commands.bench import positive
from kusari.commands.models import MODELS
from kusari.errors import DeviceError
from kusari.runtime.card import cublaslt, cudnn

HERE = Path(__file__).resolve().parent
WORKER = HERE / "peers" / "worker.py"
INTO = HERE / "gpu.md"
FOLDER = "tests/cards"
#: Groups of tests, each in a process of its own, as an error of a card leaves nothing of it: name, files, and their
#: share of all the time. The last one is whatever is left of the folder.
TESTS = (
    ("whole models", ("test_devices.py", "test_compiled.py", "test_joined_loops.py", "test_compiled_training.py"),
     0.14),
    ("hazards", ("test_compiled_hazards.py", "test_compiled_following.py", "test_training.py", "test_profiling.py"),
     0.06),
    ("products and convolutions", ("test_compiled_products.py", "test_compiled_convolutions.py",
                                   "test_models_by_cublaslt.py"), 0.06),
    ("rows", (), 0.09))
OTHERS_WARNINGS = "DeprecationWarning", "FutureWarning", "ImportWarning", "ResourceWarning"  # are no failures here
FIRST = "elementwise", "mnist_mlp", "transformer_block", "resnet18"  # before the others, with torch.compile
WORKER_LIMIT_S = 120  # one worker, which measures all variants of one library on one model
RESERVE_S = 5  # for the report
ROUNDS = 3
SECONDS = 0.3
EAGER_AND_STATIC = ("train:eager", "train:static step", "train:whole step", "infer:eager", "infer:static")
PEERS = {"kusari": EAGER_AND_STATIC, "torch": ("train:eager", "infer:eager"), "jax": ("train:jit", "infer:jit")}
COMPILED = "train:compile", "train:compile step", "infer:compile"


class Job(NamedTuple):
    """One worker: a library's variants on a model."""

    library: str
    model: str
    variants: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.library} on {self.model} ({', '.join(self.variants)})"


@dataclass
class Outcome:
    """All that is reported."""

    card: str
    minutes: float
    records: list[dict[str, Any]] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)
    tests: dict[str, int] = field(default_factory=dict)
    unfinished: bool = False  # whether tests were stopped, or ended their process
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    pending: Sequence[object] = ()  # what is to be run yet

    @property
    def passed(self) -> bool:
        """Whether tests were run, to their end, and none failed."""
        return bool(self.tests.get("passed")) and not self.failures and not self.unfinished


class Budget:
    """The time that is left."""

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._whole_s = 60 * minutes - RESERVE_S

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._start

    def left(self, most: float = float("inf")) -> float:
        """Seconds left, but no more than ``most``."""
        return max(0.0, min(most, self._whole_s - self.spent))

    def share(self, part: float) -> float:
        """A part of all the time, as far as it is left."""
        return self.left(part * self._whole_s)


def jobs_of(models: list[str], has: Callable[[str], bool]) -> tuple[list[Job], list[str]]:
    """All workers in the order in which they are worth their time, and what cannot be run."""
    missing = [library for library in PEERS if not has(library)]
    skipped = [f"{library}: not installed" for library in missing]
    jobs: list[Job] = []
    for table in (FIRST, MODELS, SURVEY):
        chosen = [name for name in table if name in models and (table is FIRST or name not in FIRST)]
        for name in chosen:
            jobs += [Job(library, name, variants) for library, variants in PEERS.items()
                     if library not in missing and not (library == "jax" and name in SURVEY)]
        if "torch" not in missing:
            jobs += [Job("torch", name, COMPILED) for name in chosen]
    if any(name in SURVEY for name in models):
        skipped.append("jax on the survey: these models are not written for it")
    return jobs, skipped


Run = Callable[[list[str], float], tuple[str, str | None]]
"""Run a command for so many seconds at most; what it printed, and what went wrong."""


def run(command: list[str], seconds: float, log: Path | None = None) -> tuple[str, str | None]:
    """Run a command, with all processes that it starts; what it has printed is kept also where its time is over."""
    environment = dict(os.environ, PYTHONWARNINGS="ignore", JAX_PLATFORMS="cuda", PYTHONUNBUFFERED="1",
                       PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, cwd=HERE.parent,
                                   start_new_session=True)
        code, problem = 0, None
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            problem = f"stopped after {seconds:.0f} s"
        finally:
            if process.returncode is None:
                with contextlib.suppress(OSError):
                    (os.killpg if hasattr(os, "killpg") else os.kill)(process.pid, getattr(signal, "SIGKILL", 9))
                process.wait()
        out.seek(0)
        err.seek(0)
        text, said = out.read(), err.read()
    if code:
        lines = said.strip().splitlines()
        problem = (lines[-1] if lines else f"exit status {code}")[:300]
    if log is not None:
        with log.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"$ {' '.join(command)}\n{text}\n{said}\n{problem or ''}\n")
    return text, problem


def do_tests(outcome: Outcome, budget: Budget, run: Run, save: Callable[[], None]) -> None:
    """The tests marked ``gpu``, group by group."""
    if not installed("pytest"):
        outcome.not_run.append("the tests: pytest not installed")
        return
    named = [f"{FOLDER}/{file}" for _, files, _ in TESTS for file in files]
    for name, files, share in TESTS:
        where = [f"{FOLDER}/{file}" for file in files] or [FOLDER, *[f"--ignore={file}" for file in named]]
        print(f"{budget.spent:4.0f} s  tests: {name}", file=sys.stderr, flush=True)
        text, problem = run([sys.executable, "-m", "pytest", "-v", "-m", "gpu", "-p", "no:cacheprovider", "-p",
                             "benchmarks.reasons", "--color=no", "--tb=short", "--continue-on-collection-errors",
                             *[f"-Wdefault::{kind}" for kind in OTHERS_WARNINGS], *where], budget.share(share))
        counts, failures = counted(text)
        for kind, count in counts.items():
            outcome.tests[kind] = outcome.tests.get(kind, 0) + count
        outcome.failures += failures
        if problem is not None and not re.search(r"^=.* in \d+\.\d+s", text, re.MULTILINE):  # the last line
            outcome.unfinished = True
            outcome.not_run.append(f"the tests of {name} after {sum(counts.values())} of them: {problem}")
        elif not counts:
            outcome.not_run.append(f"the tests of {name}: none was found")
        save()


def counted(text: str) -> tuple[dict[str, int], list[str]]:
    """How many tests passed, failed and were skipped, and the names of those that failed, with reasons."""
    counts: dict[str, int] = {}
    failed: list[str] = []
    reasons = dict(re.findall(r"^because (\S+::.*?) :: (.*)$", text, re.MULTILINE))
    for name, word in re.findall(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED)\b", text, re.MULTILINE):
        kind = {"PASSED": "passed", "SKIPPED": "skipped"}.get(word, "failed")
        counts[kind] = counts.get(kind, 0) + 1
        if kind == "failed":
            failed.append(f"`{name}`: {reasons[name]}" if name in reasons else f"`{name}`")
    return counts, failed


def do_models(outcome: Outcome, jobs: list[Job], budget: Budget, run: Run, save: Callable[[], None]) -> None:
    """Measure what there is time for."""
    with tempfile.TemporaryDirectory(prefix="kusari-gpu-") as folder:
        prepared: dict[str, str | None] = {}
        for number, job in enumerate(jobs):
            outcome.pending = jobs[number + 1:]
            if not budget.left():
                outcome.not_run.append(f"{job}: the time was over")
                continue
            place = Path(folder) / job.model
            if job.model not in prepared:
                place.mkdir()
                prepared[job.model] = run([sys.executable, str(WORKER), "prepare", job.model, str(place), "{}", "no"],
                                          budget.left(WORKER_LIMIT_S))[1]
            if prepared[job.model] is not None:
                outcome.not_run.append(f"{job}: it could not be prepared: {prepared[job.model]}")
                continue
            print(f"{budget.spent:4.0f} s  {job}", file=sys.stderr, flush=True)
            text, problem = run([sys.executable, str(WORKER), "card", job.library, job.model, str(place), "0",
                                 str(ROUNDS), str(SECONDS), *job.variants], budget.left(WORKER_LIMIT_S))
            found = [json.loads(line) for line in text.splitlines() if line.startswith('{"kind"')]
            outcome.records += [{"python": sys.version.split()[0], **record} for record in found]
            seen = {f"{record['phase']}:{record['variant']}" for record in found}
            outcome.not_run += [f"{job.library} on {job.model}, {name}: {problem or 'nothing was printed'}"
                                for name in job.variants if name not in seen]
            save()


def write(outcome: Outcome, budget: Budget, into: Path) -> None:
    """Write the report of all that has been run by now; what cannot be shown is written as it was measured."""
    outcome.seconds = budget.spent
    try:
        text = text_of(outcome)
    except Exception:  # the measurements are worth more than their table
        text = f"# On a graphics card\n\n{outcome}\n\n{traceback.format_exc()}"
    unfinished = into.with_suffix(".new")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, into)


def text_of(outcome: Outcome) -> str:
    """The report."""
    return "\n\n".join(_parts(outcome)) + "\n"


def _parts(outcome: Outcome) -> Iterator[str]:
    yield "# On a graphics card"
    yield (f"Written by `make gpu` (`benchmarks/gpu.py`), {outcome.seconds:.0f} of {60 * outcome.minutes:.0f} s.\n\n"
           f"{outcome.card}")
    yield "## Tests"
    if outcome.tests:
        counts = ", ".join(f"{n} {kind}" for kind, n in outcome.tests.items())
        yield f"Marked `gpu`: {counts}{', not to their end' if outcome.unfinished else ''}."
    else:
        yield "Not run."
    if outcome.failures:
        yield "Failed:\n\n" + "\n".join(f"- {failure}" for failure in outcome.failures)
    yield "## Models"
    steps = [record for record in outcome.records if "error" not in record]
    if steps:
        results = report.Results([{"kind": "run"}, *outcome.records])
        yield (f"Milliseconds per step, each until the card has done it, in float32 (no TF32). {ROUNDS} rounds of "
               f"{SECONDS} s; one process per library and model, one after the other.")
        yield report.NOTES
        yield "### Best peer ÷ ours"
        yield report.ratios(results)
        for phase in results.phases():
            yield f"### {'Training' if phase == 'train' else 'Inference'}"
            yield report.phase_table(results, phase, report.step)
            yield "Seconds of the first three calls:"
            yield report.phase_table(results, phase, report.first)
        yield "### Libraries"
        yield report.libraries(results)
    else:
        yield "None was measured."
    errors = [f"- {r['library']} on {r['model']}, {r['phase']}:{r['variant']}: `{r['error']}`"
              for r in outcome.records if "error" in r]
    if errors:
        yield "### Errors\n\n" + "\n".join(errors)
    yield "## Not run"
    left = [*outcome.not_run, *[f"{job}: not begun" for job in outcome.pending]]
    yield "\n".join(f"- {line}" for line in left) or "Nothing was left out."


def card_of() -> str:
    """The card, driver and versions in words; raises `DeviceError` without one."""
    cuda.check_cuda_available()
    runtime: Any = cuda.cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    device = cuda.cupy.cuda.Device(0)
    return (f"{properties['name'].decode()} (sm_{device.compute_capability}, "
            f"{properties['totalGlobalMem'] / 2**30:.0f} GiB), CUDA {runtime.runtimeGetVersion()}, driver for CUDA "
            f"{runtime.driverGetVersion()}, CuPy {cuda.cupy.__version__}, Python {sys.version.split()[0]}.\n\n"
            f"Compiled functions call {' and '.join(libraries_of(runtime.runtimeGetVersion() // 1000))}.")


def libraries_of(major: int) -> list[str]:
    """The libraries that compiled functions call, with versions, or why they do not."""
    found = {"cuBLASLt": cublaslt.library(major), "cuDNN": cudnn.library(major)}
    if os.environ.get("KUSARI_CUDA_LIBRARIES") == "0":
        return ["no libraries (KUSARI_CUDA_LIBRARIES=0)"]
    return [f"no {name} ({library})" if isinstance(library, str) else f"{name} {library.version}"
            for name, library in found.items()]


def installed(name: str) -> bool:
    """Whether a library can be imported."""
    return importlib.util.find_spec(name) is not None


def main(arguments: list[str] | None = None, runner: Run | None = None, has: Callable[[str], bool] = installed,
         clock: Callable[[], float] = time.monotonic) -> int:
    """Test, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join((*MODELS, *SURVEY))}")
    parser.add_argument("--minutes", type=positive(float), default=9.0, help="when to stop (9)")
    parser.add_argument("--skip-tests", action="store_true", help="measure only")
    parser.add_argument("--out", type=Path, default=INTO, metavar="FILE", help="the report (benchmarks/gpu.md)")
    options = parser.parse_args(arguments)
    for name in options.models:
        if name not in MODELS and name not in SURVEY:
            parser.error(f"no model {name!r}; there are {', '.join((*MODELS, *SURVEY))}")
    budget = Budget(options.minutes, clock)
    try:
        outcome = Outcome(card_of(), options.minutes)
    except DeviceError as error:
        print(f"There is no card to test: {error}\nNothing was written.", file=sys.stderr)
        return 2
    save = functools.partial(write, outcome, budget, options.out)
    jobs, skipped = jobs_of(options.models or [*MODELS, *SURVEY], has)
    outcome.not_run += skipped
    outcome.pending = jobs
    if runner is None:
        log = options.out.with_suffix(".log")
        log.unlink(missing_ok=True)
        runner = functools.partial(run, log=log)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by which what is running is ended, too
    if options.skip_tests:
        outcome.not_run.append("the tests: --skip-tests")
    else:
        do_tests(outcome, budget, runner, save)
    do_models(outcome, jobs, budget, runner, save)
    save()
    print(f"{options.out}: {len(outcome.records)} measurements, {len(outcome.not_run)} things not run")
    return 0 if outcome.passed or options.skip_tests else 1


if __name__ == "__main__":
    sys.exit(main())
