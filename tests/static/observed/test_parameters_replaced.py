"""Static functions that give parameters other arrays, and training with parameters that change in the call."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import CHANGED, Rows, before, late

import kusari.functions as F
from kusari import optimizers, static_graph

ROWS = Rows()


def row(expected: str | None = "replays", pattern: str | None = None) -> Callable[[Any], Any]:
    return lambda program: ROWS.add(program, expected, pattern)


def averages(self: Any, x: Any) -> Any:
    h = self.l(x)
    self.m.b.array = 0.9 * self.m.b.array + 0.1 * h.array.mean(axis=0)
    return h - self.m.b.array


def averages_with_a_gradient(self: Any, x: Any) -> Any:
    h = F.tanh(self.m(x))
    self.m.b.data = 0.9 * self.m.b.data + 0.1 * h.data.mean(axis=0)
    return self.m(h) * self.m.b


def weights_of_norm_one(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    self.l.W.array = self.l.W.array / np.sqrt((self.l.W.array ** 2).sum())
    return self.l(h)


def several_times(self: Any, x: Any) -> Any:
    old = self.l.b.array
    self.l.b.array = old * 0.5
    half = self.l.b.array
    h = self.l(x)
    self.l.b.array = half + 1
    self.l.b.array[0] = 7
    return self.l(h) + old + half


def zeros(self: Any, x: Any) -> Any:
    h = self.l(x)
    self.l.b.array = self.xp.zeros(4, "f")
    return self.l(h) + 0.5


for body in (averages, averages_with_a_gradient, weights_of_norm_one, several_times, zeros):
    def program(decorate: Any, body: Any = body) -> Any:
        model, seen = build(decorate(body)), []

        def call(i: int, x: Any) -> Any:
            arrays = [p.array for p in model.params()]
            y = model(x)
            seen.extend(arrays)
            return y, [p.array is a for p, a in zip(model.params(), arrays, strict=True)], list(seen)
        return call
    program.__name__ = body.__name__
    ROWS.add(program, "replays")


@row()
def arrays_put_back(decorate: Any) -> Any:
    """The array that a parameter had before a call is its array again before the next one."""
    model = build(decorate(averages))
    kept: list[Any] = []

    def call(i: int, x: Any) -> Any:
        kept.append(model.m.b.array)
        y = model(x)
        if i in (3, 5):
            model.m.b.array = kept[-1]
        elif i == 6:
            model.m.b.array = kept[1]
        return y, list(kept)
    return call


@row()
def a_view_of_the_new_array_as_argument(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.m.b.array = 0.5 * self.m.b.array + 0.1 * x.mean(axis=0)
        self.m.b.array = self.m.b.array + 1
        return self.m(x) * x
    model = build(decorate(body))
    return lambda i, x: model(x if i < 4 else np.ascontiguousarray(model.m.W.array[:3]))


@row()
def goes_on_behind_a_new_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.m.b.array = 0.5 * self.m.b.array + 0.1 * x.mean(axis=0)
        self.m.b.array[0] = 1
        if x.max() > 50:
            return self.m(x) * 2
        return self.m(x)
    model = build(decorate(body))
    kept: list[Any] = []

    def call(i: int, x: Any) -> Any:
        kept.append(model.m.b.array)
        return model(x + 100 * (i == CHANGED)), list(kept)
    return call


@row("falls back", "may be read or stored")
def the_argument_itself(decorate: Any) -> Any:
    def body(self: Any, x: Any, b: Any) -> Any:
        self.m.b.array = b
        return self.m(x)
    model = build(decorate(body))
    return lambda i, x: model(x, x[0].copy())


@row("falls back", "may be read or stored")
def another_shape(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.m.b.array = x.mean(axis=0, keepdims=True)
        return self.l(x) + self.m.b.array
    model = build(decorate(body))
    return lambda i, x: model(x)


@row("falls back", "returns or stores the array of a parameter")
def returned_as_well(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        b = 0.5 * self.m.b.array
        self.m.b.array = b
        return self.m(x), b
    model = build(decorate(body))
    return lambda i, x: model(x)


@row("falls back", "returns or stores the array of a parameter")
def the_old_one_returned(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        old = self.m.b.array
        self.m.b.array = 0.5 * old
        return self.m(x), old
    model = build(decorate(body))
    return lambda i, x: model(x)


@row("falls back")
def a_view_of_the_old_one(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.reshape(self.m.b, (1, 4))
        self.m.b.array = 0.5 * self.m.b.array
        return self.m(x) * F.broadcast_to(h, (3, 4))
    model = build(decorate(body))
    return lambda i, x: model(x)


@row("falls back", "may be read or stored")
def a_gradient_by_the_array_that_is_replaced(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        old = self.l.W.array
        h = F.matmul(self.m(x), old)
        self.l.W.array = 0.5 * old
        return h
    model = build(decorate(body))
    return lambda i, x: model(x)


@row("falls back", "a gradient reads an array that a parameter had")
def a_gradient_by_the_old_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        old = self.l.W.array
        self.l.W.array = 0.5 * old
        return F.matmul(self.m(x), old)
    model = build(decorate(body))
    return lambda i, x: model(x)


@row("falls back", "a gradient reads an array that a parameter had")
def a_gradient_by_a_row_of_the_old_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        old = self.l.W.array
        self.l.W.array = 0.5 * old
        return F.tanh(self.m(x)) * old[1]
    model = build(decorate(body))
    return lambda i, x: model(x)


def swaps(self: Any, x: Any) -> Any:
    a, b = self.l.W.array.copy(), self.m.W.array.copy()
    self.l.W.array = b
    self.m.W.array = a
    return self.m(F.tanh(self.l(x)))


def reads_both(self: Any, x: Any) -> Any:
    return F.matmul(x, self.l.W.array * 2) + F.matmul(x, self.m.W.array * 3)


def reads_the_old_one_behind(self: Any, x: Any) -> Any:
    old = self.l.W.array
    self.l.W.array = 0.5 * old
    return self.l(x) + self.m.W.array[0] + old[0]


for body in (swaps, reads_both, reads_the_old_one_behind):
    def tied(decorate: Any, body: Any = body) -> Any:
        """Two parameters have one array when the call is traced, and two later."""
        model = build(decorate(body))
        model.m.W.array = model.l.W.array

        def change(i: int) -> None:
            if i == CHANGED:
                model.m.W.array = model.l.W.array + 1
            elif i == CHANGED + 2:
                model.m.W.array = model.l.W.array
        return before(model, change)
    tied.__name__ = f"{body.__name__}_of_two_parameters"
    ROWS.add(tied, None)


def by_the_parameter(self: Any, x: Any) -> Any:
    return self.l(x) * self.alias[0]


def by_its_array(self: Any, x: Any) -> Any:
    return F.matmul(x, self.l.W.array) * F.matmul(x, self.alias)


for body in (by_the_parameter, by_its_array):
    def named(decorate: Any, body: Any = body) -> Any:
        """The array is in an attribute, too, and stays there when the parameter gets another one."""
        model = build(decorate(body))
        model.alias = model.l.W.array
        return late(model, lambda: setattr(model.l.W, "array", model.l.W.array + 1))
    named.__name__ = f"{body.__name__}_and_an_attribute"
    ROWS.add(named, "replays")


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)


# -- gradients of later, whole steps -----------------------------------------------------------------------------------


def zeroes(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    self.l.W.array[0] = 0.5 * self.l.W.array[1]
    return F.sum(F.tanh(self.l(h)) ** 2)


def replaces(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    self.l.W.array = 0.9 * self.l.W.array
    return F.sum(F.tanh(self.l(h)) ** 2)


@pytest.mark.parametrize("body", [zeroes, replaces])
@pytest.mark.parametrize("memory", ["speed", "low", 400])
def test_gradients_of_two_calls_read_the_parameter_as_it_is_then(body: Any, memory: Any) -> None:
    found = []
    for decorate in (lambda f: f, static_graph(memory=memory) if memory != "speed" else static_graph):
        np.random.seed(0)
        model = build(decorate(body))
        data = np.random.RandomState(1).randn(8, 3, 4).astype("f")
        seen = []
        for x in data:
            model.cleargrads()
            first, second = model(x), model(x + 1)
            first.backward()
            second.backward()
            seen += [first.array, second.array, *[p.grad.copy() for p in model.l.params()], model.l.W.array.copy()]
            model.l.W.array -= 0.1 * model.l.W.grad
        found.append(seen)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("body", [zeroes, replaces])
@pytest.mark.parametrize("kind", [optimizers.SGD, optimizers.Adam])
@pytest.mark.parametrize("whole", [True, False])
def test_training(body: Any, kind: Any, whole: bool) -> None:
    found = []
    for decorate in (lambda f: f, static_graph):
        np.random.seed(0)
        model = build(decorate(body))
        optimizer = kind().setup(model)
        seen = []
        for i, x in enumerate(np.random.RandomState(1).randn(10, 3, 4).astype("f")):
            if i == 5:
                model.l.W.array = model.l.W.array + 0.5
            before = model.l.W.array
            if whole:
                optimizer.update(model, x)
            else:
                loss = model(x)
                model.cleargrads()
                loss.backward()
                optimizer.update()
            seen += [p.array.copy() for p in model.l.params()] + [before.copy(), before is model.l.W.array]
        found.append(seen)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=2e-6)
    report = str(model.static.explain())
    assert ", 0 fell back" in report, report
    assert not whole or "step" in report, report


@pytest.mark.filterwarnings("ignore::kusari.static.StaticGraphWarning")
@pytest.mark.parametrize("whole", [True, False])
def test_gradients_in_steps_read_an_array_as_it_has_become(whole: bool) -> None:
    """A function reads the array, not by its parameter: its gradient sees what has changed meanwhile."""
    def body(self: Any, x: Any) -> Any:
        h = F.matmul(self.m(x), self.l.W.array)
        self.l.W.array[0] *= 0.5
        return F.sum(h)
    found = []
    for decorate in (lambda f: f, static_graph):
        np.random.seed(0)
        model = build(decorate(body))
        optimizer = optimizers.SGD(0.0).setup(model)
        for x in np.random.RandomState(1).randn(4, 3, 4).astype("f"):
            if whole:
                optimizer.update(model, x)
            else:
                loss = model(x)
                model.cleargrads()
                loss.backward()
                optimizer.update()
            found.append(model.m.W.grad.copy())
    for a, b in zip(found[:4], found[4:], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5)


def test_verified_calls_change_a_parameter_once() -> None:
    for body in (zeroes, replaces):
        np.random.seed(0)
        model = build(static_graph(verify=1)(body))
        np.random.seed(0)
        plain = build(body)
        for x in np.random.RandomState(1).randn(5, 3, 4).astype("f"):
            np.testing.assert_allclose(model(x).array, plain(x).array, rtol=1e-5)
            np.testing.assert_allclose(model.l.W.array, plain.l.W.array, rtol=1e-6)
        assert vars(type(model))["forward"].static.verifier.compared >= 3
