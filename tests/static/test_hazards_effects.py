"""What a static function stores in attributes and names, replays store there as well, in the same order."""
from __future__ import annotations

import types
from typing import Any

import pytest
from static.observed.harness import CHANGED, Call, Rows, check

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable

ROWS = Rows()
LAST: Any = None
TABLE: dict[str, Any] = {}
PASSING: int


@ROWS.replays
def the_argument_itself(decorate: Any) -> Call:
    box = types.SimpleNamespace(log=[])

    @decorate
    def f(x: Any) -> Any:
        box.x = x
        box.log.append(x)
        return F.relu(x)

    def call(i: int, x: Any) -> Any:
        given = Variable(x) if i % 2 else x
        y = f(given)
        return y, box.x is given is box.log[-1], len(box.log)
    return call


@ROWS.replays
def slots(decorate: Any) -> Call:
    class Slots:
        __slots__ = ("v", "w")

    s = Slots()

    @decorate
    def f(x: Any) -> Any:
        s.v = F.relu(x)
        s.w = 1
        del s.w
        return s.v * 2

    def call(i: int, x: Any) -> Any:
        y, seen = f(x), (s.v, hasattr(s, "w"))
        s.w = 3
        return y, *seen
    return call


@ROWS.replays
def setters(decorate: Any) -> Call:
    class Box:
        log: list[Any] = []

        @property
        def v(self) -> Any:
            return self._v

        @v.setter
        def v(self, value: Any) -> None:
            self._v = value
            self.log.append(value.shape)

    Box.log = []
    box = Box()

    @decorate
    def f(x: Any) -> Any:
        box.v = F.relu(x)
        return box.v * 2

    def call(i: int, x: Any) -> Any:
        y = f(x)
        if i == CHANGED:
            Box.log = [None]
        return y, box._v, Box.log
    return call


@ROWS.replays
def descriptors(decorate: Any) -> Call:
    class Counted:
        def __set_name__(self, owner: Any, name: str) -> None:
            self.name = f"_{name}"

        def __get__(self, x: Any, owner: Any) -> Any:
            return getattr(x, self.name)

        def __set__(self, x: Any, value: Any) -> None:
            setattr(x, self.name, value)
            x.stores.append(self.name)

    class Box:
        v = Counted()
        stores: list[str]

    box = Box()
    box.stores = []

    @decorate
    def f(x: Any) -> Any:
        box.v = F.relu(x)
        return box.v * 2

    return lambda i, x: (f(x), box.stores, box.__dict__["_v"])


@ROWS.replays
def computed_names(decorate: Any) -> Call:
    class Box:
        gone: Any = None
        q: Any
        p: Any

    box = Box()
    box.gone = 1

    @decorate
    def f(x: Any) -> Any:
        for name, value in {"p": 1, "q": F.relu(x)}.items():
            setattr(box, name, value)
        box.__dict__.update(z=(box.q, box.p))
        del box.gone
        return box.q

    def call(i: int, x: Any) -> Any:
        box.gone = i
        return f(x), vars(box)
    return call


@ROWS.replays
def names_of_modules(decorate: Any) -> Call:
    global LAST
    LAST = None
    TABLE.clear()

    @decorate
    def f(x: Any) -> Any:
        global LAST, PASSING
        LAST = F.relu(x)
        TABLE["k"] = LAST, 1
        PASSING = 3
        y = LAST * PASSING
        del PASSING
        return y

    def call(i: int, x: Any) -> Any:
        y = f(x)
        return y, LAST, TABLE, TABLE["k"][0] is LAST, "PASSING" in globals()
    return call


@ROWS.replays
def closures(decorate: Any) -> Call:
    def pair() -> Any:
        n: Any = None

        def store(value: Any) -> None:
            nonlocal n
            n = value
        return store, lambda: n

    store, load = pair()

    @decorate
    def f(x: Any) -> Any:
        store(F.relu(x))
        return load() * 2

    def call(i: int, x: Any) -> Any:
        y, seen = f(x), load()
        store(i)
        return y, seen
    return call


@ROWS.replays
def variables_of_the_call_itself(decorate: Any) -> Call:
    @decorate
    def f(x: Any) -> Any:
        n, log = 0, []

        def add(k: int) -> None:
            nonlocal n
            n += k
            log.append(n)
        for k in range(3):
            add(k)
        return F.relu(x) * n, log

    return lambda i, x: f(x)


@ROWS.replays
def attributes_of_links(decorate: Any) -> Call:
    """What one static function stores, another one on the same link reads."""
    class Net(kusari.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.l = L.Linear(4, 4)
            self.scale = 1.0

        @decorate
        def store(self, x: Any) -> Any:
            self.scale = 2.0
            return self.l(x)

        @decorate
        def load(self, x: Any) -> Any:
            return self.l(x) * self.scale

    net = Net()

    def call(i: int, x: Any) -> Any:
        net.scale = 1.0
        return net.load(x), net.store(x), net.load(x), net.scale
    return call


@pytest.mark.parametrize("name", ROWS)
def test_effects_are_repeated(name: str) -> None:
    ROWS.check(name)


def test_effects_of_helper_functions_in_another_module(run_source: Any) -> None:
    def row(decorate: Any) -> Call:
        module: Any = types.ModuleType("helpers")
        run_source("LOG, STATE = [], None\ndef note(h):\n    global STATE\n    LOG.append(h.shape)\n    STATE = h\n",
                   module.__dict__)

        @decorate
        def f(x: Any) -> Any:
            h = F.relu(x)
            module.note(h)
            module.count = x.ndim
            return h * 2

        def call(i: int, x: Any) -> Any:
            if i == CHANGED:
                module.LOG, module.STATE, module.count = [], None, 0
            return f(x), module.LOG, module.STATE, module.count
        return call

    check(row, "replays")
