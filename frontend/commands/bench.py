"""``python -m kusari bench``: eager against compiled on this machine."""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import backend, environment
from ..errors import DeviceError
from .common import CommandError, Formatter, require

DESCRIPTION = """\
Measure models define-by-run ("eager") and compiled, and print a table: milliseconds per step, seconds of the first
three calls (compiled: with an empty kernel cache, then with a full one) and peak memory. In training, "compiled" is a
static loss with backward() and update(), "whole step" is optimizer.update(loss, ...) as one schedule; the speed-up is
that of the whole step.

  python -m kusari bench                          all models, training and inference
  python -m kusari bench mnist_mlp --train
  python -m kusari bench --rounds 5 --plot        ... and write bench.png

  python -m kusari bench --device cuda:0          ... on a graphics card (memory: that of CuPy's pool)

Each measurement is a process of its own. A round measures every case once in each mode, so that a machine that slows
down does so for all. Steps are the median over the rounds of a round's median, the speed-up is the
median of the rounds' ratios. Nothing else should run meanwhile; differences under 20 % mean little.
"""

MODES = {"train": ("eager", "compiled", "whole step"), "infer": ("eager", "compiled")}
THREAD_VARIABLES = ("KUSARI", "OMP", "OPENBLAS", "MKL", "NUMBA", "VECLIB")
PICTURES = (".png", ".svg", ".pdf")
LIMIT = 600  # seconds one measurement may take


@dataclass
class Case:
    """A model in one phase, with what was measured of it: one dict per mode and round."""

    model: str
    phase: str
    rounds: list[dict[str, dict[str, Any]]]

    def median(self, mode: str, key: str) -> float | None:
        """The median over the rounds; None if the figure is missing."""
        values: list[Any] = [measured.get(mode, {}).get(key) for measured in self.rounds]
        return None if None in values else statistics.median(values)

    @property
    def fast(self) -> str:
        """The mode whose speed-up is reported."""
        return MODES[self.phase][-1]

    @property
    def speedup(self) -> float:
        """Eager time over that of the whole step (in inference: compiled), within each round, then the median."""
        return statistics.median(r["eager"]["step_ms"] / r[self.fast]["step_ms"] for r in self.rounds)

    @property
    def cold(self) -> float:
        """Seconds of the first compiled calls with an empty kernel cache: the first round's."""
        return self.rounds[0][self.fast]["first_s"]

    @property
    def warm(self) -> float | None:
        """The same with a full cache, in a new process; None after a single round."""
        return statistics.median(r[self.fast]["first_s"] for r in self.rounds[1:]) if self.rounds[1:] else None


def add(subparsers: Any) -> None:
    """Declare the command's options."""
    parser = subparsers.add_parser(
        "bench",
        help="eager against compiled, as a table",
        description=DESCRIPTION,
        formatter_class=Formatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all by default; --list names them")
    parser.add_argument("--train", action="store_true", help="training only")
    parser.add_argument("--infer", action="store_true", help="inference only")
    parser.add_argument("--rounds", type=positive(int), default=3, metavar="N", help="rounds (3)")
    parser.add_argument("--seconds", type=positive(float), default=1.0, metavar="S", help="time per measurement (1)")
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu (the default), or cuda:0 for a card")
    parser.add_argument("--threads", type=positive(int), metavar="N", help="threads (one per core)")
    parser.add_argument("--plot", nargs="?", const="bench.png", metavar="FILE", help="write a picture (bench.png)")
    parser.add_argument("--json", metavar="FILE", help="write every measurement")
    parser.add_argument("--list", action="store_true", help="list the models and exit")
    parser.set_defaults(main=main)


def positive(kind: type[Any]) -> Any:
    """An argparse type: a number above zero."""

    def parse(text: str) -> Any:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
        return value

    parse.__name__ = kind.__name__
    return parse


def main(options: argparse.Namespace) -> int:
    """Measure, print the table, write the files asked for."""
    from .models import MODELS

    if options.list:
        for each in MODELS.values():
            print(f"{each.name:<20}{each.about}")
        return 0
    for name in options.models:
        if name not in MODELS:
            close = difflib.get_close_matches(name, MODELS, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise CommandError(f"no model {name!r}; {hint}there are {', '.join(MODELS)}")
    if options.plot and Path(options.plot).suffix not in PICTURES:
        raise CommandError(f"--plot: expected a file name ending in {', '.join(PICTURES)}, got {options.plot!r}")
    for path in filter(None, (options.plot, options.json)):
        if not os.access(Path(path).resolve().parent, os.W_OK):
            raise CommandError(f"cannot write {path}: its folder is missing or not writable")
    if options.plot:
        require("matplotlib", "examples")
    options.device = place(options.device)
    phases = [phase for phase in ("train", "infer") if getattr(options, phase)] or ["train", "infer"]
    cases = [Case(name, phase, []) for name in options.models or MODELS for phase in phases]
    measure(cases, options)
    print(table(cases))
    where = machine(options.threads, options.device)
    print(f"\n{where}; median of {options.rounds} rounds of {options.seconds:g} s each")
    if options.json:
        Path(options.json).write_text(json.dumps([vars(case) for case in cases], indent=1) + "\n", encoding="utf-8")
    if options.plot:
        from .pictures import draw_benchmark

        print(f"picture: {draw_benchmark(cases, where, Path(options.plot))}")
    return 0


def place(text: str) -> str:
    """The device to measure on, as ``get_device`` takes it, which must be there."""
    kind, colon, number = text.partition(":")
    if text in ("cpu", "@numpy"):
        return "@numpy"
    if kind not in ("cuda", "gpu", "@cupy") or not number.isdigit() and (number or colon):
        raise CommandError(f"--device: expected cpu, or cuda:0 and the like for a card, got {text!r}")
    try:
        return backend.get_device(f"@cupy:{number or 0}").name
    except DeviceError as error:
        raise CommandError(f"--device {text}: {error}") from None


def measure(cases: list[Case], options: argparse.Namespace) -> None:
    """Fill the cases, round by round, the modes in turn."""
    variables = dict(os.environ)
    if options.threads:
        variables.update({f"{name}_NUM_THREADS": str(options.threads) for name in THREAD_VARIABLES})
    total = options.rounds * sum(len(MODES[case.phase]) for case in cases)
    with tempfile.TemporaryDirectory(prefix="kusari-bench-") as folder:
        for turn in range(options.rounds):
            for case in cases:
                case.rounds.append({})
                for mode in MODES[case.phase][::1 if turn % 2 == 0 else -1]:
                    # A kernel cache per case and mode, empty in the first round.
                    variables["KUSARI_CACHE_DIR"] = os.path.join(folder, f"{case.model}-{case.phase}-{mode}")
                    done = sum(map(len, (r for c in cases for r in c.rounds)))
                    progress(f"[{done + 1}/{total}] {case.model} {case.phase} {mode}")
                    case.rounds[-1][mode] = once(case, mode, options, variables)
    progress("")


def once(case: Case, mode: str, options: argparse.Namespace, variables: dict[str, str]) -> dict[str, Any]:
    """One measurement in a process of its own."""
    seconds: float = options.seconds
    command = [sys.executable, "-m", "kusari.commands.worker", case.model, mode, case.phase, str(seconds),
               options.device]
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LIMIT + seconds)
    except subprocess.TimeoutExpired:
        raise CommandError(f"{case.model} {case.phase} {mode} took longer than {LIMIT} s") from None
    if done.returncode:
        progress("")
        print(done.stderr.rstrip(), file=sys.stderr)
        raise CommandError(f"measuring {case.model} {case.phase} {mode} failed, see above")
    return json.loads(done.stdout.splitlines()[-1])


def progress(text: str) -> None:
    """Overwrite the line on a terminal, and write a line elsewhere; silent where ``KUSARI_PROGRESS`` says so."""
    if environment.flag("PROGRESS", True):
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif text:
            print(text, file=sys.stderr, flush=True)


def figure(value: float | None, unit: float = 1.0) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return "-"
    value /= unit
    digits = 2 - math.floor(math.log10(abs(value))) if value else 3
    return f"{value:.{max(0, digits)}f}"


COLUMNS = (
    ("model", lambda case: case.model),
    ("phase", lambda case: case.phase),
    ("eager ms", lambda case: figure(case.median("eager", "step_ms"))),
    ("compiled ms", lambda case: figure(case.median("compiled", "step_ms"))),
    ("whole step ms", lambda case: figure(case.median("whole step", "step_ms"))),
    ("speed-up", lambda case: f"{case.speedup:.2f}x"),
    ("first calls s: eager", lambda case: figure(case.median("eager", "first_s"))),
    ("compiled", lambda case: figure(case.cold)),
    ("cached", lambda case: figure(case.warm)),
    ("peak MB: eager", lambda case: figure(case.median("eager", "peak_mb"))),
    ("compiled", lambda case: figure(case.median(case.fast, "peak_mb"))),
)


def table(cases: list[Case]) -> str:
    """The measurements as Markdown."""
    return aligned([[title for title, _ in COLUMNS], *([cell(case) for _, cell in COLUMNS] for case in cases)], left=2)


def aligned(rows: list[list[str]], left: int = 1) -> str:
    """A Markdown table, readable as it stands: the first row is its head, all but ``left`` columns are numbers."""
    columns = range(len(rows[0]))
    widths = [max(3, *(len(row[i]) for row in rows)) for i in columns]

    def line(row: list[str]) -> str:
        return f"| {' | '.join(row[i].ljust(widths[i]) if i < left else row[i].rjust(widths[i]) for i in columns)} |"

    rule = "|" + "|".join("-" * (widths[i] + 2) if i < left else "-" * (widths[i] + 1) + ":" for i in columns) + "|"
    return "\n".join([line(rows[0]), rule, *map(line, rows[1:])])


def machine(threads: int | None, device: str = "@numpy") -> str:
    """Where this was measured, in words."""
    import numpy

    if device != "@numpy":
        cupy: Any = backend.get_device(device).xp
        card = cupy.cuda.runtime.getDeviceProperties(int(device.partition(":")[2]))["name"].decode()
        return (f"{card} ({device}), CuPy {cupy.__version__}, CUDA {cupy.cuda.runtime.runtimeGetVersion()}, Python "
                f"{platform.python_version()}, NumPy {numpy.__version__}; memory is that of CuPy's pool")

    from kusari.ir.threads import thread_limit

    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name}, {threads or thread_limit()} threads, Python {platform.python_version()}, NumPy {numpy.__version__}"
