"""Functions of the user's and objects that the call has made: what they leave there, and what they find there."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.observed.harness import Rows
from static.observed.test_changes_in_order import Look
from static.rows_of_test_programs import add_row, named

import kusari
import kusari.functions as F

ROWS = Rows()
row = functools.partial(add_row, ROWS)
REACHED = "can reach an array of the traced call"
FLOATS = np.linspace(0, 1, 4).astype("f")


class Keeps(kusari.FunctionNode):
    def __init__(self, *into: Any) -> None:
        self.into, self.factor = into, 2.0

    def forward(self, inputs: Any) -> Any:
        self.mean = inputs[0].mean(axis=0)
        for x in self.into:
            x["n"] = float(self.mean[0])
        return inputs[0] * 2,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * 2,

    @property
    def largest(self) -> Any:
        return self.mean.max()


def reads_what_its_forward_has_set(self: Any, x: Any, h: Any) -> Any:
    f = Keeps()
    h, = f.apply((h,))
    self.a = 0.9 * self.a + f.mean
    return h


def reads_it_by_a_property(self: Any, x: Any, h: Any) -> Any:
    f = Keeps()
    return f.apply((h,))[0] * f.largest


def reads_it_by_its_namespace(self: Any, x: Any, h: Any) -> Any:
    f = Keeps()
    return f.apply((h,))[0] * vars(f)["mean"][0]


def reads_what_its_constructor_has_set(self: Any, x: Any, h: Any) -> Any:
    f = Keeps()
    return f.apply((h,))[0] * f.factor


def reads_a_new_dictionary_that_it_fills(self: Any, x: Any, h: Any) -> Any:
    found: dict[str, float] = {}
    return Keeps(found).apply((h,))[0] * found["n"]


@kusari.static_code
def fill(into: Any, h: Any) -> None:
    into.append(float(h.array[0, 0]))


def reads_a_new_list_that_code_fills(self: Any, x: Any, h: Any) -> Any:
    found: list[float] = []
    fill(found, h)
    return h * found[0]


@kusari.static_code
def number_of(h: Any) -> Any:
    return float(h.array.mean())


@kusari.static_code
def extremes_of(h: Any) -> Any:
    return {"most": [h.array.max()], "rows": h.array[0]}


@kusari.static_code
def name_of(h: Any) -> Any:
    return "relu" if h.array.mean() > 0 else "tanh"


@kusari.static_code
def itself(h: Any) -> Any:
    return h


@kusari.static_code
def applied(h: Any) -> Any:
    return F.tanh(h)


def code_returns_a_number(self: Any, x: Any, h: Any) -> Any:
    return h * number_of(h)


def code_returns_numbers_in_a_tree(self: Any, x: Any, h: Any) -> Any:
    found = extremes_of(h)
    return h * found["most"][0] + found["rows"]


def code_returns_a_text(self: Any, x: Any, h: Any) -> Any:
    return getattr(F, name_of(h))(h)


def code_returns_what_it_is_given(self: Any, x: Any, h: Any) -> Any:
    return h + 2 * itself(h)


def code_returns_what_it_applies(self: Any, x: Any, h: Any) -> Any:
    return h + 2 * applied(h)


for fn in (code_returns_a_number, code_returns_numbers_in_a_tree, code_returns_a_text):
    row(fn, None, "falls back", "returns a number or a text")
for fn in (code_returns_what_it_is_given, code_returns_what_it_applies):
    row(fn, None, "falls back", "returns a Variable through which gradients go")


class Holder:
    a: Any = None


def holds(self: Any, x: Any, h: Any, hold: Any) -> Any:
    mean = h.array.mean(axis=0)
    return Look(hold(mean), lambda held: float(np.asarray(held() if callable(held) else held.a)[0])).apply((h,))[0]


@kusari.static_code
def first(of: Callable[[], Any]) -> Any:
    return of()[:1]


def code_has_it_by_a_closure(self: Any, x: Any, h: Any) -> Any:
    mean = h.array.mean(axis=0)
    return h * first(lambda: mean)[0]


def holding(mean: Any) -> Holder:
    found = Holder()
    found.a = mean
    return found


for way, hold in (("a_closure", lambda mean: lambda: mean), ("an_object", holding),
                  ("a_partial", lambda mean: functools.partial(np.asarray, mean))):
    row(named(f"has_it_by_{way}", functools.partial(holds, hold=hold)), None, "falls back", REACHED)
row(code_has_it_by_a_closure, None, "falls back", REACHED)
class Buffered(Keeps):
    """Has one array for all its results."""

    buffers = [np.zeros((3, 4), "f")]

    def forward(self, inputs: Any) -> Any:
        self.buffers[0][:] = inputs[0] * 2
        return self.buffers[0],


def returns_a_buffer(self: Any, x: Any, h: Any) -> Any:
    return F.tanh(Buffered().apply((h,))[0])


row(returns_a_buffer, None, "falls back", "returns an array from outside that it has changed")
for fn in (reads_what_its_forward_has_set, reads_it_by_a_property, reads_it_by_its_namespace):
    row(fn, None, "falls back", "is read after the function was applied", a=FLOATS)
for fn in (reads_a_new_dictionary_that_it_fills, reads_a_new_list_that_code_fills):
    row(fn, None, "falls back", "an object that the call has made is changed by code that replays run")
row(reads_what_its_constructor_has_set)


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
