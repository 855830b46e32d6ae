"""A small training that runs in milliseconds."""

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari import iterators, optimizers, training
from kusari.datasets import TupleDataset


class Net(kusari.Chain):
    """Two layers with dropout between them, and their loss."""

    def __init__(self, ratio=0.0):
        super().__init__()
        self.ratio = ratio
        random = np.random.RandomState(1)
        with self.init_scope():
            self.W1 = kusari.Parameter(random.randn(5, 4).astype(np.float32), name="W1")
            self.W2 = kusari.Parameter(random.randn(2, 5).astype(np.float32), name="W2")

    def forward(self, x, t):
        y = F.linear(F.dropout(F.relu(F.linear(x, self.W1)), self.ratio), self.W2)
        loss = F.softmax_cross_entropy(y, t)
        kusari.report({"loss": loss, "accuracy": F.accuracy(y, t)}, self)
        return loss


@pytest.fixture
def examples():
    random = np.random.RandomState(0)
    x = random.rand(25, 4).astype(np.float32)
    return TupleDataset(x, (x.sum(axis=1) > 2).astype(np.int32))


@pytest.fixture
def build(examples, tmp_path):
    """``build(stop, ...)`` makes a trainer: 25 examples in batches of 8, so 3.125 iterations per epoch."""

    def make(
        stop=(3, "epoch"),
        out=None,
        ratio=0.0,
        iterator=iterators.SerialIterator,
        updater=None,
        rule=optimizers.Adam,
    ):
        model = Net(ratio)
        optimizer = rule().setup(model)
        updater = (updater or training.StandardUpdater)(iterator(examples, 8), optimizer)
        return training.Trainer(updater, stop, out=str(tmp_path / "result" if out is None else out))

    return make


class Idle(training.StandardUpdater):
    """Takes batches and learns nothing."""

    def update_core(self):
        self.get_iterator("main").next()


@pytest.fixture
def build_idle(build):
    """As ``build``, with an updater that takes batches and does nothing with them."""

    def make(stop=(3, "iteration"), **kwargs):
        return build(stop, updater=Idle, rule=optimizers.SGD, **kwargs)

    return make
