"""Write what Chainer 7.8.1 computes: initial values, five steps of each optimizer, and two snapshots.

Run by a Python that has Chainer, with the folder to write to:  python make_chainer_values.py FOLDER
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("ignore")

import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402
import chainer.links as L  # noqa: E402

HERE = Path(__file__).parent
FOLDER = Path(sys.argv[1])
CASES = json.loads((HERE / "cases.json").read_text())


def values():
    """One flat array per case: small files."""
    found = {}
    for name, case in CASES["initializers"].items():
        np.random.seed(7)
        initializer = getattr(chainer.initializers, case["class"])(**case["arguments"])
        parts = [chainer.initializers.generate_array(initializer, tuple(s), np) for s in case["shapes"]]
        found["initializer " + name] = np.concatenate([part.ravel() for part in parts])
    draw = np.random.RandomState(0)
    params = [draw.randn(3, 4).astype("f"), draw.randn(4).astype("f")]
    grads = [[draw.randn(3, 4).astype("f"), draw.randn(4).astype("f")] for _ in range(5)]
    for name, case in CASES["optimizers"].items():
        link = chainer.Link()
        with link.init_scope():
            link.p0, link.p1 = (chainer.Parameter(p.astype(case["dtype"])) for p in params)
        optimizer = getattr(chainer.optimizers, case["class"])(**case["arguments"]).setup(link)
        for hook, arguments in case["hooks"]:
            optimizer.add_hook(getattr(chainer.optimizer_hooks, hook)(*arguments))
        np.random.seed(1)
        for g0, g1 in grads:
            link.p0.grad, link.p1.grad = g0.astype(case["dtype"]), g1.astype(case["dtype"])
            optimizer.update()
        states = link.p0.update_rule.state
        parts = [link.p0.array, link.p1.array, *(states[key] for key in sorted(states))]
        found["optimizer " + name] = np.concatenate([part.ravel() for part in parts])
    return found


class Model(chainer.Chain):
    """Everything that has a say in the names of entries."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(3, 4)
            self.bn = L.BatchNormalization(4)
            self.rest = chainer.Sequential(F.relu, L.Linear(4, 2))
            self.lazy = L.Linear(2)
            self.some = chainer.ChainList(L.Linear(2, 1, nobias=True))


np.savez_compressed(FOLDER / "chainer_values.npz", **values())
np.random.seed(0)
model = Model()
model.bn.avg_mean[...] = [1, 2, 3, 4]
model.bn.N = 3
chainer.serializers.save_npz(str(FOLDER / "chainer_model.npz"), model)
optimizer = chainer.optimizers.Adam().setup(model)
for param in model.params(include_uninit=False):
    param.grad = np.ones_like(param.array)
model.lazy.cleargrads()
optimizer.update()
optimizer.new_epoch()
optimizer.update()
optimizer.target.lazy.W.update_rule.t = 0
chainer.serializers.save_npz(str(FOLDER / "chainer_adam.npz"), optimizer)
