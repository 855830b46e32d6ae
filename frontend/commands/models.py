"""The models that ``python -m kusari bench`` measures.

A model is a :class:`Chain` with ``forward`` and ``loss``, and one :func:`model` line with its name, its optimizer
and a function that makes its data.  To add one, add such a class: nothing else has to know of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import functions as F
from .. import links as L
from .. import optimizers, static_graph
from ..link import Chain
from ..variable import Variable

__all__ = ["MODELS", "Model", "compiled"]

LABEL_SETS = 8
"""Training goes through several random label sets of the same input, so that the loss stays away from zero."""

Data = Callable[[np.random.RandomState], "tuple[Any, list[Any]]"]


@dataclass(frozen=True)
class Model:
    """What the benchmark has to know of a model."""

    name: str
    chain: type[Chain]
    optimizer: Callable[[], Any]
    data: Data

    @property
    def about(self) -> str:
        """The first line of the chain's docstring."""
        return (self.chain.__doc__ or "").strip().partition("\n")[0]


MODELS: dict[str, Model] = {}
"""Every model, by name."""


def model(name: str, optimizer: Callable[[], Any], data: Data) -> Callable[[type[Chain]], type[Chain]]:
    """Class decorator: list a chain under ``name`` in :data:`MODELS`."""

    def register(chain: type[Chain]) -> type[Chain]:
        MODELS[name] = Model(name, chain, optimizer, data)
        return chain

    return register


def compiled(chain: type[Any]) -> type[Any]:
    """The same chain with ``forward`` and ``loss`` compiled, as ``@static_graph`` above each would do."""
    members = {"forward": static_graph(chain.forward), "loss": static_graph(chain.loss)}
    return type(chain.__name__, (chain,), members)


class MLP(Chain):
    """Three fully connected layers with ReLU between them."""

    def __init__(self, n_in: int, n_units: int, n_out: int) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(n_in, n_units)
            self.l2 = L.Linear(n_units, n_units)
            self.l3 = L.Linear(n_units, n_out)

    def forward(self, x: Any) -> Variable:
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))


def mushroom_data(rs: np.random.RandomState) -> tuple[Any, list[Any]]:
    """A batch of 100 with 22 features and labels of two classes."""
    x = rs.randn(100, 22).astype(np.float32)
    return x, [rs.randint(0, 2, (100, 1)).astype(np.int32) for _ in range(LABEL_SETS)]


def mnist_data(rs: np.random.RandomState) -> tuple[Any, list[Any]]:
    """A batch of 100 images of 28 by 28, as vectors, and labels of ten classes."""
    x = rs.rand(100, 784).astype(np.float32)
    return x, [rs.randint(0, 10, 100).astype(np.int32) for _ in range(LABEL_SETS)]


@model("mushroom_mlp", lambda: optimizers.SGD(0.01), mushroom_data)
class MushroomMLP(MLP):
    """MLP 22-44-44-1, batch 100, SGD: all overhead, hardly any arithmetic."""

    def __init__(self) -> None:
        super().__init__(22, 44, 1)

    def loss(self, x: Any, t: Any) -> Variable:
        return F.sigmoid_cross_entropy(self.forward(x), t)


@model("mnist_mlp", lambda: optimizers.Adam(0.001), mnist_data)
class MnistMLP(MLP):
    """MLP 784-1000-1000-10, batch 100, Adam: matrix products and 1.8 million parameters."""

    def __init__(self) -> None:
        super().__init__(784, 1000, 10)

    def loss(self, x: Any, t: Any) -> Variable:
        return F.softmax_cross_entropy(self.forward(x), t)
