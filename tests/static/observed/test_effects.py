"""What a call leaves behind: stores, also of what was there already, streams, warnings, callbacks, reports."""
from __future__ import annotations

import collections
import enum
import io
import logging
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import Batch, Model, build
from static.observed.harness import Rows, check

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable

ROWS = Rows()
COUNT = 0


class Phase(enum.Enum):
    TRAIN = 1
    TEST = 2


class Slots:
    __slots__ = ("k",)


class Stateful(Model):
    """Has everything that the stores below store into."""

    kept: list[Any] = []

    def __init__(self) -> None:
        super().__init__()
        self.phase: Any = "test"
        self.cache: Any = None
        self.count = 0
        self.list: list[Any] = [0, 0]
        self.dict: dict[Any, Any] = {}
        self.set: set[Any] = set()
        self.deque: collections.deque[Any] = collections.deque(maxlen=3)
        self.space = types.SimpleNamespace(k=0)
        self.slots = Slots()
        self.slots.k = 0
        self.flag = threading.Event()
        self.add_persistent("step", 0)
        type(self).kept = []

    @property
    def shown(self) -> Any:
        return self.cache

    @shown.setter
    def shown(self, value: Any) -> None:
        self.count += 1
        self.cache = value


def observed(s: Any) -> Any:
    return [s.phase, s.cache, s.count, s.list, s.dict, s.set, s.deque, s.space, s.slots, s.flag.is_set(), s.step,
            type(s).kept, [p.requires_grad for p in s.params()], sorted(vars(s))]


def store(name: str, value: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def body(s: Any, h: Any) -> Any:
        setattr(s, name, value(s, h))
        return h
    return body


def do(*effects: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def body(s: Any, h: Any) -> Any:
        for effect in effects:
            effect(s, h)
        return h
    return body


def entering(s: Any, h: Any) -> Any:
    s.phase = "inside"
    try:
        return h * 2
    finally:
        s.phase = "outside"


def first_time(s: Any, h: Any) -> Any:
    if s.cache is None:
        s.cache = "made"
        return h
    return h * 2


def lazily(s: Any, h: Any) -> Any:
    if not hasattr(s, "late"):
        s.late = 2.0
    return h * s.late


def deleted(s: Any, h: Any) -> Any:
    s.temporary = h
    y = s.temporary * 2
    del s.temporary
    return y


def deleted_before(s: Any, h: Any) -> Any:
    if hasattr(s, "extra"):
        del s.extra
    return h


def exchanged(s: Any, h: Any) -> Any:
    s.list[0], s.list[1] = s.list[1], s.list[0]
    return h * (1 + s.list[0])


def history(s: Any, h: Any) -> Any:
    previous, s.cache = s.cache, h
    return h if previous is None else h + previous


def running(s: Any, h: Any) -> Any:
    s.cache = h.array.mean() if s.cache is None else 0.9 * s.cache + 0.1 * h.array.mean()
    return h


def scaled_state(s: Any, h: Any) -> Any:
    s.space.k = s.space.k + 1
    return h * s.space.k


def nonlocal_count() -> Callable[[Any, Any], Any]:
    n = 0

    def body(s: Any, h: Any) -> Any:
        nonlocal n
        n += 1
        s.space.k = n
        return h
    return body


def global_count(s: Any, h: Any) -> Any:
    global COUNT
    COUNT += 1
    s.space.k = COUNT
    return h


# Each: ``replays`` where a store of the same can plainly be made again, and what the function does; between calls the
# attribute ``phase``, the list and the flag are put to something else.
STORES: dict[str, tuple[str | None, Callable[[Any, Any], Any]]] = {
    "a string that is there already": ("replays", store("phase", lambda s, h: "test")),
    "a string": ("replays", store("phase", lambda s, h: "train")),
    "None that is there already": ("replays", store("cache", lambda s, h: None)),
    "a number": ("replays", store("count", lambda s, h: 3)),
    "a member of an enum": ("replays", store("phase", lambda s, h: Phase.TRAIN)),
    "a number from an attribute": (None, store("cache", lambda s, h: s.phase)),
    "a number from a shape": ("replays", store("count", lambda s, h: h.shape[0])),
    "a number from an argument's elements": (None, store("count", lambda s, h: float(h.array.sum()))),
    "a new list": ("replays", store("cache", lambda s, h: [1, 2])),
    "a new empty dictionary": ("replays", store("dict", lambda s, h: {})),
    "a new dictionary of results": ("replays", store("dict", lambda s, h: {"h": h, "k": 1})),
    "a new object": (None, store("cache", lambda s, h: types.SimpleNamespace(h=h))),
    "a new dataclass": (None, store("cache", lambda s, h: Batch(h))),
    "a tuple of a result": ("replays", store("cache", lambda s, h: (h, h.shape))),
    "a result": ("replays", store("cache", lambda s, h: h)),
    "a result and an array of it": (None, do(store("cache", lambda s, h: h), store("space", lambda s, h: h.array))),
    "a shared list": (None, lambda s, h: (setattr(s, "cache", s.list), s.list.append(1), h)[2]),
    "a lambda": (None, store("cache", lambda s, h: lambda: h)),
    "a persistent number": (None, store("step", lambda s, h: s.step + 1)),
    "by a setter": (None, store("shown", lambda s, h: "shown")),
    "a count": (None, store("count", lambda s, h: s.count + 1)),
    "a count that nobody reads": (None, do(lambda s, h: setattr(s, "count", s.count + 2))),
    "an item that is there already": (None, do(lambda s, h: s.list.__setitem__(0, 0))),
    "an item": (None, do(lambda s, h: s.list.__setitem__(1, 5))),
    "a slot": (None, do(lambda s, h: setattr(s.slots, "k", 5))),
    "an attribute of a namespace": ("replays", do(lambda s, h: setattr(s.space, "k", 5))),
    "a result in a namespace": ("replays", do(lambda s, h: setattr(s.space, "k", h))),
    "an attribute of the class": (None, do(lambda s, h: setattr(type(s), "phase2", "x"))),
    "a key that is there already": (None, do(lambda s, h: s.dict.__setitem__("k", 1))),
    "a key made from a shape": (None, do(lambda s, h: s.dict.__setitem__(h.shape, 1))),
    "set.add": (None, do(lambda s, h: s.set.add("a"))),
    "deque.append": (None, do(lambda s, h: s.deque.append(h))),
    "list.append": (None, do(lambda s, h: s.list.append(1))),
    "list.append of a result": (None, do(lambda s, h: s.list.append(h))),
    "list.append of a number": (None, do(lambda s, h: s.list.append(float(h.array[0, 0])))),
    "list.extend": (None, do(lambda s, h: s.list.extend([1, h]))),
    "list += of the class": (None, do(lambda s, h: type(s).kept.append(s.phase))),
    "list.clear": (None, do(lambda s, h: s.list.clear())),
    "a list that is filled anew": ("replays", do(
        lambda s, h: s.list.clear(), lambda s, h: s.list.extend([h, len(s.list)]),
        lambda s, h: setattr(s, "cache", (s.list[1], len(s.list), s.list[-1] == 0)))),
    "a dictionary that is filled anew": ("replays", do(
        lambda s, h: s.dict.update(k=0, a=h), lambda s, h: s.dict.clear(), lambda s, h: s.dict.update(n=h),
        lambda s, h: s.dict.setdefault("k", len(s.dict)), lambda s, h: setattr(s, "cache", [*s.dict.items()]))),
    "a deque that is filled anew": ("replays", do(
        lambda s, h: s.deque.append(0), lambda s, h: s.deque.clear(), lambda s, h: s.deque.extend([1, h, h * 2]),
        lambda s, h: s.deque.popleft(), lambda s, h: setattr(s, "cache", F.stack(s.deque)))),
    "list.sort": (None, do(lambda s, h: s.list.sort(key=str))),
    "list slice": (None, do(lambda s, h: s.list.__setitem__(slice(None), [3, 4]))),
    "del of an item": (None, do(lambda s, h: s.list.__delitem__(slice(0, 1)))),
    "dict.pop": (None, do(lambda s, h: s.dict.pop("k", None), lambda s, h: s.dict.setdefault("n", 1))),
    "dict.update": (None, do(lambda s, h: s.dict.update(h=h))),
    "dict |=": (None, do(lambda s, h: s.__dict__.update(late=2))),
    "Event.set": (None, do(lambda s, h: s.flag.set())),
    "Event.clear": (None, do(lambda s, h: s.flag.clear())),
    "entering": ("replays", entering),
    "the first time": (None, first_time),
    "lazily": (None, lazily),
    "deleted again": (None, deleted),
    "deleted if it is there": (None, deleted_before),
    "exchanged": (None, exchanged),
    "with what was stored": (None, history),
    "a running mean": (None, running),
    "a state that scales": (None, scaled_state),
    "a global that counts": (None, global_count),
    "disable_update": (None, do(lambda s, h: s.m.disable_update())),
    "enable_update": (None, do(lambda s, h: s.m.enable_update())),
    "cleargrad": (None, do(lambda s, h: s.m.W.cleargrad())),
    "cleargrads": (None, do(lambda s, h: s.m.cleargrads())),
    "zerograds": (None, do(lambda s, h: s.m.zerograds())),
    "a gradient": (None, do(lambda s, h: setattr(s.m.W, "grad", np.ones((4, 4), "f")))),
    "a name of a parameter": (None, do(lambda s, h: setattr(s.m.W, "name", "renamed"))),
    "a name of a result": (None, do(lambda s, h: setattr(h, "name", "result"))),
    "the name of a link": (None, do(lambda s, h: setattr(s.m, "name", "renamed"))),
    "a parameter's elements": (None, do(lambda s, h: s.m.W.array.__imul__(0.5))),
    "a parameter's array": (None, do(lambda s, h: setattr(s.m.W, "array", s.m.W.array * 0.5))),
    "a parameter's dictionary": (None, do(lambda s, h: s.m.W.__dict__.update(mark=1))),
    "a link": (None, do(lambda s, h: None if hasattr(s, "late") else s.add_link("late", L.PReLU()))),
    "a configuration entry": (None, do(lambda s, h: setattr(kusari.config, "user_seen", 1))),
    "retain_grad": (None, do(lambda s, h: h.retain_grad() if hasattr(h, "retain_grad") else None)),
}


@pytest.mark.parametrize("name", STORES)
def test_stores(name: str) -> None:
    expected, body = STORES[name]

    def program(decorate: Any) -> Any:
        class Decorated(Stateful):
            @decorate
            def forward(self, x: Any) -> Any:
                return body(self, F.tanh(self.l(x)))

        model = Decorated()
        unused = Variable(np.zeros(2, "f"), name="extra")

        def call(i: int, x: Any) -> Any:
            if i in (2, 5):
                model.phase, model.list, model.extra = "eval", [9, 8], unused
                model.flag.set() if i == 2 else model.flag.clear()
                model.m.W.grad, model.m.W.name = np.full((4, 4), i, "f"), "W"
            y = model(x)
            grad = model.m.W.grad
            return y, y.name, observed(model), None if grad is None else grad.copy(), model.m.W.name, model.m.name, \
                getattr(model.m.W, "mark", None), model.m.update_enabled, model.m.W.array.copy()
        return call

    check(program, expected)


@ROWS.falls_back("changes in every call")
def counts_of_closures(decorate: Any) -> Any:
    body = nonlocal_count()
    s = types.SimpleNamespace(space=types.SimpleNamespace(k=0))
    static = decorate(lambda x: body(s, F.tanh(x)))
    return lambda i, x: (static(x), s.space.k)


@ROWS.replays
def callbacks_in_variables(decorate: Any) -> Any:
    calls: list[str] = []
    notify = calls.append
    static = decorate(lambda x: (notify("called"), F.tanh(x))[1])
    return lambda i, x: (static(x), calls.copy())


@ROWS.replays
def callbacks_in_lists(decorate: Any) -> Any:
    calls: list[Any] = []
    hooks: list[Any] = [lambda h: calls.append(h.shape)]

    def body(x: Any) -> Any:
        h = F.tanh(x)
        for hook in hooks:
            hook(h)
        return h

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        if i == 4:
            hooks.append(lambda h: calls.append("second"))
        return static(x), calls.copy()
    return call


@ROWS.replays
def callbacks_in_attributes(decorate: Any) -> Any:
    seen: list[float] = []
    model = build(decorate(lambda s, x: s.callback(s.l(x))),
                  callback=lambda h: (seen.append(float(h.array.max())), h)[1])
    return lambda i, x: (model(x), seen.copy())


@ROWS.replays
def callbacks_set_later(decorate: Any) -> Any:
    seen: list[int] = []
    model = build(decorate(lambda s, x: s.l(x) if s.callback is None else s.callback(s.l(x))), callback=None)

    def call(i: int, x: Any) -> Any:
        model.callback = (lambda h: (seen.append(i), h)[1]) if i in (3, 4) else None
        return model(x), seen.copy()
    return call


@ROWS.replays
def texts_that_are_printed(decorate: Any) -> Any:
    static = decorate(lambda x: (print("called", x.shape), F.tanh(x))[1])
    return lambda i, x: static(x)


@ROWS.replays
def texts_that_are_printed_to_a_stream(decorate: Any) -> Any:
    out = io.StringIO()
    static = decorate(lambda x: (print("called", file=out), F.tanh(x))[1])
    return lambda i, x: (static(x), out.getvalue())


@ROWS.replays
def texts_that_are_written(decorate: Any) -> Any:
    static = decorate(lambda x: (sys.stdout.write("called\n"), F.tanh(x))[1])
    return lambda i, x: static(x)


@ROWS.falls_back("is implemented in C")
def streams_that_are_read(decorate: Any) -> Any:
    lines = io.StringIO("\n".join(map(str, range(1, 50))))
    static = decorate(lambda x: F.tanh(x) * float(lines.readline()))
    return lambda i, x: (static(x), lines.tell())


@ROWS.falls_back("is implemented in C")
def bytes_that_are_read(decorate: Any) -> Any:
    data = io.BytesIO(bytes(range(1, 50)))
    static = decorate(lambda x: F.tanh(x) * data.read(1)[0])
    return lambda i, x: (static(x), data.tell())


@ROWS.falls_back("is implemented in C")
def lines_in_a_loop(decorate: Any) -> Any:
    text = io.StringIO("1\n2\n3\n")

    def body(x: Any) -> Any:
        text.seek(0)
        return F.tanh(x) * sum(float(line) for line in text)

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        if i == 4:
            text.seek(0)
            text.write("5")
        return static(x), text.tell()
    return call


@ROWS.replays
def warnings_of_the_user(decorate: Any) -> Any:
    static = decorate(lambda x: (warnings.warn("careful", UserWarning, stacklevel=1), F.tanh(x))[1])
    return lambda i, x: static(x)


@ROWS.replays
def warnings_of_a_helper(decorate: Any) -> Any:
    def helper(x: Any) -> Any:
        if not kusari.config.train:
            warnings.warn("not training", RuntimeWarning, stacklevel=2)
        return F.tanh(x)

    static = decorate(lambda x: helper(x))

    def call(i: int, x: Any) -> Any:
        with kusari.using_config("train", i // 3 == 1):
            return static(x)
    return call


@ROWS.falls_back("looks at frames")
def records_of_a_logger(decorate: Any) -> Any:
    records: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    log = logging.Logger("kept")
    log.addHandler(Keep())
    static = decorate(lambda x: (log.warning("shape %s", x.shape), F.tanh(x))[1])
    return lambda i, x: (static(x), records.copy())


@ROWS.falls_back("changes in every call")
def observations(decorate: Any) -> Any:
    reporter = kusari.Reporter()
    static = decorate(lambda x: (reporter.observation.update(k=1.0), F.tanh(x))[1])

    def call(i: int, x: Any) -> Any:
        reporter.observation = {}
        return static(x), reporter.observation
    return call


@ROWS.falls_back("changes in every call")
def observations_of_results(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        y = F.tanh(x)
        kusari.get_current_reporter().observation["y"] = F.sum(y)
        return y

    reporter, static = kusari.Reporter(), decorate(body)

    def call(i: int, x: Any) -> Any:
        observation: dict[str, Any] = {}
        with reporter.scope(observation):
            return static(x), observation
    return call


def reporting(forward: Any, **attributes: Any) -> tuple[Any, kusari.Reporter]:
    """Return a model with a static method, and a reporter that knows it."""
    model, reporter = build(forward, **attributes), kusari.Reporter()
    reporter.add_observer("main", model)
    return model, reporter


@ROWS.replays
def reports(decorate: Any) -> Any:
    def body(s: Any, x: Any) -> Any:
        y = F.sum(s.l(x))
        kusari.report({"loss": y, "k": s.k}, s)
        return y

    model, reporter = reporting(decorate(body), k=1.0)

    def call(i: int, x: Any) -> Any:
        model.k = 1.0 + i // 3
        observation: dict[str, Any] = {}
        with reporter.scope(observation):
            return model(x), observation
    return call


@ROWS.replays
def reports_only_sometimes(decorate: Any) -> Any:
    def body(s: Any, x: Any) -> Any:
        y = F.sum(s.l(x))
        kusari.report({"loss": float(y.array)}, s)
        return y

    model, reporter = reporting(decorate(body))

    def call(i: int, x: Any) -> Any:
        if i % 2:
            return model(x)
        with reporter:
            return model(x), dict(reporter.observation)
    return call


@ROWS.replays
def summaries_that_are_added_to(decorate: Any) -> Any:
    summary = kusari.Summary()

    def body(x: Any) -> Any:
        y = F.tanh(x)
        summary.add(F.mean(y).array)
        return y

    static = decorate(body)
    return lambda i, x: (static(x), np.array(summary.compute_mean()))


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
