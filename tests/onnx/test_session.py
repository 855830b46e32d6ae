"""``static_graph(backend="onnxruntime")``: replays in ONNX Runtime, with the guards of every schedule."""
from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx
from kusari.onnx.session import SessionSchedule
from kusari.static.errors import StaticGraphError, StaticGraphWarning
from kusari.static.function import Aside, StaticFunction
from kusari.static.schedule import Schedule

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)


class Net(kusari.Chain):
    """A classifier that also hands its argument through."""

    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(4, 5)
            self.bn = L.BatchNormalization(5)

    @kusari.static_graph(backend="onnxruntime")
    def forward(self, x: Any) -> Any:
        return {"y": F.relu(self.bn(self.l1(x))) * self.factor, "x": x}


def inferred(net: Any, *args: Any) -> Any:
    with kusari.using_config("train", False), kusari.no_backprop_mode():
        return net(*args)


def eager(net: Any, *args: Any) -> Any:
    with kusari.using_config("use_static_graph", False):
        return inferred(net, *args)


def kinds(function: Any, owner: Any = None) -> list[Any]:
    static = function if isinstance(function, StaticFunction) else type(owner).forward
    return [type(entry) for _, entry in static.signatures(owner)]


def test_replays_are_define_by_run() -> None:
    net = Net()
    net.bn.avg_mean[...] = 0.25
    for i in range(4):
        x = X * (i + 1)
        found = inferred(net, x)
        np.testing.assert_allclose(found["y"].array, eager(net, x)["y"].array, atol=1e-6)
        assert found["x"] is x
    assert kinds(None, net) == [SessionSchedule]
    assert "runs in ONNX Runtime" in Net.forward.explain()
    assert net.static.nbytes > 0


def test_parameters_that_change_are_seen() -> None:
    net = Net()
    inferred(net, X)
    first = inferred(net, X)["y"].array
    kept = first.copy()
    net.l1.W.array[...] *= 3                                      # in place
    np.testing.assert_allclose(inferred(net, X)["y"].array, eager(net, X)["y"].array, atol=1e-6)
    net.l1.W.array = np.asfortranarray(net.l1.W.array + 1)        # another array, of another layout
    for _ in range(2):
        net.l1.W.array[...] += 1
        np.testing.assert_allclose(inferred(net, X)["y"].array, eager(net, X)["y"].array, atol=1e-6)
    net.bn.avg_var[...] = 4
    np.testing.assert_allclose(inferred(net, X)["y"].array, eager(net, X)["y"].array, atol=1e-6)
    net.factor = 5.0                                              # a guard
    np.testing.assert_allclose(inferred(net, X)["y"].array, eager(net, X)["y"].array, atol=1e-6)
    np.testing.assert_array_equal(first, kept)                    # results are the caller's
    net.l1.W.array = net.l1.W.array.astype(np.float64)            # no longer what was traced
    np.testing.assert_allclose(inferred(net, X)["y"].array, eager(net, X)["y"].array, atol=1e-6)


def test_arguments_of_other_layouts_and_types() -> None:
    net = Net()
    for x in (X, X[::-1], np.asfortranarray(X), X[:3], X[:0], kusari.Variable(X), X):
        for _ in range(3):
            np.testing.assert_allclose(inferred(net, x)["y"].array, eager(net, x)["y"].array, atol=1e-6)

    @kusari.static_graph(backend="onnxruntime")
    def both(x: Any, y: Any) -> Any:
        return F.matmul(x, y, transb=True), F.add(x, y)
    for _ in range(3):
        product, total = inferred(both, X, X)
        np.testing.assert_allclose(product.array, X @ X.T, atol=1e-6)
        np.testing.assert_array_equal(total.array, X + X)
        assert inferred(both, X, X * 2)[1].array[0, 0] == -3
    assert set(kinds(both)) == {SessionSchedule}


def test_calls_that_need_gradients_are_compiled_as_ever() -> None:
    net = Net()
    for _ in range(3):
        net.cleargrads()
        with kusari.using_config("train", False):
            F.sum(net(X)["y"]).backward()
    assert kinds(None, net) == [Schedule] and net.l1.W.grad is not None


def test_what_onnx_cannot_say_is_compiled_with_a_warning() -> None:
    @kusari.static_graph(backend="onnxruntime")
    def noisy(x: Any) -> Any:
        return F.dropout(x)
    with kusari.no_backprop_mode():
        noisy(X)
        with pytest.warns(StaticGraphWarning, match=r"noisy is compiled.*test_session\.py:\d+: random numbers"):
            noisy(X)
        noisy(X)
    assert kinds(noisy) == [Schedule]

    @kusari.static_graph(backend="onnxruntime", strict=True)
    def strict(x: Any) -> Any:
        return F.dropout(x)
    with kusari.no_backprop_mode():
        strict(X)
        with pytest.raises(StaticGraphError, match="cannot run in ONNX Runtime"):
            strict(X)


def test_state_that_is_written_stays_with_the_compiler() -> None:
    link = L.BatchNormalization(4)
    compiled = kusari.static_graph(backend="onnxruntime")(lambda x: (link(x), F.exp(x))[1])
    with kusari.no_backprop_mode():
        compiled(X)
        with pytest.warns(StaticGraphWarning, match="state is written"):
            compiled(X)
    assert kinds(compiled) == [Schedule]


def test_what_is_not_static_steps_aside() -> None:
    @kusari.static_graph(backend="onnxruntime")
    def reads(x: Any) -> Any:
        return x * float(F.sum(x).array)
    with kusari.no_backprop_mode(), pytest.warns(StaticGraphWarning, match="runs define-by-run"):
        reads(X)
    assert kinds(reads) == [Aside]


def test_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="backend must be 'kusari' or 'onnxruntime', got 'torch'"):
        kusari.static_graph(backend="torch")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(kusari.onnx.MissingExtraError, match=r"needs onnxruntime.*pip install kusari\[onnx\]"):
        kusari.static_graph(backend="onnxruntime")
