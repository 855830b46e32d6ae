"""The hazards of docs/hazards.md are rows of tests, with the verdicts and reasons that it gives, and all of them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
# The text about each module, up to the next one or the end of its class.
SECTIONS = dict(re.findall(r"^\[`test_\w+\.py`\]\(\.\./tests/(.+?)\.py\)(.*?)(?=^\[|^## |\Z)",
                           (ROOT / "docs" / "hazards.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
MODULES = sorted(str(file.relative_to(TESTS).with_suffix("")) for file in (TESTS / "static").rglob("test_*.py")
                 if re.search(r"observed.harness import .*\bRows\b", text := file.read_text(encoding="utf-8"))
                 or "observed.harness import" in text and file.parent.name == "observed")


def rows(text: str) -> dict[str, tuple[str, str]]:
    """The verdict and the reason of each hazard in tables."""
    found: dict[str, tuple[str, str]] = {}
    for names, said in re.findall(r"^\| (.+) \| ((?:replays|falls back|either).*) \|$", text, re.MULTILINE):
        verdict, _, reason = said.partition(": ")
        for name in names.split("; "):
            assert name not in found, name
            found[name] = verdict, reason
    return found


def test_every_module_of_hazards_is_on_the_page() -> None:
    assert sorted(SECTIONS) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_the_page_says_what_the_tests_expect(module: str) -> None:
    tested: dict[str, Any] = getattr(importlib.import_module(module.replace("/", ".")), "ROWS", {})
    assert rows(SECTIONS[module]) == {name.replace("_", " "): (verdict or "either", pattern or "")
                                      for name, (_, verdict, pattern) in tested.items()}


@pytest.mark.parametrize("module", MODULES)
def test_the_page_names_the_grids(module: str) -> None:
    text = (TESTS / f"{module}.py").read_text(encoding="utf-8")
    grids = set(re.findall(r"parametrize\(\"\w+\", \[?\*?([A-Z]{2,})", text)) - {"ROWS"}
    assert grids <= set(re.findall(r"`([A-Z]{2,})`", SECTIONS[module]))
    assert [name for name in re.findall(r"`([A-Z]{2,})`", SECTIONS[module]) if f"\n{name}" not in text] == []
