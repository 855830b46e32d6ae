"""Elements, numbers and arrays that calls change, and functions of the user's that look at them in between."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from static.observed.harness import Rows
from static.rows_of_test_programs import add_row, named

import kusari
import kusari.functions as F
from kusari import Variable

ROWS = Rows()


class Look(kusari.FunctionNode):
    """Adds what it finds in an attribute of a model, and may change it."""

    def __init__(self, model: Any, look: Any) -> None:
        self.model, self.look = model, look

    def forward(self, inputs: Any) -> Any:
        return inputs[0] + np.float32(self.look(self.model)),

    def backward(self, indexes: Any, gys: Any) -> Any:
        return gys


row = functools.partial(add_row, ROWS)
COUNTS = np.arange(4)
FLOATS = np.linspace(0, 1, 4).astype("f")
TABLE = np.arange(12, dtype="f").reshape(3, 4)

# -- elements ----------------------------------------------------------------------------------------------------------


def adds_a_python_float(self: Any, x: Any, h: Any) -> None:
    self.a[1] += float(h.array.sum())


def adds_a_numpy_float(self: Any, x: Any, h: Any) -> None:
    self.a[1] += h.array.sum()


def adds_a_double(self: Any, x: Any, h: Any) -> None:
    self.a[1] += h.array.astype("d").sum()


def adds_a_computed_integer(self: Any, x: Any, h: Any) -> None:
    self.c[0] += (h.array > 0).sum()


def adds_a_fraction_to_an_integer(self: Any, x: Any, h: Any) -> None:
    self.c[0] = self.c[0] + 0.75


def divides_by_a_number(self: Any, x: Any, h: Any) -> None:
    self.a[2] /= 2 + len(x)


def raises_to_a_power(self: Any, x: Any, h: Any) -> None:
    self.a[2] **= 2
    self.c[1] //= 2
    self.c[2] %= 2
    self.c[3] <<= 1


def counts_from_the_end(self: Any, x: Any, h: Any) -> None:
    self.c[-1] += 1
    self.t[-1, -2] -= 1


def counts_at_an_argmax(self: Any, x: Any, h: Any) -> None:
    self.c[h.array[0].argmax()] += 1


def counts_at_a_list_of_places(self: Any, x: Any, h: Any) -> None:
    self.c[[0, 0, 1]] += 1


def counts_twice_at_one_place(self: Any, x: Any, h: Any) -> None:
    for i in h.array.argmax(axis=1):
        self.c[i] += 1
        self.c[i] += 1


def reads_what_it_has_counted(self: Any, x: Any, h: Any) -> Any:
    self.a[0] += 1
    return h * self.a[0]


def branches_on_what_it_has_counted(self: Any, x: Any, h: Any) -> Any:
    self.c[0] += 1
    return h * 2 if self.c[0] > 4 else h


def counts_what_it_has_read(self: Any, x: Any, h: Any) -> Any:
    y = h * float(self.a[0])
    self.a[0] += 1
    return y


def counts_through_a_view(self: Any, x: Any, h: Any) -> None:
    part = self.t[1]
    part[2] += h.array.sum()
    self.t[1, 2] += 1


def counts_through_another_name(self: Any, x: Any, h: Any) -> Any:
    a = self.a
    a[3] += 2
    return h + self.a


def swaps_elements(self: Any, x: Any, h: Any) -> None:
    self.a[0], self.a[1] = self.a[1], self.a[0]


def stores_a_float(self: Any, x: Any, h: Any) -> None:
    self.a[2] = float(h.array.mean())
    self.a[3] = h.array.max()


def sums_of_its_own(self: Any, x: Any, h: Any) -> Any:
    own = np.zeros(4, "f")
    for i, p in enumerate(h.array.argmax(axis=1)):
        own[p] += 1
        own[i] += h.array[i].sum()
    return h * own


def counts_of_its_own(self: Any, x: Any, h: Any) -> Any:
    own = np.zeros(4, np.int64)
    own[1] += 3
    for p in h.array.argmax(axis=1):
        own[p] += 1
    return h * own.astype("f")


def counts_in_bytes(self: Any, x: Any, h: Any) -> None:
    self.b[0] += 1
    self.b[1] = self.b[1] + 1


def an_index_that_is_too_large(self: Any, x: Any, h: Any) -> None:
    self.c[(h.array > -5).sum() - 9] += 1


def adds_a_variable(self: Any, x: Any, h: Any) -> None:
    self.a[0] += h[0, 0].array


def sums_in_the_other_order(self: Any, x: Any, h: Any) -> None:
    self.n = 1 + self.n
    self.a[1] = 2 + self.a[1]


def replaces_a_number_by_a_sum(self: Any, x: Any, h: Any) -> None:
    self.n = self.n + 1
    self.d["k"] = self.d["k"] + len(x)


def replaces_a_number_and_reads(self: Any, x: Any, h: Any) -> Any:
    self.n = self.n + 1
    return h * (2 if self.n > 4 else 1)


def a_list_that_is_added_to(self: Any, x: Any, h: Any) -> None:
    self.list = self.list + [len(x)] if len(self.list) < 2 else [0]


for fn in (adds_a_python_float, adds_a_numpy_float, adds_a_double, adds_a_computed_integer,
           adds_a_fraction_to_an_integer, divides_by_a_number, raises_to_a_power, counts_from_the_end,
           counts_at_an_argmax, counts_at_a_list_of_places, counts_twice_at_one_place, reads_what_it_has_counted,
           counts_through_a_view, counts_through_another_name, stores_a_float, sums_of_its_own, counts_of_its_own,
           counts_in_bytes, adds_a_variable, replaces_a_number_by_a_sum):
    row(fn, lambda model: (model.a.fill(7), model.c.fill(3)), a=FLOATS, c=COUNTS, t=TABLE, b=np.full(4, 250, "u1"),
        n=0, d={"k": 1})
for fn in (branches_on_what_it_has_counted, counts_what_it_has_read, swaps_elements, an_index_that_is_too_large,
           sums_in_the_other_order, replaces_a_number_and_reads, a_list_that_is_added_to):
    row(fn, lambda model: model.a.fill(7), None, a=FLOATS, c=COUNTS, n=0, list=[])
for fn in (adds_a_numpy_float, counts_at_an_argmax, reads_what_it_has_counted, sums_of_its_own):
    row(fn, lambda model: model.a.fill(7), a=FLOATS, c=COUNTS, whole=True)

# -- other objects come into the place ---------------------------------------------------------------------------------


def counts_and_averages(self: Any, x: Any, h: Any) -> Any:
    self.c[1] += 1
    self.mean = 0.9 * self.mean + 0.1 * h.array.mean(axis=0)
    return h - self.mean


def put(name: str, value: Any) -> Any:
    return lambda model: setattr(model, name, value.copy() if hasattr(value, "copy") else value)


for name, value in dict(another_array=FLOATS * 2, doubles=FLOATS.astype("d"), one_number=0.5,
                        other_shape=FLOATS[:1], transposed=TABLE.T[:, 0], integers=COUNTS, nothing=None,
                        a_variable=Variable(FLOATS)).items():
    row(named(f"the_average_becomes_{name}", lambda self, x, h: counts_and_averages(self, x, h)), put("mean", value),
        None, c=COUNTS, mean=FLOATS)
for name, value in dict(another_array=COUNTS * 2, floats=FLOATS, a_list=[1, 2, 3, 4], shorter=COUNTS[:2]).items():
    row(named(f"the_counts_become_{name}", lambda self, x, h: counts_and_averages(self, x, h)), put("c", value), None,
        c=COUNTS, mean=FLOATS)
row(named("the_counts_are_read_only", lambda self, x, h: counts_and_averages(self, x, h)),
    lambda model: model.c.setflags(write=False), None, c=COUNTS, mean=FLOATS)
row(named("the_average_is_a_view_of_the_table", lambda self, x, h: counts_and_averages(self, x, h)),
    lambda model: setattr(model, "mean", model.t[1]), None, c=COUNTS, mean=FLOATS, t=TABLE)


def a_persistent_average(self: Any, x: Any, h: Any) -> Any:
    self.mean = self.mean * 0.9 + h.array.mean(axis=0) * 0.1
    self.var *= 0.9
    return (h - self.mean) * F.broadcast_to(1 / (Variable(self.var) + 1), h.shape)


def an_average_that_is_kept_twice(self: Any, x: Any, h: Any) -> Any:
    self.last = self.mean
    self.mean = 0.5 * self.mean + h.array.mean(axis=0)
    return h - self.last


def an_average_that_is_returned(self: Any, x: Any, h: Any) -> Any:
    before = self.mean
    self.mean = 0.5 * self.mean + h.array.mean(axis=0)
    return h + before, before


def an_average_before_and_after(self: Any, x: Any, h: Any) -> Any:
    y = h * self.mean
    self.mean = 0.5 * self.mean + h.array.mean(axis=0)
    return y + h * self.mean


def an_average_by_a_method(self: Any, x: Any, h: Any) -> Any:
    def update() -> None:
        self.mean = (self.mean + h.array.mean(axis=0)).astype("f")
    update()
    return h - self.mean


def an_average_now_and_then(self: Any, x: Any, h: Any) -> Any:
    if self.on:
        self.mean = self.mean * 0.5
    return h - self.mean


def an_average_is_compared(self: Any, x: Any, h: Any) -> Any:
    if self.mean is None:
        self.mean = h.array.mean(axis=0)
    else:
        self.mean = 0.5 * (self.mean + h.array.mean(axis=0))
    return h - self.mean


for fn in (a_persistent_average, an_average_that_is_kept_twice, an_average_that_is_returned,
           an_average_before_and_after, an_average_by_a_method, an_average_now_and_then):
    row(fn, lambda model: setattr(model, "on", True), None, mean=FLOATS, var=FLOATS + 1, last=None, on=False)
row(an_average_is_compared, put("mean", None), None, mean=None)
for fn in (a_persistent_average, an_average_before_and_after):
    row(fn, whole=True, expected=None, mean=FLOATS, var=FLOATS + 1)

# -- functions of the user's in between --------------------------------------------------------------------------------


def sees_a_count(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    return Look(self, lambda m: m.n).apply((h,))[0]


def sees_each_count(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    h = Look(self, lambda m: m.n).apply((h,))[0]
    self.n += 10
    h = Look(self, lambda m: m.n).apply((h,))[0]
    self.n += 100
    return h


def sees_computed_sums(self: Any, x: Any, h: Any) -> Any:
    self.f += float(h.array.sum())
    self.a[1] += h.array.sum()
    return Look(self, lambda m: m.f + m.a[1]).apply((h,))[0]


def sees_an_array(self: Any, x: Any, h: Any) -> Any:
    self.a *= 0.5
    self.a += h.array.mean(axis=0)
    return Look(self, lambda m: m.a.sum()).apply((h,))[0] - self.a


def sees_an_array_before_and_after(self: Any, x: Any, h: Any) -> Any:
    h = Look(self, lambda m: m.a.sum()).apply((h,))[0]
    self.a[:] = h.array.mean(axis=0)
    h = Look(self, lambda m: m.a.sum()).apply((h,))[0]
    self.a[0] = 5
    return Look(self, lambda m: m.a.sum()).apply((h,))[0]


def changed(m: Any) -> float:
    m.a += 1
    return 0.5


def changes_the_array(self: Any, x: Any, h: Any) -> Any:
    self.a *= 0.5
    h = Look(self, changed).apply((h,))[0]
    h = h - self.a
    self.a += 0.25
    return Look(self, changed).apply((h,))[0] - self.a


def counted(m: Any) -> float:
    m.n += 3
    return m.n


def changes_the_count(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    h = Look(self, counted).apply((h,))[0]
    self.n += 1
    return h


def reads_the_count_after(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    h = Look(self, counted).apply((h,))[0]
    return h * self.n


def refuses(m: Any) -> float:
    if m.n in (4, 5):
        raise ValueError("mine")
    return m.n


def raises_after_a_count(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    self.a += 1
    return Look(self, refuses).apply((h,))[0]


def catches_what_it_raises(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    self.a += 1
    try:
        h = Look(self, refuses).apply((h,))[0]
    except ValueError:
        self.n += 50
    return h


def goes_on_define_by_run(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    self.a += h.array.mean(axis=0)
    h = Look(self, lambda m: m.n + m.a.sum()).apply((h,))[0]
    return h * 2 if h.array.max() > self.bound else h


def a_part_of_an_array(self: Any, x: Any, h: Any) -> Any:
    part = self.t[1]
    part += 1
    h = Look(self, lambda m: m.t.sum()).apply((h,))[0]
    part *= 0.5
    return Look(self, lambda m: m.t.sum()).apply((h,))[0] - self.t[1]


for fn in (sees_a_count, sees_each_count, sees_computed_sums, sees_an_array, sees_an_array_before_and_after,
           changes_the_array, changes_the_count, a_part_of_an_array):
    row(fn, lambda model: (model.a.fill(7), setattr(model, "n", 100)), a=FLOATS, n=0, f=0.0, t=TABLE, bound=9.0)
row(reads_the_count_after, None, "falls back", "is read after it was added to", n=0)
for fn in (raises_after_a_count, catches_what_it_raises):
    row(fn, None, None, a=FLOATS, n=0)
for bound in (2.0, 6.0, 25.0):
    row(named(f"goes_on_above_{int(bound)}", lambda self, x, h: goes_on_define_by_run(self, x, h)), None, None,
        a=FLOATS, n=0, bound=bound)
for fn in (sees_each_count, sees_an_array, changes_the_array):
    row(fn, lambda model: setattr(model, "n", 100), whole=True, expected=None, a=FLOATS, n=0, t=TABLE)

@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check_apart(name)


@pytest.mark.parametrize("name", ROWS)
def test_programs_that_save_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kusari, "static_graph", functools.partial(kusari.static_graph, memory="low"))
    ROWS.check_apart(name)
