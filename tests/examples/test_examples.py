"""Chainer's own examples, unmodified, on made-up data: they run, and print what they print on Chainer 7.8.1.

``KUSARI_EXAMPLES`` names the folder ``examples`` of a checkout of Chainer, ``KUSARI_ORACLE`` a Python with Chainer, and
matplotlib, Pillow and h5py for the examples that need them. Packages that are gone, as gym's old interface, are stood
in for by the modules in ``stand_ins``. ``tools/chainer_examples.py`` writes the same rows' ends into a page.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from examples.rows import ROWS, Row
from examples.running import run_row
from examples.verdict import judge

ORACLE, EXAMPLES = os.environ.get("KUSARI_ORACLE", ""), os.environ.get("KUSARI_EXAMPLES", "")

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.skipif(
    not (ORACLE and EXAMPLES), reason="KUSARI_ORACLE names no Chainer, or KUSARI_EXAMPLES not its examples")]


@functools.cache
def lacks(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import importlib.util as u, sys; sys.exit(not u.find_spec({module!r}))"],
                          check=False).returncode != 0


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_example(row: Row, tmp_path: Path, root: Path) -> None:
    pythons = [sys.executable, *([ORACLE] if row.chainer else [])]
    for python, module in [(python, module) for python in pythons for module in row.needs]:
        if lacks(python, module):
            pytest.skip(f"{python} has no {module}")
    ours = run_row(row, sys.executable, Path(EXAMPLES), tmp_path / "kusari", root, kusari=True)
    theirs = None if row.chainer is None else run_row(
        row, ORACLE, Path(EXAMPLES), tmp_path / "chainer", root, kusari=False)
    verdict = judge(row, ours, theirs, tuple(map(int, np.__version__.split(".")[:2])))
    assert verdict.expected, f"{verdict.text}\n{ours.errors}\n" + "\n".join(ours.printed)
