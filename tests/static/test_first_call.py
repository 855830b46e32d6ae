"""The first calls in a new process: what is on the disk is neither written nor compiled again."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = '''
import json, sys
import numpy as np
import kusari, kusari.functions as F, kusari.links as L
import kusari.ir.program as program

written = []
finish = program.Kernel._finish
program.Kernel._finish = lambda kernel: (finish(kernel), written.append(kernel.symbol))[0]

class Model(kusari.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l1, self.l2, self.bn = L.Linear(6, 8), L.Linear(8, 3), L.BatchNormalization(8)

    @kusari.static_graph
    def loss(self, x, t):
        return F.softmax_cross_entropy(self.l2(F.relu(self.bn(self.l1(x))[:, ::-1])), t)

np.random.seed(0)
model = Model()
optimizer = kusari.optimizers.Adam().setup(model)
x, t = np.random.rand(5, 6).astype("f"), np.array([0, 1, 2, 0, 1], "i")
losses = []
for _ in range(3):
    model.cleargrads()
    loss = model.loss(x, t)
    loss.backward()
    optimizer.update()
    losses.append(float(loss.array))
from kusari.runtime import default_loader
report = default_loader().report
print(json.dumps(dict(written=written, compiled=report.compiled, cached=report.cached, losses=losses,
                      modules=[m for m in sys.modules if m.startswith(("kusari.codegen", "numba", "networkx"))])))
'''


def start(directory: Path) -> dict[str, Any]:
    script = directory / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "KUSARI_CACHE_DIR": str(directory)})
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_warm_start_writes_no_text_and_compiles_nothing(tmp_path: Path) -> None:
    cold, warm = start(tmp_path), start(tmp_path)
    assert cold["compiled"] > 4 and len(cold["written"]) > 4
    assert warm["written"] == [] and warm["compiled"] == 0 and warm["cached"] == cold["compiled"] + cold["cached"]
    assert warm["losses"] == cold["losses"]
    texts = {"emitter", "elementary", "tile", "outer", "writer", "foreach", "move"}
    writers = {m for m in warm["modules"] if m.rpartition(".")[2] in texts or not m.startswith("kusari")}
    assert not writers


@pytest.mark.slow
def test_damaged_files_are_made_again(tmp_path: Path) -> None:
    cold = start(tmp_path)
    for file in tmp_path.rglob("*.o"):
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    again = start(tmp_path)
    assert again["compiled"] == cold["compiled"] and again["losses"] == cold["losses"]
    assert start(tmp_path)["compiled"] == 0
