"""What a static function does to containers outside itself, replays do as well: to the same ones, in the same order."""
from __future__ import annotations

import collections
import types
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from static.observed.harness import CHANGED, Call, Rows, late

import kusari.functions as F

ROWS = Rows()


@ROWS.replays
def list_of_variables(decorate: Any) -> Call:
    log: list[Any] = []

    @decorate
    def f(x: Any) -> Any:
        h = F.tanh(x)
        log.append(h)
        return h * 2

    return late(f, log.clear, log)


@ROWS.replays
def list_of_arrays(decorate: Any) -> Call:
    """Each call leaves an array of its own."""
    log: list[Any] = []

    @decorate
    def f(x: Any) -> Any:
        h = F.tanh(x)
        log.extend((h.array, np.zeros(2)))
        return h * 2

    def call(i: int, x: Any) -> Any:
        y = f(x)
        log[-1][0] = i
        return y, log
    return call


@ROWS.replays
def every_method_of_lists(decorate: Any) -> Call:
    held = [9, 8, 7, 6]

    @decorate
    def f(x: Any) -> Any:
        held.insert(0, 1)
        held[1] = 5
        held.extend((2, 3))
        held[-1] = x.ndim
        del held[2]
        held.reverse()
        return F.relu(x)

    def call(i: int, x: Any) -> Any:
        y, seen = f(x), list(held)
        held[:] = [9, 8, 7, 6]
        return y, seen
    return call


@ROWS.replays
def cleared_and_filled(decorate: Any) -> Call:
    held: list[Any] = [1, 2]

    @decorate
    def f(x: Any) -> Any:
        held.clear()
        h = F.relu(x)
        held.append(h)
        held.append({"h": [h]})
        return h

    def call(i: int, x: Any) -> Any:
        y = f(x)
        return y, held, held[0] is y, held[1]["h"][0] is y
    return call


@ROWS.replays
def one_list_in_three_places(decorate: Any) -> Call:
    box = types.SimpleNamespace()

    @decorate
    def f(x: Any) -> Any:
        row = [F.relu(x), 1]
        box.a = row
        box.b = {"row": row}
        return row

    def call(i: int, x: Any) -> Any:
        row = f(x)
        row.append(i)
        return row, box.a is row, box.b["row"] is row
    return call


@ROWS.replays
def a_list_that_holds_itself(decorate: Any) -> Call:
    box = Box()

    @decorate
    def f(x: Any) -> Any:
        box.row = [F.relu(x)]
        box.row.append(box.row)
        return box.row[0]

    def call(i: int, x: Any) -> Any:
        y = f(x)
        return y, box.row[1] is box.row, box.row[0] is y
    return call


@ROWS.replays
def the_list_itself_is_returned(decorate: Any) -> Call:
    held: list[Any] = []

    @decorate
    def f(x: Any) -> Any:
        held.append(F.relu(x))
        return held

    def call(i: int, x: Any) -> Any:
        if i == CHANGED:
            del held[:]
        y = f(x)
        return y, y is held
    return call


@ROWS.replays
def lists_of_the_call_are_new(decorate: Any) -> Call:
    box = types.SimpleNamespace()

    @decorate
    def f(x: Any) -> Any:
        box.row = [1, {"a": [2]}]
        return F.relu(x)

    def call(i: int, x: Any) -> Any:
        y, seen = f(x), repr(box.row)
        box.row.append(i)
        box.row[1]["a"].append(i)
        return y, seen
    return call


@ROWS.replays
def objects_from_outside_stay_themselves(decorate: Any) -> Call:
    box, inner = types.SimpleNamespace(), [0]

    @decorate
    def f(x: Any) -> Any:
        box.held = (inner, [inner], {"k": inner})
        return F.relu(x)

    def call(i: int, x: Any) -> Any:
        inner.append(i)
        return f(x), box.held, box.held[0] is box.held[1][0] is box.held[2]["k"] is inner
    return call


@ROWS.replays
def dictionary_of_lists(decorate: Any) -> Call:
    table: dict[str, Any] = {"a": [], "b": {"c": []}}

    @decorate
    def f(x: Any) -> Any:
        h = F.relu(x)
        table["a"].append(h.shape)
        table["b"]["c"].append(h)
        table["b"]["n"] = {"x": [h]}
        table["b"]["n"]["x"].append(1)
        return h * 2

    return late(f, lambda: table.update(b={"c": [None]}), table)


@ROWS.replays
def entries_that_are_made_once(decorate: Any) -> Call:
    table: dict[str, Any] = {}
    other: collections.defaultdict[str, list[Any]] = collections.defaultdict(list)

    @decorate
    def f(x: Any) -> Any:
        h = F.relu(x)
        table.setdefault("h", []).append(h)
        other["h"].append(h)
        return h * 2

    return late(f, lambda: (table.clear(), other.clear()), table, other)


@ROWS.replays
def entries_that_are_made_every_time(decorate: Any) -> Call:
    log: list[str] = []

    def zero() -> int:
        log.append("made")
        return 0

    table = collections.defaultdict(zero)

    @decorate
    def f(x: Any) -> Any:
        table["k"]
        return F.relu(x)

    def call(i: int, x: Any) -> Any:
        y, seen = f(x), dict(table)
        table.clear()
        return y, seen, log
    return call


@ROWS.replays
def deque_with_an_end(decorate: Any) -> Call:
    held: collections.deque[Any] = collections.deque(maxlen=3)

    @decorate
    def f(x: Any) -> Any:
        h = F.relu(x)
        held.append(h)
        held.appendleft(x.shape)
        return h

    def call(i: int, x: Any) -> Any:
        return f(x), list(held)
    return call


@ROWS.replays
def sets(decorate: Any) -> Call:
    held: set[Any] = {3}

    @decorate
    def f(x: Any) -> Any:
        held.add(x.shape)
        held.discard(3)
        held.update([4, 5])
        held.difference_update((5,))
        return F.relu(x)

    def call(i: int, x: Any) -> Any:
        y, seen = f(x), sorted(map(str, held))
        held.clear()
        held.update((3, i))
        held.discard(i)
        held.add(3)
        return y, seen
    return call


@ROWS.replays
def order_of_entries(decorate: Any) -> Call:
    held = collections.OrderedDict(a=1, b=2)
    table: dict[str, Any] = {}

    @decorate
    def f(x: Any) -> Any:
        held.move_to_end("a")
        table["b"] = 1
        table["a"] = F.relu(x)
        return table["a"]

    def call(i: int, x: Any) -> Any:
        y, seen = f(x), [*held, *table]
        held.move_to_end("a", last=False)
        table.clear()
        return y, seen
    return call


@ROWS.replays
def lists_of_the_users(decorate: Any) -> Call:
    class Log(list[Any]):
        def add(self, value: Any) -> None:
            super().append(value)

    log = Log()
    table: collections.UserDict[str, Any] = collections.UserDict()

    @decorate
    def f(x: Any) -> Any:
        table["h"] = F.relu(x)
        log.add(table["h"])
        return table["h"] * 2

    def call(i: int, x: Any) -> Any:
        return f(x), list(log), log[-1] is table["h"], dict(table)
    return call


@ROWS.replays
def records(decorate: Any) -> Call:
    log: list[Any] = []

    @decorate
    def f(x: Any) -> Any:
        h = F.relu(x)
        log.append(Record(h, 2))
        log.append(Pair(h, [x.ndim])._replace(a=h))
        return h

    def call(i: int, x: Any) -> Any:
        y = f(x)
        log[-2].n += i
        log[-1].b.append(i)
        return y, [(r.h, r.n) for r in log[::2]], log[1::2], log[-2].h is y is log[-1].a
    return call


@dataclass
class Record:
    h: Any
    n: int


class Box:
    """An object with attributes."""

    row: Any


class Pair(NamedTuple):
    a: Any
    b: Any


@pytest.mark.parametrize("name", ROWS)
def test_effects_are_repeated(name: str) -> None:
    ROWS.check(name)
