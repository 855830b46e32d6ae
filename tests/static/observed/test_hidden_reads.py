"""What code reads by bound methods, of layouts, of arguments' insides, of threads and frames."""
from __future__ import annotations

import collections
import copy
import inspect
import itertools
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static.models import Model, Settings
from static.observed.harness import Rows, before, check

import kusari
import kusari.functions as F

ROWS = Rows()


class Shown:
    def __init__(self) -> None:
        self.k = 1.0

    def __str__(self) -> str:
        return f"{self.k}"


class Undecided:
    """Does not say whether it differs."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> Any:
        return NotImplemented


class Same:
    k = 1.0

    def __eq__(self, other: object) -> bool:
        return self.k == 1.0


@ROWS.replays
def inequality_that_is_not_said(decorate: Any) -> Any:
    a, b = Undecided(), Undecided()
    static = decorate(lambda x: F.tanh(x) if a != b else F.relu(x))
    return lambda i, x: static(x)


@ROWS.falls_back("__eq__")
def inequality_by_equality(decorate: Any) -> Any:
    a, b = Same(), Undecided()
    static = decorate(lambda x: F.tanh(x) if a != b else F.relu(x))
    return before(static, lambda i: setattr(a, "k", 1.0 + i // 3))


@ROWS.replays
def records(decorate: Any) -> Any:
    table: Any = np.zeros(2, [("a", "f4"), ("b", "f4")])
    static = decorate(lambda x: F.tanh(x) * float(table["a"][0]))

    def change(i: int) -> None:
        table["a"][0] = 1 + i // 3
        if i == 6:
            table.dtype = np.dtype([("b", "f4"), ("a", "f4")])
    return before(static, change)


@ROWS.replays
def fields_of_recarrays(decorate: Any) -> Any:
    table: Any = np.ones(2, [("a", "f4"), ("b", "f4")]).view(np.recarray)
    static = decorate(lambda x: F.tanh(x) * table.a[0])
    return before(static, lambda i: table.a.fill(1 + i // 3))


@ROWS.replays
def shapes_that_are_assigned(decorate: Any) -> Any:
    table = np.ones((2, 3), "f")
    static = decorate(lambda x: F.tanh(x) * table.shape[0])

    def change(i: int) -> None:
        table.shape = (3, 2) if i // 3 == 1 else (2, 3)
    return before(static, change)


@ROWS.replays
def types_that_are_assigned(decorate: Any) -> Any:
    table: Any = np.ones(2, "f")
    static = decorate(lambda x: F.tanh(x) * len(str(table.dtype)) if table.dtype == np.float32 else F.relu(x))

    def change(i: int) -> None:
        table.dtype = np.dtype("i4" if i // 3 == 1 else "f4")
    return before(static, change)


# Threads and frames.

@ROWS.replays
def thread_locals(decorate: Any) -> Any:
    local = threading.local()
    static = decorate(lambda x: F.tanh(x) * local.k)
    return before(static, lambda i: setattr(local, "k", 1.0 + i // 3))


def in_two_threads(static: Any) -> Any:
    """Return a caller that goes to another thread for two calls of four."""
    def call(i: int, x: Any) -> Any:
        found: list[Any] = []
        if i // 2 % 2 == 0:
            return static(x)
        thread = threading.Thread(target=lambda: found.append(static(x)))
        thread.start()
        thread.join()
        return found[0]
    return call


@ROWS.replays
def thread_locals_of_another_thread(decorate: Any) -> Any:
    local = threading.local()
    local.k = 1.0
    static = decorate(lambda x: F.tanh(x) * getattr(local, "k", 4.0))
    return in_two_threads(static)


@ROWS.replays
def names_of_threads(decorate: Any) -> Any:
    static = decorate(lambda x: F.tanh(x) if threading.current_thread().name == "MainThread" else F.relu(x))
    return in_two_threads(static)


@ROWS.falls_back("looks at frames")
def the_stack(decorate: Any) -> Any:
    def train(static: Any, x: Any) -> Any:
        return static(x)

    def evaluate(static: Any, x: Any) -> Any:
        return static(x)

    static = decorate(lambda x: F.tanh(x) if "evaluate" in [f.function for f in inspect.stack(0)] else F.relu(x))
    return lambda i, x: (evaluate if i // 2 % 2 else train)(static, x)


@ROWS.falls_back("looks at frames")
def frames(decorate: Any) -> Any:
    def find(name: str) -> Any:
        frame: Any = sys._getframe()
        while frame is not None and name not in frame.f_locals:
            frame = frame.f_back
        return None if frame is None else frame.f_locals[name]

    static = decorate(lambda x: F.tanh(x) * find("hidden_number"))

    def call(i: int, x: Any) -> Any:
        hidden_number = 1.0 + i // 3
        return static(x), hidden_number
    return call


@ROWS.falls_back("it may read what it does not name")
def local_names(decorate: Any) -> Any:
    own = {"k": 1.0}

    def body(x: Any) -> Any:
        k = own["k"]
        return F.tanh(x) * locals()["k"] * k

    return before(decorate(body), lambda i: own.update(k=1.0 + i // 3))


@ROWS.replays
def closures_rebound(decorate: Any) -> Any:
    k = 1.0

    def inner(x: Any) -> Any:
        return x * k

    static = decorate(lambda x: inner(F.tanh(x)))
    cells: Any = inner.__closure__
    return before(static, lambda i: setattr(cells[0], "cell_contents", 1.0 + i // 3))


@ROWS.replays
def descriptors(decorate: Any) -> Any:
    own = {"k": 1.0}

    class Field:
        def __get__(self, instance: Any, owner: Any = None) -> float:
            return own["k"]

    class Decorated(Model):
        k = Field()
        forward = decorate(lambda self, x: self.l(x) * self.k)

    return before(Decorated(), lambda i: own.update(k=1.0 + i // 3))


@ROWS.replays
def attributes_by_hooks(decorate: Any) -> Any:
    own = {"k": 1.0}

    class Decorated(Model):
        def __getattr__(self, name: str) -> Any:
            if name in own:
                return own[name]
            raise AttributeError(name)

        forward = decorate(lambda self, x: self.l(x) * self.k)

    return before(Decorated(), lambda i: own.update(k=1.0 + i // 3))


@ROWS.replays
def inherited_attributes(decorate: Any) -> Any:
    class Base(Model):
        k = 1.0

    class Middle(Base):
        pass

    class Decorated(Middle):
        forward = decorate(lambda self, x: self.l(x) * self.k)

    def change(i: int) -> None:
        Base.k = 1.0 + i // 3
        if i == 5:
            Middle.k = 7.0
        if i == 7:
            del Middle.k
    return before(Decorated(), change)


@ROWS.replays
def methods_by_super(decorate: Any) -> Any:
    class Base(Model):
        def act(self, x: Any) -> Any:
            return F.tanh(x)

    class Decorated(Base):
        def act(self, x: Any) -> Any:
            return super().act(x) * 2

        @decorate
        def forward(self, x: Any) -> Any:
            return self.act(self.l(x))

    def relu(self: Any, x: Any) -> Any:
        return F.relu(x)

    tanh = Base.act
    return before(Decorated(), lambda i: setattr(Base, "act", relu if i // 3 == 1 else tanh))


@ROWS.replays
def modules_with_attribute_hooks(decorate: Any) -> Any:
    own = {"k": 1.0}
    module = types.ModuleType("hooked")
    vars(module)["__getattr__"] = lambda name: own[name]
    static = decorate(lambda x: F.tanh(x) * module.k)
    return before(static, lambda i: own.update(k=1.0 + i // 3))


@ROWS.replays
def annotated_names(decorate: Any) -> Any:
    class Typed:
        k: float

    static = decorate(lambda x: F.tanh(x) * len(Typed.__annotations__))
    return before(static, lambda i: Typed.__annotations__.update({str(i // 3): "int"}))


@ROWS.replays
def docstrings(decorate: Any) -> Any:
    def helper(x: Any) -> Any:
        return x
    helper.__doc__ = "a"
    static = decorate(lambda x: F.tanh(x) * len(helper.__doc__ or ""))
    return before(static, lambda i: setattr(helper, "__doc__", "a" * (1 + i // 3)))


@ROWS.replays
def attributes_of_config_by_module(decorate: Any) -> Any:
    kusari.config.user_k = 1.0
    static = decorate(lambda x: F.tanh(x) * vars(sys.modules["kusari"])["config"].user_k)
    return before(static, lambda i: setattr(kusari.config, "user_k", 1.0 + i // 3))


Do = Callable[..., Any]
BOUND: dict[str, tuple[Do, Do, Do, Do]] = {
    "get": (lambda: {"k": 1.0}, lambda o: o.get, lambda f, x: x * f("k"), lambda o, i: o.update(k=1.0 + i // 3)),
    "__getitem__": (lambda: [1.0], lambda o: o.__getitem__, lambda f, x: x * f(0),
                    lambda o, i: o.__setitem__(0, 1.0 + i // 3)),
    "append": (list, lambda o: o.append, lambda f, x: (f(1), x)[1], lambda o, i: None),
    "pop": (lambda: [float(k) for k in range(30)], lambda o: o.pop, lambda f, x: x * f(), lambda o, i: None),
    "add": (set, lambda o: o.add, lambda f, x: (f(len(x)), x)[1], lambda o, i: o.clear() if i % 3 == 0 else None),
    "update": (dict, lambda o: o.update, lambda f, x: (f(k=1), x)[1], lambda o, i: o.clear() if i % 3 == 0 else None),
    "values": (lambda: {"k": 1.0}, lambda o: o.values, lambda f, x: x * sum(f()),
               lambda o, i: o.update(k=1.0 + i // 3)),
    "count": (lambda: [1], lambda o: o.count, lambda f, x: x * f(1), lambda o, i: o.append(1) if i % 3 == 2 else None),
    "index": (lambda: [0, 5], lambda o: o.index, lambda f, x: x * f(5),
              lambda o, i: o.insert(0, 1) if i == 4 else None),
    "__len__": (lambda: [0, 5], lambda o: o.__len__, lambda f, x: x * f(),
                lambda o, i: o.append(1) if i == 4 else None),
    "__contains__": (lambda: {"a"}, lambda o: o.__contains__, lambda f, x: x if f("a") else F.relu(x),
                     lambda o, i: o.clear() if i == 4 else None),
    "rotate": (lambda: collections.deque([1.0, 2.0]), lambda o: o.rotate, lambda f, x: (f(), x)[1], lambda o, i: None),
    "__next__": (lambda: itertools.count(1), lambda o: o.__next__, lambda f, x: x * f(), lambda o, i: None),
    "item": (lambda: np.ones(2), lambda o: o.item, lambda f, x: x * f(0), lambda o, i: o.fill(1 + i // 3)),
    "sum": (lambda: np.ones(2), lambda o: o.sum, lambda f, x: x * float(f()), lambda o, i: o.fill(1 + i // 3)),
    "set": (lambda: threading.Event(), lambda o: o.is_set, lambda f, x: x if f() else F.relu(x),
            lambda o, i: o.set() if i // 3 == 1 else o.clear()),
    "write": (lambda: __import__("io").StringIO(), lambda o: o.write, lambda f, x: (f("a"), x)[1], lambda o, i: None),
}


@pytest.mark.parametrize("name", BOUND)
def test_bound_methods_kept(name: str) -> None:
    make, bind, body, change = BOUND[name]

    def program(decorate: Any) -> Any:
        o = make()
        f = bind(o)
        static = decorate(lambda x: body(f, F.tanh(x)))

        def call(i: int, x: Any) -> Any:
            change(o, i)
            y = static(x)
            return y, o.getvalue() if name == "write" else None if name in ("set", "__next__") else copy.copy(o)
        return call

    check(program)


# Arguments whose insides change: the same object in every call.

def given(make: Callable[[], Any], read: Callable[[Any, Any], Any], change: Callable[[Any, int], Any]) -> Any:
    def program(decorate: Any) -> Any:
        o = make()
        static = decorate(lambda x, o: read(F.tanh(x), o))

        def call(i: int, x: Any) -> Any:
            change(o, i)
            return static(x, o), static(x, copy.deepcopy(o))
        return call
    return program


ARGUMENTS = {
    "OrderedDict": (lambda: collections.OrderedDict(a=1.0, b=2.0), lambda x, o: x * next(iter(o.values())),
                    lambda o, i: o.move_to_end("a" if i // 3 == 1 else "b")),
    "dataclass": (Settings, lambda x, o: x * o.k * (1 + len(o.names)),
                  lambda o, i: (setattr(o, "k", 1.0 + i // 4), o.names.append("a") if i == 6 else None)),
    "dataclass in a dataclass": (lambda: Settings(inner=Settings()), lambda x, o: x * o.inner.k,
                                 lambda o, i: setattr(o.inner, "k", 1.0 + i // 3)),
    "dataclass in a list": (lambda: [Settings()], lambda x, o: x * o[0].k,
                            lambda o, i: setattr(o[0], "k", 1.0 + i // 3)),
    "namespace": (lambda: types.SimpleNamespace(k=1.0), lambda x, o: x * o.k,
                  lambda o, i: setattr(o, "k", 1.0 + i // 3)),
    "object": (Shown, lambda x, o: x * o.k, lambda o, i: setattr(o, "k", 1.0 + i // 3)),
    "text of an object": (Shown, lambda x, o: x * float(f"{o}"), lambda o, i: setattr(o, "k", 1.0 + i // 3)),
    "list": (lambda: [1.0, [2.0]], lambda x, o: x * o[1][0], lambda o, i: o[1].__setitem__(0, 1.0 + i // 3)),
    "set": (lambda: {1.0}, lambda x, o: x * sum(o), lambda o, i: o.add(float(i // 3))),
    "deque": (lambda: collections.deque([1.0], maxlen=2), lambda x, o: x * sum(o),
              lambda o, i: o.append(float(i // 3))),
    "dict of objects": (lambda: {"a": Settings()}, lambda x, o: x * o["a"].k,
                        lambda o, i: setattr(o["a"], "k", 1.0 + i // 3)),
    "defaultdict": (lambda: collections.defaultdict(float, a=1.0), lambda x, o: x * o["a"],
                    lambda o, i: o.update(a=1.0 + i // 3)),
    "Counter": (lambda: collections.Counter("ab"), lambda x, o: x * o["a"],
                lambda o, i: o.update("a" if i == 4 else "")),
    "array in an object": (lambda: types.SimpleNamespace(a=np.ones(4, "f")), lambda x, o: x * o.a,
                           lambda o, i: o.a.fill(1 + i // 3)),
    "function's closure": (lambda: [lambda o=[1.0]: o[0]], lambda x, o: x * o[0](),
                           lambda o, i: o[0].__defaults__[0].__setitem__(0, 1.0 + i // 3)),
    "class": (lambda: Shown, lambda x, o: x * getattr(o, "factor", 1.0),
              lambda o, i: setattr(o, "factor", 1.0 + i // 3)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_with_insides(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shown, "factor", 1.0, raising=False)
    check(given(*ARGUMENTS[name]))


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
