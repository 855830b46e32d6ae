"""Calls with more arrays than are written out one by one: arguments, results, parameters, states and gradients."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable, static_graph
from kusari.static.signature import MANY_ARRAYS

COUNT = MANY_ARRAYS + 3


def several(*xs: Any) -> Any:
    return tuple(F.tanh(x) * y for x, y in zip(xs, xs[1:] + xs[:1], strict=True))


def test_arguments_and_results_of_calls() -> None:
    static = static_graph(several)
    rng = np.random.RandomState(0)
    held: list[Any] = []
    for i in range(6):
        arrays = [rng.randn(40, 50).astype("f") for _ in range(COUNT)]
        if i == 3:
            arrays[2] = arrays[5]  # one array twice is another signature
        if i == 4:
            arrays[4] = np.asfortranarray(arrays[4])
        got, want = static(*arrays), several(*arrays)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a.array, b.array, rtol=1e-5, atol=1e-6)
        held.append(([a.array for a in got], [b.array for b in want]))
    for got, want in held:  # nothing was written to what was handed out
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


class Deep(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.layers = kusari.ChainList(*(L.Linear(4, 4, nobias=True) for _ in range(COUNT)))
            self.norms = kusari.ChainList(*(L.BatchNormalization(4) for _ in range(COUNT)))

    def loss(self, x: Any) -> Any:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.tanh(norm(layer(x))) + x
        return F.sum(x * x)


def trained(chain: type[Deep], make: Any, whole: bool) -> list[Any]:
    np.random.seed(0)
    net = chain()
    optimizer = make().setup(net)
    kept: list[Any] = []
    for i in range(6):
        x = np.random.RandomState(i).randn(6, 4).astype("f")
        if i == 4:  # parameters and states may be other arrays, and of another layout
            net.layers[3].W.array = np.asfortranarray(net.layers[3].W.array)
            net.norms[2].avg_mean = net.norms[2].avg_mean.copy()
        if whole:
            optimizer.update(net.loss, x)
        else:
            net.cleargrads()
            net.loss(x).backward()
            optimizer.update()
        grads = [p.grad for p in net.params()]
        kept.append((grads, [g.copy() for g in grads]))
    assert all(np.array_equal(g, c) for grads, copies in kept[:-1] for g, c in zip(grads, copies, strict=True)) or whole
    return [*(p.array for p in net.params()), *(n.avg_mean for n in net.norms), *(n.avg_var for n in net.norms)]


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("make", [kusari.optimizers.SGD, kusari.optimizers.Adam])
def test_parameters_states_and_gradients(make: Any, whole: bool) -> None:
    class Static(Deep):
        loss = static_graph(Deep.loss)
    for a, b in zip(trained(Static, make, whole), trained(Deep, make, whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


def test_an_argument_that_is_a_variable_gets_its_gradient() -> None:
    static = static_graph(lambda *xs: F.sum(sum(several(*xs))))
    for _ in range(3):
        xs = [Variable(np.full((2, 3), i / COUNT, "f")) for i in range(COUNT)]
        ys = [Variable(x.array.copy()) for x in xs]
        static(*xs).backward()
        F.sum(sum(several(*ys))).backward()
        for x, y in zip(xs, ys, strict=True):
            np.testing.assert_allclose(x.grad, y.grad, rtol=1e-5, atol=1e-6)
