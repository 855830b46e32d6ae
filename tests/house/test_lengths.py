"""No Python file is longer than 500 lines."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("frontend", "ir", "passes", "codegen", "runtime", "tests", "tools", "examples", "benchmarks")
ALLOWED: frozenset[str] = frozenset()


def test_files_are_short() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    lengths = {str(file.relative_to(ROOT)): len(file.read_bytes().splitlines()) for file in files}
    assert {name: n for name, n in lengths.items() if n > 500 and name not in ALLOWED} == {}
