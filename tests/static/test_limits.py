"""The table of what static functions cannot do says what the warnings say, and all of it is tested."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = (ROOT / "docs/limits.md").read_text().split("|---|---|---|\n")[1].split("\n\n")[0].splitlines()
FOUND = (*(ROOT / "frontend").glob("*.py"), *(ROOT / "frontend/static").rglob("*.py"))
SOURCES = re.sub(r"\"\s*\n\s*f?\"", "", "".join(p.read_text() for p in FOUND))  # literals over several lines


@pytest.mark.parametrize("said", [line.split("|")[2].strip() for line in TABLE])
def test_the_warning_says_so(said: str) -> None:
    found = said in SOURCES  # not in the assertion, which would show all of it
    assert found, f"no source says {said!r}"
