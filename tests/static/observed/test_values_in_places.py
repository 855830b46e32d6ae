"""Values that are not of the user's own types, in globals, closures, attributes and other places: each is replaced."""
from __future__ import annotations

import array
import collections
import contextvars
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import operator
import pathlib
import re
import types
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from static.models import Model
from static.observed.harness import check

import kusari
import kusari.functions as F
import kusari.links as L

K: Any = 1.0


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
    "initializer": (kusari.initializers.Constant(1.0), kusari.initializers.Constant(2.0),
                    lambda v, x: x * v.fill_value),
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
    return decorate(lambda x: scaled(F.tanh(x))), lambda v: setattr(scaled, "__kwdefaults__", {"k": v})


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
    def program(decorate: Any) -> Any:
        before, after, use = VALUES[name]
        if isinstance(before, kusari.Link):  # which learns
            before, after = copy.deepcopy((before, after))
        static, put = PLACES[where](decorate, use)

        def call(i: int, x: Any) -> Any:
            put(after if i in (3, 4, 5) else before)
            return static(x)
        return call

    check(program, None if name in ARRAYS else "replays")
