"""Chainer's own examples, unmodified, on made-up data: they run, and print what they print on Chainer 7.8.1.

``KUSARI_EXAMPLES`` names the folder ``examples`` of a checkout of Chainer, ``KUSARI_ORACLE`` a Python with Chainer, and
matplotlib, Pillow and h5py for the examples that need them. Packages that are gone, as gym's old interface, are stood
in for by the modules in ``stand_ins``.
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
from examples.running import numbers, run_row

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
    if row.fails and tuple(map(int, np.__version__.split(".")[:2])) >= row.numpy:
        assert ours.code != 0 and row.fails in ours.errors, ours.errors
    else:
        assert ours.code == 0, ours.errors
    if row.chainer is None:
        return
    theirs = run_row(row, ORACLE, Path(EXAMPLES), tmp_path / "chainer", root, kusari=False)
    assert (theirs.code == 0) == row.chainer, theirs.errors
    if ours.code == theirs.code == 0 and row.tolerance is not None:
        given, expected = numbers(ours.printed), numbers(theirs.printed)
        assert len(given) == len(expected), "\n".join(ours.printed)
        np.testing.assert_allclose(given, expected, row.tolerance, row.tolerance or 0)
