"""``optimizer.update(lossfun, …)`` with a static loss function: the whole step is one schedule."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import optimizer_hooks, static_graph
from kusari.optimizers import SGD, Adam, MomentumSGD


class Model(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(5, 16, nobias=True)  # a bias before the normalization has no gradient but rounding
            self.norm = L.BatchNormalization(16)
            self.l2 = L.Linear(16, 3)
        self.seen: list[float] = []

    @static_graph
    def loss(self, x: Any, t: Any) -> Any:
        h = F.dropout(F.relu(self.norm(self.l1(x))), 0.3)
        loss = F.softmax_cross_entropy(self.l2(h), t)
        kusari.report({"loss": loss}, self)
        return loss


class Classified(kusari.Chain):
    """The loss is the link's own call."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(5, 3)

    @static_graph
    def forward(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.l1(x), t)


def train(make: Any, lossfun: Any, optimizer: Any, static: bool, hooks: tuple[Any, ...] = (), steps: int = 100) -> Any:
    np.random.seed(0)
    model = make()
    opt = optimizer().setup(model)
    for hook in hooks:
        opt.add_hook(hook)
    rs = np.random.RandomState(3)
    reports: list[float] = []
    reporter = kusari.Reporter()
    reporter.add_observer("main", model)
    with kusari.using_config("use_static_graph", static):
        for i in range(steps):
            if i == 60:
                opt.hyperparam.alpha = opt.hyperparam.lr = 0.005  # a schedule changes the learning rate
            x, t = rs.randn(8, 5).astype("f"), rs.randint(0, 3, 8).astype("i")
            observation: dict[str, Any] = {}
            with reporter.scope(observation):
                opt.update(lossfun(model), x, t)
            reports += [float(v.array) for v in observation.values()]
    arrays = {n: p.array for n, p in model.namedparams()}
    arrays.update({f"{n} grad": p.grad for n, p in model.namedparams()})
    for name, link in model.namedlinks():
        arrays.update({f"{name}/{k}": np.asarray(getattr(link, k)) for k in link._persistent})
    return arrays, reports, opt, np.random.rand()


@pytest.mark.parametrize(
    ("make", "lossfun"), [(Model, lambda m: m.loss), (Classified, lambda m: m)], ids=["method", "link"])
@pytest.mark.parametrize("optimizer", [SGD, MomentumSGD, Adam])
@pytest.mark.parametrize(
    "hooks", [(), (optimizer_hooks.WeightDecay(0.01),), (optimizer_hooks.GradientClipping(0.5),)],
    ids=["plain", "decay", "clipping"])
def test_hundred_steps(make: Any, lossfun: Any, optimizer: Any, hooks: Any) -> None:
    eager, eager_reports, eager_opt, eager_random = train(make, lossfun, optimizer, False, hooks)
    static, static_reports, static_opt, static_random = train(make, lossfun, optimizer, True, hooks)
    assert eager_random == static_random
    assert eager_opt.t == static_opt.t == 100
    np.testing.assert_allclose(static_reports, eager_reports, rtol=1e-5, atol=1e-6)
    for name, array in eager.items():
        # The documented bound, in units in the last place of the largest element (docs/limits.md).
        ulp = np.spacing(np.abs(array).max().astype(array.dtype)) if array.dtype.kind == "f" else 0
        np.testing.assert_allclose(static[name], array, rtol=0, atol=256 * ulp, err_msg=name)
    compiled = [s for _, s in static_opt._steps.by_loss.values()]
    assert len(compiled) == 1 and compiled[0] is not None


def test_gradients_held_by_the_caller_stay() -> None:
    np.random.seed(0)
    model = Model()
    opt = SGD().setup(model)
    x, t = np.random.randn(8, 5).astype("f"), np.random.randint(0, 3, 8).astype("i")
    held = []
    for _ in range(4):
        opt.update(model.loss, x, t)
        held.append((model.l1.W.grad, model.l1.W.grad.copy()))
    for grad, copy in held:
        np.testing.assert_array_equal(grad, copy)


def test_frozen_parameters_stay() -> None:
    model = Model()
    opt = Adam().setup(model)
    model.l1.disable_update()
    before = model.l1.W.array.copy()
    for x, t in [(np.random.randn(8, 5).astype("f"), np.zeros(8, "i"))] * 4:
        opt.update(model.loss, x, t)
    np.testing.assert_array_equal(model.l1.W.array, before)
    model.l1.enable_update()
    opt.update(model.loss, x, t)
    assert (model.l1.W.array != before).any()


def test_what_is_wrapped_around_a_static_function_is_called() -> None:
    model = kusari.Sequential(L.Linear(5, 3))
    opt = SGD(0.1).setup(model)
    calls: list[int] = []

    @static_graph
    def loss(x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(model(x), t)

    @functools.wraps(loss)  # copies its attributes
    def counted(x: Any, t: Any) -> Any:
        calls.append(1)
        return loss(x, t)

    for i in range(4):
        opt.update(counted, np.full((2, 5), i, "f"), np.zeros(2, "i"))
    assert len(calls) == 4
