"""Scratch of kernels has room among values: a plan made with it takes less, computes the same and is kept on disk."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
from kusari import Chain, optimizers
from kusari import links as L
from kusari.runtime import ObjectCache, default_loader
from kusari.static.compile import compile as compiling

INIT = kusari.initializers.HeNormal()


class Net(Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.a = L.Convolution2D(8, 24, 3, pad=1, initialW=INIT)
            self.b = L.Convolution2D(24, 24, 3, pad=1, initialW=INIT)
            self.c = L.Linear(24, 3, initialW=INIT)

    def loss(self, x: Any, t: Any) -> Any:
        h = F.max_pooling_2d(F.relu(self.a(x)), 2)
        return F.softmax_cross_entropy(self.c(F.mean(F.relu(self.b(h)), axis=(2, 3))), t)


def trained() -> tuple[Any, list[Any]]:
    """The whole step, and the parameters after it has run."""
    np.random.seed(0)
    net = type("Net", (Net,), {"loss": kusari.static_graph(Net.loss)})()
    optimizer = optimizers.SGD(0.1).setup(net)
    x, t = np.random.RandomState(3).randn(4, 8, 20, 20).astype("f"), np.zeros(4, "i")
    for _ in range(3):
        optimizer.update(net.loss, x, t)
    [(_, step)] = optimizer._steps.by_loss.values()
    return step.compiled, [p.array for p in net.params()]


@pytest.mark.slow
def test_scratch_is_planned_with_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(default_loader(), "cache", ObjectCache(tmp_path))
    monkeypatch.setattr(compiling, "LEAST_SCRATCH_BYTES", 1 << 40)
    before, expected = trained()
    assert before.executable.report.scratch_bytes > 1 << 16
    for path in tmp_path.iterdir():
        path.unlink()
    monkeypatch.setattr(compiling, "LEAST_SCRATCH_BYTES", 0)
    after, found = trained()
    assert after.executable.report.arena_bytes < before.executable.report.arena_bytes
    monkeypatch.setattr(compiling, "plan", None)  # what is on the disk is that plan
    again, _ = trained()
    assert again.executable.report.arena_bytes == after.executable.report.arena_bytes
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
