"""Functions on arrays that were changed, sets, draws, and first calls that initialize."""
from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest
from static.observed.harness import Rows
from static.rows_of_test_programs import add_row, named

import kusari
import kusari.functions as F
from kusari import Variable

ROWS = Rows()
row = functools.partial(add_row, ROWS)
FLOATS = np.linspace(0, 1, 4).astype("f")


def put(name: str, value: Any) -> Any:
    return lambda model: setattr(model, name, value.copy() if hasattr(value, "copy") else value)


# -- functions of the library on arrays that were changed --------------------------------------------------------------


def reads_a_changed_array(self: Any, x: Any, h: Any) -> Any:
    self.a *= 0.9
    return h - self.a + F.broadcast_to(F.reshape(Variable(self.a), (1, 4)), h.shape)


def multiplies_by_a_changed_array(self: Any, x: Any, h: Any) -> Any:
    self.a *= 0.9
    return h * self.a


def returns_a_changed_array(self: Any, x: Any, h: Any) -> Any:
    self.a *= 0.9
    return h, F.reshape(Variable(self.a), (2, 2))


def changes_it_again(self: Any, x: Any, h: Any) -> Any:
    self.a *= 0.9
    y = h - self.a
    self.a += 1
    return y - self.a


def normalizes_with_a_changed_array(self: Any, x: Any, h: Any) -> Any:
    self.a *= 0.9
    return F.batch_normalization(h, np.ones(4, "f"), np.zeros(4, "f"), running_mean=self.a, running_var=self.v)


row(reads_a_changed_array, lambda model: model.a.fill(7), a=FLOATS)
row(changes_it_again, lambda model: model.a.fill(7), a=FLOATS)
for fn in (multiplies_by_a_changed_array, returns_a_changed_array, normalizes_with_a_changed_array):
    row(fn, lambda model: model.a.fill(7), None, a=FLOATS, v=FLOATS + 1)

# -- sets, draws, first calls ------------------------------------------------------------------------------------------


def set_operators(self: Any, x: Any, h: Any) -> None:
    self.s |= {len(x), "a"}
    self.s &= {3, "a", "b", 7}
    self.s ^= frozenset((1, 7))
    self.s -= {9}
    self.s.update({11})


def two_sets(self: Any, x: Any, h: Any) -> None:
    self.s |= self.other
    self.other -= self.s & {2}


def a_set_and_itself(self: Any, x: Any, h: Any) -> None:
    self.s |= self.s
    self.other ^= self.other


def a_set_of_keys(self: Any, x: Any, h: Any) -> None:
    self.s |= self.d.keys()


def a_set_is_read(self: Any, x: Any, h: Any) -> Any:
    self.s |= {len(self.s) + 5}
    return h * len(self.s)


for fn in (set_operators, two_sets, a_set_and_itself):
    row(fn, lambda model: model.s.update((7, 9)), s={1}, other={2, 3}, d={5: 1})
for fn in (a_set_of_keys, a_set_is_read):
    row(fn, lambda model: model.s.add(9), None, s={1}, d={5: 1})


def permutations(self: Any, x: Any, h: Any) -> Any:
    order = np.random.permutation(len(x))
    noise = np.random.uniform() + np.random.normal(0, 0.1) + np.random.beta(2.0, 3.0)
    return F.dropout(h, 0.3)[order] * np.float32(noise)


def draws_between(self: Any, x: Any, h: Any) -> Any:
    a = np.random.rand()
    h = F.dropout(h, 0.5) * a
    b = np.random.randn()
    self.log.append(b)
    return F.dropout(h, 0.5) + b


def a_scalar_that_decides(self: Any, x: Any, h: Any) -> Any:
    return F.dropout(h, 0.5) if np.random.rand() < 0.9 else h


def a_permutation_of_an_array(self: Any, x: Any, h: Any) -> Any:
    return h + np.random.permutation(x)


def a_drawn_integer(self: Any, x: Any, h: Any) -> Any:
    return h[np.random.randint(3)] * random.random()


row(permutations)
row(permutations, whole=True)
row(draws_between, log=[])
for fn in (a_scalar_that_decides, a_permutation_of_an_array, a_drawn_integer):
    row(fn, None, None)


def initializes_once(self: Any, x: Any, h: Any) -> Any:
    if not self.ready:
        self.m.b.array[...] = h.array.mean(axis=0)
        self.ready = True
    return self.m(h)


def initializes_again(self: Any, x: Any, h: Any) -> Any:
    if self.steps < 2:
        self.m.b.array[...] = h.array.mean(axis=0)
        self.steps = self.steps + 1
    return self.m(h)


def never_ready(self: Any, x: Any, h: Any) -> Any:
    self.token = object()
    self.m.b.array[...] = h.array.mean(axis=0)
    return self.m(h)


row(initializes_once, put("ready", False), None, ready=False)
row(initializes_once, ready=False, whole=True, expected=None)
row(named("initializes_in_the_first_call", lambda self, x, h: initializes_once(self, x, h)), ready=False)
row(initializes_again, None, "replays", steps=0)
row(never_ready, None, "falls back", "an object that the call has made", token=None)


def extremes(self: Any, x: Any, h: Any) -> Any:
    n = (h.array > self.bound).sum()
    self.log.append(max(h.array.max(), float(x.max())))
    return h / max(n, 1) * min(h.array.sum(), 3.5)


row(extremes, None, None, log=[], bound=0.0)
row(named("extremes_that_change", lambda self, x, h: extremes(self, x, h)), None, None, log=[], bound=0.9)


def rows_of_constants(self: Any, x: Any, h: Any) -> Any:
    table = np.arange(12, dtype="f").reshape(4, 3)
    return h[:, :3] * table[h.array[0].argmax()] + self.t[h.array[1].argmax(), :3]


row(rows_of_constants, lambda model: model.t.fill(2), None, t=np.arange(16, dtype="f").reshape(4, 4))


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check_apart(name)


@pytest.mark.parametrize("name", ROWS)
def test_programs_that_save_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kusari, "static_graph", functools.partial(kusari.static_graph, memory="low"))
    ROWS.check_apart(name)
