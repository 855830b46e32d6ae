"""Functions out of the ordinary: of classes, made, wrapped, nested, generating, raising, called in many ways."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from static.models import Model, build
from static.observed.harness import Rows

import kusari
import kusari.functions as F
import kusari.links as L

ROWS = Rows()


@ROWS.falls_back("changes in every call")
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


@ROWS.replays
def keywords_in_another_order(decorate: Any) -> Any:
    static = decorate(lambda x, **more: (sum(i * F.tanh(v) for i, v in enumerate(more.values())), dict(more, x=x)))
    return lambda i, x: static(x, a=x, b=x * 2) if i % 3 else static(x, b=x, a=x * 2)


@ROWS.replays
def a_function_that_calls_itself(decorate: Any) -> Any:
    @decorate
    def static(x: Any, depth: int) -> Any:
        return F.tanh(x) if depth == 0 else static(x * 2, depth - 1)
    return lambda i, x: static(x, i // 3)


@ROWS.replays
def static_functions_in_static_functions(decorate: Any) -> Any:
    table = {"k": 1.0}
    inner = decorate(lambda x: F.tanh(x) * table["k"])
    outer = decorate(lambda x: inner(x) + inner(x * 2))

    def call(i: int, x: Any) -> Any:
        table["k"] = 1.0 + i // 3
        return outer(x), inner(x)
    return call


@ROWS.falls_back("cannot be observed")
def functions_made_by_exec(decorate: Any) -> Any:
    """Nobody finds their source."""
    names: dict[str, Any] = {"F": F, "K": 1.0}
    exec("def body(x):\n    return F.tanh(x) * K\n", names)
    static = decorate(names["body"])

    def call(i: int, x: Any) -> Any:
        names["K"] = 1.0 + i // 3
        return static(x)
    return call


@ROWS.falls_back("ClassDef is not followed")
def classes_made_by_a_function(decorate: Any) -> Any:
    """Their source is found, as is that of any function: what it has is the reason."""
    table = {"k": 1.0}

    def body(x: Any) -> Any:
        class Scaling:
            k: float = table["k"]
        return F.tanh(x) * Scaling.k

    static = decorate(body)

    def call(i: int, x: Any) -> Any:
        table["k"] = 1.0 + i // 3
        return static(x)
    return call


@ROWS.falls_back("changes in every call")
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


@ROWS.replays
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


@ROWS.falls_back("goes on after it")
def generator_functions(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        yield F.tanh(x)
        yield F.relu(x)

    static = decorate(body)
    return lambda i, x: list(static(x))


@ROWS.replays
def generators_inside(decorate: Any) -> Any:
    model = build(decorate(lambda s, x: sum(link(x) * k for k, link in zip(s.weights, s.children(), strict=False))),
                  weights=[1.0, 2.0])

    def call(i: int, x: Any) -> Any:
        model.weights[1] = 1.0 + i // 3
        return model(x)
    return call


@ROWS.falls_back("would not go on with it")
def generators_that_go_on(decorate: Any) -> Any:
    def numbers() -> Any:
        k = 0
        while True:
            k += 1
            yield k

    running = numbers()
    static = decorate(lambda x: F.tanh(x) * next(running))
    return lambda i, x: (static(x), next(running))


@ROWS.replays
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


@ROWS.replays
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


@ROWS.replays
def errors_by_the_data(decorate: Any) -> Any:
    def body(x: Any) -> Any:
        if float(x.max()) > 1.8:
            raise ValueError("too large")
        return F.tanh(x)

    static = decorate(body)
    return lambda i, x: static(x)


@ROWS.replays
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
    def body(s: Any, x: Any) -> Any:
        parts = [(h := s.l(x)) * f * g + h for i, f in enumerate(s.factors) if f > 1 for g in s.factors[:i]]
        return sum(parts) + s.m(x)

    model = build(decorate(body), factors=factors)

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


@ROWS.replays
def arguments_by_keyword_and_position(decorate: Any) -> Any:
    static = decorate(lambda x, k=1.0, *, act=F.tanh: act(x) * k)
    ways: list[Callable[[Any], Any]] = [
        lambda x: static(x), lambda x: static(x), lambda x: static(x, 2.0), lambda x: static(x, k=2.0),
        lambda x: static(k=3.0, x=x), lambda x: static(x, act=F.relu), lambda x: static(x=x), lambda x: static(x, 1.0)]
    return lambda i, x: ways[i](x)


@ROWS.replays
def arguments_that_do_not_fit(decorate: Any) -> Any:
    static = decorate(lambda x, k: F.tanh(x) * k)
    ways: list[Callable[[Any], Any]] = [lambda x: static(x, 1.0), lambda x: static(x), lambda x: static(x, 1.0, 2.0),
                                        lambda x: static(x, z=1)]
    return lambda i, x: ways[i % 4](x)


@ROWS.replays
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


@ROWS.replays
def links_whose_calls_go_on_to_the_library(decorate: Any) -> Any:
    class Scaled(L.Linear):
        k = 1.0

        def __call__(self, x: Any) -> Any:
            return super().__call__(x) * self.k

    class Doubling:
        def __call__(self, x: Any) -> Any:
            return x * k

    class Mixed(kusari.Link, Doubling):
        pass

    k = 2.0
    model = build(decorate(lambda s, x: F.tanh(s.n(x)) + s.o(x)))
    with model.init_scope():
        model.n, model.o = Scaled(4, 4), Mixed()

    def call(i: int, x: Any) -> Any:
        nonlocal k
        model.n.k, k = 1.0 + i // 3, 2.0 - i // 4
        return model(x)
    return call


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
