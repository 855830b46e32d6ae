"""Whole steps that give more than parameters: gradients of arguments, state that is carried over, stored results."""
from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable, optimizer_hooks, static_graph
from kusari.optimizers import SGD, Adam
from kusari.static.step import step
from kusari.static.step.step import Step
from kusari.static.step.usual import never

CELLS = {"LSTM": L.LSTM, "GRU": L.GRU, "Peephole": L.StatefulPeepholeLSTM, "Zoneout": L.StatefulZoneoutLSTM}


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each step that had a compiled whole was made by it."""
    made: list[bool] = []
    before = Step.__call__

    def call(self: Step, leaves: Any) -> bool:
        made.append(False)
        made[-1] = before(self, leaves)
        return made[-1]
    monkeypatch.setattr(Step, "__call__", call)
    monkeypatch.setattr(step, "usual_step", lambda *_: never)  # so that this is called for each
    return made


def copy_of(x: Any) -> Any:
    x = x._array if isinstance(x, Variable) else x
    return None if x is None else np.array(x)


def same(scenario: Callable[[Any], list[list[Any]]], rtol: float = 2e-4) -> None:
    """Assert that a scenario, which is given a decorator, shows the same define-by-run and static."""
    np.random.seed(0)
    eager = [[copy_of(x) for x in seen] for seen in scenario(lambda f: f)]
    np.random.seed(0)
    static = [[copy_of(x) for x in seen] for seen in scenario(static_graph(strict=True))]
    assert len(eager) == len(static)
    for i, (a, b) in enumerate(zip(eager, static, strict=True)):
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            assert (x is None) is (y is None), (i, k)
            if x is not None:
                assert (x.shape, x.dtype) == (y.shape, y.dtype), (i, k)
                np.testing.assert_allclose(y, x, rtol=rtol, atol=2e-6, err_msg=f"step {i}, {k}")


def parameters(model: Any) -> list[Any]:
    return [copy_of(a) for _, p in sorted(model.namedparams()) for a in (p.array, p.grad)]


def net(decorate: Any, loss: Any) -> Any:
    class Net(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l1 = L.Linear(3, 4)
                self.l2 = L.Linear(4, 2)

        def __call__(self, x: Any) -> Any:
            return self.l2(F.tanh(self.l1(x)))
    Net.loss = decorate(loss)
    return Net()


def data(i: int, *shape: int) -> Any:
    return np.random.RandomState(i).randn(*shape).astype("f")


@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("hook", [None, optimizer_hooks.WeightDecay(0.1), optimizer_hooks.GradientClipping(0.01)])
def test_gradients_of_arguments(whole: list[bool], clear: bool, hook: Any) -> None:
    """The same Variable again and again, new ones, one that is used twice, one that is not used."""
    def loss(self: Any, x: Any, y: Any, unused: Any) -> Any:
        return F.sum(self(x) * y) + F.mean(x * x)

    def scenario(decorate: Any) -> list[list[Any]]:
        model = net(decorate, loss)
        optimizer = SGD(0.1).setup(model)
        if hook is not None:
            optimizer.add_hook(hook)
        x, unused = Variable(data(0, 5, 3)), Variable(data(0, 2))
        seen = []
        for i in range(6):
            x.array[...] = data(i, 5, 3)
            y = Variable(data(10 + i, 5, 2))
            if clear:
                x.cleargrad()
            optimizer.update(model.loss, x, y, unused)
            seen.append([x.grad, y.grad, unused.grad, *parameters(model)])
        return seen
    same(scenario)
    assert whole == [True] * 5


def test_gradients_held_by_the_caller_stay_as_they_are(whole: list[bool]) -> None:
    """Each is an array of its own, whether it is added to or not."""
    model = net(static_graph, lambda self, x, y: F.sum(self(x) * 2) + F.sum(x + y))
    optimizer = SGD(0.1).setup(model)
    x, y = Variable(data(0, 200, 3)), Variable(data(1, 200, 3))
    held = []
    for i in range(6):
        if i % 2:
            x.cleargrad()
            y.cleargrad()
        optimizer.update(model.loss, x, y)
        held += [(v.grad, v.grad.copy()) for v in (x, y)]
    for grad, copy in held:
        np.testing.assert_array_equal(grad, copy)
    assert len({id(g) for g, _ in held}) == len(held) and whole == [True] * 5
    assert not np.shares_memory(x.grad, y.grad)


def test_a_gradient_that_is_an_argument_is_another_array() -> None:
    model = net(static_graph, lambda self, x, y: F.sum(self(x)) + F.sum(x * y))
    optimizer = SGD(0.1).setup(model)
    y = Variable(data(1, 5, 3))
    for i in range(4):
        x = Variable(data(i, 5, 3))
        optimizer.update(model.loss, x, y)
        assert not np.shares_memory(y.grad, x.array) and not np.shares_memory(x.grad, y.array)


def test_arguments_with_a_graph_behind_them(whole: list[bool]) -> None:
    """Gradients go on behind them: such steps are made in parts, the others whole."""
    def scenario(decorate: Any) -> list[list[Any]]:
        model = net(decorate, lambda self, x: F.sum(self(x) ** 2))
        optimizer = Adam(0.1).setup(model)
        seen = []
        for i in range(7):
            first = Variable(data(i, 5, 3))
            x = F.exp(first) if i in (3, 4, 6) else first
            optimizer.update(model.loss, x)
            seen.append([first.grad, x.grad, *parameters(model)])
        return seen
    same(scenario)
    assert whole.count(False) >= 3 and whole.count(True) >= 3


def test_a_variable_that_asks_for_no_gradient(whole: list[bool]) -> None:
    def scenario(decorate: Any) -> list[list[Any]]:
        model = net(decorate, lambda self, x: F.sum(self(x) ** 2))
        optimizer = SGD(0.1).setup(model)
        seen = []
        for i in range(8):
            x = Variable(data(i, 5, 3), requires_grad=i % 2 == 0)
            optimizer.update(model.loss, x)
            seen.append([x.grad, *parameters(model)])
        return seen
    same(scenario)
    assert whole == [True] * 6


def test_parameters_of_others_and_parameters_without_gradients(whole: list[bool]) -> None:
    """Two networks against each other: what is not the optimizer's gets its gradient added to; what is, zeros."""
    def scenario(decorate: Any) -> list[list[Any]]:
        class Pair(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.make = L.Linear(3, 4)
                    self.judge = L.Linear(4, 1)
                    self.spare = L.Linear(2, 2)

            @decorate
            def loss(self, x: Any) -> Any:
                return F.mean(F.softplus(self.judge(F.tanh(self.make(x)))))
        pair = Pair()
        optimizers = [Adam(0.05).setup(pair.make), SGD(0.05).setup(pair.judge), SGD(0.1).setup(pair)]
        optimizers[2].add_hook(optimizer_hooks.WeightDecay(0.1))
        pair.cleargrads()
        seen = []
        for i in range(12):
            optimizers[i % 3].update(pair.loss, data(i, 5, 3))
            seen.append(parameters(pair))
        return seen
    same(scenario)
    assert whole == [True] * 11


def language(decorate: Any, cell: Any, loss: Any) -> Any:
    class Language(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.embed = L.EmbedID(7, 4)
                self.cell = cell(4, 5)
                self.out = L.Linear(5, 7)

        def forward(self, x: Any) -> Any:
            return self.out(self.cell(self.embed(x)))

        def window(self, xs: Any) -> Any:
            return sum(F.softmax_cross_entropy(self(x), t) for x, t in zip(xs, xs[1:], strict=False))
    Language.loss = decorate(loss)
    return Language()


def words(i: int, length: int = 4) -> list[Any]:
    return list(np.random.RandomState(i).randint(0, 7, (length, 3)).astype(np.int32))


def carried(model: Any) -> list[Any]:
    return [getattr(model.cell, n) for n in ("c", "h") if hasattr(model.cell, n)]


def cut_outside(model: Any) -> None:
    for v in carried(model):
        v.unchain_backward()


def cut_one_by_one(model: Any) -> None:
    for v in carried(model):
        v.unchain()


def cut_the_loss(model: Any) -> None:
    model.last.unchain_backward()


def stored_loss(self: Any, xs: Any) -> Any:
    self.last = self.window(xs)
    return self.last


@pytest.mark.parametrize("cell", [L.LSTM, *(pytest.param(cell, marks=pytest.mark.slow) for cell in (
    L.GRU, L.StatefulPeepholeLSTM, L.StatefulZoneoutLSTM))], ids=CELLS)
@pytest.mark.parametrize(
    ("loss", "cut"), [(lambda self, xs: self.window(xs), cut_outside), (stored_loss, cut_the_loss),
                      pytest.param(lambda self, xs: self.window(xs), cut_one_by_one, marks=pytest.mark.slow)],
    ids=["states", "loss", "single"])
def test_truncated_back_propagation(whole: list[bool], cell: Any, loss: Any, cut: Any) -> None:
    """The state begins anew now and then, and its graph is cut after each step; all but the first steps are whole."""
    def scenario(decorate: Any) -> list[list[Any]]:
        model = language(decorate, cell, loss)
        optimizer = Adam(0.02).setup(model)
        seen = []
        for i in range(10):
            if i in (4, 7):
                model.cell.reset_state()
            np.random.seed(i)
            optimizer.update(model.loss, words(i))
            states = carried(model)
            assert all(v.creator_node is not None and v.grad is None and v.requires_grad for v in states)
            cut(model)
            seen.append([*parameters(model), *states, getattr(model, "last", None), np.random.rand(),
                         [v.creator_node is None for v in states]])
        return seen
    same(scenario)
    if cut is not cut_the_loss or cell is not L.StatefulZoneoutLSTM:  # whose last ``c`` the loss does not depend on
        assert len(whole) >= 7 and all(whole)  # the others are traced


@pytest.mark.slow
def test_state_whose_graph_goes_on(whole: list[bool]) -> None:
    """Gradients flow through earlier steps, by parameters as they are now: in parts, through what whole steps kept."""
    def scenario(decorate: Any) -> list[list[Any]]:
        model = language(decorate, L.LSTM, lambda self, xs: self.window(xs))
        optimizer = SGD(0.1).setup(model)
        optimizer.add_hook(optimizer_hooks.GradientClipping(1.0))
        seen = []
        for i in range(14):
            if i % 7 in (0, 4):
                model.cell.reset_state()
            optimizer.update(model.loss, words(i))
            seen.append([*parameters(model), *carried(model)])
            if i % 3 == 0:
                cut_outside(model)
        return seen
    same(scenario)
    assert whole.count(True) >= 5 and whole.count(False) >= 3


@pytest.mark.slow
def test_back_propagation_from_the_state_after_the_step(whole: list[bool]) -> None:
    """Through one of two states, retaining gradients, with one of them cut."""
    def scenario(decorate: Any) -> list[list[Any]]:
        model = language(decorate, L.LSTM, lambda self, xs: self.window(xs))
        optimizer = SGD(0.1).setup(model)
        seen = []
        for i in range(12):
            optimizer.update(model.loss, words(i))
            h, c = model.cell.h, model.cell.c
            model.cleargrads()
            if i % 4 == 1:
                F.sum(h * h).backward()
            elif i % 4 == 2:
                F.sum(c * h).backward(retain_grad=True)
            elif i % 4 == 3:
                c.unchain()
                F.sum(h * c).backward()
            seen.append([*parameters(model), h.grad, c.grad, h, c])
            cut_outside(model)
        return seen
    same(scenario)
    assert whole == [True] * 10


def test_gradients_of_the_state_before_the_step(whole: list[bool]) -> None:
    """The state is a leaf that somebody holds: its gradient is set, and added to."""
    def scenario(decorate: Any) -> list[list[Any]]:
        model = language(decorate, L.LSTM, lambda self, xs: self.window(xs))
        optimizer = SGD(0.1).setup(model)
        seen = []
        for i in range(6):
            given = [Variable(data(i + k, 3, 5)) for k in (0, 10)]
            if i == 4:
                given[1].grad = data(3, 3, 5)
            model.cell.set_state(*given)
            optimizer.update(model.loss, words(i))
            seen.append([*parameters(model), *(v.grad for v in given), *carried(model)])
        return seen
    same(scenario)
    assert whole == [True] * 5


@pytest.mark.slow
def test_frames_are_used_again(whole: list[bool]) -> None:
    """A step whose graph is cut gives its frame back."""
    model = language(static_graph, L.LSTM, lambda self, xs: self.window(xs))
    optimizer = SGD(0.1).setup(model)
    for i in range(12):
        optimizer.update(model.loss, words(i))
        cut_outside(model)
    gc.collect()
    _, step = list(optimizer._steps.by_loss.values())[-1]
    assert whole == [True] * 10 and len(step.results.free) <= 2


def test_classifier(whole: list[bool]) -> None:
    """What ``L.Classifier`` stores: loss, output and accuracy, each a Variable of this step."""
    def scenario(decorate: Any) -> list[list[Any]]:
        kind = type("Static", (L.Classifier,), {"forward": decorate(L.Classifier.forward)})
        model = kind(L.Linear(3, 4))
        optimizer = Adam(0.1).setup(model)
        seen = []
        for i in range(6):
            x, t = data(i, 5, 3), np.random.RandomState(i).randint(0, 4, 5).astype("i")
            optimizer.update(model, x, t)
            assert model.loss.creator_node is not None and model.loss.grad is None
            seen.append([model.loss, model.y, model.accuracy, *parameters(model)])
        return seen
    same(scenario)
    assert whole == [True] * 5


def test_arrays_and_numbers_are_stored(whole: list[bool]) -> None:
    def loss(self: Any, x: Any) -> Any:
        y = self(x)
        self.seen = {"norm": float(F.sum(y * y).array), "last": [x]}
        return F.sum(y)
    model = net(static_graph(strict=True), loss)
    optimizer = SGD(0.1).setup(model)
    for i in range(3):
        x = data(i, 5, 3)
        expected = float(F.sum(model(x) ** 2).array)
        optimizer.update(model.loss, x)
        assert type(model.seen["norm"]) is float and model.seen["norm"] == pytest.approx(expected, rel=1e-5)
        assert model.seen["last"][0] is x
    assert whole == [True] * 2
    whole.clear()

    def scenario(decorate: Any) -> list[list[Any]]:
        def loss(self: Any, x: Any) -> Any:
            with kusari.no_backprop_mode():
                self.seen = [F.sum(self(x)), x]
            return F.sum(self(x) * x[:, :2])
        model = net(decorate, loss)
        optimizer = SGD(0.1).setup(model)
        seen = []
        for i in range(6):
            x = data(i, 5, 3)
            optimizer.update(model.loss, x)
            assert model.seen[1] is x and model.seen[0].creator_node is None
            seen.append([model.seen[0], *parameters(model)])
        return seen
    same(scenario)
    assert whole == [True] * 5


def test_stored_loss_after_the_step(whole: list[bool]) -> None:
    """Going backward once more reads parameters as they are then, and what the forward computed as it was."""
    def scenario(decorate: Any) -> list[list[Any]]:
        def loss(self: Any, x: Any) -> Any:
            self.hidden = F.tanh(self.l1(x))
            self.last = F.sum(self.l2(self.hidden) ** 2)
            return self.last
        model = net(decorate, loss)
        optimizer = SGD(0.02).setup(model)
        seen = []
        for i in range(8):
            optimizer.update(model.loss, data(i, 5, 3))
            if i % 3 == 0:
                model.last.backward()
            elif i % 3 == 1:
                gs = kusari.grad([model.last], [model.hidden, model.l1.W])
                seen.append(gs)
            else:
                model.hidden.unchain_backward()
                model.last.backward()
            seen.append([model.last, model.hidden, *parameters(model)])
        return seen
    same(scenario)
    assert len(whole) >= 6 and all(whole)


@pytest.mark.slow
def test_a_rate_that_changes_while_steps_are_in_flight(whole: list[bool]) -> None:
    """The step is compiled anew, and the states of earlier ones still have their graphs."""
    def scenario(decorate: Any) -> list[list[Any]]:
        model = language(decorate, L.LSTM, lambda self, xs: self.window(xs))
        optimizer = SGD(0.1).setup(model)
        seen = []
        for i in range(9):
            model.cell.reset_state()
            optimizer.lr = 0.1 if i < 4 else 0.1 / i
            optimizer.update(model.loss, words(i))
            held = carried(model)
            if i % 2:
                F.sum(held[0]).backward()
            seen.append([*parameters(model), *held])
        return seen
    same(scenario)
    assert whole == [True] * 8


def test_settings_that_change_often(whole: list[bool]) -> None:
    """Steps are replays, too: a setting that changes between them does not make the function fall back."""
    def scenario(decorate: Any) -> list[list[Any]]:
        model = net(decorate, lambda self, x: F.sum(self(x)) * self.scale)
        optimizer = SGD(0.01).setup(model)
        seen = []
        for i in range(24):
            model.scale = float(i // 3)
            optimizer.update(model.loss, data(i, 5, 3))
            seen.append(parameters(model))
        return seen
    same(scenario)
    assert whole == [True] * 22


def test_loss_in_a_list_is_refused() -> None:
    """As define-by-run does: in Chainer it is an AttributeError that does not say so."""
    model = net(static_graph, lambda self, x: [F.sum(self(x))])
    optimizer = SGD(0.1).setup(model)
    for _ in range(3):
        with pytest.raises(TypeError, match="the loss must be a Variable"):
            optimizer.update(model.loss, data(0, 5, 3))


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("hook", [None, optimizer_hooks.GradientClipping(0.5)])
def test_parameters_that_come_to_share_memory(together: bool, hook: Any) -> None:
    """One is updated after the other, as define-by-run does, and not by several threads; and when they part again."""
    size = 60000

    def scenario(decorate: Any) -> list[list[Any]]:
        class Two(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.a = kusari.Parameter(data(0, size))
                    self.b = kusari.Parameter(data(1, size))

            @decorate
            def loss(self, x: Any) -> Any:
                return F.sum(F.tanh(self.a * x)) + 0.5 * F.sum(self.b * self.b * x)
        model = Two()
        optimizer = Adam(0.1, eps=0.1, weight_decay_rate=0.5).setup(model)
        if hook is not None:
            optimizer.add_hook(hook)
        seen = []
        for i in range(12):
            if i in (4, 8):  # in one memory, and apart again
                block = data(i, 2 * size)
                model.a.array = block[:size]
                model.b.array = block[size // 2:size // 2 + size] if i == 4 else block[size:]
            if together:
                optimizer.update(model.loss, data(i, size))
            else:
                model.cleargrads()
                model.loss(data(i, size)).backward()
                optimizer.update()
            seen.append(parameters(model))
        return seen
    same(scenario)
