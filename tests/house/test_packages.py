"""pyproject.toml's list of packages is what is on disk; a missing one is missing from the wheel only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "packages.py"


def test_pyproject_lists_every_package() -> None:
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}run: python tools/packages.py --write"


def test_every_folder_of_python_files_is_a_package() -> None:
    for layer in ("frontend", "ir", "passes", "codegen", "runtime"):
        for file in (ROOT / layer).rglob("*.py"):
            assert (file.parent / "__init__.py").exists(), f"{file.parent} has no __init__.py"


def test_one_version() -> None:
    import kusari

    assert f'\nversion = "{kusari.__version__}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
