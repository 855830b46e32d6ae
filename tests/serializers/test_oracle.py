"""With a real Chainer at hand (KUSARI_ORACLE names its Python): the golden files are its, and it reads ours."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L

ORACLE = os.environ.get("KUSARI_ORACLE", "")
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
pytestmark = [pytest.mark.oracle, pytest.mark.skipif(not ORACLE, reason="KUSARI_ORACLE is not set")]

READER = """
import sys, numpy as np, chainer, chainer.functions as F, chainer.links as L
model = chainer.Chain(l=L.Linear(3, 2), lazy=L.Linear(2), bn=L.BatchNormalization(axis=0),
                      s=chainer.Sequential(F.relu, L.Linear(1, 1)))
optimizer = chainer.optimizers.Adam().setup(model)
chainer.serializers.load_npz(sys.argv[1], model)
chainer.serializers.load_npz(sys.argv[2], optimizer)
print(model.l.W.array.tolist(), model.lazy.W.array, model.bn.avg_mean.tolist(), model.bn.N, model.s[1].W.array.tolist())
print(optimizer.t, model.l.W.update_rule.state["m"].tolist())
"""


def run(*arguments: object) -> str:
    done = subprocess.run([ORACLE, "-W", "ignore", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_golden_files_are_chainers(tmp_path: Path) -> None:
    run(GOLDEN / "make_chainer_values.py", tmp_path)
    for name in ("chainer_values.npz", "chainer_model.npz", "chainer_adam.npz"):
        with np.load(GOLDEN / name, allow_pickle=True) as kept, np.load(tmp_path / name, allow_pickle=True) as made:
            assert sorted(kept.files) == sorted(made.files)
            for key in kept.files:
                np.testing.assert_array_equal(kept[key], made[key], err_msg=key)


def test_chainer_reads_our_files(tmp_path: Path) -> None:
    model = kusari.Chain(
        l=L.Linear(3, 2), lazy=L.Linear(2), bn=L.BatchNormalization(2), s=kusari.Sequential(F.relu, L.Linear(1, 1))
    )
    model.bn.N, model.bn.avg_mean[...] = 4, [5, 6]
    optimizer = kusari.optimizers.Adam().setup(model)
    for param in model.params(include_uninit=False):
        param.grad = np.ones_like(param.array)
    model.lazy.W.initialize((2, 2))
    model.lazy.W.grad = np.ones((2, 2), "f")
    optimizer.update()
    kusari.serializers.save_npz(tmp_path / "optimizer.npz", optimizer)
    model.lazy = L.Linear(2)
    kusari.serializers.save_npz(tmp_path / "model.npz", model)
    (tmp_path / "read.py").write_text(READER)
    first, second = run(tmp_path / "read.py", tmp_path / "model.npz", tmp_path / "optimizer.npz").splitlines()
    assert first == f"{model.l.W.array.tolist()} None [5.0, 6.0] 4 {model.s[1].W.array.tolist()}"
    assert second == f"1 {model.l.W.update_rule.state['m'].tolist()}"
