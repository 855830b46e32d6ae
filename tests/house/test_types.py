"""``py.typed`` holds: a program of a user's, checked beside an installed package, has its marked errors only."""
from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "user_program.py"
SETTINGS = {"typeCheckingMode": "standard", "venvPath": ".", "venv": "venv", "include": ["program.py"],
            "pythonVersion": "3.11", "reportMissingModuleSource": False}


def link_package(packages: Path) -> None:
    """Lay the package and NumPy out as an installation does."""
    (packages / "kusari").mkdir(parents=True)
    layers = [ROOT / name for name in ("ir", "passes", "codegen", "runtime")]
    for entry in (*(ROOT / "frontend").iterdir(), *layers):
        (packages / "kusari" / entry.name).symlink_to(entry)
    (packages / "numpy").symlink_to(Path(np.__file__).parent)


@pytest.mark.slow
def test_a_users_program(tmp_path: Path) -> None:
    if find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    link_package(tmp_path / "venv" / "lib" / "python3.11" / "site-packages")
    (tmp_path / "program.py").write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "basedpyright", "--outputjson"], cwd=tmp_path, capture_output=True,
                          text=True)
    found = [(d["range"]["start"]["line"] + 1, d["message"]) for d in json.loads(done.stdout)["generalDiagnostics"]]
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    expected = [i for i, line in enumerate(lines, 1) if re.search(r"# error$", line)]
    assert len(expected) == 7
    assert {line for line, _ in found} == set(expected), found
