"""Gradients and training steps in ONNX Runtime: plain operators, and the numbers of define-by-run."""
from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnxruntime
import pytest
from opsets import NEWEST

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx
from kusari import optimizers

X = np.random.RandomState(0).randn(16, 8).astype(np.float32)
T = np.arange(16, dtype=np.int32) % 4


class Net(kusari.Chain):
    """An MLP with batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(8, 12, nobias=True)
            self.bn = L.BatchNormalization(12)
            self.l2 = L.Linear(None, 4)

    def forward(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.l2(F.relu(self.bn(self.l1(x)))), t)


def session(model: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # state has values, and is an input all the same
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda: optimizers.SGD(lr=0.1), "Adam": lambda: optimizers.Adam(alpha=0.01),
    "AdaBound": lambda: optimizers.AdaBound(alpha=0.01), "NesterovAG": lambda: optimizers.NesterovAG(lr=0.05),
    "MomentumSGD": lambda: optimizers.MomentumSGD(lr=0.05),
}


@pytest.mark.parametrize(("name", "opset", "hooks"), [
    *((name, 18, "decay and clipping") for name in optimizers.__all__), *((name, 18, "") for name in OPTIMIZERS),
    ("SGD", 9, "decay and clipping"), ("Adam", 9, ""), ("Adam", NEWEST, "decay and clipping"),
    ("SGD", NEWEST, "others"), ("Adam", 18, "others"), ("SGD", 18, "norms"), ("Adam", 9, "of rules")])
def test_ten_steps(name: str, opset: int, hooks: str) -> None:
    net = Net()
    optimizer = OPTIMIZERS.get(name, getattr(optimizers, name))().setup(net)
    for hook in {"decay and clipping": [kusari.optimizer_hooks.WeightDecay(0.01),
                                        kusari.optimizer_hooks.GradientClipping(0.5)],
                 "others": [kusari.optimizer_hooks.Lasso(0.01),
                            kusari.optimizer_hooks.GradientHardClipping(-0.1, 0.1)],
                 "norms": [kusari.optimizer_hooks.GradientLARS(0.1, weight_decay=0.01)]}.get(hooks, []):
        optimizer.add_hook(hook)
    if hooks == "of rules":
        net.l1.W.update_rule.add_hook(kusari.optimizer_hooks.WeightDecay(0.1))
    optimizer.update(net, X, T)  # a step that is part of the history
    made = kusari.onnx.export_train_step(net, net, optimizer, (X, T), opset_version=opset, verify=not hooks)
    assert {node.domain for node in made.graph.node} == {""}
    live = session(made)
    assert [i.name for i in live.get_inputs()] == ["Input_0", "Input_1"]
    names = [o.name for o in live.get_outputs()]
    assert {"loss", "new/l1/W", "new/bn/gamma", "new/bn/avg_mean", "new/bn/avg_var"} <= set(names)
    state: dict[str, Any] = {}
    losses: list[float] = []
    for i in range(10):
        x = np.roll(X, i, axis=1)
        expected = []

        def loss(x: Any, t: Any, expected: list[Any] = expected) -> Any:
            expected.append(net(x, t))
            return expected[0]
        optimizer.update(loss, x, T)
        found = dict(zip(names, live.run(None, {"Input_0": x, "Input_1": T, **state}), strict=True))
        losses.append(float(found.pop("loss")))
        assert losses[-1] == pytest.approx(float(expected[0].array), rel=1e-4)
        state = {n.removeprefix("new"): a for n, a in found.items()}
    for path, p in net.namedparams():
        np.testing.assert_allclose(state[path], p.array, rtol=1e-3, atol=1e-4)
        for key, value in p.update_rule.state.items():
            np.testing.assert_allclose(state[f"{path}/{key}"], value, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(state["/bn/avg_mean"], net.bn.avg_mean, atol=1e-4)
    np.testing.assert_allclose(state["/bn/avg_var"], net.bn.avg_var, rtol=1e-4)
    if "/t" in state:
        assert state["/t"] == optimizer.t == 11


@pytest.mark.parametrize("name", ["SGD", "MomentumSGD", "NesterovAG", "Adam", "AdamW", "AdaBound"])
def test_hyperparameters_are_inputs(name: str) -> None:
    net = Net()
    net(X, T)
    makers: dict[str, Any] = {**OPTIMIZERS, "AdamW": lambda: optimizers.AdamW(weight_decay_rate=0.01)}
    optimizer = makers[name]().setup(net)
    optimizer.add_hook(kusari.optimizer_hooks.WeightDecay(0.01))
    optimizer.add_hook(kusari.optimizer_hooks.GradientClipping(5.0))
    rate = "alpha" if name.startswith("Ada") else "lr"
    setattr(net.l2.W.update_rule.hyperparam, rate, 0.003)  # its own
    made = kusari.onnx.export_train_step(net, net, optimizer, (X, T))
    inputs = {i.name for i in made.graph.input}
    assert {f"hyper/{rate}", f"hyper/l2/W/{rate}", "hyper/WeightDecay/rate",
            "hyper/GradientClipping/threshold"} < inputs
    assert {"hyper/eta", "hyper/weight_decay_rate", "/t"} <= inputs or not name.startswith("Ada")
    assert not any("amsgrad" in i or "adabound" in i for i in inputs)
    live = session(made)
    names = [o.name for o in live.get_outputs()]
    assert not any("hyper" in n for n in names)
    state: dict[str, Any] = {}
    for i in range(4):
        settings: dict[str, Any] = {f"hyper/{rate}": 0.01 / (i + 1), f"hyper/l2/W/{rate}": 0.002 * i,
                                    "hyper/WeightDecay/rate": 0.1 * i, "hyper/GradientClipping/threshold": 0.3}
        setattr(optimizer, rate, settings[f"hyper/{rate}"])
        setattr(net.l2.W.update_rule.hyperparam, rate, settings[f"hyper/l2/W/{rate}"])
        hooks = optimizer._hooks.pre
        hooks["WeightDecay"].rate, hooks["GradientClipping"].threshold = 0.1 * i, 0.3
        optimizer.update(net, X, T)
        found = dict(zip(names, live.run(None, {"Input_0": X, "Input_1": T, **state, **{
            k: np.array(v, np.float64) for k, v in settings.items()}}), strict=True))
        state = {n.removeprefix("new"): a for n, a in found.items() if n != "loss"}
    for path, p in net.namedparams():
        np.testing.assert_allclose(state[path], p.array, rtol=1e-4, atol=1e-5)


def test_model_and_optimizer_stay_as_they_are() -> None:
    net = Net()
    net(X, T)
    optimizer = optimizers.Adam().setup(net)
    before = copy.deepcopy(net)
    kusari.onnx.export_train_step(net, lambda x, t: net(x, t), optimizer, {"x": X, "t": T})
    for a, b in zip(before.params(), net.params(), strict=True):
        np.testing.assert_array_equal(a.array, b.array)
        assert b.grad is None or not b.grad.any() or np.isnan(b.grad).all()
        assert b.update_rule.t == 0 and not b.update_rule.state
    np.testing.assert_array_equal(before.bn.avg_mean, net.bn.avg_mean)
    assert optimizer.t == 0


def test_biases_whose_gradient_is_rounding() -> None:
    net = kusari.Sequential(L.Linear(8, 6), L.BatchNormalization(6), F.relu, L.Linear(6, 4))
    optimizer = optimizers.Adam().setup(net)
    kusari.onnx.export_train_step(net, lambda x, t: F.softmax_cross_entropy(net(x), t), optimizer, (X, T))


def test_dropout_in_a_step() -> None:
    net = kusari.Sequential(L.Linear(8, 4), F.dropout)
    optimizer = optimizers.SGD().setup(net)
    made = kusari.onnx.export_train_step(net, lambda x, t: F.softmax_cross_entropy(net(x), t), optimizer, (X, T))
    live = session(made)
    assert live.run(["loss"], {"Input_0": X, "Input_1": T}) != live.run(["loss"], {"Input_0": X, "Input_1": T})


def unused() -> Any:
    net = Net()
    net.add_link("more", L.Linear(3, 3))
    return net


@pytest.mark.parametrize(("make", "loss", "message"), [
    (Net, lambda net: lambda x, t: x, "lossfun must return the loss and nothing else"),
    (Net, lambda net: lambda x, t: (net(x, t), x), "lossfun must return the loss and nothing else"),
    (unused, lambda net: net, "does not depend on the parameter"),
])
def test_steps_that_cannot_be_exported(make: Any, loss: Any, message: str) -> None:
    net = make()
    optimizer = optimizers.SGD().setup(net)
    with pytest.raises(kusari.onnx.ExportError, match=message):
        kusari.onnx.export_train_step(net, loss(net), optimizer, (X, T))


def test_optimizers_that_are_not_set_up_or_not_known() -> None:
    net = Net()
    with pytest.raises(kusari.onnx.ExportError, match="has no target"):
        kusari.onnx.export_train_step(net, net, optimizers.SGD(), (X, T))
    optimizer = optimizers.SGD().setup(net)
    optimizer.add_hook(lambda opt: None, name="mine")
    with pytest.raises(kusari.onnx.ExportError, match="the hook .* states no expression"):
        kusari.onnx.export_train_step(net, net, optimizer, (X, T))


def test_gradients() -> None:
    net = Net()
    made = kusari.onnx.export_gradient(net, (X, T), inputs=True, train=True, dynamic_shapes={
        "Input_0": {0: "batch"}, "Input_1": {0: "batch"}})
    live = session(made)
    x, t = X[:6] * 2, T[:6]
    found = dict(zip([o.name for o in live.get_outputs()], live.run(None, {"Input_0": x, "Input_1": t}), strict=True))
    net.cleargrads()
    v = kusari.Variable(x)
    loss = net(v, t)
    loss.backward()
    assert set(found) == {"Output_0", "grad/Input_0", *(f"grad{path}" for path, _ in net.namedparams())}
    np.testing.assert_allclose(found["Output_0"], loss.array, rtol=1e-5)
    np.testing.assert_allclose(found["grad/Input_0"], v.grad, atol=1e-5)
    for path, p in net.namedparams():
        np.testing.assert_allclose(found[f"grad{path}"], p.grad, atol=1e-5)


def test_gradients_of_nothing() -> None:
    with pytest.raises(kusari.onnx.ExportError, match="inputs=True"):
        kusari.onnx.export_gradient(F.relu, X)
    made = kusari.onnx.export_gradient(F.relu, X, inputs=True)
    np.testing.assert_array_equal(session(made).run(["grad/Input_0"], {"Input_0": X})[0], X > 0)
