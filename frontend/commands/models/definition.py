"""The description of a model for the benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ... import Chain, optimizer_hooks, static_graph

LABEL_SETS = 8
"""Training goes through several random label sets of the same input, so that the loss stays away from zero."""

Arrays = tuple
"""The arrays of one call: ``forward`` takes those of the input, ``loss`` those of the input and of the labels."""


@dataclass(frozen=True)
class Model:
    """A chain, the sizes it is measured at, its data and its optimizer.

    ``sizes`` are passed to the chain and to ``data``, each of which takes what it needs; ``infer`` are sizes
    that differ in inference, ``tiny`` the sizes of tests. ``data(random, **sizes)`` returns the arrays of an input and
    a list of label sets. ``clip``: gradients are clipped to this norm. ``input_gradient``: training computes the
    gradient of the input, too.
    """

    name: str
    chain: Callable[..., Any]
    optimizer: Callable[[], Any]
    data: Callable[..., tuple[Any, list[Any]]]
    sizes: dict[str, Any]
    infer: dict[str, Any] = field(default_factory=dict)
    tiny: dict[str, Any] = field(default_factory=dict)
    clip: float | None = None
    input_gradient: bool = False

    @property
    def about(self) -> str:
        """The first line of the chain's docstring."""
        return (self.chain.__doc__ or "").strip().partition("\n")[0]

    def at(self, **sizes: Any) -> Model:
        """The same model in other sizes; those of inference are the same then."""
        return replace(self, sizes={**self.sizes, **sizes}, infer={})

    def build(self, kind: Callable[..., Any] | None = None) -> Any:
        """A new chain; ``kind``: of a class that was made from this model's."""
        return (kind or self.chain)(**self.sizes)

    def arrays(self, phase: str = "train") -> tuple[Any, list[Any]]:
        """The input's arrays and the label sets of a phase; always the same numbers."""
        sizes = {**self.sizes, **self.infer} if phase == "infer" else self.sizes
        return self.data(np.random.RandomState(1), **sizes)

    def updater(self, chain: Any) -> Any:
        """The optimizer, set up for a chain, with its hook."""
        optimizer = self.optimizer().setup(chain)
        if self.clip is not None:
            optimizer.add_hook(optimizer_hooks.GradientClipping(self.clip))
        return optimizer


MODELS: dict[str, Model] = {}
"""Every model, by name."""


def model(name: str, optimizer: Callable[[], Any], data: Callable[..., Any], sizes: dict[str, Any], *,
          into: dict[str, Model] = MODELS, **more: Any) -> Callable[[type[Chain]], type[Chain]]:
    """Class decorator: list a chain under ``name``, in :data:`MODELS` unless another table is given as ``into``.

    ``more`` are further fields of :class:`Model`.
    """

    def register(chain: type[Chain]) -> type[Chain]:
        into[name] = Model(name, chain, optimizer, data, sizes, **more)
        return chain

    return register


def compiled(chain: Any) -> Any:
    """The same chain with ``forward`` and ``loss`` compiled, as ``@static_graph`` above each would do."""
    members = {"forward": static_graph(chain.forward), "loss": static_graph(chain.loss)}
    return type(chain.__name__, (chain,), members)


def label_sets(random: np.random.RandomState, classes: int, *shape: int) -> list[Any]:
    """Label sets of one array each."""
    return [(random.randint(0, classes, shape).astype(np.int32),) for _ in range(LABEL_SETS)]


def uniform(random: np.random.RandomState, *shape: int) -> Any:
    """Numbers in [0, 1), as of a picture."""
    return random.rand(*shape).astype(np.float32)


def normal(random: np.random.RandomState, *shape: int) -> Any:
    """Numbers of mean 0 and variance 1."""
    return random.randn(*shape).astype(np.float32)
