"""Training in its variants on a card, compiled: hooks, memory, halves with scaled losses, rates that change."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cupy_kernels
import numpy as np
import pytest
from cards.machines import Machine

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import optimizer_hooks as hooks
from kusari import optimizers
from kusari.ir import Node
from kusari.runtime.card.frame import CardFrame

STEPS = 5


class Net(kusari.Chain):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(7, 6, initialW=0.3), L.Linear(6, 3, initialW=0.2)

    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.l2(F.relu(self.l1(x))), t)


class Images(Net):
    """Two convolutions, normalized, in front of a layer."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.c1, self.c2 = L.Convolution2D(1, 4, 3, pad=1, initialW=0.2), L.Convolution2D(4, 7, 2, initialW=0.1)
            self.bn = L.BatchNormalization(4)

    def loss(self, x: Any, t: Any) -> Any:
        h = F.reshape(x, (5, 1, 1, 7))
        h = F.relu(self.bn(self.c1(F.concat([h, h * h], axis=2))))
        return super().loss(F.sum(F.relu(self.c2(h)), axis=(2, 3)), t)


@dataclass(frozen=True)
class Row:
    """A way to train; ``static`` are the options of ``static_graph``, ``whole`` says that steps are one schedule.

    An update that gives parameters new gradients, next to those of the backward, finds them elsewhere at each step.
    """

    name: str
    optimizer: Callable[[], Any]
    static: dict[str, Any] = field(default_factory=dict)
    hook: Any = None
    dtype: str = "float32"
    scale: Any = None
    whole: bool = True
    rates: bool = False
    launched: int = 0  # kernels of a step that are in no graph
    tolerance: float = 1e-4
    net: type[Net] = Net
    wide: int = 0  # products of halves in all graphs that are compiled

    def __str__(self) -> str:
        return self.name


ROWS = [
    Row("little memory", lambda: optimizers.SGD(0.1), {"memory": "low"}),
    Row("little memory in parts", lambda: optimizers.SGD(0.1), {"memory": "low"}, whole=False),
    Row("clipped", lambda: optimizers.MomentumSGD(0.1), hook=lambda: hooks.GradientClipping(0.1)),
    Row("decayed in parts", lambda: optimizers.Adam(0.1), hook=lambda: hooks.WeightDecay(0.1), whole=False,
        launched=5),
    Row("noise", lambda: optimizers.MomentumSGD(0.1), hook=lambda: hooks.GradientNoise(0.1)),
    Row("noise in parts", lambda: optimizers.Adam(0.1), hook=lambda: hooks.GradientNoise(0.1), whole=False,
        launched=5),
    Row("halves", lambda: optimizers.SGD(0.1), dtype="float16", tolerance=5e-3, wide=5),
    Row("halves, scaled", lambda: optimizers.SGD(0.1), dtype="float16", scale=8.0, tolerance=5e-3, wide=5),
    Row("halves, scaled as it goes", lambda: optimizers.SGD(0.1), dtype="float16", scale="dynamic", tolerance=5e-3,
        wide=5),
    Row("mixed", lambda: optimizers.MomentumSGD(0.1), dtype="mixed16", scale="dynamic", net=Images, tolerance=5e-3,
        wide=11),
    Row("mixed in parts", lambda: optimizers.Adam(0.01, eps=1e-3), dtype="mixed16", scale=64.0, net=Images, whole=False,
        launched=10, tolerance=1e-2, wide=11),
    Row("doubles", lambda: optimizers.SGD(0.1), dtype="float64", tolerance=1e-9),
    Row("rates", lambda: optimizers.SGD(0.1), rates=True),
]


def trained(card: Machine, row: Row, static: bool) -> dict[str, Any]:
    """The parameters after some steps."""
    class Static(row.net):
        loss = kusari.static_graph(**row.static)(row.net.loss) if row.static else kusari.static_graph(row.net.loss)

    card.xp.random.seed(3)
    model = (Static if static else row.net)()
    model.to_device("@cupy:0")
    updater = row.optimizer().setup(model)
    if row.hook is not None:
        updater.add_hook(row.hook())
    if row.scale == "dynamic":
        updater.loss_scaling()
    elif row.scale is not None:
        updater.set_loss_scale(row.scale)
    r = np.random.RandomState(0)
    for k in range(STEPS + 2 * row.rates):
        x, t = card.xp.asarray(r.rand(5, 7).astype(kusari.get_dtype())), card.xp.asarray(r.randint(0, 3, 5).astype("i"))
        if row.rates:
            updater.lr = 0.1 / (k + 1)
        cupy_kernels.launches.clear()
        if row.whole:
            updater.update(model.loss, x, t)
        else:
            model.cleargrads()
            model.loss(x, t).backward()
            updater.update()
    return {name: card.host(p.array).copy() for name, p in model.namedparams()}


def is_wide(node: Node) -> bool:
    """Whether a node is a product of halves, which are read as they are, or contains one."""
    return bool(node.attrs.get("wide")) or node.op.name == "fused" and any(map(is_wide, node.attrs["body"].nodes))


@pytest.mark.slow
@pytest.mark.filterwarnings("error::kusari.static.StaticGraphWarning")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_row(card: Machine, row: Row) -> None:
    with kusari.using_config("dtype", kusari.mixed16 if row.dtype == "mixed16" else np.dtype(row.dtype)):
        expected = trained(card, row, static=False)
        before = list(CardFrame.every)
        found = trained(card, row, static=True)
    plans = {f.plan for f in CardFrame.every if f not in before}
    assert sum([is_wide(n) for made in plans for n in made.graph.nodes]) == row.wide
    if card.simulated:
        assert cupy_kernels.launches["kernels"] == row.launched and cupy_kernels.launches["graphs"] >= 1
    for name, p in expected.items():
        np.testing.assert_allclose(found[name].astype("d"), p.astype("d"), rtol=row.tolerance, atol=row.tolerance)
