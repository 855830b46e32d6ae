"""The map in docs/architecture.md shows every module of the compiler."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Every module")[2]


ROOMS = [folder.relative_to(ROOT).as_posix() for layer in ("frontend/static", "codegen/llvm")
         for folder in sorted((ROOT / layer).rglob("*/")) if (folder / "__init__.py").exists()]


@pytest.mark.parametrize("layer", ["ir", "passes", "runtime", "frontend/static", *ROOMS])
def test_every_module_is_on_the_map(layer: str) -> None:
    _, _, rest = MAP.partition(f"### `{layer}/`")
    shown = set(re.findall(r"`(\w+\.py)`", rest.partition("###")[0]))
    there = {path.name for path in (ROOT / layer).glob("*.py")} - {"__init__.py"}
    assert not there - shown, f"add a row to docs/architecture.md, where one should read them: {sorted(there - shown)}"
    assert not shown - there, f"no longer there: {sorted(shown - there)}"
