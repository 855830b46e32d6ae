"""Objects whose insides change, looked at by texts, patterns, comparisons, conversions and computed names."""
from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import itertools
import json
import operator
import pickle
import pprint
import string
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
from static.models import Settings, build
from static.observed.harness import before, check

import kusari.functions as F

BY_ATTRIBUTE, BY_ITEM = "{0.k}", "{0[k]}"


@dataclasses.dataclass(order=True)
class Ordered:
    k: float = 1.0


class Shown:
    def __init__(self) -> None:
        self.k = 1.0

    def __str__(self) -> str:
        return f"{self.k}"

    def __repr__(self) -> str:
        return f"Shown({self.k})"

    def __format__(self, spec: str) -> str:
        return f"{self.k:{spec}}"

    def __bytes__(self) -> bytes:
        return b"a" * int(self.k)

    def __index__(self) -> int:
        return int(self.k)

    def __int__(self) -> int:
        return int(self.k)

    def __float__(self) -> float:
        return self.k

    def __bool__(self) -> bool:
        return self.k > 1

    def __len__(self) -> int:
        return int(self.k)

    def __eq__(self, other: object) -> bool:
        return self.k == other

    def __hash__(self) -> int:
        return int(self.k)

    def __lt__(self, other: float) -> bool:
        return self.k < other

    def __contains__(self, item: object) -> bool:
        return item == self.k

    def __iter__(self) -> Any:
        return iter([self.k, 1.0])

    def __reversed__(self) -> Any:
        return iter([1.0, self.k])

    def __getitem__(self, item: Any) -> float:
        return self.k

    def __neg__(self) -> float:
        return -self.k

    def __add__(self, other: float) -> float:
        return self.k + other

    def __rmul__(self, other: Any) -> Any:
        return other * self.k

    def __round__(self, digits: int = 0) -> float:
        return self.k

    def __call__(self) -> float:
        return self.k

    def __getattr__(self, name: str) -> float:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.k

    def __enter__(self) -> float:
        return self.k

    def __exit__(self, *exc: object) -> None:
        self.left = self.k

    def __dir__(self) -> list[str]:
        return ["a"] * int(self.k)

    @property
    def doubled(self) -> float:
        return 2 * self.k


def matched(o: Any, x: Any) -> Any:
    match o:
        case Settings(k=1.0):
            return x
        case Settings(k, [first, *_]) if k < 3:
            return x * k * len(first)
        case Settings(k):
            return F.relu(x) * k
        case _:
            return x * 9


def matched_mapping(o: Any, x: Any) -> Any:
    match vars(o):
        case {"k": 1.0}:
            return x
        case {"k": float(k), **rest}:
            return x * k * len(rest)
    return x * 9


def entered(o: Any, x: Any) -> Any:
    with o as k:
        return x * k


def unpacked(o: Any, x: Any) -> Any:
    first, *rest = o
    return x * first * sum(rest)


def keywords(o: Any, x: Any) -> Any:
    def inner(k: float, **more: Any) -> Any:
        return x * k * (1 + len(more))
    return inner(**vars(o))


def caught(o: Any, x: Any) -> Any:
    try:
        raise ValueError(o.k)
    except ValueError as error:
        return x * error.args[0]


# Each: a class, and a static function of an object of it and x; its ``k`` is set.
LOOKS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "str": (Shown, lambda o, x: x * float(str(o))),
    "repr": (Shown, lambda o, x: x * len(repr(o)) if "1.0" in repr(o) else F.relu(x)),
    "%r": (Shown, lambda o, x: x if operator.mod("%r", (o,)) == "Shown(1.0)" else F.relu(x)),
    "%s": (Shown, lambda o, x: x * float(operator.mod("%s", o))),
    "%d": (Shown, lambda o, x: x * float(operator.mod("%d", o))),
    "f-string": (Shown, lambda o, x: x * float(f"{o:.2f}")),
    "f-string of a repr": (Shown, lambda o, x: x if f"{o!r}" == "Shown(1.0)" else F.relu(x)),
    "format with attribute": (Settings, lambda o, x: x * float(BY_ATTRIBUTE.format(o))),
    "format with item": (Settings, lambda o, x: x * float(BY_ITEM.format(vars(o)))),
    "template": (Settings, lambda o, x: x * float(string.Template("$k").substitute(vars(o)))),
    "format": (Shown, lambda o, x: x * float(format(o, ".1f"))),
    "print": (Shown, lambda o, x: x if print(o) else F.relu(x)),
    "json": (Settings, lambda o, x: x * json.loads(json.dumps(vars(o)))["k"]),
    "pickle": (Settings, lambda o, x: x * pickle.loads(pickle.dumps(o)).k),
    "copy": (Settings, lambda o, x: x * copy.copy(o).k),
    "deepcopy": (Settings, lambda o, x: x * copy.deepcopy([o])[0].k),
    "pformat": (Settings, lambda o, x: x * (pprint.pformat(o).count("2") + 1)),
    "bytes": (Shown, lambda o, x: x * len(bytes(o))),
    "index": (Shown, lambda o, x: x * [4.0, 1.0, 3.0, 5.0][o]),
    "hex": (Shown, lambda o, x: x * len(hex(o)) if hex(o) == "0x1" else F.relu(x)),
    "int": (Shown, lambda o, x: x * int(o)),
    "float": (Shown, lambda o, x: x * float(o)),
    "bool": (Shown, lambda o, x: F.relu(x) if o else x),
    "not": (Shown, lambda o, x: F.relu(x) if not o else x),
    "any": (Shown, lambda o, x: F.relu(x) if any([o]) else x),
    "len": (Shown, lambda o, x: x * len(o)),
    "==": (Shown, lambda o, x: x if o == 1.0 else F.relu(x)),
    "in a list": (Shown, lambda o, x: x if 1.0 in [o] else F.relu(x)),
    "count": (Shown, lambda o, x: x * [o, o, 1.0].count(1.0)),
    "hash": (Shown, lambda o, x: x * hash(o)),
    "<": (Shown, lambda o, x: x if o < 1.5 else F.relu(x)),
    "sorted": (Ordered, lambda o, x: x * sorted([o, Ordered(1.5)])[0].k),
    "max": (Ordered, lambda o, x: x * max(o, Ordered(1.5)).k),
    "in": (Shown, lambda o, x: x if 1.0 in o else F.relu(x)),
    "sum": (Shown, lambda o, x: x * sum(o)),
    "sum of floats": (Shown, lambda o, x: x * (2 + sum([1e16, *[1.0] * int(o.k), -1e16]))),  # rounds less from 3.12 on
    "sum of floats that change": (Shown, lambda o, x: x * (2 + sum([1e16, 1.0, o.k, -1e16]))),
    "sum of floats from arrays": (Shown, lambda o, x: x * (2 + sum([1e16, 1.0, float(x.array.max()), -1e16, 1.0]))),
    "sum of floats and others": (Shown, lambda o, x: sum([1e16, 1.0, -1e16, x * o.k, 0.5, True])),
    "list": (Shown, lambda o, x: x * list(o)[0]),
    "reversed": (Shown, lambda o, x: x * list(reversed(o))[1]),
    "unpacked": (Shown, unpacked),
    "starred": (Shown, lambda o, x: x * max(*o)),
    "item": (Shown, lambda o, x: x * o["anything"]),
    "negative": (Shown, lambda o, x: x * -o),
    "plus": (Shown, lambda o, x: x * (o + 1.0)),
    "on the right": (Shown, lambda o, x: x * (2.0 * o)),
    "round": (Shown, lambda o, x: x * round(o)),
    "called": (Shown, lambda o, x: x * o()),
    "map": (Shown, lambda o, x: x * sum(map(float, [o, o]))),
    "any attribute": (Shown, lambda o, x: x * o.whatever),
    "property": (Shown, lambda o, x: x * o.doubled),
    "entered": (Shown, entered),
    "dir": (Shown, lambda o, x: x * len(dir(o))),
    "match": (Settings, matched),
    "match of a mapping": (Settings, matched_mapping),
    "asdict": (Settings, lambda o, x: x * dataclasses.asdict(o)["k"]),
    "astuple": (Settings, lambda o, x: x * dataclasses.astuple(o)[0]),
    "replace": (Settings, lambda o, x: x * dataclasses.replace(o, names=["a"]).k),
    "fields": (Settings, lambda o, x: x * getattr(o, dataclasses.fields(o)[0].name)),
    "== of dataclasses": (Settings, lambda o, x: x if o == Settings() else F.relu(x)),
    "== of namespaces": (lambda: types.SimpleNamespace(k=1.0),
                         lambda o, x: x if o == types.SimpleNamespace(k=1.0) else F.relu(x)),
    "repr of a namespace": (lambda: types.SimpleNamespace(k=1.0), lambda o, x: x if "k=1.0" in repr(o) else F.relu(x)),
    "getmembers": (Settings, lambda o, x: x * dict(inspect.getmembers(o))["k"]),
    "getattr_static": (Settings, lambda o, x: x * inspect.getattr_static(o, "k")),
    "attrgetter": (Settings, lambda o, x: x * operator.attrgetter("k")(o)),
    "attrgetter of two": (Settings, lambda o, x: x * operator.attrgetter("k", "names")(o)[0]),
    "methodcaller": (Shown, lambda o, x: x * operator.methodcaller("__float__")(o)),
    "itemgetter": (Shown, lambda o, x: x * operator.itemgetter(3)(o)),
    "computed name": (Settings, lambda o, x: x * getattr(o, "kl"[:1])),
    "name from the shape": (Settings, lambda o, x: x * getattr(o, "jklm"[len(x) - 2])),
    "names of vars": (Settings, lambda o, x: x * sum(v for v in vars(o).values() if type(v) is float)),
    "__dict__": (Settings, lambda o, x: x * o.__dict__["k"]),
    "__getattribute__": (Settings, lambda o, x: x * object.__getattribute__(o, "k")),
    "type's method": (Shown, lambda o, x: x * type(o).__float__(o)),
    "keywords": (Settings, keywords),
    "raised": (Settings, caught),
    "cast": (Settings, lambda o, x: x * typing.cast(Settings, o).k),
    "reduce by keyword": (Settings, lambda o, x: x * functools.reduce(
        lambda a, b: a + getattr(b, "k", b), [1.0, o], **({"initial": 0.5} if sys.version_info >= (3, 14) else {}))),
    "reduce": (Settings, lambda o, x: x * functools.reduce(lambda a, b: a + b.k, [o, o], 0.0)),
    "filter": (Settings, lambda o, x: x * len(list(filter(lambda s: s.k > 1, [o, o]))) + x),
    "sort with a key": (Settings, lambda o, x: x * sorted([o, Settings(1.5)], key=lambda s: s.k)[0].k),
    "any of a generator": (Settings, lambda o, x: F.relu(x) if any(s.k > 1 for s in [o]) else x),
    "chained": (Settings, lambda o, x: x * sum(s.k for s in itertools.chain([o], [o]))),
    "starmap": (Settings, lambda o, x: x * sum(itertools.starmap(lambda s, n: s.k * n, [(o, 2.0)]))),
}


MAY_FALL_BACK = {"print", "pickle", "entered", "dir",
                 # Code in C calls the object's Python, or reads what is behind a descriptor.
                 "json", "bytes", "hex", "count", "sorted", "max", "match", "getattr_static"}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("where", ["closure", "attribute"])
def test_objects_looked_at(where: str, name: str) -> None:
    """The object itself stays, what is in it changes."""
    make, look = LOOKS[name]

    def program(decorate: Any) -> Any:
        o = make()
        if where == "closure":
            static = decorate(lambda x: look(o, F.tanh(x)))
        else:
            static = build(decorate(lambda s, x: look(s.o, s.l(x))), o=o)
        return before(static, lambda i: setattr(o, "k", 1.0 + i // 3))

    check(program, None if name in MAY_FALL_BACK else "replays")
