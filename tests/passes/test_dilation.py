"""Dilated convolutions taken apart into dense ones: the meaning stays, and only where it saves time."""
from __future__ import annotations

import numpy as np
import pytest
from graphs import assert_same

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.ir import Builder, Graph, Value, tensor_type
from kusari.passes.dilation import split_dilated


def graph(op: str, n: int, c: int, k: int, size, pad, dilate, kernel=(3, 3), stride=(1, 1), groups=1,
          dtype="float32") -> Graph:
    out = tuple((m + 2 * p - (t - 1) * d - 1) // s + 1
                for m, p, d, t, s in zip(size, pad, dilate, kernel, stride, strict=True))
    x, w, y = ((n, c, *size), (k, c // groups, *kernel), (n, k, *out))
    first, second, open_ = {"conv": (x, w, out), "conv_input": (y, w, size), "conv_weight": (x, y, kernel)}[op]
    a, b = Value(tensor_type(dtype, first)), Value(tensor_type(dtype, second))
    build = Builder("model.py:1")
    result = build.one(op, a, b, stride=stride, pad=pad, dilate=dilate, groups=groups, size=open_)
    return Graph("g", (a, b), (), (), tuple(build.nodes), (result,))


OPS = ("conv", "conv_input", "conv_weight")
SPLIT = {
    "even": (1, 48, 48, (16, 16), (4, 4), (4, 4)),
    "a padding that is no multiple": (1, 48, 40, (20, 23), (3, 1), (2, 2)),
    "no padding": (2, 32, 48, (20, 22), (0, 0), (2, 2)),
    "one axis": (1, 48, 48, (17, 31), (5, 1), (3, 1)),
    "odd extents": (2, 48, 48, (19, 29), (3, 3), (3, 3)),
    "much padding": (1, 48, 48, (15, 24), (6, 6), (3, 4)),
}


@pytest.mark.parametrize(("name", "op"), [
    pytest.param(name, op, marks=() if (i + k) % 3 == 0 else pytest.mark.slow)
    for i, name in enumerate(SPLIT) for k, op in enumerate(OPS)])
def test_the_meaning_stays(op: str, name: str) -> None:
    before = graph(op, *SPLIT[name])
    after = split_dilated(before)
    roots = [n for n in after.nodes if n.op.name in OPS]
    assert [n.attrs["dilate"] for n in roots] == [(1, 1)]
    assert split_dilated(after) is after
    assert_same(before, after, 1e-4)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("other", [
    dict(c=2, k=2), dict(size=(7, 7)), dict(kernel=(2, 2)), dict(stride=(2, 1)), dict(groups=2), dict(dtype="float64"),
    dict(dilate=(1, 1)), dict(pad=(14, 14)),
], ids=str)
def test_others_stay_as_they_are(op: str, other) -> None:
    before = graph(op, **{**dict(n=1, c=48, k=48, size=(16, 16), pad=(4, 4), dilate=(4, 4)), **other})
    assert split_dilated(before) is before


def test_compiled_steps_equal_define_by_run() -> None:
    class Net(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.conv = L.Convolution2D(32, 40, 3, pad=3, dilate=3)

        def loss(self, x):
            return F.sum(F.square(F.relu(self.conv(x))))
    rng = np.random.default_rng(0)
    net = Net()
    loss = kusari.static_graph(Net.loss)
    for _ in range(3):
        x = kusari.Variable(rng.normal(size=(2, 32, 19, 21)).astype("f"))
        found = []
        for run in (Net.loss, loss):
            net.cleargrads()
            x.cleargrad()
            y = run(net, x)
            y.backward()
            found.append([y.array, x.grad, net.conv.W.grad, net.conv.b.grad])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(a).max())
