"""What is read and stored other than by plain attributes: setters, strings, classes, contexts, patched functions."""
from __future__ import annotations

import contextvars
import functools
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from static.hazards import xs
from static.models import Model

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Variable
from kusari.optimizers import SGD


def act(x: Any) -> Any:
    return F.relu(x)


# Each: a static function of ``x``, and what happens before the call of number ``i``.
Case = tuple[Callable[[Any], Any], Callable[[int], Any]]
READS: dict[str, Callable[[Any], Case]] = {}


def case(f: Callable[[Any], Case]) -> Callable[[Any], Case]:
    READS[f.__name__] = f
    return f


@case
def context_variables(decorate: Any) -> Case:
    k = contextvars.ContextVar("k", default=1.0)
    return decorate(lambda x: F.relu(x) * k.get()), lambda i: k.set(float(i // 3))


@case
def cached_properties(decorate: Any) -> Case:
    class Decorated(Model):
        alpha = 1.0

        @functools.cached_property
        def doubled(self) -> float:
            return self.alpha * 2

        forward = decorate(lambda self, x: self.l(x) * self.doubled)

    model = Decorated()

    def change(i: int) -> None:
        model.alpha = float(1 + i // 4)
        if i == 4:
            del model.doubled
    return model, change


@case
def attribute_getters(decorate: Any) -> Case:
    get, second = operator.attrgetter("settings.k"), operator.itemgetter(1)

    class Decorated(Model):
        forward = decorate(lambda self, x: self.l(x) * get(self) * second(self.items))

    model = Decorated()
    model.settings, model.items = types.SimpleNamespace(k=1.0), [1.0, 1.0]

    def change(i: int) -> None:
        model.settings.k, model.items[1] = float(i // 3), float(i // 2)
    return model, change


@case
def weak_references(decorate: Any) -> Case:
    class Box:
        k = 1.0

    box = Box()
    reference = weakref.ref(box)
    return decorate(lambda x: F.relu(x) * reference().k), lambda i: setattr(box, "k", float(i // 3))


@case
def read_only_dictionaries(decorate: Any) -> Case:
    own = {"k": 1.0}
    shown = types.MappingProxyType(own)
    return decorate(lambda x: F.relu(x) * shown["k"]), lambda i: own.update(k=float(i // 3))


@case
def missing_items(decorate: Any) -> Case:
    base = [1.0]

    class Default(dict[str, float]):
        def __missing__(self, key: str) -> float:
            return base[0]

    own = Default()
    return decorate(lambda x: F.relu(x) * own["k"]), lambda i: base.__setitem__(0, float(i // 3))


@case
def properties_of_metaclasses(decorate: Any) -> Case:
    own = {"k": 1.0}

    class Meta(type):
        @property
        def k(cls) -> float:
            return own["k"]

    class Settings(metaclass=Meta):
        pass

    return decorate(lambda x: F.relu(x) * Settings.k), lambda i: own.update(k=float(i // 3))


@case
def attributes_that_come_and_go(decorate: Any) -> Case:
    class Decorated(Model):
        def other(self, x: Any) -> Any:
            try:
                return self.more(x)
            except AttributeError:
                return x

        forward = decorate(lambda self, x: self.other(self.extra(x) if hasattr(self, "extra") else self.l(x)))

    model = Decorated()

    def change(i: int) -> None:
        if i == 2:
            model.extra = model.m
        if i == 4:
            del model.extra
            model.more = model.m
    return model, change


@case
def another_class(decorate: Any) -> Case:
    class Decorated(Model):
        def act(self, x: Any) -> Any:
            return F.relu(x)

        forward = decorate(lambda self, x: self.act(self.l(x)))

    class Other(Decorated):
        def act(self, x: Any) -> Any:
            return F.tanh(x)

    model: Any = Decorated()

    def change(i: int) -> None:
        if i == 3:
            model.__class__ = Other
    return model, change


@pytest.mark.parametrize("name", READS)
def test_changes_are_seen(both: Any, name: str) -> None:
    def make(decorate: Any) -> Any:
        static, change = READS[name](decorate)
        calls = iter(range(100))

        def call(x: Any) -> Any:
            change(next(calls))
            return static(x)
        return call

    both(make, xs(7))


@pytest.mark.parametrize(("where", "name", "other"), [
    (F, "relu", lambda x: F.tanh(x)), (L.Linear, "forward", lambda self, x, n_batch_axes=1: F.linear(x, self.W) * 2),
], ids=["function", "link"])
def test_patched_parts_of_the_library(both: Any, where: Any, name: str, other: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: F.relu(self.l(x)))

        model = Decorated()

        def call(item: Any) -> Any:
            i, x = item
            if i in (3, 4):
                with mock.patch.object(where, name, other):
                    return model(x)
            return model(x)
        return call

    both(make, list(enumerate(xs(7))))


# Stores that replays make as well.

def test_attributes_that_modules_make(both: Any, run_source: Any) -> None:
    def make(decorate: Any) -> Any:
        module: Any = types.ModuleType("of_the_user")
        run_source("own = {'k': 1.0}\ndef __getattr__(name): return own[name]\n", module.__dict__)
        f = decorate(lambda x: F.relu(x) * module.k)

        def call(item: Any) -> Any:
            module.own.update(k=float(item[0] // 3))
            return f(item[1])
        return call

    both(make, list(enumerate(xs(10))))


def test_functions_without_a_source_step_aside(both: Any) -> None:
    def make(decorate: Any) -> Any:
        scope: dict[str, Any] = {"k": 1.0}
        exec("def factor(): return k", scope)
        f = decorate(lambda x: F.relu(x) * scope["factor"]())

        def call(item: Any) -> Any:
            scope["k"] = float(item[0] // 3)
            return f(item[1])
        return call

    both(make, list(enumerate(xs(7))), aside="factor cannot be observed: its source is not at hand")


def by_setter(self: Any, x: Any) -> Any:
    self.kept = F.tanh(self.l(x))
    return self.m(self.kept)


def by_string(self: Any, x: Any) -> Any:
    setattr(self, "_" + "last", F.tanh(self.l(x)))
    return self.m(self._last)


def by_dictionary(self: Any, x: Any) -> Any:
    vars(self)["_last"] = F.tanh(self.l(x))
    return self.m(self._last)


@pytest.mark.parametrize("body", [by_setter, by_string, by_dictionary])
def test_stores_are_repeated(both: Any, body: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            _last: Any = None
            kept = property(lambda self: self._last, lambda self, value: setattr(self, "_last", value))
            forward = decorate(body)

        model = Decorated()
        return lambda x: (model(x), model._last)

    both(make, xs(5))


def test_attributes_of_classes_are_stored_by_replays(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            last: Any = None

            @decorate
            def forward(self, x: Any) -> Any:
                type(self).last = F.tanh(self.l(x))
                Decorated.pair = [type(self).last, len(x)]
                return self.m(type(self).last)

        model = Decorated()

        def call(given: Any) -> Any:
            i, x = given
            model.l.W.array *= 1.1
            y = model(x)
            seen = y, Decorated.last, model.last, Decorated.pair, Decorated.pair[0] is Decorated.last
            if i == 2:
                Decorated.last = None
            elif i == 4:
                del Decorated.last
            return seen
        return call

    both(make, list(enumerate(xs(8))))


def in_argument(self: Any, x: Any, more: Any) -> Any:
    more["h"] = F.tanh(self.l(x))
    return self.m(more["h"])


def in_config(self: Any, x: Any, more: Any) -> Any:
    y = F.dropout(self.l(x))
    kusari.config.train = not kusari.config.train
    return y


def by_gradient(self: Any, x: Any, more: Any) -> Any:
    return self.l(x) if self.l.W.grad is None else self.m(x)


def by_creator(self: Any, x: Any, more: Any) -> Any:
    return self.l(x) if more["v"].creator is None else self.m(x)


def by_rank(self: Any, x: Any, more: Any) -> Any:
    return self.l(x) * (1 + more["v"].rank)


@pytest.mark.parametrize(("body", "reason"), [
    (in_argument, "an argument changes"), (in_config, r"config\.train changes"),
    (by_gradient, r"\.grad of a Variable"), (by_creator, r"\.creator of a Variable"),
    (by_rank, r"\.rank of a Variable"),
])
def test_what_replays_cannot_repeat(both: Any, body: Any, reason: str) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            last: Any = None
            forward = decorate(body)

        model = Decorated()

        def call(item: Any) -> Any:
            i, x = item
            v = Variable(x + 1)
            more = {"v": F.relu(v) if i in (2, 3) else v}
            if i in (0, 3):
                model.cleargrads()
            y = model(x, more)
            F.sum(y).backward()
            train = kusari.config.train
            kusari.config.train = True
            return y, Decorated.last, sorted(more), train
        return call

    both(make, list(enumerate(xs(7))), aside=reason)


def test_names_of_modules_are_no_names_of_variables(both: Any) -> None:
    """``kusari.grad`` is not the gradient of a Variable, nor is an attribute ``rank`` of the user's one of its own."""
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            rank = 2

            @decorate
            def forward(self, v: Any) -> Any:
                y = F.sum(F.tanh(self.l(v)) ** 2)
                g, = kusari.grad([y], [v], enable_double_backprop=True)
                return y * self.rank + F.sum(g ** 2)

        model = Decorated()
        return lambda x: model(Variable(x))

    both(make, xs(4), rtol=1e-4)


def test_scaled_losses(both: Any) -> None:
    """Optimizers divide gradients by the scale that the last backward was given."""
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            forward = decorate(lambda self, x: F.mean(F.tanh(self.m(F.relu(self.l(x)))) ** 2))

        model = Decorated()
        optimizer = SGD(0.1).setup(model)

        def call(item: Any) -> Any:
            i, x = item
            if i % 2 == 0:
                model.cleargrads()
            loss = model(x)
            loss.backward(loss_scale=8.0 if i < 6 else None)
            if i % 2 == 1:
                optimizer.update()
            if i == 9:
                optimizer.update(model, x)
            return [p.array.copy() for p in model.params()], [p.grad.copy() for p in model.params()]
        return call

    both(make, list(enumerate(xs(12))), rtol=1e-4, atol=1e-5)
