"""Snapshots between Chainer 7.8.1 and Kusari: a training that one began goes on in the other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ORACLE = os.environ.get("KUSARI_ORACLE")
SCRIPT = '''
import importlib, sys
name, out, stop, snapshot = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
import numpy as np
lib = importlib.import_module(name)
F, L, training, extensions, iterators, datasets, serializers = (importlib.import_module(name + "." + part) for part in
    "functions links training training.extensions iterators datasets serializers".split())
np.random.seed(0)
x = np.random.RandomState(1).rand(200, 6).astype(np.float32)
t = (x.sum(axis=1) > 3).astype(np.int32)
layer = lib.Sequential(L.Linear(6, 6), F.relu)
net = layer.repeat(2)
net.append(L.Linear(6, 2))
model = L.Classifier(net)
optimizer = lib.optimizers.Adam().setup(model)
train, test = datasets.split_dataset(datasets.TupleDataset(x, t), 150)
updater = training.StandardUpdater(iterators.SerialIterator(train, 20), optimizer)
trainer = training.Trainer(updater, (stop, "epoch"), out=out)
trainer.extend(extensions.Evaluator(iterators.SerialIterator(test, 20, repeat=False, shuffle=False), model))
trainer.extend(extensions.LogReport())
trainer.extend(extensions.ExponentialShift("alpha", 0.5), trigger=(1, "epoch"))
trainer.extend(extensions.snapshot(filename="saved"))
if snapshot:
    serializers.load_npz(snapshot[0], trainer)
np.random.seed(5)
trainer.run()
'''


def train(library, folder, stop, *snapshot):
    script = folder / "train.py"
    script.write_text(SCRIPT)
    python = sys.executable if library == "kusari" else ORACLE
    out = folder / f"{library}-{stop}-{len(snapshot)}"
    command = [python, "-W", "ignore", script, library, out, str(stop), *snapshot]
    subprocess.run(list(map(str, command)), check=True, timeout=600)
    return out


def log(out):
    entries = json.loads(Path(out, "log").read_text())
    return [[value for key, value in sorted(entry.items()) if key != "elapsed_time"] for entry in entries]


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLE, reason="KUSARI_ORACLE names no Python with Chainer 7.8.1")
@pytest.mark.parametrize(("first", "second"), [("chainer", "kusari"), ("kusari", "chainer")])
def test_resumed_by_the_other(tmp_path, first, second):
    begun = train(first, tmp_path, 2)
    expected = log(train(first, tmp_path, 4, begun / "saved"))
    actual = log(train(second, tmp_path, 4, begun / "saved"))
    assert len(actual) == 4
    assert actual == [pytest.approx(entry, rel=1e-4) for entry in expected]
    # Begun with the same seeds, the two are the same training anyway.
    assert log(train(second, tmp_path, 2)) == [pytest.approx(entry, rel=1e-4) for entry in log(begun)]
