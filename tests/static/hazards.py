"""Data, models and calls of the tests of hazards."""
from __future__ import annotations

import types
from typing import Any

import numpy as np

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph


def xs(n: int = 5, shape: tuple[int, ...] = (3, 4), dtype: Any = "f") -> list[np.ndarray]:
    rs = np.random.RandomState(7)
    return [np.asarray(rs.randn(*shape)).astype(dtype) for _ in range(n)]


def items(values: Any, shape: tuple[int, ...] = (3, 4)) -> list[Any]:
    values = list(values)
    return list(zip(values, xs(len(values), shape), strict=True))


class Reading(kusari.Chain):
    """Reads ``alpha`` in many ways."""

    kind = "class"

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l = L.Linear(4, 4)
            self.m = L.Linear(4, 4)
        self.alpha: Any = 1.0
        self.pair = (1.0, 2)
        self.scales = [1.0, 2.0]
        self.settings = types.SimpleNamespace(deep={"scale": 1.0})
        self.activation = F.relu
        self.unread = 0
        self.seen: Any = None

    @property
    def doubled(self) -> Any:
        return self.alpha * 2

    def helper(self, h: Any) -> Any:
        return h * self.alpha


class Normed(kusari.Chain):
    """Has statistics, and an array that is only saved."""

    def __init__(self, n_in: int | None = 4) -> None:
        super().__init__()
        with self.init_scope():
            self.l = L.Linear(n_in, 4)
            self.norm = L.BatchNormalization(4)
        self.add_persistent("seen", np.zeros((), "f"))

    @static_graph
    def forward(self, x: Any) -> Any:
        h = self.norm(self.l(x))
        return F.sum(F.tanh(h), axis=1)


def eager(model: Any, x: Any) -> Any:
    with kusari.using_config("use_static_graph", False):
        return model(x)


def warm(model: Any, n: int = 3) -> Any:
    for x in xs(n):
        model.cleargrads()
        F.sum(model(x)).backward()
    return model


def gradients(model: Any, *others: Any) -> list[Any]:
    return [p.grad for p in model.params()] + [v.grad for v in others]
