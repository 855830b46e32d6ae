"""Numbers and arrays from outside that a call changes: counters, averages, spectral norms, logs of floats."""
from __future__ import annotations

import collections
import contextlib
import math
import operator
import warnings
from typing import Any

import numpy as np
import pytest
from static.models import build
from static.observed.harness import CHANGED, Rows, check

import kusari
import kusari.functions as F
from kusari import Parameter

ROWS = Rows()
TOTAL: Any = 0.0


# -- numbers ---------------------------------------------------------------------------------------------------------


def numbers(add: Any, **attributes: Any) -> Any:
    """A program that calls ``add(self, x, h)`` and returns what is computed of ``h``, with all attributes."""
    def program(decorate: Any) -> Any:
        def body(self: Any, x: Any) -> Any:
            h = F.tanh(self.l(x))
            factor = add(self, x, h)
            return h if factor is None else h * factor
        model = build(decorate(body), **{k: v.copy() if hasattr(v, "copy") else v for k, v in attributes.items()})

        def call(i: int, x: Any) -> Any:
            if i == CHANGED:
                model.n = 100
            return model(x), {k: getattr(model, k) for k in attributes}
        return call
    return program


def counts(self: Any, x: Any, h: Any) -> None:
    self.n += 1
    self.n += len(x)


def averages(self: Any, x: Any, h: Any) -> None:
    self.n *= 0.9
    self.n += 0.1 * float(F.sum(h).array)


def counts_in_a_dictionary(self: Any, x: Any, h: Any) -> None:
    self.d["n"] += len(x)
    self.d["loss"] += float(F.mean(h).array)


def reads_what_it_counts(self: Any, x: Any, h: Any) -> Any:
    self.n += 1
    return 2.0 if self.n > 3 else 1.0


def stores_what_it_counts(self: Any, x: Any, h: Any) -> None:
    self.n += 1
    self.n = 5
    self.n += 1


def adds_what_changes_it(self: Any, x: Any, h: Any) -> None:
    def change() -> int:
        self.n = 7
        return 1
    self.n += change()


def turns_into_a_float(self: Any, x: Any, h: Any) -> None:
    self.n += 0.5


def looks_at_all(self: Any, x: Any, h: Any) -> Any:
    self.d["n"] += 1
    return float(len(list(self.d.values())))


def logs(self: Any, x: Any, h: Any) -> None:
    self.log.append(float(F.sum(h).array))
    self.q.append((float(F.sum(h).array), [float(x.max())]))
    self.d["last"] = float(F.sum(h).array) * 2
    self.last = {"a": float(F.sum(h).array)}


def uses_what_it_stored(self: Any, x: Any, h: Any) -> Any:
    self.last = float(F.sum(h).array)
    return self.last * 2


def adds_up_a_list(self: Any, x: Any, h: Any) -> Any:
    found = []
    for row in h:
        found.append(float(F.sum(row).array))
    return sum(found)


REPLAYING = {f.__name__: numbers(f, n=0) for f in (
    counts, averages, stores_what_it_counts, turns_into_a_float, uses_what_it_stored, adds_up_a_list)}
REPLAYING |= {
    "counts_in_a_dictionary": numbers(counts_in_a_dictionary, d={"n": 0, "loss": 0.0}),
    "logs": numbers(logs, log=[], q=collections.deque(maxlen=3), d={}, last=None)}
EITHER = {f.__name__: numbers(f, n=0) for f in (reads_what_it_counts, adds_what_changes_it)}
EITHER |= {"looks_at_all": numbers(looks_at_all, d={"n": 0})}


@pytest.mark.parametrize("name", REPLAYING)
def test_numbers(name: str) -> None:
    REPLAYING[name].__module__ = __name__
    check(REPLAYING[name], "replays")


@pytest.mark.parametrize("name", EITHER)
def test_numbers_that_are_read(name: str) -> None:
    EITHER[name].__module__ = __name__
    check(EITHER[name])


@ROWS.replays
def globals_and_closures(decorate: Any) -> Any:
    last: Any = None

    @decorate
    def f(x: Any) -> Any:
        global TOTAL
        nonlocal last
        h = F.tanh(x)
        TOTAL = float(F.sum(h).array)
        last = float(F.mean(h).array), TOTAL
        return h * TOTAL
    return lambda i, x: (f(x), TOTAL, last)


# -- arrays ----------------------------------------------------------------------------------------------------------


class Spectral(kusari.Chain):
    def __init__(self, persistent: bool = True) -> None:
        super().__init__()
        with self.init_scope():
            self.W = Parameter(np.random.RandomState(3).randn(4, 4).astype("f"))
        self.u = np.ones((1, 4), "f")
        if persistent:
            self.register_persistent("u")

    def norm(self) -> Any:
        v = np.dot(self.u, self.W.array)
        v = v / (np.sqrt((v * v).sum()) + 1e-12)
        u = v.dot(self.W.array.T)
        u = u / (np.sqrt((u * u).sum()) + 1e-12)
        self.u[:] = u
        return F.sum(F.linear(u, F.transpose(self.W)) * v)


def spectral(persistent: bool, twice: bool) -> Any:
    def program(decorate: Any) -> Any:
        m = Spectral(persistent)

        @decorate
        def f(x: Any) -> Any:
            y = F.matmul(F.relu(x), m.W / m.norm())
            return F.matmul(y, m.W / m.norm()) if twice else y

        def call(i: int, x: Any) -> Any:
            if i == CHANGED:
                m.u = np.full((1, 4), 0.5, "f")
            return f(x), m, m.u
        return call
    return program


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("twice", [True, False])
def test_spectral_norms(persistent: bool, twice: bool) -> None:
    program = spectral(persistent, twice)
    program.__module__ = __name__
    check(program, "replays")


@pytest.mark.parametrize("memory", ["low", "speed"])
def test_what_gradients_compute_again_is_of_the_array_before(memory: Any) -> None:
    """A backward of its own runs when the array has changed."""
    results: list[Any] = []
    for decorate in (lambda f: f, kusari.static_graph(strict=True, memory=memory)):
        m, log = Spectral(), []

        @decorate
        def f(x: Any, m: Any = m, log: Any = log) -> Any:
            y = F.sum(F.matmul(x, m.W / m.norm()) ** 2)
            log.append(float(y.array))
            return y
        for i in range(5):
            y = f(np.random.RandomState(i).rand(3, 4).astype("f"))
            m.cleargrads()
            y.backward()
            results.append(m.W.grad.copy())
            m.W.array -= 0.1 * m.W.grad
    for a, b in zip(results[:5], results[5:], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def arrays(change: Any) -> Any:
    def program(decorate: Any) -> Any:
        model = build(decorate(lambda self, x: F.tanh(self.l(x)) * (change(self, x) or 1.0)),
                      a=np.zeros((3, 4), "f"))

        def call(i: int, x: Any) -> Any:
            if i == CHANGED:
                model.a = np.ones((3, 4), "f")
            return model(x), model.a
        return call
    program.__module__ = __name__
    return program


def sums(self: Any, x: Any) -> None:
    self.a += x
    self.a[1] *= 2
    self.a[:, 2] = 7


def parts(self: Any, x: Any) -> None:
    np.add.at(self.a.ravel(), np.array([1, 1, 5]), x[0, :3])
    self.a[0][1:3] = x[1, 1:3]
    self.a *= 2


def masked(self: Any, x: Any) -> None:
    self.a[x > 0.5] = x[x > 0.5]
    self.a[x < -1] = 0


def read_after_the_change(self: Any, x: Any) -> Any:
    self.a += x
    return F.sum(F.exp(-self.a))


def read_before_the_change(self: Any, x: Any) -> Any:
    y = F.sum(F.exp(-self.a) * F.tanh(self.l(x)))
    self.a += x
    return y


def elements_before_the_change(self: Any, x: Any) -> Any:
    y = float(self.a[0, 0]) + 1.0
    self.a += x
    return y


def another_name(self: Any, x: Any) -> Any:
    b = self.a.view()
    self.a += 1
    return float(b.sum())


def put_elsewhere(self: Any, x: Any) -> None:
    a = self.a
    self.a = np.ones((3, 4), "f")
    a += x


def returned(self: Any, x: Any) -> None:
    self.a += x
    self.b = self.a


@pytest.mark.parametrize("change", [sums, parts, masked])
def test_arrays_from_outside(change: Any) -> None:
    check(arrays(change), "replays")


@pytest.mark.parametrize("change", [
    read_after_the_change, read_before_the_change, elements_before_the_change, another_name, put_elsewhere, returned])
def test_arrays_from_outside_that_are_read(change: Any) -> None:
    check(arrays(change))


@ROWS.replays
def arrays_of_closures(decorate: Any) -> Any:
    table, seen = np.zeros((3, 4), "f"), [np.zeros(4, "f")]

    @decorate
    def f(x: Any) -> Any:
        table[0] += x[0]
        seen[0] *= 0.5
        return F.tanh(x)
    return lambda i, x: (f(x), table, seen)


@ROWS.replays
def own_arrays_of_classes(decorate: Any) -> Any:
    @decorate
    def f(x: Any) -> Any:
        labels = np.random.randint(0, 4, 3)
        hot = np.zeros((3, 4), "f")
        for i in range(3):
            hot[i, labels[i]] = 1
        t = np.full((3, 4), 0.5, "f")
        t[hot == 1] = x[hot == 1]
        return F.tanh(x) * hot * t
    return lambda i, x: f(x)


@ROWS.falls_back("raises, and need not in other calls")
def elements_for_another_mask(decorate: Any) -> Any:
    @decorate
    def f(x: Any) -> Any:
        t, mask = np.zeros((3, 4), "f"), x > 0
        picked = x[mask]
        mask[0] = False
        with contextlib.suppress(ValueError):
            t[mask] = picked
        return F.tanh(x) + t
    return lambda i, x: f(np.vstack([x[:1] if i < CHANGED else -abs(x[:1]), x[1:]]))


def memory_of_arguments(argument: Any) -> Any:
    """A program that is given an array that it changes, from one call on."""
    def program(decorate: Any) -> Any:
        def f(self: Any, x: Any, y: Any) -> Any:
            self.a += y.array if isinstance(y, kusari.Variable) else y
            return F.tanh(self.l(x)) + y
        model = build(decorate(f), a=np.zeros((3, 4), "f"))
        return lambda i, x: (model(x, argument(model.a) if i >= CHANGED else x + 1), model.a)
    program.__module__ = __name__
    return program


@pytest.mark.parametrize("argument", [lambda a: a, lambda a: a[::-1], lambda a: a.T.T, kusari.Variable])
def test_arguments_that_are_changed(argument: Any) -> None:
    check(memory_of_arguments(argument))


class Seeing(kusari.FunctionNode):
    """A function of the user's that looks at what the call has changed."""

    def __init__(self, seen: Any) -> None:
        self.seen = seen

    def forward(self, inputs: Any) -> Any:
        return inputs[0] * self.seen(),

    def backward(self, indexes: Any, grad_outputs: Any) -> Any:
        return grad_outputs[0] * 1,


@ROWS.replays
def numbers_that_functions_see(decorate: Any) -> Any:
    def f(self: Any, x: Any) -> Any:
        self.n += 1
        return Seeing(lambda: model.n).apply((self.l(x),))[0]
    model = build(decorate(f), n=0)
    return lambda i, x: (model(x), model.n)


@ROWS.replays
def arrays_that_functions_see(decorate: Any) -> Any:
    def f(self: Any, x: Any) -> Any:
        self.a += x[0]
        return Seeing(lambda: model.a.sum()).apply((self.l(x),))[0]
    model = build(decorate(f), a=np.ones(4, "f"))
    return lambda i, x: (model(x), model.a)


@ROWS.replays
def arrays_that_are_protected(decorate: Any) -> Any:
    a = np.zeros((3, 4), "f")
    model = build(decorate(lambda self, x: (operator.iadd(self.a, x), F.sum(self.l(x)))[1]), a=a)
    optimizer = kusari.optimizers.SGD(0.1).setup(model)

    def call(i: int, x: Any) -> Any:
        a.setflags(write=i != CHANGED)
        try:
            optimizer.update(model, x)
        except ValueError:
            return model, a, "protected"
        return model, a
    return call


@ROWS.falls_back("depend on values")
def picked_elements_that_are_used(decorate: Any) -> Any:
    static = decorate(lambda x: F.tanh(x) * float(x[x > 0].sum()))
    return lambda i, x: static(x)


PICKED: dict[str, Any] = {
    "length": lambda x, p: len(p), "shape": lambda x, p: p.shape[0], "size": lambda x, p: p.size,
    "of a Variable": lambda x, p: kusari.Variable(p).shape[0], "in a list": lambda x, p: len([p, x][0]),
    "np.size": lambda x, p: np.size(p), "rows": lambda x, p: sum(1 for _ in x[x[:, 0] > 0]),
    "in a tuple": lambda x, p: np.concatenate((p, p)).shape[0], "nothing": lambda x, p: 1,
    "put elsewhere": lambda x, p: x.copy().__setitem__(x > 0.5, p[:1]) or 1,
}


@pytest.mark.parametrize("use", PICKED.values(), ids=list(PICKED))
def test_picked_elements(use: Any) -> None:
    def program(decorate: Any) -> Any:
        static = decorate(lambda x: F.tanh(x) * float(use(x, x[x > 0])))
        return lambda i, x: static(x)
    program.__module__ = __name__
    check(program)


@pytest.mark.parametrize("how", ["fault", "exception"])
def test_numbers_are_plain_after_a_call_that_is_not_followed(how: str) -> None:
    log: list[Any] = []
    kept: dict[str, Any] = {}

    class Kept:
        pass
    o: Any = Kept()

    @kusari.static_graph
    def f(x: Any) -> Any:
        value = float(F.sum(F.tanh(x)).array)
        log.append(value)
        kept["a"], o.value, o.pair = value, value, (value, [value])
        if how == "exception":
            raise KeyError("mine")
        return F.tanh(x) * math.sqrt(abs(value))
    for i in range(2):
        with warnings.catch_warnings(), contextlib.suppress(KeyError):
            warnings.simplefilter("ignore")
            f(np.full((2, 2), i + 1, "f"))
        found = [log[-1], kept["a"], o.value, o.pair[0], o.pair[1][0]]
        assert [type(v) for v in found] == [float] * 5 and len(set(found)) == 1


@pytest.mark.parametrize("name", ROWS)
def test_programs(name: str) -> None:
    ROWS.check(name)
