"""The notebooks run from top to bottom, and each cell that ends in an object shows it as HTML."""
from __future__ import annotations

import ast
import json
import linecache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run(cell: str, name: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: its lines can be looked up, each statement is compiled on its own.

    Returns the value of its last line.
    """
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    tree = ast.parse(cell, name)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    for statement in tree.body:
        exec(compile(ast.Module([statement], []), name, "exec"), names)
    return None if last is None else eval(compile(last, name, "eval"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                  ) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown: list[Any] = []
    for i, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            shown.append(run("".join(cell["source"]), f"<{path.stem}-{i}>", names))
    html = [value._repr_html_() for value in shown if value is not None]
    assert len(html) >= 3 and all(text.startswith("<") for text in html)


def test_there_are_two() -> None:
    assert len(NOTEBOOKS) == 2
