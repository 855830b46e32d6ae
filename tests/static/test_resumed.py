"""A training with static functions that goes on from a file does so to the bits of one without interruption."""
from __future__ import annotations

import io

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L


class Net(kusari.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(24, 40)
            self.norm = L.BatchNormalization(40)
            self.l2 = L.Linear(40, 5)
        self.calls, self.seen, self.counts = 0, [], np.zeros(2, "i")

    def forward(self, x):
        self.calls += 1
        self.seen.append(x.shape)
        self.counts[1] += 1
        return self.l2(F.dropout(F.tanh(self.norm(self.l1(x)))))


class Whole(Net):
    @kusari.static_graph
    def loss(self, x, t):
        return F.softmax_cross_entropy(self(x), t)


class Forward(Net):
    forward = kusari.static_graph(Net.forward)

    def loss(self, x, t):
        return F.softmax_cross_entropy(self(x), t) + 0.01 * F.sum(self.l2.W ** 2)


class Counted(Net):
    """One whose first call is traced twice, as it compares numbers of an array."""

    @kusari.static_graph
    def loss(self, x, t):
        if (t < 0).any():
            raise ValueError("negative")
        return F.softmax_cross_entropy(self(x), t)


class Eager(Net):
    def loss(self, x, t):
        return F.softmax_cross_entropy(self(x), t)


OPTIMIZERS = {
    "Adam": kusari.optimizers.Adam,
    "MomentumSGD": lambda: kusari.optimizers.MomentumSGD(0.1),
    "AMSGrad": lambda: kusari.optimizers.Adam(amsgrad=True),
}


def training(kind, optimizer):
    np.random.seed(1)
    model = kind()
    rule = OPTIMIZERS[optimizer]().setup(model)
    rule.add_hook(kusari.optimizer_hooks.WeightDecay(0.01))
    return model, rule


def batches(first, last):
    draws = np.random.RandomState(5)
    every = [(draws.rand(16, 24).astype("f"), draws.randint(0, 5, 16).astype("i")) for _ in range(last)]
    return every[first:]


def steps(model, optimizer, first, last):
    for x, t in batches(first, last):
        optimizer.update(model.loss, x, t)


def resumed(kind, optimizer, at):
    """Return a model and its optimizer as a new process loads them, with NumPy's random state of then."""
    model, rule = training(kind, optimizer)
    steps(model, rule, 0, at)
    state = np.random.get_state()
    files = io.BytesIO(), io.BytesIO()
    for file, x in zip(files, (model, rule), strict=True):
        kusari.serializers.save_npz(file, x)
        file.seek(0)
    model, rule = training(type(kind.__name__, (kind,), {}), optimizer)
    for file, x in zip(files, (model, rule), strict=True):
        kusari.serializers.load_npz(file, x)
    np.random.set_state(state)
    return model, rule


def state_of(model, optimizer):
    found = [p.array for _, p in sorted(model.namedparams())] + [model.norm.avg_mean, model.norm.avg_var]
    found += [a for _, p in sorted(model.namedparams()) for a in p.update_rule.state.values() if a is not None]
    return [a.tobytes() for a in found] + [optimizer.t, np.random.get_state()[1].tobytes(), np.random.get_state()[2]]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", [Whole, Forward, Counted, Eager])
def test_resumed_training_has_the_same_bits(kind, optimizer):
    whole = training(kind, optimizer)
    steps(*whole, 0, 9)
    expected = state_of(*whole)
    for at in (3, 6):
        model, rule = resumed(kind, optimizer, at)
        steps(model, rule, at, 9)
        assert state_of(model, rule) == expected
        calls = 9 - at
        assert (model.calls, model.seen, model.counts.tolist()) == (calls, [(16, 24)] * calls, [0, calls])


def test_steps_are_made_twice_only_where_they_are_traced(monkeypatch):
    made = []

    def loss(self, x, t):
        made.append(type(self))
        return F.softmax_cross_entropy(self(x), t)
    monkeypatch.setattr(Eager, "loss", loss)
    model, rule = resumed(Eager, "Adam", 3)
    del made[:]
    steps(model, rule, 3, 5)
    assert len(made) == 2


def test_gradients_of_arguments_and_of_other_models_are_those_of_one_step():
    def gradients(load):
        np.random.seed(2)
        other, model = L.Linear(24, 24), Whole()
        rule = kusari.optimizers.SGD(0.1).setup(model)

        @kusari.static_graph
        def loss(model, other, x, t):
            return model.loss(other(x), t)
        for x, t in batches(0, 3):
            rule.update(loss, model, other, kusari.Variable(x), t)
        if load:
            file = io.BytesIO()
            kusari.serializers.save_npz(file, rule)
            file.seek(0)
            kusari.serializers.load_npz(file, rule)
            loss = kusari.static_graph(loss.static.fn)  # is traced again
        other.cleargrads()
        x = kusari.Variable(batches(3, 4)[0][0])
        rule.update(loss, model, other, x, batches(3, 4)[0][1])
        return [g.tobytes() for g in (x.grad, other.W.grad, other.b.grad)]
    assert gradients(False) == gradients(True)
