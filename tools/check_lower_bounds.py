"""Install a wheel with the oldest versions that it admits, and train, compile and save with them.

``pyproject.toml`` states lower bounds (``numpy>=2``, ``numba>=0.62``); nothing else runs with these versions. What is
installed otherwise is newer, so that a name or a behaviour of a newer version is used unnoticed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEWEST_PYTHON = (3, 12)  # that NumPy 2.0 has been built for

SMOKE = """
import sys, warnings
warnings.simplefilter("error")
import numpy as np
import kusari
import kusari.functions as F
import kusari.links as L
from importlib.metadata import version

class Model(kusari.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(1, 4, 3)
            self.norm = L.BatchNormalization(4)
            self.rnn = L.StatelessLSTM(None, 8)
            self.last = L.Linear(8, 3)

    def forward(self, x):
        h = F.max_pooling_2d(F.relu(self.norm(self.conv(x))), 2)
        c, h = self.rnn(None, None, F.dropout(h, 0.2))
        return self.last(h)

    def loss(self, x, t):
        return F.softmax_cross_entropy(self(x), t)

class Static(Model):
    loss = kusari.static_graph(Model.loss)

x = np.random.RandomState(0).rand(8, 1, 10, 10).astype(np.float32)
t = np.arange(8, dtype=np.int32) % 3
losses = []
for kind in (Model, Static):
    np.random.seed(0)
    model = kind()
    optimizer = kusari.optimizers.Adam().setup(model)
    losses.append([])
    for _ in range(5):
        model.cleargrads()
        loss = model.loss(x, t)
        loss.backward()
        optimizer.update()
        losses[-1].append(float(loss.array))
    for _ in range(3):
        optimizer.update(model.loss, x, t)
    kusari.serializers.save_npz("model.npz", model)
    kusari.serializers.load_npz("model.npz", model)
np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
with kusari.using_config("cpu_codegen", "numba"):
    tanh = kusari.static_graph(lambda x: F.sum(F.tanh(x) * 2, axis=1))
    for _ in range(3):
        y = tanh(x[:, 0, 0])
np.testing.assert_allclose(y.array, 2 * np.tanh(x[:, 0, 0]).sum(1), rtol=1e-5)
assert "1 schedule" in str(Static.loss.explain())
print("Python", sys.version.split()[0], *(f"{name} {version(name)}" for name in sys.argv[1:]), "train and compile")
"""


def bounds() -> dict[str, str]:
    """The lower bound of each required dependency."""
    (listed,) = re.findall(r"^dependencies = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    found = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', listed))
    assert len(found) == listed.count('"') // 2, f"a dependency without a lower bound: {listed}"
    return {name: ".".join((*version.split("."), "0", "0")[:3]) if version.count(".") < 2 else version
            for name, version in found.items()}


def check(wheel: Path) -> int:
    """Try a wheel at the lower bounds; returns the exit code of the first step that fails."""
    oldest = bounds()
    if sys.version_info[:2] > NEWEST_PYTHON:
        print(f"lower bounds: not tried, as there is no NumPy {oldest['numpy']} for this Python")
        return 0
    with tempfile.TemporaryDirectory(prefix="kusari-oldest-") as folder:
        venv.create(Path(folder) / "env", with_pip=True)
        python = Path(folder) / "env" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        exact = [f"{name}=={version}" for name, version in oldest.items()]
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel), *exact]
        smoke = Path(folder) / "smoke.py"
        smoke.write_text(SMOKE, encoding="utf-8")
        for command in (install, [str(python), "-I", str(smoke), *oldest]):
            done = subprocess.run(command, cwd=folder, env={**os.environ, "KUSARI_CACHE_DIR": folder})
            if done.returncode:
                return done.returncode
    return 0
