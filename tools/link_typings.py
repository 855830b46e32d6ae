"""Make ``typings/kusari``: the import name, laid out with links, for the type checker.

Type checkers do not follow an editable install's import hook, so ``kusari.ir`` would be unknown to
them.  ``typings`` is where pyright looks first; the folder is not tracked, and is rebuilt each time.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("ir", "passes", "codegen", "runtime")
IGNORED = {"__pycache__"}


def link(root: Path = ROOT) -> Path:
    """Link every entry of ``frontend/`` and the other layers below ``typings/kusari``; return that folder."""
    target = root / "typings" / "kusari"
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    entries = [entry for entry in sorted((root / "frontend").iterdir()) if entry.name not in IGNORED]
    for entry in (*entries, *(root / layer for layer in LAYERS)):
        (target / entry.name).symlink_to(os.path.relpath(entry, target), target_is_directory=entry.is_dir())
    return target


if __name__ == "__main__":
    print(link())
