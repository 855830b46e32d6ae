"""Static equals define-by-run: outputs, gradients, parameters, state, random numbers, over calls with new data."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph
from kusari.optimizers import (
    MSVAG,
    SGD,
    SMORMS3,
    AdaDelta,
    AdaGrad,
    Adam,
    AMSGrad,
    CorrectedMomentumSGD,
    MomentumSGD,
    RMSprop,
    RMSpropGraves,
)


def batches(n: int, shape: tuple[int, ...], classes: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    rs = np.random.RandomState(0)
    return [(rs.randn(*shape).astype("f"), rs.randint(0, classes, shape[0]).astype("i")) for _ in range(n)]


class MLP(kusari.Chain):
    def __init__(self, n_in: int | None = 5, norm: Any = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        with self.init_scope():
            self.l1 = L.Linear(n_in, 16, nobias=norm is not None)  # normalized away, its gradient is rounding
            self.l2 = L.Linear(16, 3)
            self.norm = norm() if norm is not None else None

    @static_graph
    def forward(self, x: Any) -> Any:
        h = self.l1(x)
        if self.norm is not None:
            h = self.norm(h)
        h = F.relu(h)
        if self.dropout:
            h = F.dropout(h, self.dropout)
        return self.l2(h)

    @static_graph
    def loss(self, x: Any, t: Any) -> Any:
        y = self(x)
        return F.softmax_cross_entropy(y, t), F.accuracy(y, t)


def outside(model: Any, item: Any) -> Any:
    return F.softmax_cross_entropy(model(item[0]), item[1])


def inside(model: Any, item: Any) -> Any:
    return model.loss(*item)


@pytest.mark.parametrize("make", [
    MLP,
    lambda: MLP(None),
    lambda: MLP(dropout=0.4),
    lambda: MLP(norm=lambda: L.BatchNormalization(16)),
    lambda: MLP(norm=lambda: L.LayerNormalization(16)),
    lambda: MLP(norm=lambda: L.BatchNormalization(16), dropout=0.4),
], ids=["plain", "lazy", "dropout", "bn", "ln", "bn+dropout"])
@pytest.mark.parametrize("call", [outside, inside])
@pytest.mark.parametrize("optimizer", [None, SGD, Adam])
def test_mlp(assert_same: Any, make: Any, call: Any, optimizer: Any) -> None:
    assert_same(make, call, batches(5, (7, 5)), optimizer=optimizer, atol=1e-5 if optimizer is Adam else 1e-6)


@pytest.mark.parametrize("optimizer", [
    MomentumSGD, AMSGrad, lambda: Adam(weight_decay_rate=0.1), AdaDelta, AdaGrad, CorrectedMomentumSGD, MSVAG, RMSprop,
    lambda: RMSprop(eps_inside_sqrt=True), RMSpropGraves, SMORMS3])
def test_optimizers(assert_same: Any, optimizer: Any) -> None:
    assert_same(MLP, inside, batches(5, (7, 5)), optimizer=optimizer, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:batch_normalization got a batch of one sample")
def test_several_shapes_and_modes(assert_same: Any) -> None:
    data = [(x, t, train) for n in (7, 4, 1) for (x, t) in batches(3, (n, 5)) for train in (True, False)]

    def call(model: Any, item: Any) -> Any:
        with kusari.using_config("train", item[2]):
            return model.loss(*item[:2])

    assert_same(lambda: MLP(norm=lambda: L.BatchNormalization(16), dropout=0.5), call, data)


def test_several_calls_before_one_backward(assert_same: Any) -> None:
    def call(model: Any, item: Any) -> Any:
        a, b = (F.softmax_cross_entropy(model(item[0] * k), item[1]) for k in (1, 2))
        return a + 2 * b

    assert_same(lambda: MLP(dropout=0.3), call, batches(5, (6, 5)))


def test_gradients_of_inputs_and_accumulation() -> None:
    class Model(MLP):
        @static_graph
        def forward(self, x: Any) -> Any:
            return F.tanh(self.l1(x)) * 2

    grads: dict[bool, list[np.ndarray]] = {}
    for static in (False, True):
        np.random.seed(0)
        model = Model()
        found = grads[static] = []
        with kusari.using_config("use_static_graph", static):
            for x, _ in batches(4, (6, 5)):
                v = kusari.Variable(x)
                F.sum(model(v)).backward()  # no cleargrads: gradients add up
                found += [v.grad, model.l1.W.grad.copy()]
    for a, b in zip(grads[False], grads[True], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_results_are_owned_by_the_caller() -> None:
    model = MLP()
    data = batches(6, (6, 5))
    with kusari.no_backprop_mode():
        ys = [model(x) for x, _ in data]
        again = [model(x).array for x, _ in data]
    for y, z in zip(ys, again, strict=True):
        np.testing.assert_allclose(y.array, z, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("result", [
    lambda y: {"a": y, "b": [y * 2, None]}, lambda y: (y, y), lambda y: [y], lambda y: ((y, 3), "text")])
def test_result_trees(result: Any) -> None:
    @static_graph
    def f(x: Any) -> Any:
        return result(F.relu(x))

    def leaves(tree: Any) -> list[Any]:
        if isinstance(tree, kusari.Variable):
            return [tree.array]
        if isinstance(tree, dict):
            return [("dict", *tree), *(z for v in tree.values() for z in leaves(v))]
        if isinstance(tree, (list, tuple)):
            return [type(tree), *(z for v in tree for z in leaves(v))]
        return [tree]

    for k in (1, -1, 2):
        x = np.array([1, -2, 3], "f") * k
        got = leaves(f(x))
        for a, b in zip(got, leaves(result(F.relu(x))), strict=True):
            np.testing.assert_array_equal(a, b)


def test_argument_handed_through() -> None:
    @static_graph
    def f(x: Any, y: Any) -> Any:
        return x, F.relu(y)

    for _ in range(3):
        x, y = kusari.Variable(np.ones(2, "f")), kusari.Variable(-np.ones(2, "f"))
        a, b = f(x, y)
        assert a is x
        np.testing.assert_array_equal(b.array, [0, 0])


def test_parameters_bound_by_object() -> None:
    model = MLP()
    (x, _), = batches(1, (4, 5))
    with kusari.no_backprop_mode():
        for _ in range(3):
            model(x)
        model.l1.W.array = model.l1.W.array * 2
        with kusari.using_config("use_static_graph", False):
            expected = model(x).array
        np.testing.assert_allclose(model(x).array, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ignore", [None, 0])
def test_accuracy_in_double_precision(ignore: int | None) -> None:
    f = static_graph(lambda x, t: F.accuracy(x, t, ignore_label=ignore))
    rs = np.random.RandomState(1)
    for _ in range(3):
        x, t = rs.randn(7, 3), rs.randint(0, 3, 7).astype("i")
        np.testing.assert_array_equal(f(x, t).array, F.accuracy(x, t, ignore_label=ignore).array)


@pytest.mark.parametrize("parts", ["xx", "xyx", "yxxy"])
def test_a_value_joined_with_itself(parts: str) -> None:
    @static_graph
    def f(x: Any) -> Any:
        values = {"x": F.tanh(x), "y": F.exp(x)}
        return F.concat([values[p] for p in parts], 0)

    for k in range(3):
        x = np.full((2, 3), k, "f")
        expected = np.concatenate([np.tanh(x) if p == "x" else np.exp(x) for p in parts])
        np.testing.assert_allclose(f(x).array, expected, rtol=1e-5)
