"""Processes that run an example, and the numbers that they print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.rows import Row, Step
from mpi_ranks import mpiexec

HERE = Path(__file__).resolve().parent
PROGRESS = re.compile(r"total \[|epoch \[|iter, .* epoch|iters/sec")
CONTROL = re.compile(r"\x1b\[\d*[A-Z]")
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)(?![\w])", re.IGNORECASE)
COLUMN = "elapsed_time"
LIMIT_SECONDS = 280  # of a process: a rank that waits for one which has failed never ends
TIMES = re.compile(r"elapsed_time=[\d.]+|\d+\.\d+ \[s\]|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?")


@dataclass
class Done:
    """The ends of a row's processes: what they printed, and the last exit status."""

    printed: list[str]
    code: int
    errors: str


def printed_lines(text: str) -> Iterator[str]:
    """The lines of a program, without progress bars, dates and columns of seconds."""
    column: slice | None = None
    for line in TIMES.sub("", CONTROL.sub("", text.replace("\r", "\n"))).splitlines():
        if PROGRESS.search(line):
            continue
        if COLUMN in line:
            start = line.index(COLUMN)
            column = slice(start, start + 14)
        elif column and len(line) > column.start:
            line = line[:column.start] + line[column.stop:]
        if line := line.rstrip():
            yield line


def numbers(lines: Sequence[str]) -> list[float]:
    """All numbers in lines."""
    return [float(number) for line in lines for number in NUMBER.findall(line)]


def command(python: str, step: Step, examples: Path, kusari: bool) -> list[str]:
    """The words that start a step's process."""
    arguments = [str(examples / word) if word.endswith(".py") else word for word in shlex.split(step.arguments)]
    if step.script.startswith("-m"):
        return [python, str(HERE / "under_alias.py"), *step.script.split()[1:], *arguments] if kusari else [
            python, *step.script.split(), *arguments]
    started = [mpiexec() or "mpiexec", "-n", str(step.ranks)] if step.ranks > 1 else []
    return [*started, python, *(["-m", "kusari", "run"] if kusari else []), str(examples / step.script), *arguments]


def run_row(row: Row, python: str, examples: Path, folder: Path, root: Path, kusari: bool) -> Done:
    """Run the steps of a row until one ends otherwise than it should."""
    folder.mkdir()
    for maker in row.makers:
        maker(root, folder)
    path = [str(HERE / "stand_ins"), *([os.environ.get("PYTHONPATH", "")] if kusari else [])]
    environment = {
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KUSARI_NUM_THREADS"), "1"),
        **os.environ, **row.environment, "CHAINER_DATASET_ROOT": str(root), "MPLBACKEND": "agg", "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "ignore", "PYTHONPATH": os.pathsep.join(path),
    }  # fmt: skip
    done = Done([], 0, "")
    for step in row.steps:
        words = command(python, step, examples, kusari)
        with open(folder / "stderr.txt", "w+") as errors:
            process = subprocess.Popen(words, cwd=folder, env=environment, text=True, stderr=errors,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdin and process.stdout
            limit = threading.Timer(LIMIT_SECONDS, process.terminate)
            limit.start()
            process.stdin.write(step.stdin)
            process.stdin.close()
            text, seen = "", 0
            for line in process.stdout:
                text += line
                seen += any(NUMBER.match(shown.strip()) for shown in printed_lines(line))
                if step.lines and seen >= step.lines:
                    process.terminate()
                    break
            process.stdout.close()
            code = process.wait()
            limit.cancel()
            errors.seek(0)
            done.errors = errors.read()
        (folder / "stdout.txt").write_text(text)
        done.printed += printed_lines(text)
        done.code = 0 if step.lines and seen >= step.lines else code
        if done.code:
            break
    return done
