"""What a call reads besides its arguments may change: attributes, closures, globals, containers, config."""
from __future__ import annotations

import functools
import itertools
import types
from typing import Any

import numpy as np
import pytest
from static.hazards import Reading, items, xs

import kusari
import kusari.functions as F
import kusari.links as L

SCALE = 1.0
OPTIONS = {"scale": 1.0, "kinds": ["relu"]}
SETTINGS = types.SimpleNamespace(scale=1.0, other=0)


class Settings:
    scale = 1.0


# Each: the body of ``forward``, and how the value of an item is set.
READS: dict[str, tuple[Any, Any]] = {
    "attribute": (lambda s, x: s.l(x) * s.alpha, lambda s, v: setattr(s, "alpha", v)),
    "attribute-in-branch": (lambda s, x: s.l(x) if s.alpha > 1.5 else s.m(x), lambda s, v: setattr(s, "alpha", v)),
    "attribute-of-child": (lambda s, x: s.l(x) * s.l.alpha, lambda s, v: setattr(s.l, "alpha", v)),
    "method": (lambda s, x: s.helper(s.l(x)), lambda s, v: setattr(s, "alpha", v)),
    "property": (lambda s, x: s.l(x) * s.doubled, lambda s, v: setattr(s, "alpha", v)),
    "getattr": (lambda s, x: s.l(x) * getattr(s, "al" + "pha"), lambda s, v: setattr(s, "alpha", v)),
    "tuple": (lambda s, x: s.l(x) * s.pair[0], lambda s, v: setattr(s, "pair", (v, 2))),
    "list-item": (lambda s, x: s.l(x) * s.scales[1], lambda s, v: s.scales.__setitem__(1, v)),
    "list-grows": (lambda s, x: s.l(x) * len(s.scales), lambda s, v: s.scales.append(v)),
    "nested": (lambda s, x: s.l(x) * s.settings.deep["scale"], lambda s, v: s.settings.deep.update(scale=v)),
    "global": (lambda s, x: s.l(x) * SCALE, lambda s, v: globals().update(SCALE=v)),
    "global-dict": (lambda s, x: s.l(x) * OPTIONS["scale"], lambda s, v: OPTIONS.update(scale=v)),
    "global-namespace": (lambda s, x: s.l(x) * SETTINGS.scale, lambda s, v: setattr(SETTINGS, "scale", v)),
    "class": (lambda s, x: s.l(x) * Settings.scale, lambda s, v: setattr(Settings, "scale", v)),
    "class-of-self": (lambda s, x: s.l(x) * (2.0 if s.kind == "class" else s.kind),
                      lambda s, v: setattr(s, "kind", v)),
    "config-type": (lambda s, x: F.cast(s.l(x), kusari.config.dtype),
                    lambda s, v: setattr(kusari.config, "dtype", np.float64 if v == 2.0 else np.float32)),
    "config": (lambda s, x: s.l(x) * kusari.config.user_scale, lambda s, v: setattr(kusari.config, "user_scale", v)),
    "link-replaced": (lambda s, x: s.l(x), lambda s, v: s.l if v == 1.0 else setattr(s, "l", _linear(v))),
    "parameter-replaced": (lambda s, x: s.l(x), lambda s, v: setattr(
        s.l, "W", kusari.Parameter(np.full((4, 4), v, "f")))),
    "array-replaced": (lambda s, x: s.l(x), lambda s, v: setattr(s.l.W, "array", np.full((4, 4), v, "f"))),
    "array-changed": (lambda s, x: s.l(x), lambda s, v: s.l.W.array.fill(v)),
    "bias-removed": (lambda s, x: s.l(x), lambda s, v: setattr(s.l, "b", None) if v == 3.0 else None),
    "function": (lambda s, x: s.activation(s.l(x)), lambda s, v: setattr(
        s, "activation", F.tanh if v == 1.0 else functools.partial(F.leaky_relu, slope=v))),
    "method-replaced": (lambda s, x: s.helper(s.l(x)), lambda s, v: setattr(s, "helper", lambda h: h * v)),
    "forward-replaced": (lambda s, x: s.l(x), lambda s, v: setattr(s.l, "forward", lambda h: F.relu(h) * v)),
}


def _linear(v: float) -> Any:
    link = L.Linear(4, 4)
    link.W.array[...] = v
    return link


@pytest.mark.parametrize("name", READS)
def test_changes_between_calls_are_seen(both: Any, name: str) -> None:
    body, change = READS[name]

    def make(decorate: Any) -> Any:
        change_back()

        class Decorated(Reading):
            forward = decorate(body)

        model = Decorated()
        model.l.alpha = 1.0

        last = None

        def call(item: Any) -> Any:
            nonlocal last
            value, x = item
            if value != last:
                change(model, value)
                last = value
            return model(x)
        return call

    both(make, items([1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 2.0, 3.0, 3.0]))
    change_back()


def change_back() -> None:
    globals().update(SCALE=1.0)
    OPTIONS.update(scale=1.0)
    SETTINGS.scale = Settings.scale = kusari.config.user_scale = 1.0
    kusari.config.dtype = np.float32


def test_closure_and_defaults(both: Any) -> None:
    def make(decorate: Any) -> Any:
        factor = 1.0
        table = {"a": 1.0}

        def inner(h: Any, options: Any = table) -> Any:
            return h * factor * options["a"]

        @decorate
        def f(x: Any) -> Any:
            return inner(F.relu(x))

        def call(item: Any) -> Any:
            nonlocal factor
            factor, x = item
            table["a"] = factor + 1
            return f(x)
        return call

    both(make, items([1.0, 1.0, 1.0, 2.0, 2.0, 1.0]))


class Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 1.0


class Scaling:
    def __init__(self) -> None:
        self.scale = 1.0

    def __call__(self, h: Any) -> Any:
        return h * self.scale


HOLDERS: dict[str, Any] = {
    "slots": lambda h: (h, lambda y: y * h.scale),
    "callable": lambda h: (h, h),
    "partial": lambda h: (h, functools.partial(lambda o, y: y * o.scale, h)),
    "bound": lambda h: (h, h.__call__),
    "cache": lambda h: (h, (lambda c: lambda y: y * c().scale)(functools.cache(lambda: h))),
    "default": lambda h: (h, lambda y, o=h: y * o.scale),
    "comprehension": lambda h: (h, lambda y: sum([y * o.scale for o in (h,)])),
    "dict": lambda h: (h, (lambda d: lambda y: y * d["a"][0].scale)({"a": [h]})),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_objects_that_hold_values(both: Any, name: str) -> None:
    def make(decorate: Any) -> Any:
        holder, body = HOLDERS[name](Slotted() if name == "slots" else Scaling())
        @decorate
        def f(x: Any) -> Any:
            return body(F.relu(x))

        def call(item: Any) -> Any:
            holder.scale, x = item
            return f(x)
        return call

    both(make, items([1.0, 1.0, 1.0, 2.0, 2.0, 1.0]))


def test_cached_helpers(both: Any) -> None:
    def make(decorate: Any) -> Any:
        table = {"k": 1.0}

        @functools.lru_cache
        def helper(n: int) -> float:
            return table["k"] * n

        @decorate
        def f(x: Any) -> Any:
            return F.relu(x) * helper(3)

        def call(item: Any) -> Any:
            table["k"], x = item
            helper.cache_clear()
            return f(x)
        return call

    both(make, items([1.0, 1.0, 1.0, 2.0, 2.0, 1.0]))


@pytest.mark.parametrize("make_iterator", [itertools.count, lambda: iter(range(100)), lambda: (i for i in range(100))])
def test_iterators_step_aside(both: Any, make_iterator: Any) -> None:
    def make(decorate: Any) -> Any:
        numbers = make_iterator()

        @decorate
        def f(x: Any) -> Any:
            return F.relu(x) * float(next(numbers))
        return f

    both(make, xs(6), aside="is an iterator, and replays would not go on with it")


def test_generators_of_random_numbers_step_aside(both: Any) -> None:
    def make(decorate: Any) -> Any:
        generator = np.random.default_rng(0)

        @decorate
        def f(x: Any) -> Any:
            return F.relu(x) if generator.random() < 0.5 else F.tanh(x)
        return f

    both(make, xs(10), aside="lt takes a number out")


def test_changed_argument_lists_step_aside(both: Any) -> None:
    def make(decorate: Any) -> Any:
        @decorate
        def f(batch: Any) -> Any:
            return F.relu(batch.pop())

        def call(x: Any) -> Any:
            batch = [x, x * 2, -x]
            return f(batch), len(batch)
        return call

    both(make, xs(6), aside="a list or dictionary that is an argument changes")


def test_callables_of_all_kinds() -> None:
    for f in (F.relu, functools.partial(F.leaky_relu, slope=0.1), L.Linear(4, 4), L.Linear(4, 4).forward):
        static = kusari.static_graph(f)
        for x in xs(6):
            np.testing.assert_allclose(static(x).array, f(x).array, rtol=1e-5, atol=1e-6)


def test_what_is_not_read_may_change_without_another_trace() -> None:
    class Decorated(Reading):
        @kusari.static_graph
        def forward(self, x: Any) -> Any:
            return self.l(x) * self.alpha

        def evaluate(self) -> int:
            return self.unread

    model = Decorated()
    entries = []
    for x in xs(6):
        model.unread += 1
        model.name = str(model.unread)
        model(x)
        entries.append(Decorated.forward.static.signatures(model)[0][1])
    assert entries[-1] is entries[1]


def test_equal_values_need_no_other_trace() -> None:
    class Decorated(Reading):
        @kusari.static_graph
        def forward(self, x: Any) -> Any:
            return self.l(x) * self.alpha

    model = Decorated()
    entries = []
    for x in xs(6):
        model.alpha = float("1.25")  # another object each time
        model(x)
        (_, entry), = Decorated.forward.static.signatures(model)
        entries.append(entry)
    assert entries[-1] is entries[1]


def test_a_value_of_another_type_is_another_value(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Reading):
            @decorate
            def forward(self, x: Any) -> Any:
                return self.l(x) * (1 if isinstance(self.alpha, bool) else 2 if isinstance(self.alpha, int) else 3)

        model = Decorated()

        def call(item: Any) -> Any:
            model.alpha, x = item
            return model(x)
        return call

    both(make, items([1, 1, 1, 1.0, 1.0, True, True, 1]))


def test_values_that_return_find_their_schedule_again() -> None:
    class Decorated(Reading):
        @kusari.static_graph
        def forward(self, x: Any) -> Any:
            return self.l(x) * self.alpha

    model = Decorated()
    found: dict[float, set[int]] = {1.0: set(), 2.0: set()}
    kept = []
    for i, x in enumerate(xs(12)):
        model.alpha = float(i // 2 % 2 + 1)
        model(x)
        (_, entry), = Decorated.forward.static.signatures(model)
        if i >= 4:
            kept.append(entry)
            found[model.alpha].add(id(entry))
    assert [len(v) for v in found.values()] == [1, 1]


def test_an_attribute_that_always_changes_is_named(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Reading):
            @decorate
            def forward(self, x: Any) -> Any:
                return F.leaky_relu(self.l(x), self.alpha)

        model = Decorated()

        def call(item: Any) -> Any:
            model.alpha, x = item
            return model(x)
        return call

    both(make, items(np.arange(12.0)), aside=r"Decorated\.alpha .*changes in every call")
