"""The table of environment variables lists what the sources read, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

from kusari import environment

ROOT = Path(__file__).parents[2]
LAYERS = ("frontend", "ir", "passes", "codegen", "runtime")
READS = r'environment\.(?:text|flag|choice|number)\(\s*"([A-Z_]+)"|environ(?:\.get\(|\[)\s*"KUSARI_([A-Z_]+)"'


def test_every_variable_is_in_the_table() -> None:
    table = re.findall(r"^\| `KUSARI_([A-Z_]+)` ", (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8"), re.M)
    sources = [path.read_text(encoding="utf-8") for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]
    read = {a or b for text in sources for a, b in re.findall(READS, text)}
    assert len(table) == len(set(table))
    assert set(table) - read == set(), "nobody reads these"
    assert read - set(table) == set(), "these are not in docs/debugging.md"
    assert set(environment._KNOWN) == set(table)
