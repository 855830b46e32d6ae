"""The README's Python examples run as they stand, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example(example: str, tmp_path: Path) -> None:
    if "onnx" in example:
        pytest.importorskip("onnxruntime")
    script = tmp_path / "example.py"  # a file: tracing reports and inspects source lines
    script.write_text(example, encoding="utf-8")
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_examples_are_short() -> None:
    assert len(EXAMPLES) == 3
    assert all(len(example.splitlines()) <= 25 for example in EXAMPLES)


def test_clean_removes_what_the_targets_make() -> None:
    """All that git ignores, but what Python and coverage leave behind."""
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()}
    clean = re.search(r"^clean:\n\trm -rf (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert clean
    assert ignored - {"__pycache__", ".coverage*"} <= set(clean[1].replace("$(VENV)", ".venv").split())


@pytest.mark.parametrize("file", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_links_lead_somewhere(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in target:
            assert (ROOT / file).parent.joinpath(target).exists(), target
