"""The pages on adding something: their Python runs and prints what they say, and what they quote is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["adding_a_pass", "adding_a_kernel"]
TUTORIAL = ["pytorch", *(f"tutorial/{name}" for name in ("first_model", "compile", "export", "fallback"))]
QUOTED = re.compile(r"# ([\w/]+\.py)\n(.*)", re.DOTALL)
# Files, as tracing looks at source lines; what each printed comes as a line at the end.
RUN = """
import contextlib, io, json, sys
names, printed = {"__name__": "page"}, []
for file in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(open(file, encoding="utf-8").read(), file, "exec"), names)
    printed.append(out.getvalue())
print(json.dumps(printed))
"""


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the text of each block."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_what_is_quoted_is_there(page: str) -> None:
    quoted = [m for language, text in blocks(page) if language == "python" and (m := QUOTED.match(text))]
    assert quoted
    for file, text in (m.groups() for m in quoted):
        assert text in (ROOT / file).read_text(encoding="utf-8"), f"not in {file}:\n{text}"


@pytest.mark.parametrize("page", PAGES + TUTORIAL)
def test_blocks_print_what_stands_below_them(page: str, tmp_path: Path) -> None:
    if "import onnxruntime" in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"):
        pytest.importorskip("onnxruntime")
    found = blocks(page)
    run = [i for i, (language, text) in enumerate(found) if language == "python" and not QUOTED.match(text)]
    for i in run:
        (tmp_path / f"block{i:02d}.py").write_text(found[i][1], encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", RUN, *sorted(map(str, tmp_path.glob("*.py")))], cwd=tmp_path,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for i, printed in zip(run, json.loads(done.stdout), strict=True):
        below = found[i + 1] if i + 1 < len(found) else ("", "")
        expected = below[1] if below[0] == "text" else ""
        same = OutputChecker().check_output(expected, printed, ELLIPSIS | NORMALIZE_WHITESPACE)
        assert same, f"{found[i][1]}\nprints\n{printed}"


def test_each_part_of_the_limits_begins_with_the_short_answer() -> None:
    _, *parts = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8").split("\n## ")
    assert [part.splitlines()[0] for part in parts if not part.split("\n", 2)[2].startswith("**Short answer**: ")] == []
