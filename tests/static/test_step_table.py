"""Whole steps of every optimizer, and of training loops that change something between steps: as define-by-run."""
from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import iterators, optimizers, serializers, static_graph, training
from kusari.datasets import TupleDataset
from kusari.optimizer_hooks import GradientClipping, WeightDecay
from kusari.optimizers import SGD, Adam, MomentumSGD

OPTIMIZERS = [getattr(optimizers, name) for name in (
    "SGD", "MomentumSGD", "CorrectedMomentumSGD", "NesterovAG", "AdaGrad", "AdaDelta", "Adam", "AdamW", "AMSGrad",
    "AdaBound", "AMSBound", "RMSprop", "RMSpropGraves", "SMORMS3", "MSVAG")]


class Model(kusari.Chain):
    def __init__(self, inputs: int | None = 5) -> None:
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(inputs, 7)
            self.l2 = L.Linear(7, 3)

    @static_graph
    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.l2(F.tanh(self.l1(x))), t)

    forward = loss


class State:
    """A training run: what changes between steps may put others in place of model and optimizer."""

    def __init__(self, optimizer: Any, static: bool, inputs: int | None = 5) -> None:
        np.random.seed(0)
        self.model = Model(inputs)
        self.opt = optimizer().setup(self.model)
        self.static = static
        self.seen: list[Any] = []

    def step(self, x: Any, t: Any) -> None:
        self.opt.update(self.model.loss, x, t)

    def look(self) -> None:
        for name, p in sorted(self.model.namedparams()):
            rule = p.update_rule
            self.seen += [name, *(None if a is None else a.copy() for a in (p.array, p.grad))]
            self.seen += [] if rule is None else [rule.t, *(s.copy() for s in (rule.state or {}).values())]
        self.seen.append(self.opt.t)


def run(between: Callable[[int, State], None], optimizer: Any, static: bool, steps: int = 10, inputs: int | None = 5,
        ) -> tuple[list[Any], State]:
    state = State(optimizer, static, inputs)
    rs = np.random.RandomState(3)
    with kusari.using_config("use_static_graph", static):
        for i in range(steps):
            between(i, state)
            state.step(rs.randn(8, 5).astype("f"), rs.randint(0, 3, 8).astype("i"))
            state.look()
    return state.seen, state


def compare(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, np.ndarray):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6 + 2e-5 * np.abs(b).max(initial=0))
        else:
            assert a == b


def nothing(i: int, s: State) -> None:
    pass


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.__name__)
def test_optimizers(optimizer: Any) -> None:
    expected, _ = run(nothing, optimizer, False)
    found, state = run(nothing, optimizer, True)
    compare(found, expected)
    assert [s is not None for _, s in state.opt._steps.by_loss.values()] == [True]


def decays(i: int, s: State) -> None:
    s.opt.lr *= 0.9


def decays_as_array(i: int, s: State) -> None:
    s.opt.lr = np.float32(0.1 / (1 + i)) if i % 2 else np.array(0.1 / (1 + i))


def own_rate(i: int, s: State) -> None:
    if i > 3:
        s.model.l1.W.update_rule.hyperparam.lr = 0.01 * i


def freezes(i: int, s: State) -> None:
    if i in (3, 7):
        s.model.l1.disable_update()
    if i == 5:
        s.model.l1.enable_update()


def freezes_one(i: int, s: State) -> None:
    if i == 4:
        s.model.l2.b.update_rule.enabled = False


def adds_hooks(i: int, s: State) -> None:
    if i == 3:
        s.opt.add_hook(WeightDecay(0.1))
    if i == 5:
        s.opt.add_hook(GradientClipping(0.1))
    if i == 7:
        s.opt.remove_hook("WeightDecay")


def changes_hooks(i: int, s: State) -> None:
    if i == 0:
        s.opt.add_hook(WeightDecay(0.1))
    s.opt._hooks.pre["WeightDecay"].rate = 0.1 * (i // 4)


def user_hooks(i: int, s: State) -> None:
    def halve(opt: Any) -> None:
        for p in opt.target.params():
            p.grad *= 0.5
    if i == 0:
        s.opt.add_hook(halve, timing="post", name="after")
    if i == 5:
        s.opt.add_hook(halve)


def grows(i: int, s: State) -> None:
    """A link that is new has no rule, and hooks of optimizers change its gradient all the same."""
    if i == 0:
        s.opt.add_hook(WeightDecay(0.1))
    if i == 4:
        with s.model.init_scope():
            s.model.more = L.Linear(2, 2)


def sets_rules(i: int, s: State) -> None:
    if i == 3:
        s.model.l1.b.update_rule = optimizers.adam.AdamRule(Adam().hyperparam)
    if i == 5:
        s.model.l2.W.update_rule.hyperparam = type(s.opt)(0.5).hyperparam
    if i == 6:
        s.model.l2.b.update_rule.hyperparam = kusari.optimizer.Hyperparameter(type(s.opt)(0.3).hyperparam)
    if i == 8:
        s.model.l2.b.update_rule.hyperparam = kusari.optimizer.Hyperparameter(s.opt.hyperparam)
    if i == 7:
        s.model.l1.W.update_rule = None


def zeros(i: int, s: State) -> None:
    if i in (2, 3, 6):
        pytest.deprecated_call(s.opt.use_cleargrads, i == 6)
    for p in s.model.params():
        p.zerograd() if i % 2 else p.cleargrad()


def reallocates(i: int, s: State) -> None:
    if i > 2:
        s.model.cleargrads()
        s.opt.reallocate_cleared_grads()


def updates_twice(i: int, s: State) -> None:
    if i > 3:
        s.opt.update()


def counts_anew(i: int, s: State) -> None:
    if i == 4:
        s.opt.t = 0
        for p in s.model.params():
            p.update_rule.t = 0


def sets_up_again(i: int, s: State) -> None:
    if i == 4:
        s.opt.setup(s.model)
    if i == 7:
        s.opt = Adam(0.01).setup(s.model)


def copies(i: int, s: State) -> None:
    if i == 5:
        s.opt = copy.deepcopy(s.opt)
        s.model = s.opt.target


def loads(i: int, s: State) -> None:
    if i in (2, 6):
        file = io.BytesIO()
        serializers.save_npz(file, s.opt)
        before = [p.array.copy() for p in s.model.params()]
        file.seek(0)
        serializers.load_npz(file, s.opt)
        for p, array in zip(s.model.params(), before, strict=True):
            p.array = array * 0.5


def states_change(i: int, s: State) -> None:
    if i > 2:
        for p in s.model.params():
            for name, array in p.update_rule.state.items():
                p.update_rule.state[name] = array * 0.5


def ties(i: int, s: State) -> None:
    if i == 4:
        s.model.l2.b.array = s.model.l1.b.array[:3]


def without(i: int, s: State) -> None:
    if i in (3, 4):
        kusari.config.use_static_graph = False
    if i == 5:
        kusari.config.use_static_graph = s.static


CHANGES = [decays, decays_as_array, own_rate, freezes, freezes_one, adds_hooks, changes_hooks, user_hooks, grows,
           sets_rules, zeros, reallocates, updates_twice, counts_anew, sets_up_again, copies, loads, states_change,
           ties, without]


@pytest.mark.parametrize(("between", "optimizer"), [
    pytest.param(between, optimizer, marks=() if i % 2 == k else pytest.mark.slow,
                 id=f"{between.__name__} {optimizer.__name__}")
    for i, between in enumerate(CHANGES) for k, optimizer in enumerate((MomentumSGD, Adam))])
def test_what_changes_between_steps(between: Any, optimizer: Any) -> None:
    if optimizer is Adam and between in (decays, decays_as_array, own_rate):
        def of_adam(i: int, s: State) -> None:
            s.opt.alpha *= 0.9
            s.opt.eta = 1 / (1 + i)
            if i > 3:
                s.model.l2.W.update_rule.hyperparam.beta1 = 0.5 + 0.01 * i
        between = of_adam
    expected, _ = run(between, optimizer, False)
    found, _ = run(between, optimizer, True)
    compare(found, expected)


def test_parameters_that_are_not_there_at_first() -> None:
    expected, _ = run(nothing, Adam, False, inputs=None)
    found, state = run(nothing, Adam, True, inputs=None)
    compare(found, expected)
    assert [s is not None for _, s in state.opt._steps.by_loss.values()] == [True]


class Two(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.gen = L.Linear(4, 3)
            self.dis = L.Linear(3, 1)

    @static_graph
    def loss_gen(self, z: Any) -> Any:
        return F.mean(F.softplus(-self.dis(F.tanh(self.gen(z)))))

    @static_graph
    def loss_dis(self, x: Any, z: Any) -> Any:
        return F.mean(F.softplus(-self.dis(x))) + F.mean(F.softplus(self.dis(F.tanh(self.gen(z)))))


@pytest.mark.parametrize("clear", [False, True])
def test_two_optimizers(clear: bool) -> None:
    """Each updates its part; gradients of the other's part add up unless they are cleared."""
    def scenario(static: bool) -> list[Any]:
        np.random.seed(0)
        model = Two()
        gen, dis = Adam(0.01).setup(model.gen), MomentumSGD(0.1).setup(model.dis)
        dis.add_hook(WeightDecay(0.01))
        seen: list[Any] = []
        with kusari.using_config("use_static_graph", static):
            for _ in range(6):
                x, z = np.random.randn(6, 3).astype("f"), np.random.randn(6, 4).astype("f")
                if clear:
                    model.cleargrads()
                gen.update(model.loss_gen, z)
                dis.update(model.loss_dis, x, z)
                seen += [a.copy() for _, p in sorted(model.namedparams()) for a in (p.array, p.grad)]
        return seen
    compare(scenario(True), scenario(False))


class Split(training.StandardUpdater):
    """Two optimizers for two parts of the model, in one step."""

    def update_core(self) -> None:
        x, t = self.converter(self.get_iterator("main").next(), self.device)
        for optimizer in self.get_all_optimizers().values():
            optimizer.update(self.loss_func, x, t)


@pytest.mark.parametrize("kind", ["plain", "scaled", "split", "dict"])
def test_trainers(kind: str, tmp_path: Any) -> None:
    def scenario(static: bool) -> list[Any]:
        np.random.seed(0)
        model = Model()
        rs = np.random.RandomState(1)
        x, t = rs.randn(22, 5).astype("f"), rs.randint(0, 3, 22).astype("i")
        data: Any = TupleDataset(x, t)
        if kind == "dict":
            data = [{"t": t[i], "x": x[i]} for i in range(22)]
        opt: Any = MomentumSGD(0.1).setup(model)
        opts: Any = {"main": opt.setup(model.l1), "second": SGD(0.2).setup(model.l2)} if kind == "split" else opt
        updater = (Split if kind == "split" else training.StandardUpdater)(
            iterators.SerialIterator(data, 6), opts, loss_func=model.loss if kind == "split" else None,
            loss_scale=8.0 if kind == "scaled" else None)
        trainer = training.Trainer(updater, (4, "epoch"), out=str(tmp_path))
        trainer.extend(training.extensions.ExponentialShift("lr", 0.5, optimizer=opt), trigger=(1, "epoch"))
        with kusari.using_config("use_static_graph", static):
            trainer.run()
        return [a for _, p in sorted(model.namedparams()) for a in (p.array, p.grad)] + [opt.t, opt.epoch, opt.lr]
    compare(scenario(True), scenario(False))
