"""Programs on random arguments against Chainer 7.8.1 itself, where it is installed (with SciPy and mock).

Where Chainer gives a value, Kusari gives the same, with gradients; where Chainer fails, Kusari may do more.
"""
from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import sweep

ORACLE = os.environ.get("KUSARI_ORACLE")
# Chainer drops what is padded from gradients, takes the wrong axis where it counts from the end, takes the largest
# label for the number of labels, divides rounding errors by 0 in the first step of MSVAG, and begins with weights of
# NaN in BlackOut.
DIFFERENT = ('F.pad(x, ((k, l),), "edge")', 'F.pad(x, (k, l), "reflect")', "F.maxout(x, k + 1, axis=axis)",
             "F.precision(b, t)", "F.recall(b, t)", "MSVAG", "BlackOut(")


def same(theirs: Any, ours: Any) -> bool:
    """Whether two results agree: in kind, shape, dtype and, up to rounding, in value."""
    if isinstance(theirs, dict):
        return theirs.keys() == ours.keys() and all(same(value, ours[key]) for key, value in theirs.items())
    if isinstance(theirs, list):
        return type(ours) is list and len(theirs) == len(ours) and all(map(same, theirs, ours))
    if theirs is None or isinstance(theirs, str):
        return theirs == ours if ours is None or isinstance(ours, str) else False
    if isinstance(theirs, np.ndarray) and not (
            isinstance(ours, np.ndarray) and theirs.shape == ours.shape and theirs.dtype == ours.dtype):
        return False
    a, b = np.asarray(theirs), np.asarray(ours)
    tolerance = 2e-2 if a.dtype == np.float16 else 1e-4
    return a.shape == b.shape and b.dtype.kind in "biuf" and np.allclose(
        a.astype(float), b.astype(float), tolerance, tolerance, equal_nan=True)


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLE, reason="KUSARI_ORACLE does not name a Python with Chainer")
@pytest.mark.parametrize("area", sweep.AREAS)
def test_programs(area: str, tmp_path: Path) -> None:
    file = tmp_path / "found.pkl"
    subprocess.run([str(ORACLE), "-m", "oracle.sweep", area, str(file)], check=True, capture_output=True,
                   cwd=Path(sweep.__file__).parents[1])
    theirs = pickle.loads(file.read_bytes())
    ours = sweep.evaluate("kusari", area)
    given = {name: value for name, value in theirs.items() if not isinstance(value, tuple)}
    assert len(given) > 100
    wrong = [f"{name}\n  Chainer: {value}\n  Kusari: {ours[name]}" for name, value in given.items()
             if not name.startswith(DIFFERENT) and not same(value, ours[name])]
    assert not wrong, "\n".join(wrong[:10])
