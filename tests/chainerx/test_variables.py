"""Variables, functions, links and training with arrays of ChainerX."""
from __future__ import annotations

import io
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.chainerx as chx
import kusari.functions as F
import kusari.links as L
from kusari import backend, testing
from kusari.backend import ChainerxDevice
from kusari.chainerx import testing as assertions

X = np.random.RandomState(0).rand(2, 3).astype(np.float32)


def test_a_variable_shows_arrays_of_chainerx() -> None:
    v = kusari.Variable(chx.array(X))
    y = F.sum(F.square(v))
    y.backward()
    assert [type(one) for one in (v.array, v.grad, v.grad_var.array, y.array)] == [chx.ndarray] * 4
    assert (v.xp, v.device.name, v.chx_array.is_backprop_required()) == (chx, "native:0", True)
    assert not v.array.is_backprop_required(chx.anygraph)
    np.testing.assert_array_equal(chx.to_numpy(v.grad), 2 * X)
    gx, = kusari.grad([F.sum(v * v * v)], [v], enable_double_backprop=True)
    ggx, = kusari.grad([F.sum(gx)], [v])
    assert type(gx.array) is type(ggx.array) is chx.ndarray
    np.testing.assert_allclose(chx.to_numpy(ggx.array), 6 * X, rtol=1e-6)


def test_arrays_and_variables_share_a_graph_and_its_gradients() -> None:
    x = chx.array(X).require_grad()
    v = kusari.Variable(x)
    (F.exp(v).chx_array * 2).sum().backward()
    assert x.grad is v.grad
    np.testing.assert_array_equal(chx.to_numpy(x.grad), np.exp(X) * 2)
    y = kusari.Variable(chx.exp(x))
    F.sum(y).backward()
    np.testing.assert_allclose(chx.to_numpy(x.grad), np.exp(X) * 3, rtol=1e-6)
    F.sum(F.relu(x)).backward()  # functions take arrays as well
    np.testing.assert_allclose(chx.to_numpy(v.grad), np.exp(X) * 3 + 1, rtol=1e-6)
    with pytest.raises(ValueError, match="part of a graph"):
        kusari.Variable(x, requires_grad=False)
    both = x.as_grad_stopped() * v - x.as_grad_stopped()  # a Variable computes, also on the right
    assert isinstance(both, kusari.Variable) and both.requires_grad
    with pytest.raises(TypeError, match="mixed"):
        F.concat([v, kusari.Variable(X)])


@pytest.mark.parametrize("double", [False, True])
def test_gradients_of_scaled_losses_are_scaled_back(double: bool) -> None:
    v, w = kusari.Variable(chx.array(X)), kusari.Variable(X)
    F.sum(v * v).backward(loss_scale=8, enable_double_backprop=double)
    F.sum(w * w).backward(loss_scale=8, enable_double_backprop=double)
    np.testing.assert_array_equal(chx.to_numpy(v.grad), 2 * X)
    np.testing.assert_array_equal(w.grad, 16 * X)
    found = []
    for device in ("@numpy", "native:0"):
        model = L.Linear(3, 2, initialW=0.5).to_device(device)
        optimizer = kusari.optimizers.SGD(1).setup(model)
        optimizer.set_loss_scale(8)
        optimizer.update(lambda model=model: F.sum(model(model.device.send(X))))
        found.append(chx.to_numpy(model.to_chx().W.array))
    np.testing.assert_array_equal(*found)


def test_parameters_and_samplers_go_where_their_link_goes() -> None:
    link = kusari.Chain(late=L.Linear(2), words=L.NegativeSampling(3, [2, 1, 1], 2)).to_chx()
    sampler = link.words.sampler
    link.late(chx.array(X[:, :2]))
    assert type(link.late.W.array) is chx.ndarray and {one.device for one in link.links()} == {sampler.device}
    np.random.seed(0)
    there = sampler.sample((5,))
    link.from_chx()
    np.random.seed(0)
    assert chx.to_numpy(there).tolist() == sampler.sample((5,)).tolist()
    assert type(sampler.values) is type(link.late.W.array) is np.ndarray and not sampler.use_gpu


def test_visitors_of_ones_own_see_what_links_hold() -> None:
    class Names(kusari.device_resident.DeviceResidentsVisitor):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def visit_device_resident(self, device_resident: Any) -> None:
            self.seen.append(type(device_resident).__name__)

        def visit_array(self, arr: Any) -> Any:
            self.seen.append(arr.shape)
            return arr

        def visit_variable(self, param: Any) -> None:
            self.seen.append(param.name)

    visitor = Names()
    kusari.Sequential(L.BatchNormalization(2, use_gamma=False), F.relu, L.Linear(2, 1)).device_resident_accept(visitor)
    assert sorted(map(str, visitor.seen)) == ["(2,)", "(2,)", "BatchNormalization", "Linear", "Sequential", "W", "b",
                                             "beta"]


def test_gradients_are_differentiated_through_both() -> None:
    v = kusari.Variable(chx.array(X))
    F.sum(v ** 3).backward(enable_double_backprop=True)
    gx = v.grad_var
    v.cleargrad()
    assert gx is not None
    chx.backward(gx.chx_array.sum())
    np.testing.assert_allclose(chx.to_numpy(v.grad), 6 * X, rtol=1e-6)


def test_to_and_from() -> None:
    x = X.copy()
    v = kusari.Variable(x)
    v.grad = np.ones_like(x)
    v.to_chx()
    assert type(v.array) is type(v.grad) is chx.ndarray
    assert np.shares_memory(chx.to_numpy(v.array, copy=False), x)
    v.from_chx()
    assert v.array is x and type(v.grad) is np.ndarray
    with pytest.raises(ValueError, match="to_chx"):
        _ = v.chx_array
    assert [type(one) for one in backend.to_chx([x, None])] == [chx.ndarray, type(None)]
    with pytest.raises(TypeError, match="expected an array"):
        backend.from_chx("x")
    device = kusari.get_device("native")
    assert device == ChainerxDevice(chx.get_device("native:0")) == kusari.get_device(chx.get_device("native"))
    assert device == ChainerxDevice.from_fallback_device(device.fallback_device) != kusari.get_device("native:1")
    assert device.is_array_supported(backend.to_chx(x)) and not device.is_array_supported(x)
    with kusari.using_device("native:1"):
        assert chx.zeros(1).device.name == "native:1"
    copied = pickle.loads(pickle.dumps(kusari.Variable(chx.array(X))))
    np.testing.assert_array_equal(chx.to_numpy(copied.array), X)


def test_copies_and_indices() -> None:
    v = kusari.Variable(chx.array(X))
    y = F.scatter_add(F.copy(v, "native:1"), (np.array([0, 0]), np.array([1, 2])), chx.ones(2, device="native:1"))
    assert y.device.name == "native:1"
    F.sum(F.permutate(y, chx.array([2, 0, 1], device="native:1"), axis=1, inv=True)).backward()
    assert (v.grad.tolist(), v.grad.device.name) == ([[1.0] * 3] * 2, "native:0")
    for x, device in ((v, "@numpy"), (kusari.Variable(X), "native")):
        with pytest.raises(RuntimeError, match="no place in the graph"):
            F.copy(x, device)


class Twice(kusari.FunctionNode):
    """It has both forms: with ``own``, that of ChainerX."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.own = own
        self.seen: list[type] = []

    def forward_chainerx(self, inputs: Any) -> Any:
        self.seen.append(type(inputs[0]))
        return (inputs[0] * 2,) if self.own else kusari.Fallback

    def forward(self, inputs: Any) -> Any:
        self.seen.append(type(inputs[0]))
        self.retain_inputs((0,))
        return inputs[0] * 2,

    def backward(self, indexes: Any, gys: Any) -> Any:
        self.seen += [type(self.get_retained_inputs()[0].array), type(gys[0].array)]
        return gys[0] * 2,


@pytest.mark.parametrize(("own", "seen"), [(True, [chx.ndarray]), (False, [chx.ndarray] + [np.ndarray] * 3)])
def test_functions_of_ones_own(own: bool, seen: list[type]) -> None:
    node, v = Twice(own), kusari.Variable(chx.array(X, device="native:1"))
    y, = node.apply((v,))
    F.sum(y).backward()
    assert node.seen == seen
    assert (node.chainerx_device.name, y.device.name, v.grad.tolist()) == ("native:1", "native:1", [[2.0] * 3] * 2)


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(None, 4, 3)
            self.bn = L.BatchNormalization(4)
            self.embed = L.EmbedID(10, 5)
            self.lstm = L.LSTM(5, 5)
            self.out = L.Linear(None, 5)

    def forward(self, x: Any, ids: Any) -> Any:
        h = F.dropout(F.max_pooling_2d(F.relu(self.bn(self.conv(x))), 2), 0.3)
        self.lstm.reset_state()
        return self.out(h) + self.lstm(self.embed(ids))


def trained(device: str, optimizer: Any, hook: Any = None) -> tuple[Model, list[float]]:
    np.random.seed(0)
    model = Model()
    model.to_device(device)
    optimizer.setup(model)
    if hook is not None:
        optimizer.add_hook(hook)
    rng, losses = np.random.RandomState(1), []
    for _ in range(3):
        batch = (rng.randn(4, 3, 8, 8).astype("f"), rng.randint(0, 10, 4), rng.randint(0, 5, 4))
        x, ids, t = model.device.send(batch)
        loss = F.softmax_cross_entropy(model(x, ids), t)
        model.cleargrads()
        loss.backward()
        optimizer.update()
        losses.append(float(loss.array))
    return model, losses


OPTIMIZERS = ["SGD", "MomentumSGD", "Adam", "AdaDelta", "RMSprop", "SMORMS3", "MSVAG"]
HOOKS = [kusari.optimizer_hooks.WeightDecay(1e-3), kusari.optimizer_hooks.GradientClipping(0.1),
         kusari.optimizer_hooks.GradientHardClipping(-0.1, 0.1), kusari.optimizer_hooks.GradientNoise(0.1),
         kusari.optimizer_hooks.GradientLARS()]  # fmt: skip


@pytest.mark.parametrize(("name", "hook"), [*[(name, None) for name in OPTIMIZERS], *[("SGD", h) for h in HOOKS]])
def test_training_is_that_on_numpy_bit_for_bit(name: str, hook: Any) -> None:
    model, losses = trained("@numpy", getattr(kusari.optimizers, name)(), hook)
    other, others = trained("native", getattr(kusari.optimizers, name)(), hook)
    assert losses == others
    assert type(other.bn.avg_mean) is type(other.out.W.array) is chx.ndarray
    for one, two in ((model, other), (other.from_chx(), model.to_chx())):
        arrays = dict(two.namedparams(), mean=two.bn.avg_mean, count=two.bn.N)
        for path, expected in dict(one.namedparams(), mean=one.bn.avg_mean, count=one.bn.N).items():
            found = arrays[path]
            np.testing.assert_array_equal(np.asarray(getattr(found, "array", found)),
                                          np.asarray(getattr(expected, "array", expected)), err_msg=path)


def test_models_are_saved_and_loaded() -> None:
    optimizer = kusari.optimizers.Adam()
    model, _ = trained("native", optimizer)
    for source in (model, optimizer):
        file = io.BytesIO()
        kusari.serializers.save_npz(file, source)
        file.seek(0)
        target = Model()
        target.to_device("native:1")
        into: Any = target if source is model else kusari.optimizers.Adam().setup(target)
        kusari.serializers.load_npz(file, into)
        if source is model:
            assert target.out.W.device.name == "native:1" != model.out.W.device.name
            np.testing.assert_array_equal(np.asarray(target.out.W.array), np.asarray(model.out.W.array))
    copied = pickle.loads(pickle.dumps(model))
    assert copied.out.W.device.name == "native:0"


def test_a_static_function_stays_define_by_run_with_one_warning() -> None:
    class Static(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.linear = L.Linear(3, 2)

        @kusari.static_graph
        def forward(self, x: Any) -> Any:
            return F.tanh(self.linear(x))

    model = Static()
    expected = model(X).array
    model.to_device("native")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            y = model(chx.array(X))
    assert len(caught) == 1 and "arrays of ChainerX are not compiled" in str(caught[0].message)
    np.testing.assert_allclose(np.asarray(y.array), expected, rtol=1e-6)


def test_a_trainer_runs_on_native() -> None:
    model = L.Classifier(L.Linear(3, 2))
    model.to_device("native")
    data = kusari.datasets.TupleDataset(np.random.rand(20, 3).astype("f"), np.random.randint(0, 2, 20))
    optimizer = kusari.optimizers.SGD().setup(model)
    updater = kusari.training.updaters.StandardUpdater(
        kusari.iterators.SerialIterator(data, 5), optimizer, device="native")
    evaluator = kusari.training.extensions.Evaluator(
        kusari.iterators.SerialIterator(data, 5, repeat=False, shuffle=False), model, device="native")
    updater.update()
    observation = evaluator()
    assert set(observation) == {"main/loss", "main/accuracy"}
    assert float(observation["main/loss"]) > 0


def test_backends_of_tests() -> None:
    config = testing.BackendConfig({"use_chainerx": True, "chainerx_device": "native:1"})
    with config:
        assert chx.zeros(1).device.name == "native:1" == config.get_array(X).device.name
    assertions.assert_array_equal(chx.array(X), X)
    assertions.assert_allclose(chx.array(X), X + 1e-9)
    with pytest.raises(AssertionError, match="data types differ"):
        assertions.assert_array_equal_ex(chx.array(X), X.astype(float), strides_check=False)
