"""Chainer's own examples as the judge: run them on Kusari and on Chainer, and write the table of how they end.

    KUSARI_EXAMPLES=CHECKOUT_OF_CHAINER/examples KUSARI_ORACLE=PYTHON_WITH_CHAINER \
        python tools/chainer_examples.py FOLDER [--only NAME …] [--library kusari] [--seconds 200]

The end of each row is kept in FOLDER, in a file for each library; rows that have theirs are not run again. When all
rows have one, the table is written into ``docs/chainer_examples.md``. The rows are tests, too, in ``tests/examples``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "chainer_examples.md"
sys.path.insert(0, str(ROOT / "tests"))

from examples.rows import ROWS, Row  # noqa: E402
from examples.running import Done, run_row  # noqa: E402
from examples.verdict import ends, judge  # noqa: E402

LIBRARIES = ("kusari", "chainer")
HEADER = """| run | verdict | numbers: first … last | on Chainer | note |
|---|---|---|---|---|
"""
TABLE = re.compile(re.escape(HEADER) + r"(\|.*\n)*")
COUNTS = re.compile(r"(?<=^\*\*)[^*]*of the \d+ runs[^*]*(?=\*\*)", re.MULTILINE)


def _asked(row: Row) -> list[str]:
    return [library for library in LIBRARIES if library == "kusari" or row.chainer is not None]


def _file(folder: Path, row: Row, library: str) -> Path:
    return folder / f"{re.sub(r'[^a-z0-9]+', '_', row.name.lower())}.{library}.json"


def run(folder: Path, row: Row, library: str) -> None:
    """Run a row, and keep its end."""
    python = sys.executable if library == "kusari" else os.environ["KUSARI_ORACLE"]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as working:
        done = run_row(row, python, Path(os.environ["KUSARI_EXAMPLES"]), Path(working) / "run",
                       folder / f"datasets_{library}", kusari=library == "kusari")
    _file(folder, row, library).write_text(json.dumps({**asdict(done), "numpy": np.__version__}))
    print(f"{row.name}: {library} ended with {done.code} after {time.monotonic() - began:.0f} s", flush=True)


def line(folder: Path, row: Row) -> tuple[bool, bool, str]:
    """Return whether a row works and whether that was expected, and its line of the table."""
    ends_of: dict[str, Done] = {}
    version = ""
    for library in reversed(_asked(row)):
        kept = json.loads(_file(folder, row, library).read_text())
        version = kept.pop("numpy", np.__version__)
        ends_of[library] = Done(**kept)
    ours, theirs = ends_of["kusari"], ends_of.get("chainer")
    verdict = judge(row, ours, theirs, tuple(map(int, version.split(".")[:2])))
    note = row.note + (f"; run with NumPy {version}" if row.numpy else "")
    cells = [row.name, verdict.text, ends(ours.printed), ends(theirs.printed) if theirs else "–", note]
    return verdict.works, verdict.expected, "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def write(folder: Path) -> None:
    """Write the table and the sentence that counts into the page."""
    lines = [line(folder, row) for row in ROWS]
    works = sum(works for works, _, _ in lines)
    counted = f"{works} of the {len(lines)} runs work"
    text = TABLE.sub(lambda _: HEADER + "".join(text + "\n" for *_, text in lines), PAGE.read_text())
    PAGE.write_text(COUNTS.sub(counted, text))
    print(counted)
    for _, expected, text in lines:
        if not expected:
            print(f"not as expected: {text}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--library", choices=LIBRARIES)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no row after so many")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    missing = [(row, library) for row in ROWS for library in _asked(row) if not _file(
        arguments.folder, row, library).exists()]
    chosen = [(row, library) for row, library in missing if row.name in (arguments.only or row.name)
              and library == (arguments.library or library)]
    for row, library in chosen:
        if time.monotonic() - start < arguments.seconds:
            run(arguments.folder, row, library)
            missing.remove((row, library))
    if missing:
        print(f"{len(missing)} runs are missing")
    else:
        write(arguments.folder)


if __name__ == "__main__":
    main()
