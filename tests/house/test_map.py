"""The map in docs/architecture.md shows every module of the compiler."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MAP = PAGE.partition("## Every module")[2]


ROOMS = [folder.relative_to(ROOT).as_posix() for layer in ("frontend/static", "codegen/llvm", "codegen/cuda")
         for folder in sorted((ROOT / layer).rglob("*/")) if (folder / "__init__.py").exists()]


@pytest.mark.parametrize("layer", ["ir", "passes", "runtime", "frontend/static", "codegen/cuda", *ROOMS])
def test_every_module_is_on_the_map(layer: str) -> None:
    _, _, rest = MAP.partition(f"### `{layer}/`")
    rows = re.findall(r"`(\w+\.py)`", re.sub(r"(?m)^(\|[^|]*\|).*$", r"\1", rest.partition("###")[0]))
    shown = set(rows)
    assert len(rows) == len(shown), f"shown twice: {sorted(row for row in shown if rows.count(row) > 1)}"
    there = {path.name for path in (ROOT / layer).glob("*.py")} - {"__init__.py"}
    assert not there - shown, f"add a row to docs/architecture.md, where one should read them: {sorted(there - shown)}"
    assert not shown - there, f"no longer there: {sorted(shown - there)}"


DECIDED = re.findall(r"(?m)^\|[^|`]+\| (`[^|]+`) \| (`[^|]+`) \|$",
                     PAGE.partition("## Where it is decided")[2].partition("##")[0])


@pytest.mark.parametrize(("modules", "functions"), DECIDED)
def test_what_decides_is_there(modules: str, functions: str) -> None:
    paths, names = (re.findall(r"`([^`]+)`", cell) for cell in (modules, functions))
    for path, name in zip(paths, names, strict=True):
        found, = [file for file in python_files() if file.endswith(f"/{path}")]
        text = (ROOT / found[1:]).read_text(encoding="utf-8")
        assert re.search(rf"(?m)^ *def {name}\(", text), f"{path} has no {name}"


# Modules that the text makes in its example.
EXAMPLES = {"passes/scale_later.py"}
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_modules_that_documents_name_are_there(document: Path) -> None:
    named = set(re.findall(r"`([\w/.]+\.py)`", document.read_text(encoding="utf-8"))) - EXAMPLES
    missing = {name for name in named if not any(path.endswith(f"/{name}") for path in python_files())}
    assert not missing


@functools.cache
def python_files() -> list[str]:
    """The paths of all modules here, from the root."""
    folders = ("ir", "passes", "codegen", "runtime", "frontend", "tests", "tools", "benchmarks", "examples", "docs")
    return [f"/{path.relative_to(ROOT).as_posix()}" for folder in folders for path in (ROOT / folder).rglob("*.py")]
