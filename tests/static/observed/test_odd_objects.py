"""Objects out of the ordinary, of which none may crash, be confused with another or be asked what it refuses."""
from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from static.models import build
from static.observed.harness import check

import kusari.functions as F
import kusari.links as L
from kusari import Variable, static_graph
from kusari.static import StaticGraphWarning


class Attributes(dict[str, Any]):
    """A dictionary whose items are attributes, as many have written it."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Raising(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]


class Anything:
    """Has any attribute there is."""

    k = 2.0

    def __getattr__(self, name: str) -> Any:
        return Anything()

    def __call__(self, *args: Any) -> Any:
        return 3.0


class Refusing:
    k = 2.0

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare me")

    def __hash__(self) -> int:
        raise RuntimeError("do not hash me")

    def __bool__(self) -> bool:
        raise RuntimeError("do not ask me")

    def __len__(self) -> int:
        raise RuntimeError("do not count me")

    def __repr__(self) -> str:
        raise RuntimeError("do not show me")

    def __iter__(self) -> Any:
        raise RuntimeError("do not walk me")

    def __reduce__(self) -> Any:
        raise RuntimeError("do not pickle me")

    def __copy__(self) -> Any:
        raise RuntimeError("do not copy me")

    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("do not copy me")


class Comparing:
    """Compares like an array."""

    k = 2.0

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])

    def __hash__(self) -> int:
        raise TypeError("unhashable")


class Alike:
    """Equal to everything."""

    def __init__(self, k: float) -> None:
        self.k = k

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Lying:
    k = 2.0

    @property
    def __class__(self) -> Any:
        return np.ndarray


class NoWeakReference:
    __slots__ = ("k",)

    def __init__(self) -> None:
        self.k = 2.0


class Guarded:
    """Counts whoever reads its attributes: nobody may but the function itself."""

    def __init__(self) -> None:
        self.k = 2.0
        self.reads: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name == "k":
            object.__getattribute__(self, "reads").append(name)
        return object.__getattribute__(self, name)


class Property:
    """Its property has an effect."""

    def __init__(self) -> None:
        self.reads = 0

    @property
    def k(self) -> float:
        self.reads += 1
        return float(self.reads)


class Failing:
    @property
    def k(self) -> float:
        raise KeyError("no k")


class Proxy:
    """Passes everything on."""

    def __init__(self, of: Any) -> None:
        object.__setattr__(self, "_of", of)

    def __getattribute__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_of"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_of"), name, value)


class Meta(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("do not make any")

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("do not compare me")

    def __hash__(cls) -> int:
        return 3


class Made(metaclass=Meta):
    k = 2.0


class Float(float):
    unit = "m"


class Int(int):
    pass


class Str(str):
    pass


class Tuple(tuple[float, ...]):
    k = 2.0


class Bool(enum.IntEnum):
    NO = 0
    YES = 1


def cyclic() -> Any:
    o = types.SimpleNamespace(k=2.0, more=[])
    o.more.append(o)
    return o


def deep() -> Any:
    o: Any = types.SimpleNamespace(k=2.0)
    for _ in range(300):
        o = types.SimpleNamespace(inner=[o], k=2.0)
    return o


# Each makes an object that has ``k``, or is a number.
OBJECTS: dict[str, Callable[[], Any]] = {
    "attributes": lambda: Attributes(k=2.0), "raising": lambda: Raising(k=2.0), "anything": Anything,
    "refusing": Refusing, "comparing": Comparing, "alike": lambda: Alike(2.0), "lying": Lying,
    "no weak reference": NoWeakReference, "guarded": Guarded, "property": Property, "failing": Failing,
    "proxy": lambda: Proxy(types.SimpleNamespace(k=2.0)), "metaclass": lambda: Made, "float": lambda: Float(2.0),
    "int": lambda: Int(2), "str": lambda: Str("2.0"), "tuple": lambda: Tuple((2.0,)), "enum": lambda: Bool.YES,
    "mock": lambda: mock.Mock(k=2.0), "magic mock": lambda: mock.MagicMock(k=2.0), "cyclic": cyclic, "deep": deep,
    "namespace": lambda: types.SimpleNamespace(k=2.0), "class": lambda: NoWeakReference, "module": lambda: np,
    "function": lambda: cyclic, "partial": lambda: functools.partial(cyclic), "bound": lambda: [].append,
    "numpy bool": lambda: np.True_, "numpy scalar": lambda: np.float64(2.0), "0-d": lambda: np.array(2.0, "f"),
    "nan": lambda: float("nan"), "infinity": lambda: float("inf"), "huge": lambda: 10**400, "link": lambda: L.PReLU(),
    "dtype": lambda: np.dtype("f"), "None": lambda: None, "variable": lambda: Variable(np.ones(4, "f")),
    "object array": lambda: np.array([1, "a", None], object), "strings": lambda: np.array(["a", "b"]),
    "generator": lambda: (k for k in [1.0, 2.0]), "keys": lambda: {"k": 2.0}.keys(),
}


def number(o: Any) -> float:
    if isinstance(o, (float, int, str)) and not isinstance(o, bool):
        return min(float(o), 5.0) if not isinstance(o, int) or abs(o) < 10 else 5.0
    return attribute(o)


def attribute(o: Any) -> float:
    try:
        k = o.k
    except (AttributeError, KeyError):
        k = 1.5
    return k if isinstance(k, float) else 2.5


def first(decorate: Any, o: Any) -> Any:
    static = decorate(lambda o, x: F.tanh(x) * number(o))
    return lambda x: static(o, x)


def second(decorate: Any, o: Any) -> Any:
    static = decorate(lambda x, o: F.tanh(x) * number(o))
    return lambda x: static(x, o)


def keyword(decorate: Any, o: Any) -> Any:
    static = decorate(lambda x, **more: F.tanh(x) * number(more["o"]))
    return lambda x: static(x, o=o)


def in_list(decorate: Any, o: Any) -> Any:
    static = decorate(lambda x, many: F.tanh(x) * number(many[0]))
    return lambda x: static(x, [o])


def in_closure(decorate: Any, o: Any) -> Any:
    return decorate(lambda x: F.tanh(x) * number(o))


def in_attribute(decorate: Any, o: Any) -> Any:
    return build(decorate(lambda s, x: s.l(x) * number(s.o)), o=o)


def returned(decorate: Any, o: Any) -> Any:
    static = decorate(lambda x: (F.tanh(x), o))
    return lambda x: (lambda y: (y[0], y[1] is o))(static(x))


def stored(decorate: Any, o: Any) -> Any:
    model = build(decorate(lambda s, x: (setattr(s, "kept", s.o), s.l(x))[1]), o=o, kept=None)

    def call(x: Any) -> Any:
        y = model(x)
        same, model.kept = model.kept is model.o, None
        return y, same
    return call


def bound(decorate: Any, o: Any) -> Any:
    """It is what the function is called on."""
    static = decorate(lambda o, x: F.tanh(x) * number(o))
    return functools.partial(static, o)


WAYS = [first, second, keyword, in_list, in_closure, in_attribute, returned, stored, bound]


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_objects(way: Any, name: str) -> None:
    def program(decorate: Any) -> Any:
        o = OBJECTS[name]()
        call = way(decorate, o)
        fresh = name in ("nan", "float", "huge")

        def checked(i: int, x: Any) -> Any:
            y = (way(decorate, OBJECTS[name]()) if fresh and i == 5 else call)(x)
            return y, o.reads if type(o) in (Guarded, Property) else None
        return checked

    check(program)


# Values that are equal and yet others, one after the other.
EQUAL: dict[str, tuple[list[Any], Callable[[Any, Any], Any]]] = {
    "zeros": ([0.0, -0.0], lambda v, x: x * float(np.copysign(1.0, v))),
    "zeros of NumPy's": ([np.float32(0), np.float32(-0.0)], lambda v, x: x * float(np.copysign(1.0, v))),
    "complex zeros": ([0j, -0.0 + 0j], lambda v, x: x * float(np.copysign(1.0, v.real))),
    "nan of NumPy's": ([np.float32("nan"), np.float64("nan")], lambda v, x: x * v.itemsize),
    "records": ([np.zeros(1, "i4,f8")[0], np.ones(1, "i4,f8")[0]], lambda v, x: x * float(v["f1"])),
    "zeros in a tuple": ([(0.0,), (-0.0,)], lambda v, x: x * float(np.copysign(1.0, v[0]))),
    "one and True": ([1, True], lambda v, x: x if v is True else x * 2),
    "one and True in a tuple": ([(1, 2), (True, 2)], lambda v, x: x if v[0] is True else x * 2),
    "one and True in a set": ([frozenset([1]), frozenset([True])], lambda v, x: x if bool in map(type, v) else x * 2),
    "int and float": ([2, 2.0], lambda v, x: x * (1 if isinstance(v, int) else 3)),
    "int and float as keys": ([{2: 1}, {2.0: 1}], lambda v, x: x * len(repr(v))),
    "float and numpy": ([2.0, np.float64(2.0)], lambda v, x: x * (1 if type(v) is float else 3)),
    "float32 and float64": ([np.float32(2), np.float64(2)], lambda v, x: x * v.itemsize),
    "int and enum": ([1, Bool.YES], lambda v, x: x * (1 if type(v) is int else 3)),
    "str and subclass": (["a", Str("a")], lambda v, x: x * (1 if type(v) is str else 3)),
    "tuple and named": ([(1.0,), Tuple((1.0,))], lambda v, x: x * getattr(v, "k", 1.0)),
    "list and tuple": ([[1.0], (1.0,)], lambda v, x: x * (1 if type(v) is list else 3)),
    "dict in another order": ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], lambda v, x: x * next(iter(v.values()))),
    "sets": ([{1, 2}, frozenset({1, 2})], lambda v, x: x * (1 if type(v) is set else 3)),
    "bytes": ([b"a", bytearray(b"a")], lambda v, x: x * (1 if type(v) is bytes else 3)),
    "complex": ([2.0, 2 + 0j], lambda v, x: x * (1 if type(v) is float else 3)),
    "functions of one code": ([(lambda k: lambda: k)(1.0), (lambda k: lambda: k)(2.0)], lambda v, x: x * v()),
    "alike": ([Alike(1.0), Alike(2.0)], lambda v, x: x * v.k),
    "alike in a list": ([[Alike(1.0)], [Alike(2.0)]], lambda v, x: x * v[0].k),
    "ranges": ([range(0), range(3, 3)], lambda v, x: x * (1 + v.start)),
    "dtypes": ([np.dtype("f"), np.float32], lambda v, x: x * (1 if isinstance(v, type) else 3)),
    "dtype and text": ([np.dtype("f"), "float32"], lambda v, x: x * (1 if isinstance(v, str) else 3)),
    "nan": ([float("nan"), float("-nan")], lambda v, x: x * (1 if v == v else 3)),
    "nan and a number": ([float("nan"), 1.0], lambda v, x: x * (1 if v == v else 3)),
    "large numbers": ([2**53, float(2**53)], lambda v, x: x * (1 if isinstance(v, int) else 3)),
    "empty": ([(), []], lambda v, x: x * (1 if isinstance(v, tuple) else 3)),
    "None and False": ([None, False], lambda v, x: x * (1 if v is None else 3)),
    "identical and equal": ([[1], [1]], lambda v, x: x * (1 if v is EQUAL["identical and equal"][0][0] else 3)),
}


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("where", ["argument", "closure", "attribute", "item", "default"])
def test_equal_values(where: str, name: str) -> None:
    values, body = EQUAL[name]

    def program(decorate: Any) -> Any:
        value: Any = None
        table: dict[str, Any] = {}

        def default(x: Any, *, v: Any = None) -> Any:
            return body(v, F.tanh(x))

        static = {
            "argument": lambda: decorate(lambda x, v: body(v, F.tanh(x))),
            "closure": lambda: decorate(lambda x: body(value, F.tanh(x))),
            "attribute": lambda: build(decorate(lambda s, x: body(s.value, s.l(x))), value=None),
            "item": lambda: decorate(lambda x: body(table["v"], F.tanh(x))),
            "default": lambda: decorate(lambda x: default(x)),
        }[where]()

        def call(i: int, x: Any) -> Any:
            nonlocal value
            value = table["v"] = values[i in (3, 4, 5)]
            default.__kwdefaults__ = {"v": value}
            if where == "attribute":
                static.value = value
            return static(x, value) if where == "argument" else static(x)
        return call

    check(program)


class Silent:
    def __repr__(self) -> str:
        raise AssertionError("a message has asked how an object of the user's shows itself")


KEY = Silent()
TABLE = {KEY: 1.0}


@pytest.mark.parametrize("result", [lambda x: (x, Silent()), lambda x: (x * TABLE[KEY], Silent())])
def test_warnings_do_not_ask_objects_for_their_text(result: Any) -> None:
    @static_graph
    def f(x: Any) -> Any:
        return result(x)

    with pytest.warns(StaticGraphWarning, match="not static"):
        f(np.ones(3, "f"))
    str(f.explain("all"))
