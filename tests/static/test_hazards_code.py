"""Code, classes, arrays and parameters that change between calls, or inside them."""
from __future__ import annotations

import array
import collections
import copy
import functools
import hashlib
import queue
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from static import models
from static.hazards import xs

import kusari
import kusari.functions as F
from kusari import Variable


class Model(models.Model):
    def act(self, x: Any) -> Any:
        return F.relu(x)


Case = tuple[Callable[[Any], Any], Callable[[int], None]]  # the static function, and what happens before each call
CASES: dict[str, Callable[[Any], Case]] = {}


def case(f: Callable[[Any], Case]) -> Callable[[Any], Case]:
    CASES[f.__name__] = f
    return f


@case
def defaults_of_the_function(decorate: Any) -> Case:
    def f(x: Any, k: float = 1.0) -> Any:
        return F.relu(x) * k
    return decorate(f), lambda i: setattr(f, "__defaults__", (1.0 + i // 3,))


@case
def defaults_of_a_helper(decorate: Any) -> Case:
    def helper(x: Any, k: float = 1.0, *, shift: float = 0.0) -> Any:
        return F.relu(x) * k + shift

    def change(i: int) -> None:
        helper.__defaults__ = 1.0 + i // 3,
        assert helper.__kwdefaults__ is not None
        helper.__kwdefaults__["shift"] = float(i // 4)
    return decorate(lambda x: helper(x)), change


@case
def code_of_a_helper(decorate: Any) -> Case:
    """As IPython's autoreload does it."""
    def helper(x: Any) -> Any:
        return F.relu(x)

    def other(x: Any) -> Any:
        return F.tanh(x)

    def change(i: int) -> None:
        if i == 3:
            helper.__code__ = other.__code__
    return decorate(lambda x: helper(x)), change


@case
def methods_of_classes(decorate: Any) -> Case:
    class Decorated(Model):
        forward = decorate(lambda self, x: self.act(self.l(x)))

    def change(i: int) -> None:
        if i == 3:
            Decorated.act = lambda self, x: F.tanh(x)
        if i == 5:
            del Decorated.act
    return Decorated(), change


@case
def static_methods(decorate: Any) -> Case:
    class Decorated(Model):
        @staticmethod
        def squash(x: Any) -> Any:
            return F.relu(x)

        @property
        def scale(self) -> float:
            return 2.0

        forward = decorate(lambda self, x: self.squash(self.l(x)) * self.scale)

    def change(i: int) -> None:
        if i == 3:
            Decorated.squash = staticmethod(F.tanh)
        if i == 5:
            Decorated.scale = property(lambda self: 3.0)  # type: ignore[assignment]
    return Decorated(), change


@case
def generators(decorate: Any) -> Case:
    class Decorated(Model):
        def layers(self) -> Any:
            yield self.l
            yield self.m

        forward = decorate(lambda self, x: functools.reduce(lambda h, link: F.tanh(link(h)), self.layers(), x))

    def change(i: int) -> None:
        if i == 3:
            Decorated.layers = lambda self: [self.m]
    return Decorated(), change


@case
def keywords_of_partials(decorate: Any) -> Case:
    act: Any = functools.partial(F.leaky_relu, slope=0.1)
    return decorate(lambda x: act(x)), lambda i: act.keywords.update(slope=0.1 * (1 + i // 3))


@case
def functions_of_modules(decorate: Any) -> Case:
    module: Any = types.ModuleType("of_the_user")
    module.act = lambda x: F.relu(x)

    def change(i: int) -> None:
        if i == 3:
            module.act = lambda x: F.tanh(x)
    return decorate(lambda x: module.act(x)), change


@case
def methods_called_on_the_class(decorate: Any) -> Case:
    class Decorated(Model):
        @staticmethod
        @decorate
        def one(x: Any) -> Any:
            return F.relu(x) * 2

        @classmethod
        @decorate
        def two(cls, x: Any) -> Any:
            return F.tanh(x)

    return lambda x: (Decorated.one(x), Decorated.two(x), Decorated().two(x)), lambda i: None


# Elements of arrays that are no arguments, read as numbers.

@case
def elements_of_attributes(decorate: Any) -> Case:
    class Decorated(Model):
        forward = decorate(lambda self, x: F.reshape(self.l(x), tuple(self.shape)) * float(self.masks[0].sum()))

    model = Decorated()
    model.shape, model.masks = np.array([2, 6]), [np.ones(3)]

    def change(i: int) -> None:
        if i == 3:
            model.shape[...] = 6, 2
        if i == 5:
            model.masks[0][1] = 5
    return model, change


@case
def elements_of_closures(decorate: Any) -> Case:
    numbers = np.ones(3, "f")
    return decorate(lambda x: F.relu(x) * numbers[0]), lambda i: numbers.fill(i // 3)


@case
def elements_of_persistent_arrays(decorate: Any) -> Case:
    class Decorated(Model):
        def __init__(self) -> None:
            super().__init__()
            self.add_persistent("k", np.zeros(4, "f"))
            self.add_persistent("given", np.zeros(4, "f"))

        forward = decorate(lambda self, x: (self.l(x) + float(self.k[0])) * self.given)

    model = Decorated()

    def change(i: int) -> None:
        model.k += i % 3 == 0
        model.given += 1  # a function reads it: bound anew at every call
        if i == 5:
            model.given = np.full(4, 9, "f")
    return model, change


@case
def containers_of_other_kinds(decorate: Any) -> Case:
    class Decorated(Model):
        forward = decorate(lambda self, x: self.l(x) * sum(self.deque) * self.user["k"] * self.numbers[0] * self.raw[0])

    model = Decorated()
    model.deque, model.user = collections.deque([1.0]), collections.UserDict(k=1.0)
    model.numbers, model.raw = array.array("f", [1.0]), bytearray(b"\1")

    def change(i: int) -> None:
        if i == 2:
            model.deque.append(2.0)
        if i == 4:
            model.user["k"] = 3.0
        if i == 5:
            model.numbers[0] = 4.0
        if i == 6:
            model.raw[0] = 5
    return model, change


@pytest.mark.parametrize("name", CASES)
def test_changes_are_seen(both: Any, name: str) -> None:
    def make(decorate: Any) -> Any:
        static, change = CASES[name](decorate)
        calls = iter(range(100))

        def call(x: Any) -> Any:
            change(next(calls))
            return static(x)
        return call

    both(make, xs(8))


# -- what cannot be repeated -------------------------------------------------------------------------------------------

class Stateful(Model):
    """Keeps what it computes in containers."""

    def __init__(self) -> None:
        super().__init__()
        self.list: list[Any] = [None]
        self.pair: tuple[Any, ...] = (None, None)
        self.dict: dict[str, Any] = {}
        self.deque: collections.deque[Any] = collections.deque(maxlen=2)
        self.queue: queue.Queue[int] = queue.Queue()
        self.counter: collections.Counter[str] = collections.Counter()
        self.add_persistent("k", np.zeros(4, "f"))
        self.large = np.ones(20000)


def in_list(s: Any, x: Any) -> Any:
    y = F.tanh(s.l(x) if s.list[0] is None else s.l(x) + s.list[0])
    s.list[0] = y
    return y


def in_new_list(s: Any, x: Any) -> Any:
    y = F.tanh(s.l(x) if s.list[0] is None else s.l(x) + s.list[0])
    s.list = [y]
    return y


def in_new_tuple(s: Any, x: Any) -> Any:
    y = F.tanh(s.l(x) if s.pair[0] is None else s.l(x) + s.pair[0] * s.pair[1])
    s.pair = y, y * 2
    return y


def in_dict(s: Any, x: Any) -> Any:
    y = F.tanh(s.l(x) + s.dict["h"] if "h" in s.dict else s.l(x))
    s.dict["h"] = y
    return y


def in_deque(s: Any, x: Any) -> Any:
    y = sum(s.deque, F.tanh(s.l(x)))
    s.deque.append(y)
    return y


def in_queue(s: Any, x: Any) -> Any:
    s.queue.put(1)
    return s.l(x) * s.queue.qsize()


def in_counter(s: Any, x: Any) -> Any:
    s.counter["calls"] += 1
    return s.l(x) * s.counter["calls"]


def in_elements(s: Any, x: Any) -> Any:
    s.k += 1
    return s.l(x) + s.k


def in_elements_of_a_link(s: Any, x: Any) -> Any:
    return s.counting(s.l(x))


class Counting(kusari.Link):
    def __init__(self) -> None:
        super().__init__()
        self.add_persistent("k", np.zeros(4, "f"))

    def forward(self, x: Any) -> Any:
        self.k += 1
        return x + self.k


def kept_in_containers(s: Any) -> list[Any]:
    """What calls have left, by value."""
    kept = [s.list[0], *s.pair, *s.dict.values(), *s.deque]
    return [*(None if y is None else y.array.copy() for y in kept), list(s.dict), dict(s.counter), s.queue.qsize(),
            s.k.copy(), s.counting.k.copy()]


@pytest.mark.parametrize("body", [in_list, in_dict])
def test_state_in_containers_is_repeated(both: Any, body: Any) -> None:
    """What a call leaves for the next one is what the next one reads, also after it was changed in between."""
    made: list[Any] = []

    def make(decorate: Any) -> Any:
        class Decorated(Stateful):
            forward = decorate(body)

        model = Decorated()
        model.add_link("counting", Counting())
        made.append((model, body))

        def call(item: Any) -> Any:
            i, x = item
            model.l.W.array *= 1.1
            if i == 6:
                model.list, model.dict = [None], {}
            if i == 8 and body is in_dict:
                model.dict["h"] = Variable(x * 2)
            elif i == 8:
                model.list[0] = Variable(x * 2)
            y = model(x)
            kept = kept_in_containers(model)
            for v in (y, *model.list, *model.dict.values()):
                if v is not None:
                    v.unchain_backward()
            return y, y is (model.dict["h"] if body is in_dict else model.list[0]), kept
        return call

    both(make, list(enumerate(xs(12))))


@pytest.mark.parametrize(("body", "reason"), [
    (in_new_list, r"Decorated\.list changes in every call"), (in_new_tuple, "made outside"),
    (in_deque, "made outside"), (in_queue, "changes in every call"),
    (in_counter, r"item 'calls' of a Counter .* changes in every call"),
    (in_elements, None),
    (in_elements_of_a_link, None),
    (lambda s, x: s.l(x) * float(s.large.sum()), r"elements of the array Decorated\.large may be read"),
    (lambda s, x: copy.deepcopy(s.l)(x) + s.m(x), "has made or copied"),
    (lambda s, x: F.linear(x, kusari.Parameter(np.ones((2, 4), "f"))), "has made or copied"),
    (lambda s, x: (lambda h: h * float(h.node.data.sum()))(F.relu(x)), r"\.node of a Variable may be read"),
])
def test_what_replays_cannot_repeat(both: Any, body: Any, reason: str | None) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Stateful):
            forward = decorate(body)

        model = Decorated()
        model.add_link("counting", Counting())

        def call(x: Any) -> Any:
            model.l.W.array *= 1.1
            return model(x), kept_in_containers(model)
        return call

    both(make, xs(9), aside=reason)


def test_variables_outside_read_as_numbers(both: Any) -> None:
    def make(decorate: Any) -> Any:
        v = Variable(np.ones((3, 4), "f"))
        static = decorate(lambda x: F.relu(x) * float(v.array.sum()))

        def call(x: Any) -> Any:
            v.array += 1
            return static(x)
        return call

    both(make, xs(5), aside="takes data out")


@pytest.mark.parametrize("link", [False, True])
def test_hooks_entered_inside(both: Any, link: bool) -> None:
    def make(decorate: Any) -> Any:
        seen: list[str] = []

        class Names(kusari.LinkHook if link else kusari.FunctionHook):  # type: ignore[misc]
            name = "Names"

            def forward_postprocess(self, *args: Any) -> None:
                seen.append("called")

        class Decorated(Model):
            @decorate
            def forward(self, x: Any) -> Any:
                with Names():
                    return self.l(x)

        model = Decorated()
        return lambda x: (model(x), len(seen))

    both(make, xs(4), aside="hook Names is entered inside")


def test_an_argument_that_is_the_array_of_a_parameter(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            loss = decorate(lambda self, x: F.sum(F.tanh(self.l(x)) * x))

        model = Decorated()
        optimizer = kusari.optimizers.SGD(0.1).setup(model.l)

        def call(x: Any) -> Any:
            optimizer.update(model.loss, model.l.W.array)
            return [p.array.copy() for p in model.l.params()], [p.grad for p in model.l.params()]
        return call

    both(make, xs(6))


# -- elements of arguments, asked for from below -----------------------------------------------------------------------

LOOKING: dict[str, tuple[Callable[[Any], Any], str]] = {
    "asarray": (lambda x: F.relu(x) * round(float(np.asarray(x).sum())), "of a float takes data out"),
    "array": (lambda x: F.relu(x) * round(float(np.array(x)[0, 0])), "of a float takes data out"),
    "float32": (lambda x: F.relu(x) * np.float32(x)[0, 0], r"numpy\.float32 reads elements"),
    "nditer": (lambda x: F.relu(x) * sum(float(v) for v in np.nditer(x)), "code in C reads elements"),
    "memoryview": (lambda x: F.relu(x) * memoryview(x)[0, 0], "code in C reads elements"),
    "frombuffer": (lambda x: F.relu(x) * float(np.frombuffer(x, "f")[0]), r"numpy\.frombuffer is implemented in C"),
    "digest": (lambda x: F.relu(x) * hashlib.md5(x).digest()[0], "md5 is implemented in C"),
    "method of the type": (lambda x: F.relu(x) * round(np.ndarray.sum(x)), "of a float32 takes data out"),
    "layout": (lambda x: F.relu(x) * (2 if x.flags.c_contiguous else 1), r"\.flags reads"),
}


@pytest.mark.parametrize("name", LOOKING)
def test_elements_are_not_read_unnoticed(both: Any, name: str) -> None:
    body, aside = LOOKING[name]

    def make(decorate: Any) -> Any:
        return decorate(lambda x: body(x))

    both(make, [abs(x) + 1 for x in xs(4)], aside=aside)


def test_an_argument_is_the_array_itself(both: Any) -> None:
    """Its type is part of the signature: arrays and Variables take turns."""
    def make(decorate: Any) -> Any:
        @decorate
        def f(x: Any) -> Any:
            looks = [type(x) is np.ndarray, isinstance(x, np.ndarray), len(x) == 3, x.shape == (3, 4),
                     x.dtype == np.float32]
            return F.relu(x) * (2 if type(x) is np.ndarray else 3), looks

        return lambda item: f(Variable(item[1]) if item[0] % 3 == 2 else item[1])

    both(make, list(enumerate(xs(9))))


def test_what_a_refused_call_did_is_done_once(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(Model):
            count = 0

            @decorate
            def forward(self, x: Any) -> Any:
                self.count += 1
                return F.dropout(self.l(x)) * memoryview(x)[0, 0]

        model = Decorated()
        return lambda x: (model(x), model.count)

    both(make, xs(4), aside="code in C reads elements")
