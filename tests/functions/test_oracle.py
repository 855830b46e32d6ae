"""Every row of the table against Chainer 7.8.1 itself, where it is installed."""
from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
from functions.rows import ROWS, evaluate

import kusari

ORACLE = os.environ.get("KUSARI_ORACLE")
# Chainer has no %, is wrong for negative axes, pads gradients by reflection, and cannot transpose sequences whose
# gradients are missing; parts of regions outside the image are minus infinity there; running statistics are no
# Variables; the gradient of a projection is of another shape, and of a length of 0 NaN; its zeta does not fit newer
# versions of SciPy.
DIFFERENT = {"mod", "rmod", "maxout axis", "pad reflect", "transpose_sequence", "roi_max_align_2d (2, 3)",
             "roi_max_align_2d None", "roi_max_align_2d (None, 3)", "roi_max_pooling_2d", "batch_renormalization",
             "clustering L2", "fixed_decorrelated_batch_normalization", "zeta"}


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLE, reason="KUSARI_ORACLE does not name a Python with Chainer")
def test_chainer_gives_the_same(tmp_path: Path) -> None:
    script, file = Path(__file__).with_name("oracle_values.py"), tmp_path / "values.pkl"
    subprocess.run([str(ORACLE), str(script), str(file)], check=True, capture_output=True)
    theirs = pickle.loads(file.read_bytes())
    for row in ROWS:
        if row.name in DIFFERENT:
            continue
        mine, other = evaluate(kusari.Variable, kusari.grad, row), theirs[row.name]
        if isinstance(other, str) and "SciPy" in other.replace("Scipy", "SciPy"):
            continue  # Chainer takes special functions from there, and it is not installed
        assert not isinstance(other, str), (row.name, other)
        assert len(mine) == len(other), row.name
        for p, q in zip(mine, other, strict=True):
            assert (p is None) == (q is None), row.name
            if p is not None:
                assert (p.dtype, p.shape) == (q.dtype, q.shape), row.name
                np.testing.assert_allclose(p, q, rtol=2e-5, atol=2e-6, err_msg=row.name)
