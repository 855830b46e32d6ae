"""Links that keep Variables from call to call: read as they are, and as they were when the export is done."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


class Net(kusari.Chain):
    """A recurrent layer and what reads it; what it computed last stays in an attribute."""

    last: Any

    def __init__(self, kind: Any) -> None:
        super().__init__()
        with self.init_scope():
            self.rnn = kind(4, 5)
            self.out = L.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        self.last = self.out(self.rnn(x))
        return self.last


def run(model: Any, **feeds: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.parametrize("kind", [L.LSTM, L.StatefulGRU, L.StatefulPeepholeLSTM])
def test_state_is_read_and_stays(kind: Any) -> None:
    net = Net(kind)
    first = run(kusari.onnx.export(net, X), Input_0=X)
    assert net.rnn.h is None and not hasattr(net, "last")
    np.testing.assert_allclose(first, net(X).array, atol=1e-6)
    h, last = net.rnn.h, net.last
    made = kusari.onnx.export(net, X)
    states = [onnx.numpy_helper.to_array(t) for t in made.graph.initializer if t.name == "/rnn/h"]
    np.testing.assert_array_equal(states, [h.array])
    assert net.rnn.h is h and net.last is last and h.creator_node is not None
    second = run(made, Input_0=X)
    np.testing.assert_allclose(second, net(X).array, atol=1e-6)
    assert abs(first - second).max() > 1e-3


def test_gradients_and_steps_begin_at_the_state() -> None:
    net = Net(L.LSTM)
    net(X)
    h = net.rnn.h
    made = kusari.onnx.export_gradient(net, X)
    assert "grad/out/W" in {o.name for o in made.graph.output}
    optimizer = kusari.optimizers.SGD().setup(net)
    kusari.onnx.export_train_step(net, lambda x: F.sum(net(x)), optimizer, X)
    assert net.rnn.h is h


NET = L.Linear(4, 2)


def test_links_that_functions_name() -> None:
    def forward(net: Any, x: Any) -> Any:
        return net(x)
    for model in (lambda x: F.relu(NET(x)), functools.partial(forward, NET), functools.partial(lambda x: NET(x))):
        made = kusari.onnx.export(model, X)
        assert {t.name for t in made.graph.initializer} == {"/W", "/b"}


def test_what_is_computed_again_is_computed_once() -> None:
    made: Any = kusari.onnx.export_gradient(lambda x: F.forget(lambda y: F.exp(y) * y, x), X, inputs=True)
    np.testing.assert_allclose(run(made, Input_0=X * 2), np.exp(X * 2) * X * 2, rtol=1e-5)
