"""Globals, closures, attributes and the like that hold anything but the user's own types, and names that are replaced."""
from __future__ import annotations

import argparse
import array
import builtins
import collections
import contextvars
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import importlib
import logging
import math
import operator
import os
import pathlib
import re
import sys
import time
import types
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from static.observed.harness import Model, Rows, check

import kusari
import kusari.functions as F
import kusari.links as L

ROWS = Rows()
K: Any = 1.0
LATER: float  # some programs set it
ACT: Any = F.relu
LOSS: Any = F.mean_squared_error
TABLE: Any = {}
args = argparse.Namespace(scale=1.0, act="relu", inner=types.SimpleNamespace(k=1.0, kinds=["a"]))
log = logging.getLogger("observed")


class Mode(enum.Enum):
    A = 1.0
    B = 2.5


class Flag(enum.IntFlag):
    A = 1
    B = 2


class Point(NamedTuple):
    a: float
    b: float = 1.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    k: float
    names: tuple[str, ...] = ()


@dataclasses.dataclass
class Box:
    k: Any = None


class Slotted:
    __slots__ = ("k",)


class Number(float):
    pass


class Scaling:
    def __init__(self, k: float) -> None:
        self.k = k

    def __call__(self, x: Any) -> Any:
        return F.tanh(x) * self.k


class Other(Scaling):
    def __call__(self, x: Any) -> Any:
        return F.relu(x) - self.k


# Values that are no containers of the user's, and a static function's number (or function of x) of each.
VALUES: dict[str, tuple[Any, Any, Callable[[Any, Any], Any]]] = {
    "function": (F.relu, F.tanh, lambda v, x: v(x)),
    "builtin": (max, min, lambda v, x: x * v(1.0, 2.0)),
    "operator": (operator.add, operator.mul, lambda v, x: v(x, 2.0)),
    "lambda": (lambda x: F.relu(x), lambda x: F.tanh(x), lambda v, x: v(x)),
    "same code": ((lambda k: lambda x: x * k)(1.0), (lambda k: lambda x: x * k)(2.0), lambda v, x: v(x)),
    "partial": (functools.partial(F.leaky_relu, slope=0.1), functools.partial(F.leaky_relu, slope=0.7),
                lambda v, x: v(x)),
    "callable object": (Scaling(1.0), Scaling(2.0), lambda v, x: v(x)),
    "callable of another class": (Scaling(1.0), Other(1.0), lambda v, x: v(x)),
    "bound method": (Scaling(1.0).__call__, Scaling(3.0).__call__, lambda v, x: v(x)),
    "class": (Scaling, Other, lambda v, x: v(2.0)(x)),
    "dtype": (np.float32, np.float64, lambda v, x: F.cast(x, v)),
    "dtype object": (np.dtype("f"), np.dtype("d"), lambda v, x: F.cast(x, v)),
    "fraction": (fractions.Fraction(1, 2), fractions.Fraction(3, 2), lambda v, x: x * float(v)),
    "decimal": (decimal.Decimal("0.5"), decimal.Decimal("1.5"), lambda v, x: x * float(v)),
    "complex": (1 + 2j, 1 + 3j, lambda v, x: x * v.imag),
    "numpy scalar": (np.float32(1.5), np.float32(2.5), lambda v, x: x * v),
    "numpy integer": (np.int64(1), np.int64(2), lambda v, x: x * int(v)),
    "bool": (True, False, lambda v, x: F.relu(x) if v else F.tanh(x)),
    "None": (None, 2.0, lambda v, x: x if v is None else x * v),
    "ellipsis": (..., None, lambda v, x: x * (1.0 if v is ... else 2.0)),
    "string": ("relu", "tanh", lambda v, x: getattr(F, v)(x)),
    "bytes": (b"a", b"abc", lambda v, x: x * len(v)),
    "range": (range(3), range(1, 7, 2), lambda v, x: x * sum(v)),
    "slice": (slice(0, 2), slice(1, 3), lambda v, x: x[v]),
    "slices": ((slice(None), slice(0, 2)), (slice(1, 3), slice(None)), lambda v, x: x[v]),
    "frozenset": (frozenset("ab"), frozenset("abc"), lambda v, x: x * len(v) if "c" in v else x),
    "enum": (Mode.A, Mode.B, lambda v, x: x * v.value if v is Mode.A else F.tanh(x)),
    "flag": (Flag.A, Flag.A | Flag.B, lambda v, x: x * 2.0 if v & Flag.B else x),
    "named tuple": (Point(1.0), Point(1.0, 2.0), lambda v, x: x * v.b),
    "frozen dataclass": (Frozen(1.0), Frozen(1.0, ("a",)), lambda v, x: x * (v.k + len(v.names))),
    "number of a subclass": (Number(1.5), Number(2.5), lambda v, x: x * float(v)),
    "datetime": (datetime.datetime(2020, 1, 2), datetime.datetime(2020, 1, 3), lambda v, x: x * v.day),
    "timedelta": (datetime.timedelta(1), datetime.timedelta(2), lambda v, x: x * v.days),
    "path": (pathlib.PurePath("a"), pathlib.PurePath("abc"), lambda v, x: x * len(v.name)),
    "pattern": (re.compile("a+"), re.compile("a|c"), lambda v, x: x * len(v.findall("aac"))),
    "uuid": (uuid.UUID(int=1), uuid.UUID(int=2), lambda v, x: x * (v.int % 7)),
    "module": (types.SimpleNamespace(act=F.relu), types.SimpleNamespace(act=F.tanh), lambda v, x: v.act(x)),
    "deque": (collections.deque([1.0]), collections.deque([1.0, 2.0]), lambda v, x: x * sum(v)),
    "counter": (collections.Counter("a"), collections.Counter("aab"), lambda v, x: x * v["a"]),
    "chain map": (collections.ChainMap({"k": 1.0}), collections.ChainMap({}, {"k": 2.0}), lambda v, x: x * v["k"]),
    "read-only dict": (types.MappingProxyType({"k": 1.0}), types.MappingProxyType({"k": 2.0}), lambda v, x: x * v["k"]),
    "numbers": (array.array("d", [1.0]), array.array("d", [2.0]), lambda v, x: x * v[0]),
    "numpy array": (np.full(4, 2, "f"), np.arange(4, dtype="f"), lambda v, x: x * v),
    "variable": (kusari.Variable(np.full(4, 2, "f")), kusari.Variable(np.arange(4, dtype="f")), lambda v, x: x * v),
    "getter": (operator.itemgetter(0), operator.itemgetter(1), lambda v, x: x * v((1.0, 2.0))),
    "attribute getter": (operator.attrgetter("real"), operator.attrgetter("imag"), lambda v, x: x * v(1 + 2j)),
    "context variable": (contextvars.ContextVar("a", default=1.0), contextvars.ContextVar("b", default=2.0),
                         lambda v, x: x * v.get()),
    "initializer": (kusari.initializers.Constant(1.0), kusari.initializers.Constant(2.0), lambda v, x: x * v.fill_value),
    "exception": (ValueError("a"), ValueError("ab"), lambda v, x: x * len(v.args[0])),
    "link": (L.PReLU(init=0.1), L.PReLU(init=0.9), lambda v, x: v(x)),
}
ARRAYS = {"numpy array", "variable", "link"}  # may be reasons to fall back
Place = Callable[[Any, Callable[[Any, Any], Any]], tuple[Callable[[Any], Any], Callable[[Any], Any]]]
PLACES: dict[str, Place] = {}


def place(f: Place) -> Place:
    PLACES[f.__name__] = f
    return f


@place
def global_name(decorate: Any, use: Any) -> Any:
    def put(v: Any) -> None:
        global K
        K = v
    return decorate(lambda x: use(K, F.tanh(x))), put


def helper(use: Any, x: Any) -> Any:
    return use(K, x)


@place
def global_of_helper(decorate: Any, use: Any) -> Any:
    return decorate(lambda x: helper(use, F.tanh(x))), lambda v: globals().update(K=v)


@place
def closure(decorate: Any, use: Any) -> Any:
    k = None

    def put(v: Any) -> None:
        nonlocal k
        k = v
    return decorate(lambda x: use(k, F.tanh(x))), put


@place
def attribute(decorate: Any, use: Any) -> Any:
    class Decorated(Model):
        k: Any = None
        forward = decorate(lambda self, x: use(self.k, self.l(x)))

    model = Decorated()
    return model, lambda v: setattr(model, "k", v)


@place
def class_attribute(decorate: Any, use: Any) -> Any:
    class Decorated(Model):
        k: tuple[Any, ...] = ()
        forward = decorate(lambda self, x: use(self.k[0], self.l(x)))

    return Decorated(), lambda v: setattr(Decorated, "k", (v,))


@place
def item(decorate: Any, use: Any) -> Any:
    table: dict[str, Any] = {}
    return decorate(lambda x: use(table["k"], F.tanh(x))), lambda v: table.update(k=v)


@place
def default(decorate: Any, use: Any) -> Any:
    def scaled(x: Any, *, k: Any = None) -> Any:
        return use(k, x)
    return decorate(lambda x: scaled(F.tanh(x))), lambda v: scaled.__kwdefaults__.update(k=v)


@place
def dataclass(decorate: Any, use: Any) -> Any:
    box = Box()
    return decorate(lambda x: use(box.k, F.tanh(x))), lambda v: setattr(box, "k", v)


@place
def slot(decorate: Any, use: Any) -> Any:
    box = Slotted()
    return decorate(lambda x: use(box.k, F.tanh(x))), lambda v: setattr(box, "k", v)


@place
def configuration(decorate: Any, use: Any) -> Any:
    return decorate(lambda x: use(kusari.config.user_k, F.tanh(x))), lambda v: setattr(kusari.config, "user_k", v)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("where", PLACES)
def test_values_in_places(where: str, name: str) -> None:
    """A value is replaced, and comes back."""
    before, after, use = VALUES[name]

    def program(decorate: Any) -> Any:
        static, put = PLACES[where](decorate, use)

        def call(i: int, x: Any) -> Any:
            put(after if i in (3, 4, 5) else before)
            return static(x)
        return call

    check(program, None if name in ARRAYS else "replays")


def changed(set_value: Callable[[Any], Any], values: Any, static: Any) -> Any:
    """Return a call that sets the first value, from the fourth call on the second, and at last the first again."""
    def call(i: int, x: Any) -> Any:
        set_value(values[i in (3, 4, 5)])
        return static(x)
    return call


@ROWS.replays
def loss_function(decorate: Any) -> Any:
    return changed(lambda v: globals().update(LOSS=v), (F.mean_squared_error, F.mean_absolute_error),
                   decorate(lambda x: LOSS(F.tanh(x), x)))


@ROWS.replays
def parsed_arguments(decorate: Any) -> Any:
    args.act = "relu"
    static = decorate(lambda x: F.tanh(x) * args.scale if args.act == "relu" else F.relu(x) * args.scale)

    def call(i: int, x: Any) -> Any:
        args.scale = float(i // 3)
        args.act = "tanh" if i == 7 else "relu"
        return static(x)
    return call


@ROWS.replays
def arguments_parsed_again(decorate: Any) -> Any:
    def read(*words: str) -> Any:
        parser = argparse.ArgumentParser()
        parser.add_argument("--scale", type=float, default=1.0)
        return parser.parse_args(words)
    return changed(lambda v: globals().update(args=v), (read(), read("--scale", "3")),
                   decorate(lambda x: F.tanh(x) * args.scale))


@ROWS.replays
def namespace_in_a_namespace(decorate: Any) -> Any:
    args.inner.kinds[:] = ["a"]

    def call(i: int, x: Any) -> Any:
        args.inner.k = 1.0 + i // 4
        args.inner.kinds[0] = "b" if i in (2, 3) else "a"
        return static(x)
    static = decorate(lambda x: F.tanh(x) * args.inner.k if "a" in args.inner.kinds else F.relu(x))
    return call


@ROWS.replays
def attributes_of_vars(decorate: Any) -> Any:
    return changed(lambda v: setattr(args, "scale", v), (1.0, 2.0), decorate(lambda x: F.tanh(x) * vars(args)["scale"]))


@ROWS.either
def namespaces_compared(decorate: Any) -> Any:
    one, two = types.SimpleNamespace(k=1.0), types.SimpleNamespace(k=1.0)
    return changed(lambda v: setattr(one, "k", v), (1.0, 2.0),
                   decorate(lambda x: F.tanh(x) if one == two else F.relu(x)))


@ROWS.replays
def deque_that_rolls(decorate: Any) -> Any:
    last: Any = collections.deque([1.0, 2.0], maxlen=2)
    return changed(lambda v: last.append(v), (1.0, 5.0), decorate(lambda x: F.tanh(x) * (last[0] + 2 * last[-1])))


@ROWS.replays
def keywords_of_a_partial(decorate: Any) -> Any:
    act = functools.partial(F.leaky_relu, slope=0.1)
    globals().update(ACT=act)
    return changed(lambda v: act.keywords.update(slope=v), (0.1, 0.6), decorate(lambda x: ACT(x)))


@ROWS.replays
def partial_of_a_partial(decorate: Any) -> Any:
    table = {"k": 1.0}
    act = functools.partial(functools.partial(lambda t, s, x: F.tanh(x) * t["k"] * s, table), 2.0)
    globals().update(ACT=act)
    return changed(lambda v: table.update(k=v), (1.0, 3.0), decorate(lambda x: ACT(x)))


@ROWS.replays
def module_in_a_global(decorate: Any) -> Any:
    other = types.ModuleType("other")
    other.__dict__.update(relu=F.tanh)
    return changed(lambda v: globals().update(ACT=v), (F, other), decorate(lambda x: ACT.relu(x)))


@ROWS.either
def module_in_sys_modules(decorate: Any) -> Any:
    """Imported in the function."""
    first, second = types.ModuleType("of_the_user"), types.ModuleType("of_the_user")
    first.__dict__.update(k=1.0)
    second.__dict__.update(k=2.0)

    def body(x: Any) -> Any:
        import of_the_user as user
        return F.tanh(x) * user.k

    return changed(lambda v: sys.modules.update(of_the_user=v), (first, second), decorate(body))


@ROWS.either
def module_by_import_module(decorate: Any) -> Any:
    module = types.ModuleType("of_another_user")
    sys.modules["of_another_user"] = module
    return changed(lambda v: module.__dict__.update(k=v), (1.0, 2.0),
                   decorate(lambda x: F.tanh(x) * importlib.import_module("of_another_user").k))


@ROWS.either
def global_by_globals(decorate: Any) -> Any:
    return changed(lambda v: globals().update(K=v), (1.0, 2.0), decorate(lambda x: F.tanh(x) * globals()["K"]))


@ROWS.either
def global_by_the_module(decorate: Any) -> Any:
    return changed(lambda v: globals().update(K=v), (1.0, 2.0),
                   decorate(lambda x: F.tanh(x) * vars(sys.modules[__name__])["K"]))


@ROWS.either
def global_by_eval(decorate: Any) -> Any:
    return changed(lambda v: globals().update(K=v), (1.0, 2.0), decorate(lambda x: F.tanh(x) * eval("K + 1")))


@ROWS.either
def global_counted_by_the_function(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        global K
        K += 1
        return F.tanh(x) * K

    globals().update(K=0)
    static = decorate(body)
    return lambda i, x: (static(x), K)


@ROWS.replays
def global_that_hides_a_builtin(decorate: Any) -> Any:
    static = decorate(lambda x: F.tanh(x) * abs(-2.0))

    def call(i: int, x: Any) -> Any:
        if i == 3:
            globals()["abs"] = lambda v: v
        if i == 6:
            del globals()["abs"]
        return static(x)
    return call


@ROWS.replays
def global_that_hides_a_builtin_of_a_helper(decorate: Any) -> Any:
    def inner(x: Any) -> Any:
        return [F.tanh(x) * k for k in sorted([2.0, 1.0])][0]
    static = decorate(lambda x: inner(x))

    def call(i: int, x: Any) -> Any:
        if i == 4:
            globals()["sorted"] = list
        return static(x)
    return call


@ROWS.replays
def name_added_to_builtins(decorate: Any) -> Any:
    def call(i: int, x: Any) -> Any:
        with mock.patch.object(builtins, "round", lambda v: v) if i in (3, 4) else mock.patch.object(args, "scale", 1.0):
            return static(x)
    static = decorate(lambda x: F.tanh(x) * round(1.6))
    return call


@ROWS.replays
def global_that_comes_and_goes(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        try:
            return F.tanh(x) * LATER
        except NameError:
            return F.relu(x)

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        if i == 3:
            globals()["LATER"] = 2.0
        if i == 6:
            del globals()["LATER"]
        return static(x)
    return call


PATCHES: dict[str, tuple[Any, str, Any, Callable[[Any], Any]]] = {
    "a function of the library": (F, "tanh", lambda x: F.sigmoid(x), lambda x: F.tanh(x)),
    "a function another calls": (F, "sigmoid", lambda x: F.relu(x), lambda x: (lambda h: F.sigmoid(h))(F.tanh(x))),
    "a method of a link of the library": (L.PReLU, "forward", lambda self, x: F.tanh(x), lambda x: PRELU(x)),
    "a function of math": (math, "sqrt", lambda v: 3.0, lambda x: F.tanh(x) * math.sqrt(4.0)),
    "a number of math": (math, "pi", 3.0, lambda x: F.tanh(x) * math.pi),
    "a number of numpy": (np, "pi", 3.0, lambda x: F.tanh(x) * np.pi),
    "a function of numpy": (np, "hypot", lambda a, b: 1.0, lambda x: F.tanh(x) * float(np.hypot(3.0, 4.0))),
    "a clock": (time, "time", lambda: 5.0, lambda x: F.tanh(x) * (1.0 if time.time() < 10 else 2.0)),
    "a built-in": (builtins, "len", lambda o: 9, lambda x: F.tanh(x) * len("ab")),
    "a built-in class": (builtins, "range", lambda n: [5], lambda x: F.tanh(x) * sum(range(3))),
    "a function of functools": (functools, "reduce", lambda f, s: 4.0,
                                lambda x: F.tanh(x) * functools.reduce(operator.add, [1.0, 2.0])),
    "a function of operator": (operator, "neg", lambda v: v, lambda x: F.tanh(x) * operator.neg(2.0)),
    "a class of the library": (L, "PReLU", L.Linear, lambda x: F.tanh(x) if isinstance(PRELU, L.PReLU) else F.relu(x)),
    "a method of a user's class": (Scaling, "__call__", lambda self, x: F.relu(x), lambda x: SCALING(x)),
    "an attribute of a user's class": (Scaling, "k2", 2.0, lambda x: F.tanh(x) * getattr(Scaling, "k2", 1.0)),
    "a function of this module": (sys.modules[__name__], "helper", lambda use, x: F.relu(x), lambda x: helper(mul, x)),
    "arguments of the process": (sys, "argv", ["a", "b", "c"], lambda x: F.tanh(x) * len(sys.argv)),
    "a dictionary of the process": (os, "environ", {"HOME": "abcdef"}, lambda x: F.tanh(x) * len(os.environ["HOME"])),
    "the working directory": (os, "getcwd", lambda: "/a", lambda x: F.tanh(x) * len(os.getcwd())),
}
PRELU, SCALING, mul = L.PReLU(), Scaling(2.0), lambda k, x: F.tanh(x) * 2.0


@pytest.mark.parametrize("name", PATCHES)
def test_patched_names(name: str) -> None:
    of, attribute, new, body = PATCHES[name]

    def program(decorate: Any) -> Any:
        static = decorate(body)

        def call(i: int, x: Any) -> Any:
            if i not in (3, 4):
                return static(x)
            with mock.patch.object(of, attribute, new, create=True):
                return static(x)
        return call

    check(program)


@ROWS.replays
def variables_of_the_environment(decorate: Any) -> Any:
    return changed(lambda v: os.environ.update(OBSERVED=v) if v else os.environ.pop("OBSERVED", None), ("", "3"),
                   decorate(lambda x: F.tanh(x) * float(os.environ.get("OBSERVED", 1))))


@ROWS.either
def level_of_a_logger(decorate: Any) -> Any:
    return changed(log.setLevel, (logging.ERROR, logging.INFO),
                   decorate(lambda x: F.tanh(x) if log.isEnabledFor(logging.INFO) else F.relu(x)))


@ROWS.either
def options_of_numpy(decorate: Any) -> Any:
    def call(i: int, x: Any) -> Any:
        with np.errstate(divide="ignore" if i // 2 % 2 else "warn"):
            return static(x)
    static = decorate(lambda x: F.tanh(x) if np.geterr()["divide"] == "ignore" else F.relu(x))
    return call


@ROWS.either
def depth_of_the_interpreter(decorate: Any) -> Any:
    before = sys.getrecursionlimit()

    def call(i: int, x: Any) -> Any:
        sys.setrecursionlimit(before + i // 4)
        try:
            return static(x)
        finally:
            sys.setrecursionlimit(before)
    static = decorate(lambda x: F.tanh(x) * (sys.getrecursionlimit() % 7))
    return call


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules and variables of the environment that programs set go when the test ends."""
    for name in ("of_the_user", "of_another_user"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setenv("OBSERVED", "1")


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
