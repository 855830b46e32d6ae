"""Models on a card, compiled: eager = compiled, draw for draw, with the launches that the plan says."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cards.machines import Machine

import kusari
import kusari.functions as F
import kusari.links as L

pytestmark = pytest.mark.filterwarnings("error::kusari.static.StaticGraphWarning")


class MLP(kusari.Chain):
    """Two layers, with dropout."""

    def __init__(self, ratio: float = 0.0) -> None:
        super().__init__()
        self.ratio = ratio
        with self.init_scope():
            self.l1, self.l2 = L.Linear(7, 6), L.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.l1(x))
        return self.l2(F.dropout(h, self.ratio) if self.ratio else h)

    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.forward(x), t)


class StaticMLP(MLP):
    """The same, compiled."""

    forward = kusari.static_graph(MLP.forward)
    loss = kusari.static_graph(MLP.loss)


def trained(card: Machine, kind: Any, optimizer: Any, steps: int = 5, whole: bool = True, **options: Any) -> Any:
    """Losses and parameters, as NumPy's, after some steps."""
    np.random.seed(1)
    model = kind(**options)
    model.to_device("@cupy:0")
    card.xp.random.seed(3)
    updater = optimizer().setup(model)
    r = np.random.RandomState(0)
    losses = []
    for _ in range(steps):
        x, t = card.xp.asarray(r.rand(5, 7).astype("f")), card.xp.asarray(r.randint(0, 3, 5).astype("i"))
        if whole:
            updater.update(model.loss, x, t)
            losses.append(card.host(model.loss(x, t).array).copy())
        else:
            loss = model.loss(x, t)
            model.cleargrads()
            loss.backward()
            updater.update()
            losses.append(card.host(loss.array).copy())
    return losses, {name: card.host(p.array).copy() for name, p in sorted(model.namedparams())}


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "parts"])
@pytest.mark.parametrize("optimizer", [kusari.optimizers.SGD, kusari.optimizers.Adam])
def test_training_is_that_of_define_by_run(card: Machine, optimizer: Any, whole: bool) -> None:
    expected = trained(card, MLP, optimizer, whole=whole)
    found = trained(card, StaticMLP, optimizer, whole=whole)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for name, p in expected[1].items():
        np.testing.assert_allclose(found[1][name], p, rtol=1e-4, atol=1e-6)
