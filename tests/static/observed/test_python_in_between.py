"""Functions of the user's between what the call stores and reads; arrays that calls replace before their backward."""
from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import CHANGED, Rows
from static.observed.test_changes_in_order import Look
from static.rows_of_test_programs import add_row, named

import kusari
import kusari.functions as F

ROWS = Rows()
row = functools.partial(add_row, ROWS)
FLOATS = np.linspace(0, 1, 4).astype("f")
STORED = "may look at it, and replays change it at their end"
READ = "is read after a function of the user's has changed it"

# -- what the call has stored ------------------------------------------------------------------------------------------


def look(self: Any, h: Any, what: Any) -> Any:
    return Look(self, what).apply((h,))[0]


def sees_an_item_that_is_appended(self: Any, x: Any, h: Any) -> Any:
    self.log.append(1)
    return look(self, h, lambda m: len(m.log))


def sees_a_list_that_is_added_to(self: Any, x: Any, h: Any) -> Any:
    self.log += [len(x)]
    return look(self, h, lambda m: sum(m.log))


def sees_a_number_that_is_stored(self: Any, x: Any, h: Any) -> Any:
    self.n = self.n * 2 + 1 if self.n < 3 else 0
    return look(self, h, lambda m: m.n)


def sees_an_array_that_is_replaced(self: Any, x: Any, h: Any) -> Any:
    self.a = 0.9 * self.a + h.array.mean(axis=0)
    return look(self, h, lambda m: m.a.sum())


def sees_a_variable_that_is_stored(self: Any, x: Any, h: Any) -> Any:
    self.h = h
    return look(self, h, lambda m: m.h.array.sum())


def sees_a_set_that_grows(self: Any, x: Any, h: Any) -> Any:
    self.s |= {len(self.s)}
    return look(self, h, lambda m: len(m.s))


def sees_it_through_a_method(self: Any, x: Any, h: Any) -> Any:
    self.log.append(1)
    return look(None, h, lambda _: self.log.__len__())


class Alone(kusari.FunctionNode):
    """Has nothing of a model's."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * 2,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys[0] * 2,


def stores_before_a_function_that_sees_nothing(self: Any, x: Any, h: Any) -> Any:
    self.log.append(1)
    self.last = h.array.mean(axis=0)
    self.a = 0.9 * self.a + self.last
    return Alone().apply((h,))[0] - self.a


for fn in (sees_an_item_that_is_appended, sees_a_list_that_is_added_to, sees_a_number_that_is_stored,
           sees_an_array_that_is_replaced, sees_a_variable_that_is_stored, sees_a_set_that_grows,
           sees_it_through_a_method):
    row(fn, None, "falls back", STORED, log=[], n=0, a=FLOATS, s={0}, h=None)
row(stores_before_a_function_that_sees_nothing, lambda model: model.log.clear(), log=[], last=None, a=FLOATS)

# -- what the function changes -----------------------------------------------------------------------------------------


def setting(name: str, change: Any) -> Any:
    def set_it(m: Any) -> float:
        setattr(m, name, change(getattr(m, name)))
        return 0.5
    return set_it


def reads_an_array_that_it_replaces(self: Any, x: Any, h: Any) -> Any:
    h = look(self, h, setting("a", lambda a: a * 0.5))
    return h + self.a


def averages_an_array_that_it_replaces(self: Any, x: Any, h: Any) -> Any:
    h = look(self, h, setting("a", lambda a: a * 0.5))
    self.a = self.a + h.array.mean(axis=0)
    return h


def reads_a_number_that_it_changes(self: Any, x: Any, h: Any) -> Any:
    return look(self, h, setting("n", lambda n: n + 1)) * self.n


def reads_a_number_before_and_after(self: Any, x: Any, h: Any) -> Any:
    h = h * self.n
    return look(self, h, setting("n", lambda n: n + 1)) * self.n


def reads_the_length_of_a_list_it_appends_to(self: Any, x: Any, h: Any) -> Any:
    return look(self, h, lambda m: m.log.append(1) or 0.5) * len(self.log)


def appends_to_a_list_it_appends_to(self: Any, x: Any, h: Any) -> Any:
    h = look(self, h, lambda m: m.log.append(1) or 0.5)
    self.log.append(2)
    return h


def filled(m: Any) -> float:
    m.a[1] += 1
    return 0.5


def reads_an_array_that_it_fills(self: Any, x: Any, h: Any) -> Any:
    y = F.sum(self.a + 0 * x)
    h = look(self, h, filled)
    return h + F.broadcast_to(y, h.shape) + F.sum(self.a + 0 * x)


def counts_where_it_counts(self: Any, x: Any, h: Any) -> Any:
    h = look(self, h, filled)
    self.a[h.array[0].argmax()] += 1
    return h


def reads_numbers_of_an_array_that_it_fills(self: Any, x: Any, h: Any) -> Any:
    return look(self, h, filled) * float(self.a[1])


def looks_twice(self: Any, x: Any, h: Any) -> Any:
    h = look(self, look(self, h, filled), filled)
    return h + self.a


@kusari.static_code
def counted(model: Any) -> None:
    model.n += 1
    model.a += 1


def reads_what_code_counts(self: Any, x: Any, h: Any) -> Any:
    counted(self)
    return h * self.n


def reads_what_code_fills(self: Any, x: Any, h: Any) -> Any:
    y = F.sum(self.a + 0 * x)
    counted(self)
    return h + F.broadcast_to(y, h.shape) + F.sum(self.a + 0 * x)


for fn in (reads_an_array_that_it_replaces, averages_an_array_that_it_replaces, reads_a_number_that_it_changes,
           reads_a_number_before_and_after, reads_the_length_of_a_list_it_appends_to,
           reads_what_code_counts):
    row(fn, None, "falls back", READ, log=[], n=1, a=FLOATS)
row(appends_to_a_list_it_appends_to, lambda model: model.log.clear(), log=[])
for fn in (looks_twice, reads_what_code_fills, reads_an_array_that_it_fills, counts_where_it_counts,
           reads_numbers_of_an_array_that_it_fills):
    row(fn, lambda model: model.a.fill(7), None, a=FLOATS, n=0)

# -- exceptions while a call is traced ---------------------------------------------------------------------------------


def refuses(m: Any) -> float:
    m.calls += 1
    if m.calls in m.bad:
        raise ValueError("mine")
    return 0.25


def catches(self: Any, x: Any, h: Any) -> Any:
    try:
        return look(self, h, refuses)
    except ValueError:
        return h * 3


@kusari.static_code
def code(model: Any) -> None:
    refuses(model)


def catches_of_code(self: Any, x: Any, h: Any) -> Any:
    try:
        code(self)
    except ValueError:
        return h * 3
    return h


for bad in ((1,), (1, 2), (2,), (1, 4, 5), tuple(range(20))):
    row(named(f"catches_{len(bad)}_from_{bad[0]}", lambda self, x, h: catches(self, x, h)), None,
        "falls back" if len(bad) > 9 else "replays", calls=0, bad=bad)
    row(named(f"catches_{len(bad)}_of_code_from_{bad[0]}", lambda self, x, h: catches_of_code(self, x, h)), None,
        "falls back" if len(bad) > 9 else "replays", calls=0, bad=bad)

# -- what a call has changed is put back, and a function's changes stay ------------------------------------------------


def counts(m: Any) -> float:
    m.n += 3
    m.a[1] += 5
    m.d["k"] *= 2
    return 0.1


def refuses_now(m: Any) -> float:
    if m.refusals:
        m.refusals -= 1
        raise ValueError("mine")
    return 0.1


def raises_after_a_function_that_counts(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    self.a *= 0.5
    self.d["k"] += 1
    h = look(self, h, counts)
    self.n += 1
    self.a += 1
    return look(self, h, refuses_now)


def catches_after_a_function_that_counts(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    self.a *= 0.5
    h = look(self, look(self, h, counts), counts)
    try:
        h = look(self, h, refuses_now)
    except ValueError:
        h = h * 2
    self.n += 1
    return h


for fn in (raises_after_a_function_that_counts, catches_after_a_function_that_counts):
    for whole in (False, True):
        row(fn, lambda model: setattr(model, "refusals", 2), None if whole else "replays", whole=whole, n=0,
            refusals=0, a=FLOATS, d={"k": 1})

# -- what functions do in some calls only ------------------------------------------------------------------------------


def from_the_fourth_call(change: Any) -> Any:
    def look_at(m: Any) -> float:
        m.calls += 1
        if m.calls > CHANGED:
            change(m)
        return 0.5
    return look_at


def later_changes_a_number(self: Any, x: Any, h: Any) -> Any:
    h = look(self, h * self.n, from_the_fourth_call(lambda m: setattr(m, "n", m.n + 1)))
    return h * self.n


def later_replaces_an_array(self: Any, x: Any, h: Any) -> Any:
    h = look(self, h, from_the_fourth_call(lambda m: setattr(m, "a", m.a + 1)))
    return h + self.a


def later_appends(self: Any, x: Any, h: Any) -> Any:
    h = look(self, h, from_the_fourth_call(lambda m: m.log.append(1)))
    return h * (1 + len(self.log))


def later_raises(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    try:
        return look(self, h, from_the_fourth_call(lambda m: m.nothing_like_that))
    except AttributeError:
        return h * self.a


def warns_in_a_block(self: Any, x: Any, h: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return look(self, h, lambda m: warnings.warn("mine", stacklevel=1) or 0.5)


for fn in (later_changes_a_number, later_replaces_an_array, later_appends):
    row(fn, None, "falls back", "has changed it, in some calls" if fn is not later_changes_a_number else READ,
        calls=0, n=1, a=FLOATS, log=[])
row(later_raises, None, None, calls=0, n=1, a=FLOATS)
row(warns_in_a_block, None, "falls back", "runs while filters of warnings are others")


def an_index_out_of_range_is_caught(self: Any, x: Any, h: Any) -> Any:
    try:
        return F.embed_id(self.ids, self.m.W)
    except IndexError:
        return h


row(an_index_out_of_range_is_caught, lambda model: model.ids.fill(1), None, ids=np.full(3, 9))


def later_an_index_is_caught(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    h = F.dropout(h)
    try:
        h = h * F.embed_id(self.ids, self.m.W)
    except IndexError:
        self.log.append("none")
        h = F.dropout(h) * 2
    self.n += 1
    return h


def later_an_index_is_caught_outside(self: Any, x: Any, h: Any) -> Any:
    def looked_up(ids: Any) -> Any:
        self.n += 1
        return F.embed_id(ids, self.m.W)
    try:
        h = h * looked_up(self.ids)
    finally:
        self.log.append("looked")
    return h


def later_an_index_is_caught_between(self: Any, x: Any, h: Any) -> Any:
    h = look(self, h, counts)
    try:
        h = h * F.embed_id(self.ids, self.m.W)
    except (KeyError, LookupError) as error:
        self.log.append(type(error).__name__)
    return look(self, h, counts)


for fn in (later_an_index_is_caught, later_an_index_is_caught_outside, later_an_index_is_caught_between):
    for whole in (False, True):
        expected = None if whole or fn is later_an_index_is_caught_between else "replays"
        row(fn, lambda model: model.ids.fill(9), expected, whole=whole, n=0, log=[], ids=np.full(3, 1))

# -- gradients of arrays that the call replaces ------------------------------------------------------------------------


def replacing(name: str, body: Any, when: str = "at once", change: Any = None) -> None:
    def program(decorate: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            return body(self, F.tanh(self.l(x)))
        model = build(decorate(forward), a=FLOATS + 1)
        model.add_persistent("p", FLOATS + 1)
        earlier: list[Any] = []

        def call(i: int, x: Any) -> Any:
            y = model(x)
            if change is not None and i >= CHANGED:
                change(model)
            earlier.append(y)
            model.cleargrads()
            if when == "two":
                F.sum(y * model(x)).backward()
            elif when == "twice":
                loss = F.sum(y * y)
                loss.backward(retain_grad=True)
                loss.backward()
            elif when == "again":
                g, = kusari.grad([F.sum(y * y)], [model.l.W], enable_double_backprop=True)
                F.sum(g * g).backward()
            else:
                F.sum(F.tanh(earlier[-2 if when == "late" else -1 if i else 0] if i else y)).backward()
            return [p.grad if p.grad is None else p.grad.copy() for p in model.params()], model.a, model.p
        return call
    program.__name__ = f"{name}_{when.replace(' ', '_')}"
    ROWS.add(program, "replays")


def averages_afterwards(self: Any, h: Any) -> Any:
    y = h * self.a
    self.a = 0.5 * self.a + h.array.mean(axis=0)
    return y


def averages_what_is_persistent(self: Any, h: Any) -> Any:
    y = h * self.p
    self.p = 0.5 * self.p + h.array.mean(axis=0)
    return F.tanh(y * self.p)


def multiplies(self: Any, h: Any) -> Any:
    return h * self.p


def put(model: Any) -> None:
    model.p = copy.copy(model.p) * 0.5


def put_nothing(model: Any) -> None:
    model.p = None


for when in ("at once", "late", "two", "twice", "again"):
    replacing("averages_afterwards", averages_afterwards, when)
    replacing("averages_what_is_persistent", averages_what_is_persistent, when)
    if when != "two":
        replacing("another_one_before_the_backward", multiplies, when, put)


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check_apart(name)


@pytest.mark.parametrize("name", ROWS)
def test_programs_that_save_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kusari, "static_graph", functools.partial(kusari.static_graph, memory="low"))
    ROWS.check_apart(name)
