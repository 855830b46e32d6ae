"""Layers that see their sizes from the first input are compiled like those that are told them."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph
from kusari.optimizers import SGD


class Model(kusari.Chain):
    """One layer and what is made of its output."""

    def __init__(self, make: Any, apply: Any) -> None:
        super().__init__()
        self.apply = apply
        with self.init_scope():
            self.layer = make()

    @static_graph
    def loss(self, x: Any) -> Any:
        return F.sum(F.tanh(self.apply(self.layer, x)))


LAYERS = {
    "LSTM": (lambda: L.LSTM(None, 3), lambda layer, x: layer(x)),
    "StatelessLSTM": (lambda: L.StatelessLSTM(None, 3), lambda layer, x: layer(None, None, x)[1]),
    "BatchNormalization": (lambda: L.BatchNormalization(axis=0), lambda layer, x: layer(x)),
    "Sequential": (lambda: kusari.Sequential(L.Linear(4), F.relu, L.LSTM(None, 3)), lambda layer, x: layer(x)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_sizes_seen_from_the_first_input(assert_same: Any, name: str) -> None:
    def call(model: Model, x: np.ndarray) -> Any:
        for link in model.links():
            if isinstance(link, L.LSTM):
                link.reset_state()
        return model.loss(x)

    data = [np.random.RandomState(i).rand(5, 4).astype("f") for i in range(4)]
    assert_same(lambda: Model(*LAYERS[name]), call, data, optimizer=lambda: SGD(0.1))  # a warning would be an error


def test_statistics_made_by_the_first_call_go_on() -> None:
    x = np.random.RandomState(0).rand(5, 4).astype("f")
    layers = [L.BatchNormalization(axis=0) for _ in range(2)]
    static = static_graph(lambda v: layers[1](v))
    for _ in range(4):
        layers[0](x)
        static(x)
        np.testing.assert_allclose(layers[1].avg_mean, layers[0].avg_mean, rtol=1e-6)
        np.testing.assert_allclose(layers[1].avg_var, layers[0].avg_var, rtol=1e-6)


class Unfinished(kusari.Chain):
    """A model with a layer that nothing has called, and which has no sizes therefore."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.used, self.unused = L.Linear(4, 3), L.Linear(None, 5)

    @static_graph
    def loss(self, x: Any) -> Any:
        return F.sum(F.tanh(self.used(x)))


def test_steps_of_a_model_with_a_layer_that_is_not_called() -> None:
    def trained(static: bool) -> list[np.ndarray]:
        np.random.seed(0)
        model = Unfinished()
        optimizer = SGD(0.1).setup(model)
        with kusari.using_config("use_static_graph", static):
            for i in range(4):
                optimizer.update(model.loss, np.random.RandomState(i).rand(5, 4).astype("f"))
        assert model.unused.W.array is None
        return [model.used.W.array, model.used.b.array]

    for a, b in zip(trained(False), trained(True), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
