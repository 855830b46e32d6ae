"""Arrays from outside that gradients read again, and whose elements the call changes before or after."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import CHANGED, Rows, before, late

import kusari.functions as F
from kusari import FunctionNode, optimizers, static_graph

ROWS = Rows()


def bank(persistent: bool, forward: Any) -> Any:
    """Return a model that has an array of rows, persistent or in a plain attribute."""
    model, rows = build(forward), np.random.RandomState(3).randn(6, 4).astype("f")
    if persistent:
        model.add_persistent("rows", rows)
    else:
        model.rows = rows
    return model


def reads_first(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    y = F.matmul(F.softmax(F.matmul(h, self.rows, transb=True)), self.rows)
    self.rows[1:4] = h.array
    return y


def writes_first(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    self.rows[:3] = h.array
    return F.matmul(F.softmax(F.matmul(h, self.rows, transb=True)), self.rows)


def reads_in_between(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    self.rows[0] = x[0]
    y = F.matmul(h, self.rows, transb=True)
    self.rows[:3] *= 0.5
    z = F.matmul(h, self.rows, transb=True)
    np.add.at(self.rows, [2, 2, 5], h.array)
    return y + z * F.matmul(h, self.rows, transb=True)


def takes_copies(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    y = F.matmul(h, self.rows, transb=True)
    self.rows[2] = 0
    old, part, view = self.rows.copy(), self.rows[:2].copy(), self.rows[3:5]
    self.rows[1:4] = h.array
    return F.concat([y, F.matmul(h, old, transb=True), F.matmul(h, part, transb=True), F.matmul(h, view, transb=True)])


def computes_with_them(self: Any, x: Any) -> Any:
    h = F.tanh(self.l(x))
    y = F.matmul(h, self.rows, transb=True)
    self.rows *= 0.5
    self.rows += 0.5 * h.array.mean(axis=0)
    return y - self.rows.mean(axis=1)


for body in (reads_first, writes_first, reads_in_between, takes_copies, computes_with_them):
    for persistent in (True, False):
        def program(decorate: Any, body: Any = body, persistent: bool = persistent) -> Any:
            model = bank(persistent, decorate(body))
            return lambda i, x: (model(x), model.rows)
        program.__name__ = f"{body.__name__}_of_{'a persistent array' if persistent else 'an attribute'}"
        ROWS.add(program, "replays")


def row(expected: str | None = "replays", pattern: str | None = None) -> Callable[[Any], Any]:
    return lambda program: ROWS.add(program, expected, pattern)


@row()
def changed_outside(decorate: Any) -> Any:
    model = bank(True, decorate(reads_first))

    def change(i: int) -> None:
        if i == 2:
            model.rows[...] = 0.5
        elif i == 4:
            model.rows = model.rows[::-1].copy()
    return before(lambda x: (model(x), model.rows), change)


@row(None)
def of_another_type(decorate: Any) -> Any:
    model = bank(True, decorate(writes_first))

    def change(i: int) -> None:
        if i == 3:
            model.rows = np.asfortranarray(model.rows)
        elif i == 5:
            model.rows = model.rows.astype("d")
        elif i == 6:
            model.rows = np.concatenate([model.rows, model.rows])
    return before(lambda x: (model(x), model.rows), change)


@row()
def a_view_outside(decorate: Any) -> Any:
    model = bank(False, decorate(reads_first))
    view = model.rows[2:]
    return late(lambda x: (model(x), model.rows), lambda: view.fill(0.25), view)


@row(None)
def by_two_names(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        y = F.matmul(self.l(x), self.rows, transb=True)
        self.same[0] = x[0]
        return y * F.matmul(self.m(x), self.same, transb=True)
    model = bank(False, decorate(body))
    model.same = model.rows
    return late(lambda x: (model(x), model.rows), lambda: setattr(model, "same", model.rows.copy()))


@row(None)
def a_part_by_another_name(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        y = F.matmul(self.l(x), self.rows, transb=True)
        self.rows[0] = x[0]
        return y * F.sum(self.part)
    model = bank(False, decorate(body))
    model.part = model.rows[:1]
    return lambda i, x: (model(x), model.rows)


@row(None)
def the_argument(decorate: Any) -> Any:
    model = bank(True, decorate(reads_first))
    return lambda i, x: (model(x if i < 4 else model.rows[:3]), model.rows)


@row()
def behind_a_number(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        y = F.matmul(h, self.rows, transb=True)
        self.rows[:3] += h.array
        return y * 2 if x.max() > 50 else y
    model = bank(True, decorate(body))
    return lambda i, x: (model(x + 100 * (i == CHANGED)), model.rows)


class Refuses(FunctionNode):
    """Of the user's; raises in some calls."""

    def forward(self, inputs: Any) -> Any:
        if inputs[0].max() > 50:
            raise ValueError("too large")
        return inputs[0] * 2,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * 2,


@row()
def an_exception_behind_it(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        y = F.matmul(self.l(x), self.rows, transb=True)
        self.rows[:3] += x
        try:
            y = Refuses().apply((y,))[0]
        except ValueError:
            self.rows[0] = 1
        return y
    model = bank(True, decorate(body))
    return lambda i, x: (model(x + 1000 * (i == CHANGED)), model.rows)


@row("falls back")
def a_kept_part(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        y = F.tanh(self.l(x)) * self.rows[0]
        self.rows[0] = x[0]
        return y
    model = bank(True, decorate(body))
    return lambda i, x: (model(x), model.rows)


@row("falls back", "array of a parameter")
def returned(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        y = F.matmul(self.l(x), self.rows, transb=True)
        self.rows[0] = x[0]
        return y, self.rows
    model = bank(True, decorate(body))
    return lambda i, x: model(x)


@row(None)
def code_of_the_users_changes_it_as_well(decorate: Any) -> Any:
    class Doubles(FunctionNode):
        def forward(self, inputs: Any) -> Any:
            model.rows[5] *= 2
            return inputs[0] * 2,

        def backward(self, indexes: Any, gys: Any) -> Any:
            return gys[0] * 2,

    def body(self: Any, x: Any) -> Any:
        y = F.matmul(self.l(x), self.rows, transb=True)
        self.rows[0] = x[0]
        y = Doubles().apply((y,))[0]
        return y * F.matmul(self.l(x), self.rows, transb=True)
    model = bank(True, decorate(body))
    return lambda i, x: (model(x), model.rows)


# -- views by numbers that are others in each call ---------------------------------------------------------------------


def numbered(body: Any) -> None:
    """Add a row of a function that gets a number among its arrays."""
    def program(decorate: Any) -> Any:
        model = build(decorate(body))
        return lambda i, x: model(x, np.array([i % 3]))
    program.__name__, program.__module__ = body.__name__, __name__
    ROWS.add(program, "falls back")


@numbered
def a_row_by_number_changes(self: Any, x: Any, t: Any) -> Any:
    a = np.zeros((3, 4), "f")
    a[0] = x[0]
    row = a[t[0]]
    row += 1
    return self.l(x) + a


@numbered
def a_part_of_a_row_by_number_changes(self: Any, x: Any, t: Any) -> Any:
    a = np.zeros((3, 4), "f")
    a[0] = x[0]
    a[t[0]][1:] = 5
    return self.l(x) + a


@numbered
def all_of_a_row_by_number_changes(self: Any, x: Any, t: Any) -> Any:
    a = np.zeros((3, 4), "f")
    a[0] = x[0]
    row = a[t[0]]
    a[:, 1] = x[0, 0]
    return self.l(x) + row


@numbered
def a_row_of_a_parameter_by_number(self: Any, x: Any, t: Any) -> Any:
    row = self.l.W.array[t[0]]
    row += 1
    return self.l(x)


@numbered
def a_parameter_behind_a_row_by_number(self: Any, x: Any, t: Any) -> Any:
    row = self.l.W.array[t[0]]
    self.l.W.array[0] = x[0]
    return self.l(x) + row


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)


@pytest.mark.parametrize("body", [reads_first, writes_first])
@pytest.mark.parametrize("memory", ["speed", "low"])
def test_gradients_of_two_calls_read_the_rows_as_they_are_then(body: Any, memory: Any) -> None:
    found = []
    for decorate in (lambda f: f, static_graph(memory=memory)):
        np.random.seed(0)
        model = bank(True, decorate(body))
        seen = []
        for x in np.random.RandomState(1).randn(6, 3, 4).astype("f"):
            model.cleargrads()
            first, second = F.sum(model(x) ** 2), F.sum(model(x + 1) ** 2)
            first.backward()
            second.backward()
            seen += [first.array, second.array, model.l.W.grad.copy(), model.rows.copy()]
        found.append(seen)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("body", [reads_first, writes_first])
@pytest.mark.parametrize("whole", [True, False])
def test_training(body: Any, whole: bool) -> None:
    found = []
    for decorate in (lambda f: f, static_graph):
        np.random.seed(0)
        model = bank(True, decorate(lambda self, x: F.sum(body(self, x) ** 2)))
        optimizer = optimizers.Adam().setup(model)
        seen = []
        for x in np.random.RandomState(1).randn(8, 3, 4).astype("f"):
            if whole:
                optimizer.update(model, x)
            else:
                loss = model(x)
                model.cleargrads()
                loss.backward()
                optimizer.update()
            seen += [model.l.W.array.copy(), model.rows.copy()]
        found.append(seen)
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=2e-6)
    assert ", 0 fell back" in str(model.static.explain())


def test_verified_calls_change_the_rows_once() -> None:
    for persistent in (True, False):
        model, plain = (bank(persistent, f) for f in (static_graph(verify=1)(reads_first), reads_first))
        plain.copyparams(model)
        for x in np.random.RandomState(1).randn(5, 3, 4).astype("f"):
            np.testing.assert_allclose(model(x).array, plain(x).array, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(model.rows, plain.rows, rtol=1e-5, atol=1e-6)
        assert vars(type(model))["forward"].static.verifier.compared >= 3
