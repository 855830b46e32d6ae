"""Recurrent models under ``static_graph``: state that begins anew, that is carried over, that is cut off."""
from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import static_graph
from kusari.optimizers import SGD
from kusari.static import StaticGraphWarning

CELLS = {"LSTM": L.LSTM, "GRU": L.GRU, "Peephole": L.StatefulPeepholeLSTM, "Zoneout": L.StatefulZoneoutLSTM,
         "MGU": L.StatefulMGU}


def static(plain: Any) -> Any:
    """Return a subclass whose ``forward`` is static."""
    return type(f"Static{plain.__name__}", (plain,), {"forward": static_graph(plain.forward, strict=True)})


class Steps(kusari.Chain):
    """One step per call."""

    def __init__(self, cell: Any = L.LSTM) -> None:
        super().__init__()
        with self.init_scope():
            self.embed = L.EmbedID(7, 4)
            self.cell = cell(4, 5)
            self.out = L.Linear(5, 7)

    def forward(self, x: Any) -> Any:
        return self.out(self.cell(self.embed(x)))


StaticSteps = static(Steps)


class Sequences(Steps):
    """A whole sequence per call, beginning anew."""

    def forward(self, xs: Any) -> Any:
        self.cell.reset_state()
        return [self.out(self.cell(self.embed(x))) for x in xs]


StaticSequences = static(Sequences)


class Losses(Sequences):
    def loss(self, xs: Any, ts: Any) -> Any:
        return sum(F.softmax_cross_entropy(y, t) for y, t in zip(self(xs), ts, strict=True))


class StaticLosses(Losses):
    loss = static_graph(Losses.loss, strict=True)


def words(length: int, batch: int = 3, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.RandomState(seed).randint(0, 7, (length, batch)).astype(np.int32))


def seen_of(model: Any, *more: Any) -> list[np.ndarray]:
    state = [getattr(model.cell, name) for name in ("c", "h") if hasattr(model.cell, name)]
    arrays = [v.array for v in (*more, *state) if v is not None]
    arrays += [g for _, p in sorted(model.namedparams()) for g in (p.array, p.grad) if g is not None]
    return [np.array(a) for a in arrays] + [np.array(np.random.get_state()[1].sum())]


def assert_equal(expected: list[list[np.ndarray]], found: list[list[np.ndarray]]) -> None:
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        for x, y in zip(a, b, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(y, x, rtol=2e-4, atol=2e-6, err_msg=f"call {i}")


def assert_runs_equal(run: Callable[[Any], list[list[np.ndarray]]], *kinds: Callable[[], Any]) -> None:
    """Assert that a run is the same with a plain model and with a static one."""
    found = []
    for make in kinds:
        np.random.seed(0)
        found.append(run(make()))
    assert_equal(*found)


@pytest.mark.slow
def test_sequences_that_begin_anew() -> None:
    """The second call is compiled already: what state there was before it does not matter."""
    def run(kind: Any, loss: bool) -> list[list[np.ndarray]]:
        np.random.seed(0)
        model = kind()
        optimizer = SGD(0.1).setup(model)
        seen = []
        for i in range(5):
            xs, ts = words(4, seed=i), words(4, seed=10 + i)
            if loss:
                value = model.loss(xs, ts)
            else:
                value = sum(F.softmax_cross_entropy(y, t) for y, t in zip(model(xs), ts, strict=True))
            model.cleargrads()
            value.backward()
            optimizer.update()
            seen.append(seen_of(model, value))
            if i == 1 and kind in (StaticSequences, StaticLosses):
                function = kind.loss if loss else kind.forward
                assert [type(e).__name__ for _, e in function.static.signatures(model)] == ["Schedule"]
        return seen
    assert_equal(run(Sequences, False), run(StaticSequences, False))
    assert_equal(run(Losses, True), run(StaticLosses, True))


@pytest.mark.parametrize(("cell", "window"), [
    pytest.param(CELLS[name], window, id=f"{name} {window}", marks=() if name in often else pytest.mark.slow)
    for window, often in ((1, ("Zoneout",)), (3, ("LSTM",))) for name in CELLS])
def test_state_is_carried_over(cell: Any, window: int) -> None:
    """Truncated back-propagation through time: gradients flow through earlier calls, up to where they are cut."""
    def run(model: Any) -> list[list[np.ndarray]]:
        optimizer = SGD(0.05).setup(model)
        seen = []
        loss: Any = 0
        for i, x in enumerate(words(15)):
            if i % 6 == 0:
                model.cell.reset_state()
                loss = 0
            np.random.seed(i)
            y = model(x)
            loss = loss + F.softmax_cross_entropy(y, (x + 1) % 7)
            if i % window == window - 1:
                model.cleargrads()
                loss.backward()
                loss.unchain_backward()
                optimizer.update()
                seen.append(seen_of(model, y, loss))
                loss = 0
        return seen
    assert_runs_equal(run, lambda: Steps(cell), lambda: StaticSteps(cell))


@pytest.mark.slow
def test_verified_state() -> None:
    class Verified(Steps):
        forward = static_graph(Steps.forward, strict=True, verify=2)

    def run(model: Any) -> list[list[np.ndarray]]:
        seen = []
        loss: Any = 0
        for i, x in enumerate(words(9)):
            loss = loss + F.softmax_cross_entropy(model(x), (x + 1) % 7)
            if i % 3 == 2:
                model.cleargrads()
                loss.backward()
                loss.unchain_backward()
                seen.append(seen_of(model, loss))
                loss = 0
        return seen
    assert_runs_equal(run, Steps, Verified)


def test_gradients_flow_to_a_state_that_is_given() -> None:
    def run(model: Any) -> list[list[np.ndarray]]:
        seen = []
        for i, x in enumerate(words(5)):
            c, h = (kusari.Variable(np.full((3, 5), 0.1 * (i + k), "f")) for k in (1, 2))
            model.cell.set_state(c * 2, h)
            model.cleargrads()
            F.sum(model(x)).backward()
            seen.append([c.grad, h.grad, *seen_of(model)])
        return seen
    assert_runs_equal(run, Steps, StaticSteps)


def test_gradients_through_steps_since_which_parameters_were_replaced() -> None:
    """One step's state depends on what the next step is given as well: each takes its own part of the gradient.

    The state's rank grows with each step, and a result without the state still comes before it in a backward.
    """
    class Cell(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            self.h = np.ones((2, 3), "f")
            with self.init_scope():
                self.w = kusari.Parameter(np.random.randn(3, 3).astype("f"))

        def forward(self, x: Any) -> Any:
            self.h = F.tanh(F.matmul(self.h, F.transpose(self.w)) + x)
            return self.h, F.matmul(x, self.w)

    def run(model: Any) -> list[list[np.ndarray]]:
        seen = []
        for _ in range(4):
            x = kusari.Variable(np.random.randn(2, 3).astype("f"))
            model(x), model(x)
            model.w.array = model.w.array * np.float32(0.9)
            model.cleargrads()
            h, y = model(x)
            F.sum(h ** 2 + F.tanh(y)).backward()
            seen.append([model.h.array, model.w.grad, x.grad, np.array(h.rank)])
        return seen
    assert_runs_equal(run, Cell, static(Cell))


def test_without_gradients_and_other_batches() -> None:
    def run(model: Any) -> list[list[np.ndarray]]:
        seen = []
        for i in range(12):
            if i in (4, 8):
                model.cell.reset_state()
            with kusari.using_config("enable_backprop", i >= 8), kusari.using_config("train", i >= 8):
                seen.append(seen_of(model, model(words(1, batch=4 if i < 6 else 2 + 2 * (i == 8), seed=i)[0])))
        return seen
    assert_runs_equal(run, Steps, StaticSteps)


def test_graph_is_carried_over_from_where_there_was_none() -> None:
    """A state made without a graph, then one with a graph: they differ in whether gradients are asked for."""
    def run(model: Any) -> list[list[np.ndarray]]:
        seen = []
        for i, x in enumerate(words(10)):
            if i % 2:
                model.cleargrads()
                F.sum(model(x)).backward()
                seen.append(seen_of(model))
            else:
                with kusari.no_backprop_mode():
                    model(x)
        return seen
    assert_runs_equal(run, Steps, StaticSteps)


def test_two_cells_with_one_state() -> None:
    class Pair(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.a = L.LSTM(3, 4)
                self.b = L.LSTM(3, 4)

        def forward(self, x: Any) -> Any:
            return self.a(x) + self.b(x) * 2

    def run(model: Any) -> list[list[np.ndarray]]:
        seen = []
        for i in range(9):
            if i % 3 == 1:  # shared now, different afterwards
                model.b.set_state(model.a.c, model.a.h)
            x = np.random.RandomState(i).randn(2, 3).astype("f")
            y = model(x)
            model.cleargrads()
            F.sum(y * y).backward()
            seen.append([y.array, *(v.array for v in (model.a.h, model.b.h, model.a.c, model.b.c)),
                         *(p.grad for _, p in sorted(model.namedparams()) if p.grad is not None)])
        return seen
    assert_runs_equal(run, Pair, static(Pair))


def test_copies_go_their_own_way() -> None:
    model = StaticSteps()
    plain = Steps()
    plain.copyparams(model)
    xs = words(8)
    for x in xs[:4]:
        np.testing.assert_allclose(model(x).array, plain(x).array, rtol=1e-5, atol=1e-6)
    for twin in (copy.deepcopy(model), model.copy(), pickle.loads(pickle.dumps(model))):
        other = copy.deepcopy(plain)
        for x in xs[4:]:
            np.testing.assert_allclose(twin(x).array, other(x).array, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.cell.h.array, model.copy().cell.h.array)


def _fallbacks(model: Any, call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in words(6):
            call(model, x)
    return [str(w.message) for w in caught if issubclass(w.category, StaticGraphWarning)]


@pytest.mark.parametrize("what", ["array", "unchain", "argument"])
def test_what_steps_aside(what: str) -> None:
    class Plain(Steps):
        def step(self, x: Any, h: Any = None) -> Any:
            state = self.cell.h
            if what == "array" and state is not None and state.array.sum() > 0:
                return self.out(self.cell(self.embed(x))) * 2
            if what == "unchain" and state is not None:
                state.unchain_backward()
            y = self.cell(self.embed(x))
            return self.out(y if h is None else y + h)

    class Decorated(Plain):
        step = static_graph(Plain.step)

    def call(model: Any, x: Any) -> list[np.ndarray]:
        y = model.step(x, model.cell.h) if what == "argument" and model.cell.h is not None else model.step(x)
        model.cleargrads()
        F.sum(y * y).backward()
        return seen_of(model, y)

    def run(kind: Any) -> tuple[list[str], list[list[np.ndarray]]]:
        np.random.seed(0)
        seen: list[list[np.ndarray]] = []
        return _fallbacks(kind(), lambda model, x: seen.append(call(model, x))), seen
    (none, expected), (texts, found) = run(Plain), run(Decorated)
    assert none == []
    assert_equal(expected, found)
    if what != "argument":
        assert len(texts) == 1
        assert {"array": "takes data out", "unchain": "unchain"}[what] in texts[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [L.NStepLSTM, L.NStepBiGRU, L.NStepRNNTanh])
def test_lists_of_sequences_of_any_length(kind: Any) -> None:
    class Plain(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.rnn = kind(2, 3, 4, 0.5)

        def forward(self, xs: Any) -> Any:
            *last, ys = self.rnn(*[None] * self.rnn.n_cells, xs)
            return last, ys

    def run(model: Any) -> list[list[np.ndarray]]:
        seen = []
        for i in range(6):
            lengths = (2, 4, 1) if i % 2 else (3, 3, 3)
            xs = [np.random.RandomState(i + n).randn(n, 3).astype("f") for n in lengths]
            np.random.seed(i)
            last, ys = model(xs)
            model.cleargrads()
            (F.sum(F.concat(ys, 0) ** 2) + F.sum(last[0])).backward()
            seen.append([*(v.array for v in (*last, *ys)), *(p.grad for _, p in sorted(model.namedparams())),
                         np.array(np.random.rand())])
        return seen
    assert_runs_equal(run, Plain, static(Plain))


class Layers(kusari.Chain):
    """Words through two cells to words, as a language model."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.embed, self.one, self.two = L.EmbedID(7, 4), L.LSTM(4, 5), L.LSTM(5, 5)
            self.out = L.Linear(5, 7)

    @static_graph(strict=True)
    def loss(self, *words: Any) -> Any:
        self.one.reset_state()
        self.two.reset_state()
        return sum(F.softmax_cross_entropy(self.out(self.two(self.one(self.embed(x)))), t)
                   for x, t in zip(words, words[1:], strict=False))


class Rows(kusari.Chain):
    """A loop over the rows of two arrays, with a loss at every step."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.cell, self.out = L.LSTM(4, 5), L.Linear(5, 3)

    @static_graph(strict=True)
    def loss(self, x: Any, t: Any) -> Any:
        self.cell.reset_state()
        return sum(F.softmax_cross_entropy(self.out(self.cell(x[i])), t[i]) for i in range(len(x)))


def kernels(model: Any, arguments: Any, whole: bool) -> int:
    """The distinct kernels of a training step."""
    optimizer = SGD(0.1).setup(model)
    for _ in range(3):
        if whole:
            optimizer.update(model.loss, *arguments)
        else:
            model.cleargrads()
            model.loss(*arguments).backward()
    if whole:
        made: Any = [step.compiled for _, step in optimizer._steps.by_loss.values()]
    else:
        made = [c for _, schedule in type(model).loss.static.signatures(model) for c in schedule.compiled]
    return len({k.key for c in made for k in c.program.kernels})


@pytest.mark.parametrize("whole", [False, True], ids=["forward and backward", "whole step"])
@pytest.mark.parametrize(("kind", "long"), [(Rows, 6), *(pytest.param(*case, marks=pytest.mark.slow) for case in (
    (Layers, 9), (Layers, 60), (Rows, 60)))])
def test_longer_loops_have_no_more_kernels_than_one_of_two_steps(kind: Any, long: int, whole: bool) -> None:
    """The first step and the last run the kernels of those between, and what is joined is one product of any length."""
    def of(length: int) -> int:
        if kind is Layers:
            return kernels(Layers(), words(length + 1), whole)
        x = np.random.RandomState(0).rand(length, 3, 4).astype("f")
        return kernels(Rows(), (x, np.zeros((length, 3), "i")), whole)
    found = {length: of(length) for length in (2, 3, 20 if long > 20 else 4, long)}
    assert len({found[n] for n in found if n > 2}) == 1 and found[long] <= found[2], found


def test_units_of_trees_take_absent_children_for_zeros(both: Any) -> None:
    x = np.random.RandomState(0).rand(4, 3, 5).astype("f")

    def make(decorate: Any) -> Any:
        unit = L.ChildSumTreeLSTM(5, 5)
        for i, p in enumerate(unit.params()):
            p.array[...] = np.random.RandomState(i).rand(*p.shape) - 0.5
        return decorate(lambda x: unit(*[None] * 4, x)[1])
    both(make, [x[i] for i in range(4)])
