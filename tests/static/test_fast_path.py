"""The replay that is written out as one function, and what it leaves to the others."""
from __future__ import annotations

import threading

import numpy as np
import pytest

import kusari
from kusari import functions as F
from kusari import links as L
from kusari.static.replay.arguments import Arguments


class Net(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(3, 4)
        self.slope = 2

    @kusari.static_graph
    def forward(self, x):
        return F.relu(self.l1(x)) * self.slope

    @kusari.static_graph
    def both(self, x, y):
        return {"sum": F.exp(x) + y, "parts": [F.exp(x), self.l1.b + 1]}


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def eager(function, *args):
    with kusari.using_config("use_static_graph", False):
        return function(*args)


def warm(function, *args):
    for _ in range(4):
        function(*args)


def schedule_of(net):
    return next(e for _, e in net.forward.static.signatures(net) if e.schedule is not None)


@pytest.fixture
def inference():
    with kusari.using_config("train", False), kusari.no_backprop_mode():
        yield


def test_no_other_function_of_the_replay_is_called(inference, monkeypatch):
    net = Net()
    warm(net, X)
    call = schedule_of(net).free[-1]
    monkeypatch.setattr(call.arguments, "run", None)
    np.testing.assert_allclose(net(X).array, eager(net, X).array, rtol=1e-6)


@pytest.mark.parametrize("change", ["array", "attribute", "variable", "shape", "strides", "same array twice"])
def test_what_differs_is_left_to_them(inference, change):
    net = Net()
    warm(net, X)
    warm(net.both, X, X + 1)
    before, other = net.l1.b.array, np.ones(4, np.float32)
    if change == "array":
        for array in (other, before, other, before):
            net.l1.b.array = array
            np.testing.assert_allclose(net(X).array, eager(net, X).array, rtol=1e-6)
    elif change == "attribute":
        for slope in (3, 2, 3, 2):
            net.slope = slope
            np.testing.assert_allclose(net(X).array, eager(net, X).array, rtol=1e-6)
    elif change == "same array twice":
        found, want = net.both(X, X), eager(net.both, X, X)
        np.testing.assert_allclose(found["sum"].array, want["sum"].array, rtol=1e-6)
    else:
        x = {"variable": kusari.Variable(X), "shape": X[:1], "strides": np.asfortranarray(X)}[change]
        np.testing.assert_allclose(net(x).array, eager(net, x).array, rtol=1e-6)


def test_trees_and_results_that_are_held(inference):
    net = Net()
    warm(net.both, X, X + 1)
    first, second = net.both(X, X + 1), net.both(X + 1, X)
    assert list(first) == ["sum", "parts"]
    np.testing.assert_allclose(first["parts"][0].array, np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(second["parts"][0].array, np.exp(X + 1), rtol=1e-6)


def test_gradients_of_two_calls_in_flight():
    net = Net()
    for _ in range(4):
        net(X).grad = np.ones((2, 4), np.float32)
    found = []
    for call in (net, lambda x: eager(net, x)):
        net.cleargrads()
        y, z = call(X), call(X + 1)
        (F.sum(y) + F.sum(z * 3)).backward()
        found.append(net.l1.W.grad.copy())
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_a_frame_in_use_is_left_alone(inference):
    net = Net()
    warm(net, X)
    want, wrong = eager(net, X).array, []

    def many():
        with kusari.using_config("train", False), kusari.no_backprop_mode():
            for _ in range(300):
                if not np.allclose(net(X).array, want):
                    wrong.append(1)
    threads = [threading.Thread(target=many) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    free = schedule_of(net).free
    taken = [free.pop() for _ in range(len(free))]
    np.testing.assert_allclose(net(X).array, want, rtol=1e-6)
    assert len(free) == 1 and free[0] not in taken and isinstance(free[0].arguments, Arguments)
