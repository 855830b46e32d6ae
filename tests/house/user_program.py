"""A program of a user's, as a type checker sees it beside the installed package."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable, training
from kusari.training import extensions

if TYPE_CHECKING:
    from typing_extensions import assert_type


class MLP(kusari.Chain):
    def __init__(self, units: int, classes: int = 10) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, units)
            self.bn = L.BatchNormalization(units)
            self.l2 = L.Linear(units, classes)

    @kusari.static_graph
    def forward(self, x: npt.NDArray[np.float32], scale: float = 1.0) -> Variable:
        return self.l2(F.relu(self.bn(self.l1(x)))) * scale

    @kusari.static_graph(memory="balanced", verify=100)
    def loss(self, x: npt.NDArray[np.float32], t: npt.NDArray[np.int32]) -> Variable:
        return F.softmax_cross_entropy(self.forward(x), t)


@kusari.static_code
def count(times: int) -> int:
    return times + 1


@kusari.static_graph
def double(x: Variable, *, times: int = 2) -> Variable:
    return F.relu(x) * times


model = MLP(50)
x, t = np.zeros((8, 4), np.float32), np.zeros(8, np.int32)
optimizer = kusari.optimizers.Adam(alpha=1e-3).setup(model)
optimizer.add_hook(kusari.optimizer_hooks.WeightDecay(1e-4))
for _ in range(3):
    optimizer.update(model.loss, x, t)
loss = model.loss(x, t=t)
loss.backward()
if TYPE_CHECKING:
    assert_type(loss, Variable)
    assert_type(model.forward(x, scale=2.0), Variable)
    assert_type(double(loss, times=3), Variable)
model.forward(x, "two")  # error
model.loss(x)  # error
double(loss, 3)  # error
count("one")  # error
kusari.static_graph(stict=True)  # error
F.cross_entropy(x, t)  # error
model.eval()  # error
text: str = str(double.explain("plan"))
print(model.static.explain(), MLP.loss.static.explain(), text)
with kusari.using_config("train", False), kusari.no_backprop_mode():
    y: Variable = model.forward(x)
    array: Any = y.array
with kusari.profile() as found:
    model.loss(x, t)
found.save("trace.json")
updater = training.StandardUpdater(kusari.iterators.SerialIterator([(x[0], t[0])], 1), optimizer)
trainer = training.Trainer(updater, (1, "epoch"))
trainer.extend(extensions.LogReport())
kusari.serializers.save_npz("model.npz", model)
