"""What code reads without naming it: keys, classes, caches, weak references, attributes of functions."""
from __future__ import annotations

import abc
import collections
import functools
import weakref
from typing import Any

import numpy as np
import pytest
from static.models import Model, Settings
from static.observed.harness import Rows, before

import kusari.functions as F

ROWS = Rows()


class Shown:
    def __init__(self) -> None:
        self.k = 1.0


@ROWS.replays
def keys_of_dictionaries(decorate: Any) -> Any:
    d: dict[str, Any] = {"a": 1, "bb": 2}
    static = decorate(lambda x: F.tanh(x) * sum(map(len, d)))

    def change(i: int) -> None:
        if i == 3:
            d["cccc"] = 0
        if i == 6:
            del d["a"]
    return before(static, change)


@ROWS.replays
def order_of_dictionaries(decorate: Any) -> Any:
    d = {"a": 1.0, "b": 2.0}
    static = decorate(lambda x: F.tanh(x) * next(iter(d.values())))

    def change(i: int) -> None:
        if i in (3, 6):
            d["a" if i == 3 else "b"] = d.pop("a" if i == 3 else "b")
    return before(static, change)


@ROWS.replays
def membership_in_dictionaries(decorate: Any) -> Any:
    d: dict[Any, Any] = {}
    static = decorate(lambda x: F.tanh(x) if ("a", 1) in d else F.relu(x))
    return before(static, lambda i: d.update({("a", 1): 0}) if i // 3 == 1 else d.clear())


@ROWS.replays
def membership_in_sets(decorate: Any) -> Any:
    names = {"b"}
    static = decorate(lambda x: F.tanh(x) if "a" in names else F.relu(x) * len(names))
    return before(static, lambda i: (names.add if i // 3 == 1 else names.discard)("a"))


@ROWS.replays
def unions_of_sets(decorate: Any) -> Any:
    one, two = {"a"}, {"b"}
    static = decorate(lambda x: F.tanh(x) * len(one | two) * (2 if one <= two else 1))
    return before(static, lambda i: (two.add if i // 3 == 1 else two.discard)("a"))


@ROWS.replays
def equality_of_dictionaries(decorate: Any) -> Any:
    d = {"a": [1.0]}
    static = decorate(lambda x: F.tanh(x) if d == {"a": [1.0]} else F.relu(x))
    return before(static, lambda i: d["a"].__setitem__(0, 1.0 + i // 3))


@ROWS.replays
def default_factories(decorate: Any) -> Any:
    d: Any = collections.defaultdict(lambda: 1.0)

    def change(i: int) -> None:
        d.clear()
        if i == 4:
            d.default_factory = lambda: 3.0
    static = decorate(lambda x: F.tanh(x) * d["k"])
    return lambda i, x: (change(i), static(x), dict(d))[1:]


@ROWS.replays
def set_default(decorate: Any) -> Any:
    d: dict[str, float] = {}
    static = decorate(lambda x: F.tanh(x) * d.setdefault("k", 1.0))

    def call(i: int, x: Any) -> Any:
        if i == 3:
            d["k"] = 2.0
        if i == 6:
            d.clear()
        return static(x), dict(d)
    return call


@ROWS.replays
def another_class(decorate: Any) -> Any:
    class Other(Settings):
        @property
        def act(self) -> Any:
            return F.relu

    class First(Settings):
        @property
        def act(self) -> Any:
            return F.tanh

    o: Any = First()
    static = decorate(lambda x: o.act(x))
    return before(static, lambda i: setattr(o, "__class__", Other if i // 3 == 1 else First))


@ROWS.replays
def another_class_and_isinstance(decorate: Any) -> Any:
    class Other(Settings):
        pass

    o = Settings()
    static = decorate(lambda x: F.tanh(x) if isinstance(o, Other) else F.relu(x))
    return before(static, lambda i: setattr(o, "__class__", Other if i // 3 == 1 else Settings))


@ROWS.replays
def names_of_classes(decorate: Any) -> Any:
    class Named:
        pass

    o = Named()
    static = decorate(lambda x: F.tanh(x) if type(o).__name__ == "Named" else F.relu(x))
    return before(static, lambda i: setattr(Named, "__name__", "Other" if i // 3 == 1 else "Named"))


@ROWS.falls_back("changes in every call")
def bases_of_classes(decorate: Any) -> Any:
    class One:
        k = 1.0

    class Two:
        k = 2.0

    class Child(One):
        pass

    o = Child()
    static = decorate(lambda x: F.tanh(x) * o.k)
    return before(static, lambda i: setattr(Child, "__bases__", (Two,) if i // 3 == 1 else (One,)))


@ROWS.replays
def registered_classes(decorate: Any) -> Any:
    class Interface(abc.ABC):
        @abc.abstractmethod
        def act(self) -> None:
            """What makes it abstract."""

    class Mine:
        pass

    o = Mine()
    static = decorate(lambda x: F.tanh(x) if isinstance(o, Interface) else F.relu(x))
    return before(static, lambda i: Interface.register(Mine) if i == 4 else None)


@ROWS.replays
def subclass_hooks(decorate: Any) -> Any:
    own = {"k": False}

    class Meta(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return own["k"]

    class Interface(metaclass=Meta):
        pass

    static = decorate(lambda x: F.tanh(x) if isinstance(3, Interface) else F.relu(x))
    return before(static, lambda i: own.update(k=i // 3 == 1))


@ROWS.replays
def class_items(decorate: Any) -> Any:
    own = {"k": 1.0}

    class Scale:
        def __class_getitem__(cls, item: float) -> float:
            return item * own["k"]

    static = decorate(lambda x: F.tanh(x) * Scale[2.0])
    return before(static, lambda i: own.update(k=1.0 + i // 3))


@ROWS.replays
def subclasses(decorate: Any) -> Any:
    class Base:
        pass

    kept = []
    static = decorate(lambda x: F.tanh(x) * (1 + len(Base.__subclasses__())))
    return before(static, lambda i: kept.append(type("Child", (Base,), {})) if i % 3 == 2 else None)


@ROWS.replays
def partial_methods(decorate: Any) -> Any:
    class Acting(Model):
        def act(self, k: float, x: Any) -> Any:
            return F.tanh(x) * k * self.k
        double = functools.partialmethod(act, 2.0)
        k = 1.0
        forward = decorate(lambda self, x: self.double(self.l(x)))

    model = Acting()

    def change(i: int) -> None:
        model.k = 1.0 + i // 4
        if i == 6:
            Acting.double = functools.partialmethod(Acting.act, 5.0)
    return before(model, change)


@ROWS.replays
def single_dispatch(decorate: Any) -> Any:
    @functools.singledispatch
    def act(o: Any, x: Any) -> Any:
        return F.tanh(x)

    static = decorate(lambda x: act("text", F.relu(x)))
    return before(static, lambda i: act.register(str, lambda o, x: x * 3) if i == 4 else None)


@ROWS.replays
def dispatch_to_what_reads(decorate: Any) -> Any:
    own = {"k": 1.0}

    @functools.singledispatch
    def act(o: Any, x: Any) -> Any:
        return F.tanh(x)

    @act.register
    def _(o: str, x: Any) -> Any:
        return x * own["k"]

    static = decorate(lambda x: act("text", F.relu(x)))
    return before(static, lambda i: own.update(k=1.0 + i // 3))


@ROWS.replays
def caches_that_are_cleared(decorate: Any) -> Any:
    own = {"k": 1.0}

    @functools.lru_cache
    def read(name: str) -> float:
        return own[name]

    def change(i: int) -> None:
        own["k"] = 1.0 + i
        if i % 3 == 0:
            read.cache_clear()
    static = decorate(lambda x: F.tanh(x) * read("k"))
    return lambda i, x: (change(i), static(x), read.cache_info().currsize)[1:]


@ROWS.replays
def caches_that_raise_when_they_are_asked_again(decorate: Any) -> Any:
    own = {"k": 1.0}

    @functools.lru_cache
    def read(name: str) -> float:
        return own[name]

    static = decorate(lambda x: F.dropout(F.tanh(x), 0.4) * read("k"))

    def call(i: int, x: Any) -> Any:
        if i == 3:
            read.cache_clear()
            own.clear()
        if i == 4:
            own["k"] = 1.0
        try:
            return static(x)
        except KeyError as error:
            return repr(error), np.random.get_state()[2]
    return call


@ROWS.falls_back("is neither an argument nor made by a function")
def arrays_in_caches(decorate: Any) -> Any:
    @functools.cache
    def mask() -> Any:
        return np.ones(4, "f")

    static = decorate(lambda x: F.tanh(x) * mask())
    return before(static, lambda i: mask().fill(1 + i // 3))


@ROWS.replays
def numbers_in_arrays_in_caches(decorate: Any) -> Any:
    @functools.cache
    def mask() -> Any:
        return np.ones(4, "f")

    static = decorate(lambda x: F.tanh(x) * float(mask()[0]))
    return before(static, lambda i: mask().fill(1 + i // 3))


@ROWS.replays
def cached_properties_with_arrays(decorate: Any) -> Any:
    class Cached(Model):
        mask = functools.cached_property(lambda self: np.ones(4, "f"))
        forward = decorate(lambda self, x: self.l(x) * self.mask[0])

    model = Cached()
    return before(model, lambda i: model.mask.fill(1 + i // 3))


@ROWS.replays
def caches_of_the_users(decorate: Any) -> Any:
    made = []

    class Memo(dict[str, float]):
        def __missing__(self, key: str) -> float:
            made.append(key)
            self[key] = float(len(made))
            return self[key]

    memo = Memo()

    def change(i: int) -> None:
        if i % 3 == 2:
            memo.clear()
    static = decorate(lambda x: F.tanh(x) * memo["k"])
    return lambda i, x: (change(i), static(x), list(made))[1:]


@ROWS.replays
def weak_references(decorate: Any) -> Any:
    held = {"o": Settings()}
    reference: Any = weakref.ref(held["o"])
    static = decorate(lambda x: F.tanh(x) if reference() is None else F.relu(x) * reference().k)

    def change(i: int) -> None:
        if i == 5:
            held.clear()
        elif held:
            held["o"].k = 1.0 + i // 3
    return before(static, change)


@ROWS.replays
def weak_sets(decorate: Any) -> Any:
    held = [Shown() for _ in range(3)]
    every = weakref.WeakSet(held)
    static = decorate(lambda x: F.tanh(x) * (1 + len(every)))

    def change(i: int) -> None:
        if i in (3, 6):
            held.pop()
        for k, o in enumerate(held):
            o.k = float(k)
    return before(static, change)


@ROWS.replays
def weak_dictionaries(decorate: Any) -> Any:
    key = Settings
    own: Any = weakref.WeakKeyDictionary({key: 1.0})
    static = decorate(lambda x: F.tanh(x) * own[key])
    return before(static, lambda i: own.update({key: 1.0 + i // 3}))


@ROWS.replays
def weak_proxies(decorate: Any) -> Any:
    o = Settings()
    proxy = weakref.proxy(o)
    static = decorate(lambda x: F.tanh(x) * proxy.k)
    return before(static, lambda i: setattr(o, "k", 1.0 + i // 3))


@ROWS.replays
def attributes_of_the_static_function(decorate: Any) -> Any:
    @decorate
    def static(x: Any) -> Any:
        return F.tanh(x) * static.k

    static.k = 1.0
    return before(static, lambda i: setattr(static, "k", 1.0 + i // 3))


@ROWS.replays
def attributes_of_the_static_method(decorate: Any) -> Any:
    class Decorated(Model):
        @decorate
        def forward(self, x: Any) -> Any:
            return self.l(x) * Decorated.forward.k

    Decorated.forward.k = 1.0
    return before(Decorated(), lambda i: setattr(Decorated.forward, "k", 1.0 + i // 3))


@ROWS.replays
def attributes_counted_on_the_static_function(decorate: Any) -> Any:
    @decorate
    def static(x: Any) -> Any:
        static.calls += 1
        return F.tanh(x) * static.calls

    static.calls = 0
    return lambda i, x: (static(x), static.calls)


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
