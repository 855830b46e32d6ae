"""Static functions that change elements of parameters.

What each row returns besides, ``links`` and gradients, is compared with define-by-run after every call.
"""
from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import CHANGED, Rows, before, late

import kusari
import kusari.functions as F
from kusari import FunctionNode, serializers

ROWS = Rows()


# -- elements that change ----------------------------------------------------------------------------------------------


def changing(change: Callable[[Any, Any, Any], Any], expected: str | None = "replays",
             pattern: str | None = None) -> None:
    """Add rows with a change before all reads of the parameter, between two of them, and behind them."""
    def first(self: Any, x: Any) -> Any:
        h = F.tanh(self.m(x))
        change(self, x, h)
        return self.l(h) * h

    def between(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(x))
        change(self, x, h)
        return self.l(h) + F.linear(h, self.l.W) * 0.5

    def last(self: Any, x: Any) -> Any:
        h = F.tanh(self.l(self.l(x)))
        change(self, x, h)
        return h * 2

    def add(body: Any) -> None:
        def program(decorate: Any) -> Any:
            model = build(decorate(body), scale=0.5, rows=np.array([2, 0]), twos=np.full((2, 4), 2, "f"))
            return lambda i, x: model(x)
        program.__name__ = f"{change.__name__}_{body.__name__}"
        program.__module__ = __name__
        ROWS.add(program, expected, pattern)
    for body in (first, between, last):
        add(body)


def zeroed(self: Any, x: Any, h: Any) -> None:
    self.l.W.data[0] = 0


def part(self: Any, x: Any, h: Any) -> None:
    self.l.W.array[1:3, ::2] = np.float32(0.25)


def rows(self: Any, x: Any, h: Any) -> None:
    self.l.W.array[self.rows] = h.array[:2]


def rows_of_the_argument(self: Any, x: Any, h: Any) -> None:
    self.l.W.array[[3, 1]] = x[1:]


def constant_rows(self: Any, x: Any, h: Any) -> None:
    self.l.W.array[self.rows] = self.twos


def masked(self: Any, x: Any, h: Any) -> None:
    self.l.W.array[self.l.W.array < 0] = 0


def masked_by_values(self: Any, x: Any, h: Any) -> None:
    self.l.W.array[h.array[:, 0].argmax()] = 0


def clipped(self: Any, x: Any, h: Any) -> None:
    np.clip(self.l.W.array, -0.3, 0.3, out=self.l.W.array)


def decayed(self: Any, x: Any, h: Any) -> None:
    self.l.W.array *= 0.9


def decayed_by_name(self: Any, x: Any, h: Any) -> None:
    w = self.l.W.array
    w -= 0.1 * w
    w += self.scale * np.abs(w).mean()


def element_added(self: Any, x: Any, h: Any) -> None:
    self.l.W.array[0, 1] += 0.5
    self.l.W.array[2] += h.array.mean(axis=0)


def added_at(self: Any, x: Any, h: Any) -> None:
    np.add.at(self.l.W.array, self.rows, 0.1 * h.array[:2])


def filled(self: Any, x: Any, h: Any) -> None:
    self.l.b.array.fill(0.5)
    self.l.W.array.sort(axis=1)


def normalized(self: Any, x: Any, h: Any) -> None:
    self.l.W.array[:] = self.l.W.array / np.linalg.norm(self.l.W.array, axis=1, keepdims=True)


def copied(self: Any, x: Any, h: Any) -> None:
    np.copyto(self.l.W.array, 0.5 * self.l.W.array + 0.5 * self.m.W.array)


def swapped(self: Any, x: Any, h: Any) -> None:
    a = self.l.W.array[0].copy()
    self.l.W.array[0] = self.l.W.array[1]
    self.l.W.array[1] = a


def by_a_view(self: Any, x: Any, h: Any) -> None:
    row = self.l.W.array[2]
    row[1:] = 0.125
    self.m.W.array[0] = row
    row *= 2
    self.m.W.array[1] = row + self.l.W.array[2]


def by_a_column(self: Any, x: Any, h: Any) -> None:
    self.l.W.array.T[1] = h.array[0]


def twice(self: Any, x: Any, h: Any) -> None:
    self.l.W.array[0] = 0
    self.l.W.array[0, 1] = self.l.W.array[1, 1]
    self.m.W.array[...] = self.l.W.array


def in_a_loop(self: Any, x: Any, h: Any) -> None:
    for p in self.l.params():
        p.array[:1] = 0


for change in (zeroed, part, rows, rows_of_the_argument, constant_rows, masked, masked_by_values, clipped, decayed,
               decayed_by_name, element_added, added_at, filled, normalized, copied, swapped, by_a_view, by_a_column,
               twice, in_a_loop):
    changing(change)


def reshaped(self: Any, x: Any, h: Any) -> None:
    self.l.W.array.shape = (2, 8)
    self.l.W.array.shape = (4, 4)


def resized(self: Any, x: Any, h: Any) -> None:
    self.l.W.array.flags.writeable = True
    self.l.W.array[0] = 0


changing(reshaped, "falls back", "elements of a parameter are changed")
changing(resized, "falls back", "reads elements of a parameter")


def row(expected: str | None = "replays", pattern: str | None = None) -> Callable[[Any], Any]:
    return lambda program: ROWS.add(program, expected, pattern)


@row()
def embedded(decorate: Any) -> Any:
    """A row that stands for nothing stays zero, whatever the optimizer does."""
    model = kusari.Chain(e=kusari.links.EmbedID(5, 4))

    def body(self: Any, ids: Any) -> Any:
        self.e.W.data[0] = 0
        return F.sum(self.e(ids), axis=1)
    static = decorate(body)
    return lambda i, x: static(model, (np.abs(x) * 3).astype("i") % 5)


@row()
def without_an_array_at_first(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = self.late(x)
        self.late.W.array[0] = 0
        return F.tanh(self.late(h))
    model = build(decorate(body))
    with model.init_scope():
        model.late = kusari.links.Linear(None, 4)
    return lambda i, x: model(x)


@row()
def within_another(decorate: Any) -> Any:
    def inner(self: Any, x: Any) -> Any:
        self.m.W.array[0] = x[0]
        return self.m(x)
    inner = decorate(inner)

    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] *= 0.5
        return inner(self, F.tanh(self.l(x)).array) + self.l(x)
    model = build(decorate(body))
    return lambda i, x: model(x)


@row(None)
def changed_outside(decorate: Any) -> Any:
    """Another array, another layout, another dtype, from outside."""
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] = 0
        return self.l(x)
    model = build(decorate(body))

    def change(i: int) -> None:
        W = model.l.W
        if i == 2:
            W.array = W.array + 1
        elif i == 3:
            W.array[...] += 0.5
        elif i == 4:
            W.array = np.asfortranarray(W.array)
        elif i == 5:
            model.l.W.array = model.l.W.array.astype("d")
            model.l.b.array = model.l.b.array.astype("d")
    return before(lambda x: model(x.astype(model.l.W.dtype)), change)


@row(None)
def made_read_only(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.b.array[0] = 0
        return F.tanh(self.l(x))
    model = build(decorate(body))
    call = before(model, lambda i: model.l.b.array.setflags(write=i != CHANGED))

    def safe(i: int, x: Any) -> Any:
        try:
            return call(i, x).array
        except ValueError as error:
            return str(error)
    return safe


@row()
def saved_and_loaded(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[1] = x[0]
        return self.l(x)
    model = build(decorate(body))
    file = io.BytesIO()

    def change(i: int) -> None:
        if i == 2:
            serializers.save_npz(file, model)
        elif i in (4, 6):
            file.seek(0)
            serializers.load_npz(file, model)
    return before(model, change)


@row()
def a_view_outside(decorate: Any) -> Any:
    """Somebody else has a view of the array, and writes to it, too."""
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] = x[0]
        return self.l(x)
    model = build(decorate(body))
    view = model.l.W.array[:2]
    return late(model, lambda: view.__setitem__(1, 3.0), view)


@row(None)
def a_view_in_an_attribute(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] = x[0]
        return self.l(x) * self.view[0]
    model = build(decorate(body))
    model.view = model.l.W.array[:2]
    return late(model, lambda: setattr(model.l.W, "array", model.l.W.array + 1))


@row(None)
def the_array_in_an_attribute(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] = x[0]
        return self.l(x) * self.alias[0]
    model = build(decorate(body))
    model.alias = model.l.W.array
    return late(model, lambda: setattr(model.l.W, "array", model.l.W.array + 1))


@row(None)
def two_parameters_with_one_array(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] = 0
        return self.l(x) * self.m(x)
    model = build(decorate(body))
    return late(model, lambda: setattr(model.m.W, "array", model.l.W.array))


@row("falls back", "shares memory")
def tied_from_the_start(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] = 0
        return self.l(x) * self.m(x)
    model = build(decorate(body))
    model.m.W.array = model.l.W.array
    return lambda i, x: model(x)


@row()
def one_parameter_of_two_links(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = self.m(x)
        self.m.W.array[0] = 0
        return self.l(h)
    model = build(decorate(body))
    del model.m.W
    with model.m.init_scope():
        model.m.W = model.l.W
    return lambda i, x: model(x)


@row(None)
def the_array_as_the_argument(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] = 0.5
        return F.tanh(self.l(x)) + x
    model = build(decorate(body))
    return lambda i, x: model(np.ones((4, 4), "f") if i < 3 else model.l.W.array)


@row()
def behind_a_number(decorate: Any) -> Any:
    """A number is another one in one call, which then goes on define-by-run: the change is made once."""
    def body(self: Any, x: Any) -> Any:
        h = self.l(x)
        self.l.W.array[0] *= 0.5
        self.l.W.array += 0.25
        if x.max() > 50:
            h = h * 2
        return self.l(h)
    model = build(decorate(body))
    return lambda i, x: model(x + 100 * (i == CHANGED))


class Refuses(FunctionNode):
    """Of the user's; raises in some calls."""

    def forward(self, inputs: Any) -> Any:
        if inputs[0].max() > 50:
            raise ValueError("too large")
        return inputs[0] * 2,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * 2,


@row()
def an_exception_behind_the_change(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] *= 0.5
        try:
            h = Refuses().apply((self.m(x),))[0]
        except ValueError:
            self.l.W.array[1] *= 0.5
            h = self.m(x)
        return self.l(h)
    model = build(decorate(body))
    return lambda i, x: model(x + 1000 * (i == CHANGED))


@row()
def an_exception_for_the_caller(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] *= 0.5
        h = Refuses().apply((self.m(x),))[0]
        self.l.W.array[1] *= 0.5
        return self.l(h)
    model = build(decorate(body))
    return lambda i, x: model(x + 1000 * (i == CHANGED))


@row("falls back", "depend on values")
def an_index_out_of_bounds(decorate: Any) -> Any:
    def body(self: Any, x: Any, rows: Any) -> Any:
        self.l.W.array[0] *= 0.5
        self.l.W.array[rows] = x[:2]
        return self.l(x)
    model = build(decorate(body))

    def call(i: int, x: Any) -> Any:
        try:
            return model(x, np.array([1, 9 if i == CHANGED else 2])).array
        except IndexError as error:
            return str(error)
    return call


class Kept(FunctionNode):
    """Of the user's; retains all that it is given."""

    def forward(self, inputs: Any) -> Any:
        self.retain_inputs((0, 1))
        return inputs[0] @ inputs[1].T,

    def backward(self, indexes: Any, gys: Any) -> Any:
        x, w = self.get_retained_inputs()
        return gys[0] @ w, F.transpose(gys[0]) @ x


@row("falls back", "elements of a parameter are changed")
def kept_by_a_function_of_the_users(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = Kept().apply((self.m(x), self.l.W))[0]
        self.l.W.array[0] = 0
        return h
    model = build(decorate(body))
    return lambda i, x: model(x)


@row("falls back", "elements of a parameter are changed")
def a_kept_view(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        h = F.tanh(self.m(x)) * F.reshape(self.l.b, (1, 4))
        self.l.b.array[0] = 0
        return h
    model = build(decorate(body))
    model.l.b.array[...] = 1
    return lambda i, x: model(x)


@row("falls back", "made outside the static function")
def a_view_from_before(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        w = F.reshape(self.l.W, (-1,))
        self.l.W.array[0] = 0
        return F.sum(w) * self.m(x)
    model = build(decorate(body))
    return lambda i, x: model(x)


@row()
def kept_views_of_later(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] = x[0]
        return F.tanh(self.m(x)) * self.l.W.array[0] + F.tanh(x) * F.get_item(self.l.W, 1)
    model = build(decorate(body))
    return lambda i, x: model(x)


@row("falls back", "returns or stores the array of a parameter")
def returned(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] = 0
        return self.l(x), self.l.W.array[1:]
    model = build(decorate(body))
    return lambda i, x: model(x)


@row()
def code_of_the_users_on_the_way(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] = 0
        seen()
        self.l.W.array[0] = 1
        seen()
        return self.l(x)
    model, log = build(decorate(body)), []

    @kusari.static_code
    def seen() -> None:
        log.append(float(model.l.W.array.sum()))
    return lambda i, x: (model(x), list(log))


@row()
def modes(decorate: Any) -> Any:
    def body(self: Any, x: Any) -> Any:
        self.l.W.array[0] *= 0.5
        return F.dropout(self.l(x), 0.25)
    model = build(decorate(body))

    def call(i: int, x: Any) -> Any:
        with kusari.using_config("train", i % 2 == 0), kusari.using_config("enable_backprop", i % 4 < 2):
            return model(x).array
    return call


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
