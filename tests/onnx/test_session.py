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
from kusari.onnx import session
from kusari.onnx.session import SessionSchedule
from kusari.static.errors import StaticGraphError, StaticGraphWarning
from kusari.static.function import Fallback
from kusari.static.replay.schedule import Schedule
from kusari.tape import static_function

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
    static = static_function(function) or type(owner).forward.static
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
    assert "runs in ONNX Runtime" in str(Net.forward.explain("all"))
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


class Learner(kusari.Chain):
    """Statistics that are written, numbers that are drawn, a window or two."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(1, 3, 3, pad=1)
            self.bn = L.BatchNormalization(3)
            self.l = L.Linear(36, 3)

    @kusari.static_graph(backend="onnxruntime")
    def forward(self, x: Any) -> Any:
        h = F.max_pooling_2d(F.relu(self.bn(self.conv(x))), 2)
        return self.l(F.dropout(h, 0.3))

    @kusari.static_graph(backend="onnxruntime")
    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.forward(x), t)


IMAGES = np.random.RandomState(0).randn(4, 1, 7, 6).astype(np.float32)
T = np.array([0, 2, 1, 0], np.int32)


def trained(how: str, make: Any, static: bool) -> Any:
    np.random.seed(0)
    net = Learner()
    optimizer = make().setup(net)
    optimizer.add_hook(kusari.optimizer_hooks.WeightDecay(1e-3))
    np.random.seed(1)
    losses: list[float] = []
    with kusari.using_config("use_static_graph", static):
        for i in range(6):
            x = np.roll(IMAGES, i, axis=2)
            if how == "step":
                optimizer.update(net.loss, x, T)
                continue
            net.cleargrads()
            loss = net.loss(x, T) if how == "loss" else F.softmax_cross_entropy(net.forward(x), T)
            loss.backward()
            optimizer.update()
            losses.append(float(loss.array))
    drawn = np.random.rand()
    state = {path: p.array for path, p in net.namedparams()}
    return net, optimizer, {**state, "mean": net.bn.avg_mean, "var": net.bn.avg_var, "losses": losses, "drawn": drawn}


@pytest.mark.parametrize("make", [
    kusari.optimizers.SGD, kusari.optimizers.Adam, kusari.optimizers.NesterovAG], ids=lambda m: m.__name__)
@pytest.mark.parametrize("how", ["forward", "loss", "step"])
def test_training_is_define_by_run(how: str, make: Any) -> None:
    net, optimizer, found = trained(how, make, True)
    _, _, expected = trained(how, make, False)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-3, err_msg=name)
    assert found["drawn"] == expected["drawn"]  # the same numbers, as many of them
    if how == "step":
        assert [type(step).__name__ for _, step in optimizer._steps.by_loss.values()] == ["SessionStep"]
    else:
        function = Learner.forward if how == "forward" else Learner.loss
        assert [type(entry) for _, entry in function.static.signatures(net)] == [SessionSchedule]
        assert "_backward runs in ONNX Runtime" in str(function.explain("all"))


def test_a_rate_that_changes_in_whole_steps() -> None:
    for static in (True, False):
        np.random.seed(0)
        net = Learner()
        optimizer = kusari.optimizers.SGD(lr=0.1).setup(net)
        with kusari.using_config("use_static_graph", static):
            for i in range(6):
                optimizer.lr = 0.1 / (i + 1)
                np.random.seed(i)
                optimizer.update(net.loss, IMAGES, T)
        if static:
            first = [p.array.copy() for p in net.params()]
    for a, p in zip(first, net.params(), strict=True):
        np.testing.assert_allclose(a, p.array, rtol=1e-3, atol=1e-4)


def test_parameters_stay_the_arrays_that_they_are() -> None:
    net = Learner()
    optimizer = kusari.optimizers.Adam().setup(net)
    optimizer.update(net.loss, IMAGES, T)
    arrays = [p.array for p in net.params()]
    for _ in range(3):
        optimizer.update(net.loss, IMAGES, T)
    assert all(p.array is a for p, a in zip(net.params(), arrays, strict=True))


@kusari.static_graph(backend="onnxruntime")
def three(x: Any, y: Any) -> Any:
    h = F.tanh(x) * y
    return h, F.exp(h), h


def test_gradients_of_several_results_and_calls() -> None:
    def gradients(static: bool, which: Any) -> Any:
        with kusari.using_config("use_static_graph", static):
            x, y = kusari.Variable(X.copy()), kusari.Variable(X[::-1].copy())
            calls = [three(x * k, y) for k in (1.0, 2.0, 3.0)]  # all before the first backward
            total = sum(F.sum(call[i] * (i + 1)) for call in calls for i in which)
            total.backward()
            return x.grad, y.grad, calls[0][0].array, calls[2][1].array
    for which in ((0,), (1,), (2,), (0, 1, 2), (0, 2)):
        for _ in range(2):
            for a, e in zip(gradients(True, which), gradients(False, which), strict=True):
                np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)
    assert set(kinds(three)) == {SessionSchedule}


def test_gradients_of_gradients() -> None:
    x, other = kusari.Variable(X), X[::-1].copy()
    for _ in range(3):
        y = three(x, other)[1]
        gx, = kusari.grad([F.sum(y)], [x], enable_double_backprop=True)
        ggx, = kusari.grad([F.sum(gx * gx)], [x])
    with kusari.using_config("use_static_graph", False):
        gx, = kusari.grad([F.sum(three(x, other)[1])], [x], enable_double_backprop=True)
        expected, = kusari.grad([F.sum(gx * gx)], [x])
    np.testing.assert_allclose(ggx.array, expected.array, rtol=1e-4, atol=1e-5)


class Mine(kusari.FunctionNode):
    """A user's function."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 2,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * 2,


def test_what_onnx_cannot_say_is_compiled_with_a_warning() -> None:
    @kusari.static_graph(backend="onnxruntime")
    def mine(x: Any) -> Any:
        return F.exp(Mine().apply((x,))[0])
    mine(X)
    with pytest.warns(StaticGraphWarning, match=r"mine is compiled.*test_session\.py:\d+: Mine"):
        mine(X)
    np.testing.assert_allclose(mine(X).array, np.exp(X * 2), rtol=1e-5)
    assert kinds(mine) == [Schedule]

    @kusari.static_graph(backend="onnxruntime", strict=True)
    def strict(x: Any) -> Any:
        return F.exp(Mine().apply((x,))[0])
    strict(X)
    with pytest.raises(StaticGraphError, match="cannot run in ONNX Runtime"):
        strict(X)


def test_state_is_written_without_gradients_too() -> None:
    links = L.BatchNormalization(4), L.BatchNormalization(4)
    compiled = kusari.static_graph(backend="onnxruntime")(lambda x: F.exp(links[0](x)))
    with kusari.no_backprop_mode():
        for i in range(4):
            y = compiled(X * (i + 1))
            np.testing.assert_allclose(y.array, F.exp(links[1](X * (i + 1))).array, atol=1e-5)
    np.testing.assert_allclose(links[0].avg_var, links[1].avg_var, rtol=1e-5)
    assert kinds(compiled) == [SessionSchedule]


def test_what_is_not_static_steps_aside() -> None:
    @kusari.static_graph(backend="onnxruntime")
    def reads(x: Any) -> Any:
        return x * round(float(F.sum(x).array))
    with kusari.no_backprop_mode(), pytest.warns(StaticGraphWarning, match="runs define-by-run"):
        reads(X)
    assert kinds(reads) == [Fallback]


def test_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="backend must be 'kusari' or 'onnxruntime', got 'torch'"):
        kusari.static_graph(backend="torch")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(kusari.onnx.MissingExtraError, match=r"needs onnxruntime.*pip install kusari\[onnx\]"):
        kusari.static_graph(backend="onnxruntime")


def test_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments, parameters and results are bound where they lie."""
    bound: dict[str, list[int]] = {}
    bind = session._bind

    def spied(binder: Any, name: str, x: Any) -> Any:
        assert bind(binder, name, x) is x
        bound.setdefault(name, []).append(x.ctypes.data)
        return x
    monkeypatch.setattr(session, "_bind", spied)
    link = L.Linear(4, 5)
    compiled = kusari.static_graph(backend="onnxruntime")(lambda x: F.relu(link(x)))
    results: list[Any] = []
    for i in range(4):
        x = X + i
        results.append((x.ctypes.data, inferred(compiled, x).array))
    at = [y.ctypes.data for _, y in results[1:]]  # the first call was define-by-run
    assert bound["x0"] == [place for place, _ in results[1:]] and bound["y0"] == at and len(set(at)) == 3
    assert {bound["p0"][0], bound["p1"][0]} == {link.W.array.ctypes.data, link.b.array.ctypes.data}
    assert len(bound["p0"]) == len(bound["p1"]) == 1  # once for all calls
