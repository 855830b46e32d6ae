"""Objects and functions that are out of the ordinary, of which none may crash, be confused or be asked what they refuse."""
from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from static.observed.harness import Model, Rows, build, check

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable

ROWS = Rows()


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
    "zeros in a tuple": ([(0.0,), (-0.0,)], lambda v, x: x * float(np.copysign(1.0, v[0]))),
    "one and True": ([1, True], lambda v, x: x if v is True else x * 2),
    "one and True in a tuple": ([(1, 2), (True, 2)], lambda v, x: x if v[0] is True else x * 2),
    "one and True in a set": ([frozenset([1]), frozenset([True])], lambda v, x: x if True in map(type, v) else x * 2),
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
            value = table["v"] = default.__kwdefaults__["v"] = values[i in (3, 4, 5)]
            if where == "attribute":
                static.value = value
            return static(x, value) if where == "argument" else static(x)
        return call

    check(program)


# Functions out of the ordinary.

@ROWS.either
def mutable_defaults(decorate: Any) -> Any:
    def body(x: Any, seen: Any = None) -> Any:
        seen.append(1)
        return F.tanh(x) * len(seen)

    body.__defaults__ = [],
    static = decorate(body)
    return lambda i, x: (static(x), body.__defaults__)


@ROWS.replays
def any_arguments(decorate: Any) -> Any:
    static = decorate(lambda *args, **kwargs: sum(args[1:], F.tanh(args[0])) * kwargs.get("k", 1.0))
    return lambda i, x: static(x, *[x] * (i // 3), **({"k": 2.0} if i // 4 else {}))


@ROWS.either
def a_function_that_calls_itself(decorate: Any) -> Any:
    @decorate
    def static(x: Any, depth: int) -> Any:
        return F.tanh(x) if depth == 0 else static(x * 2, depth - 1)
    return lambda i, x: static(x, i // 3)


@ROWS.either
def static_functions_in_static_functions(decorate: Any) -> Any:
    table = {"k": 1.0}
    inner = decorate(lambda x: F.tanh(x) * table["k"])
    outer = decorate(lambda x: inner(x) + inner(x * 2))

    def call(i: int, x: Any) -> Any:
        table["k"] = 1.0 + i // 3
        return outer(x), inner(x)
    return call


@ROWS.replays
def functions_made_by_exec(decorate: Any) -> Any:
    """Nobody finds their source."""
    names: dict[str, Any] = {"F": F, "K": 1.0}
    exec("def body(x):\n    return F.tanh(x) * K\n", names)
    static = decorate(names["body"])

    def call(i: int, x: Any) -> Any:
        names["K"] = 1.0 + i // 3
        return static(x)
    return call


@ROWS.either
def properties(decorate: Any) -> Any:
    class Decorated(Model):
        x: Any = None
        k = 1.0

        @property
        @decorate
        def y(self) -> Any:
            return F.tanh(self.l(self.x)) * self.k

    model = Decorated()

    def call(i: int, x: Any) -> Any:
        model.x, model.k = x, 1.0 + i // 3
        return model.y
    return call


@ROWS.replays
def class_methods(decorate: Any) -> Any:
    class Decorated:
        k = 1.0

        @classmethod
        @decorate
        def act(cls, x: Any) -> Any:
            return F.tanh(x) * cls.k

    class Child(Decorated):
        k = 3.0

    def call(i: int, x: Any) -> Any:
        Decorated.k = 1.0 + i // 3
        return Decorated.act(x), Child.act(x), Decorated().act(x)
    return call


@ROWS.either
def wrapped_functions(decorate: Any) -> Any:
    calls: list[str] = []

    def logged(f: Any) -> Any:
        @functools.wraps(f)
        def inner(*args: Any) -> Any:
            calls.append(f.__name__)
            return f(*args)
        return inner

    def body(x: Any) -> Any:
        return F.tanh(x)

    inside, outside = decorate(logged(body)), logged(decorate(body))
    return lambda i, x: (inside(x), outside(x), calls.copy())


@ROWS.either
def generator_functions(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        yield F.tanh(x)
        yield F.relu(x)

    static = decorate(body)
    return lambda i, x: list(static(x))


@ROWS.either
def generators_inside(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: sum(link(x) * k for k, link in zip(s.weights, s.children(), strict=False))),
                  weights=[1.0, 2.0])

    def call(i: int, x: Any) -> Any:
        model.weights[1] = 1.0 + i // 3
        return model(x)
    return call


@ROWS.either
def generators_that_go_on(decorate: Any) -> Any:
    def numbers() -> Any:
        k = 0
        while True:
            k += 1
            yield k

    running = numbers()
    static = decorate(lambda x: F.tanh(x) * next(running))
    return lambda i, x: (static(x), next(running))


@ROWS.either
def errors_that_are_caught(decorate: Any) -> Any:
    table: dict[str, float] = {}

    def body(x: Any) -> Any:
        try:
            k = table["k"]
        except KeyError as error:
            k = float(len(error.args[0]))
        else:
            k *= 2
        finally:
            x = x + 1
        return F.tanh(x) * k

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        if i == 3:
            table["k"] = 4.0
        if i == 6:
            table.clear()
        return static(x)
    return call


@ROWS.either
def errors_that_are_raised(decorate: Any) -> Any:
    table = {"k": 1.0}

    def body(x: Any) -> Any:
        if table["k"] > 2:
            raise ValueError(f"{table['k']} is too much")
        return F.tanh(x) * table["k"]

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        table["k"] = 1.0 + i // 2 % 3
        return static(x)
    return call


@ROWS.either
def errors_by_the_data(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        assert float(x.max()) < 1.8, "too large"
        return F.tanh(x)

    static = decorate(body)
    return lambda i, x: static(x)


@ROWS.either
def contexts_of_the_user(decorate: Any) -> Any:
    events: list[str] = []

    class Scope:
        def __init__(self) -> None:
            self.k = 1.0

        def __enter__(self) -> float:
            events.append("enter")
            return self.k

        def __exit__(self, *exc: object) -> bool:
            events.append("exit")
            return True

    scope = Scope()

    def body(x: Any) -> Any:
        with scope as k:
            x = F.tanh(x) * k
            if k > 2:
                raise ValueError
        return x

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        scope.k = 1.0 + i // 3
        return static(x), events.copy()
    return call


@ROWS.replays
def walrus_and_comprehensions(decorate: Any) -> Any:
    factors = [1.0, 2.0, 3.0]
    model = build(decorate(lambda s, x: sum(
        (h := s.l(x)) * f * g for i, f in enumerate(s.factors) if f > 1 for g in s.factors[:i]) + h), factors=factors)

    def call(i: int, x: Any) -> Any:
        factors[1] = 0.5 if i // 3 == 1 else 2.0
        return model(x)
    return call


@ROWS.replays
def one_function_on_many_objects(decorate: Any) -> Any:
    class Decorated(Model):
        k = 1.0
        forward = decorate(lambda self, x: self.l(x) * self.k)

    models = [Decorated() for _ in range(3)]

    def call(i: int, x: Any) -> Any:
        models[i % 3].k = 1.0 + i // 3
        return [m(x) for m in models]
    return call


@ROWS.replays
def objects_that_are_copied(decorate: Any) -> Any:
    import copy
    model = build(decorate(lambda s, x: s.l(x) * s.table["k"]), table={"k": 1.0})
    models = [model]

    def call(i: int, x: Any) -> Any:
        if i in (3, 5):
            models.append(copy.deepcopy(models[-1]))
            models[-1].table["k"] = float(i)
        return [m(x) for m in models]
    return call


@ROWS.either
def arguments_by_keyword_and_position(decorate: Any) -> Any:
    static = decorate(lambda x, k=1.0, *, act=F.tanh: act(x) * k)
    ways: list[Callable[[Any], Any]] = [
        lambda x: static(x), lambda x: static(x), lambda x: static(x, 2.0), lambda x: static(x, k=2.0),
        lambda x: static(k=3.0, x=x), lambda x: static(x, act=F.relu), lambda x: static(x=x), lambda x: static(x, 1.0)]
    return lambda i, x: ways[i](x)


@ROWS.either
def arguments_that_do_not_fit(decorate: Any) -> Any:
    static = decorate(lambda x, k: F.tanh(x) * k)
    ways: list[Callable[[Any], Any]] = [lambda x: static(x, 1.0), lambda x: static(x), lambda x: static(x, 1.0, 2.0),
                                        lambda x: static(x, z=1)]
    return lambda i, x: ways[i % 4](x)


@ROWS.either
def links_called_with_hooks(decorate: Any) -> Any:
    names: list[str] = []

    class Names(kusari.FunctionHook):
        name = "Names"

        def forward_postprocess(self, function: Any, in_data: Any) -> None:
            names.append(function.label)

    model = build(decorate(lambda s, x: F.tanh(s.l(x))))

    def call(i: int, x: Any) -> Any:
        if i // 2 % 2 == 0:
            return model(x), names.copy()
        with Names():
            return model(x), names.copy()
    return call


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
