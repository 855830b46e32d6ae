"""Models on a graphics card: exported without being moved. The stand-in for CuPy refuses what CuPy refuses."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from cupy_double import cupy, ndarray

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx

X = np.linspace(-1, 1, 50, dtype=np.float32).reshape(2, 1, 5, 5)
T = np.array([1, 3], np.int32)


class Net(kusari.Chain):
    """What there is of states: statistics, a recurrent layer's, an optimizer's."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(1, 3, 3)
            self.bn = L.BatchNormalization(3)
            self.rnn = L.LSTM(27, 5)
            self.out = L.Linear(5, 4)

    def forward(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.out(self.rnn(F.relu(self.bn(self.conv(x))))), t)


def step(net: Any, x: Any, t: Any) -> Any:
    optimizer = kusari.optimizers.Adam().setup(net)
    net.rnn.reset_state()
    optimizer.update(net, x, t)
    return kusari.onnx.export_train_step(net, net, optimizer, (x, t))


WAYS: dict[str, Any] = {
    "export": lambda net, x, t: kusari.onnx.export(net, (x, t)),
    "training": lambda net, x, t: kusari.onnx.export(net, (x, t), train=True),
    "half": lambda net, x, t: kusari.onnx.export(net, (x, t), param_dtype="float16"),
    "dynamic": lambda net, x, t: kusari.onnx.export(
        net, (x, t), dynamic_shapes={"Input_0": {0: "N"}, "Input_1": {0: "N"}}),
    "gradient": lambda net, x, t: kusari.onnx.export_gradient(net, (x, t), inputs=True),
    "train step": step,
}


@pytest.fixture
def card() -> Iterator[Any]:
    with cupy() as module:
        yield module


def made() -> Any:
    np.random.seed(0)
    return Net()


@pytest.mark.parametrize("way", WAYS)
def test_the_same_file_and_the_model_stays(way: str, card: Any) -> None:
    host, net = WAYS[way](made(), X, T), made()
    net.to_device("@cupy:0")
    moves: list[Any] = []
    net.device_resident_accept = moves.append  # what every to_cpu, to_gpu and to_device calls
    before = [p.array for p in net.params()]
    found = WAYS[way](net, card.asarray(X), card.asarray(T))
    if way == "train step":  # a step before it has rounded otherwise
        for x, y in zip(found.graph.initializer, host.graph.initializer, strict=True):
            assert x.name == y.name
            np.testing.assert_allclose(*map(onnx.numpy_helper.to_array, (x, y)), rtol=1e-3, atol=1e-4)
        for model in (found, host):
            del model.graph.initializer[:]
    assert found == host
    if way != "train step":  # eager steps take arrays of the card only
        assert WAYS[way](net, X, T) == host
    assert all(p.array is b and type(b) is ndarray for p, b in zip(net.params(), before, strict=True))
    assert type(net.bn.avg_mean) is ndarray and net.device.name == "@cupy:0" and not moves


def test_the_state_of_a_layer_on_a_card(card: Any, tmp_path: Path) -> None:
    net = made()
    net.to_device("@cupy:0")
    with kusari.using_config("train", False):
        net(card.asarray(X), card.asarray(T))
    h = net.rnn.h
    kusari.onnx.export_testcase(net, [X, T], tmp_path, output_grad=True)
    assert net.rnn.h is h and isinstance(h.array, ndarray)
    assert len(list((tmp_path / "test_data_set_0").glob("gradient_*.pb"))) == len(list(net.params()))
