"""Kusari beside Chainer, PyTorch, JAX and ONNX Runtime: the same models, weights and data, in interleaved rounds.

  python benchmarks/side_by_side.py                                   what this interpreter has
  python benchmarks/side_by_side.py --python chainer=PY39/bin/python torch=PY/bin/python jax=PY/bin/python
  python benchmarks/side_by_side.py mushroom_mlp --phase infer --only kusari onnxruntime
  python benchmarks/side_by_side.py --survey                          many kinds of small models in place of the table's
  python benchmarks/side_by_side.py --cold --only kusari jax          first calls, with empty caches, in place of steps
  python benchmarks/side_by_side.py --report results.jsonl …          the tables of earlier runs

Each measurement is a process of its own. In a round all peers of a model run one after the other, in an order that
is rotated from round to round, so that a machine that slows down does so for all. A measurement waits until the
machine is idle, is repeated when others used the processors meanwhile, and marked when that did not help.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import quiet
import report
from peers import VARIANTS
from peers.survey_sequences import SURVEY

import kusari
from kusari.commands.bench import LIMIT, THREAD_VARIABLES, machine, positive, progress
from kusari.commands.models import MODELS

WORKER = Path(__file__).parent / "peers" / "worker.py"
PHASES = ("train", "infer")
COLUMNS = tuple(" ".join(filter(None, (library, variant))) for library in VARIANTS for variant in VARIANTS[library])
CACHES = {"kusari": "KUSARI_CACHE_DIR", "torch": "TORCHINDUCTOR_CACHE_DIR"}


class Job(NamedTuple):
    """One cell of the tables."""

    model: str
    phase: str
    library: str
    variant: str

    def __str__(self) -> str:
        return " ".join(filter(None, self))


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join((*MODELS, *SURVEY))}")
    parser.add_argument("--survey", action="store_true", help=f"without names: {', '.join(SURVEY)}")
    parser.add_argument("--phase", choices=PHASES, action="append", help="only this one")
    parser.add_argument("--only", nargs="+", metavar="LIBRARY", default=[], help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--columns", nargs="+", metavar="COLUMN", default=[],
                        help=f"only these: {', '.join(COLUMNS)}")
    parser.add_argument("--python", nargs="+", metavar="LIBRARY=PATH", default=[], help="the library's interpreter")
    parser.add_argument("--rounds", type=positive(int), default=5, help="rounds (5)")
    parser.add_argument("--seconds", type=positive(float), default=1.0, help="time per measurement (1)")
    parser.add_argument("--cold", action="store_true", help="first calls only, in each round with empty caches")
    parser.add_argument("--threads", type=positive(int), help="threads of every library (one per processor)")
    parser.add_argument("--tiny", action="store_true", help="the sizes of tests: to see that all compute the same")
    parser.add_argument("--patience", type=float, default=120.0, metavar="S",
                        help="longest wait for an idle machine (120); 0: neither wait nor repeat")
    parser.add_argument("--repeats", type=positive(int), default=5, help="most attempts at a disturbed measurement (5)")
    parser.add_argument("--caches", type=Path, metavar="FOLDER", help="where caches of compilers stay")
    parser.add_argument("--minutes", type=positive(float), metavar="M", help="start nothing after so many minutes")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every measurement, as JSON lines")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture")
    parser.add_argument("--report", type=Path, nargs="+", metavar="FILE",
                        help="print the tables of such files of one machine, measure nothing")
    options = parser.parse_args(arguments)
    for file in options.report or ():
        if not file.is_file():
            parser.error(f"--report: there is no file {file}")
    for given, known in ((options.models, (*MODELS, *SURVEY)), (options.only, VARIANTS), (options.columns, COLUMNS)):
        for each in given:
            if each not in known:
                parser.error(f"expected one of {', '.join(known)}, got {each}")
    if options.cold:
        options.seconds = 0.01
    options.interpreters = dict.fromkeys(VARIANTS, sys.executable)
    for pair in options.python:
        library, _, path = pair.partition("=")
        if library not in VARIANTS or not path:
            parser.error(f"--python: expected LIBRARY=PATH with one of {', '.join(VARIANTS)}, got {pair}")
        options.interpreters[library] = path
    if options.threads is None:
        options.threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    options.models = options.models or tuple(SURVEY if options.survey else MODELS)
    return options


def say(text: str) -> None:
    """Tell the user, over the progress line."""
    progress("")
    print(text, file=sys.stderr, flush=True)


def installed(library: str, interpreter: str) -> bool:
    """Whether an interpreter has a library."""
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({library!r}) is None)"
    try:
        return subprocess.run([interpreter, "-c", look], cwd=tempfile.gettempdir(), capture_output=True,
                              timeout=LIMIT).returncode == 0
    except OSError as error:
        raise SystemExit(f"--python {library}={interpreter}: {error.strerror}") from None


def jobs_of(options: argparse.Namespace) -> list[list[Job]]:
    """All jobs, grouped by model and phase."""
    libraries: list[str] = []
    columns = options.columns or COLUMNS
    for library in options.only or VARIANTS:
        if not any(column.split()[0] == library for column in columns):
            continue
        if installed(library, options.interpreters[library]):
            libraries.append(library)
        else:
            say(f"{library} is not measured: {options.interpreters[library]} does not have it")
    return [[Job(model, phase, library, variant) for library in libraries for variant, has in VARIANTS[library].items()
             if phase in has and " ".join(filter(None, (library, variant))) in columns]
            for model in options.models for phase in options.phase or PHASES]


class Runner:
    """Runs jobs in processes, with their caches and the prepared models in a scratch folder."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self.options = options
        self.scratch = scratch
        self.environment = dict(os.environ, PYTHONWARNINGS="ignore")
        self.environment.update({f"{name}_NUM_THREADS": str(options.threads) for name in THREAD_VARIABLES})
        # As after an installation: the bytecode of all modules is there.
        self.bytecode = {"PYTHONPYCACHEPREFIX": str(scratch / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
        folders = [str(Path(kusari.__file__).parents[1] / name)
                   for name in ("frontend", "ir", "passes", "codegen", "runtime")]
        progress("compiling Kusari's modules")
        subprocess.run([options.interpreters["kusari"], "-m", "compileall", "-q", *folders],
                       env=dict(self.environment, **self.bytecode), stdout=subprocess.DEVNULL, check=True)

    def process(self, library: str, *arguments: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
        """Run the worker; returns what it printed, or an error."""
        command = [self.options.interpreters[library], str(WORKER), *arguments]
        try:
            done = subprocess.run(command, env=environment or self.environment, capture_output=True, text=True,
                                  timeout=LIMIT + self.options.seconds)
        except subprocess.TimeoutExpired:
            return {"error": f"took longer than {LIMIT} s"}
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return {"error": (lines[-1] if lines else f"exit status {done.returncode}")[:300]}
        return json.loads(done.stdout.splitlines()[-1])

    def prepare(self, model: str) -> None:
        """Let Kusari write weights, data and the exported model."""
        progress(f"preparing {model}")
        (self.scratch / model).mkdir()
        found = self.process("kusari", "prepare", model, str(self.scratch / model), *["tiny"] * self.options.tiny)
        if "error" in found:
            raise SystemExit(f"preparing {model} failed: {found['error']}")

    def once(self, job: Job, turn: int) -> dict[str, Any]:
        """One measurement; in the first round nothing is cached."""
        environment = dict(self.environment)
        if job.library in CACHES:
            cache = (self.options.caches or self.scratch / "caches").resolve() / "-".join(job).replace(" ", "-")
            if (turn == 0 or self.options.cold) and not self.options.caches:  # also a second attempt finds it empty
                shutil.rmtree(cache, ignore_errors=True)
            environment[CACHES[job.library]] = str(cache)
        if job.library == "kusari":
            environment.update(self.bytecode)
        return self.process(job.library, "measure", job.library, job.variant, job.model, job.phase,
                            str(self.scratch / job.model), str(self.options.threads), str(self.options.seconds),
                            environment=environment)

    def settled(self, job: Job, turn: int) -> list[dict[str, Any]]:
        """Measure until nobody disturbs, or patience ends; the last one is the least one can do."""
        found: list[dict[str, Any]] = []
        for attempt in range(self.options.repeats):
            quiet.wait(self.options.patience)
            record = {"kind": "step", **job._asdict(), "round": turn, "attempt": attempt, **self.once(job, turn)}
            found.append(record)
            if "error" in record:
                break
            record["disturbed"] = quiet.disturbed(record["others"])
            if not record["disturbed"] or self.options.patience <= 0:
                break
        return found


def python_versions(options: argparse.Namespace, libraries: set[str]) -> dict[str, str]:
    """The versions of the interpreters."""
    ask = "import platform; print(platform.python_version())"
    return {library: subprocess.run([options.interpreters[library], "-c", ask], capture_output=True, text=True,
                                    check=True).stdout.strip() for library in libraries}


def rotated(group: list[Job], turn: int) -> list[Job]:
    """The jobs of a model and phase in another order in each round."""
    shift = turn % len(group) if group else 0
    return group[shift:] + group[:shift]


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Do all rounds; what is measured is written to ``--out`` as it comes."""
    groups = jobs_of(options)
    versions = python_versions(options, {job.library for group in groups for job in group})
    records: list[dict[str, Any]] = []
    out = options.out.open("w", encoding="utf-8") if options.out else None

    def keep(record: dict[str, Any]) -> None:
        records.append(record)
        if out:
            print(json.dumps(record), file=out, flush=True)

    if not quiet.tells():
        say("this system does not tell how busy it is: make sure that nothing else runs")
    keep({"kind": "run", "machine": machine(options.threads), "rounds": options.rounds, "seconds": options.seconds,
          "threads": options.threads, "cold": options.cold})
    dead: set[Job] = set()
    turns = [(turn, job) for turn in range(options.rounds) for group in groups for job in rotated(group, turn)]
    end = time.monotonic() + 60 * (options.minutes or float("inf"))
    with tempfile.TemporaryDirectory(prefix="kusari-peers-") as folder:
        runner = Runner(options, Path(folder))
        for model in dict.fromkeys(job.model for group in groups for job in group):
            runner.prepare(model)
        for done, (turn, job) in enumerate(turns):
            if job in dead:
                continue
            if time.monotonic() > end:
                say(f"{options.minutes:g} minutes are over: {len(turns) - done} of {len(turns)} are not measured")
                break
            progress(f"[{done + 1}/{len(turns)}] {job}")
            for record in runner.settled(job, turn):
                keep({**record, "python": versions[job.library]})
                if "error" in record:
                    dead.add(job)
                    say(f"{job}: {record['error']}")
    progress("")
    if out:
        out.close()
    return records


def main() -> int:
    """Measure or read, print, draw."""
    options = options_of()
    results = report.Results.read(*options.report) if options.report else report.Results(measure(options))
    print(report.text(results))
    if options.plot:
        print(f"\npicture: {report.draw(results, options.plot)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
