"""Arrays that NumPy makes in a call, of shapes and numbers, are constants; whatever else comes into them is noticed."""
from __future__ import annotations

import copy
import os
import pickle
import random
import threading
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.random import RandomState, default_rng

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Chain, Variable, static_graph
from kusari.optimizers import Adam
from kusari.static import StaticGraphWarning

OUTSIDE = np.linspace(0, 1, 4, dtype="f")
LONG = list(range(3000))
CACHE: dict[Any, Any] = {}
RNG = np.random.default_rng(0)
ZEROS = np.zeros


def filled(n: int, m: int) -> Any:
    a = np.empty((n, m), "f")
    for i in range(n):
        a[i] = i
    a[:, 1::2] += np.sin(np.arange(n)[:, None] / 3)
    a[0, 0] = -2
    a -= a.mean()
    return a


def with_functions(n: int, m: int) -> Any:
    a = np.zeros((n, m), "f")
    np.fill_diagonal(a, 2)
    np.add.at(a, (np.arange(2), np.arange(2)), 1)
    np.copyto(a, 5, where=a == 3)
    a.put([1], 7)
    a.sort(axis=1)
    return a


def written_where_it_may_be(n: int) -> Any:
    a = np.ones(n, "f")
    if a.flags.writeable:
        a[0] = 5
    return a


def of_an_argument(x: Any) -> Any:
    a = np.zeros(x.shape, "f")
    a[0] = x[0]
    return F.relu(x) + a


def of_a_result(x: Any) -> Any:
    a = np.zeros(x.shape, "f")
    a[...] = F.exp(x).array
    return F.relu(x) + a


def changed_after(x: Any) -> Any:
    a = np.zeros(x.shape, "f")
    total = F.sum(x)
    for i in range(3):
        a[...] = i
        total += F.sum(x * a)
    return total


def changed_last(x: Any) -> Any:
    a = np.zeros(4, "f")
    y = F.sum(x * a)
    a += 1
    return y


CONSTANT: dict[str, Callable[[Any], Any]] = {
    "changed after": changed_after, "changed last": changed_last,
    "zeros": lambda x: F.relu(x) + np.zeros(x.shape, "f"),
    "causal mask": lambda x: F.where(np.tril(np.ones(x.shape, bool)), F.exp(x), np.full(x.shape, -9, x.dtype)),
    "another mask": lambda x: F.relu(x) * (np.arange(4)[None] <= np.arange(3)[:, None]),
    "like": lambda x: F.relu(x) * np.full_like(x, 3) + np.ones_like(x) + np.zeros_like(F.exp(x).array),
    "repeated": lambda x: F.where(np.broadcast_to(np.tril(np.ones((3, 4), bool))[None], (5, 3, 4)),
                                  F.broadcast_to(F.exp(x), (5, 3, 4)), np.broadcast_to(np.full(1, 3, "f"), (5, 3, 4))),
    "whether it may be written": lambda x: F.relu(x) * written_where_it_may_be(4),
    "which function it is": lambda x: F.relu(x) * (2 if np.zeros is ZEROS else 3) + np.ones(4, "f"),
    "range": lambda x: F.exp(x) * np.array(range(4), "f"),
    "variable": lambda x: F.relu(x) * Variable(np.eye(3, 4, dtype="f")) + Variable(np.ones((), "f")),
    "in place": lambda x: F.relu(x) * filled(*x.shape),
    "functions in place": lambda x: F.relu(x) * with_functions(*x.shape),
    "linspace": lambda x: F.relu(x) * np.linspace(0, 1, 4, dtype="f") + np.array([1, 2, 3, 4], "f"),
    "meshgrid": lambda x: F.relu(x) * sum(np.meshgrid(np.arange(4), np.arange(3))),
    "integers": lambda x: F.relu(x) + F.embed_id(np.arange(3, dtype="i") % 2, np.arange(8, dtype="f").reshape(2, 4)),
    "index": lambda x: F.relu(x)[np.arange(3)[::-1]] + F.exp(x)[:, np.eye(4, dtype=bool)[1]],
    "read by Python": lambda x: F.relu(x) * float(np.ones(3).sum()) + [F.exp(x), x][int(np.arange(2)[0])],
    "loop": lambda x: sum(F.exp(x[i]) * float(v) for i, v in enumerate(np.arange(3))),
    "outside too": lambda x: F.relu(x) * (OUTSIDE * np.arange(4, dtype="f")) + np.array(OUTSIDE[::-1]),
    "with arguments": lambda x: F.relu(x) * np.maximum(np.zeros(4, "f"), x) - np.concatenate([x, np.ones((0, 4), "f")]),
    "result": lambda x: (np.arange(4), Variable(np.zeros(2, "f")), F.exp(x), {"a": np.ones(1)}),
    "seeds": lambda x: F.relu(x) * float(np.random.RandomState(len(x)).rand()),
    "unused": lambda x: (F.relu(x), np.asarray(np.zeros(3)).fill(2))[0],
    "conversions": lambda x: F.exp(np.asarray(x, "d")) + np.array(x) + x.astype("d", copy=False) + np.asarray(x),
    "detached results": lambda x: (F.sum(F.tanh(x)).array, {"a": F.exp(x).array}, Variable(F.sin(x).array)),
    "elements of an argument": of_an_argument,
    "elements of a result": of_a_result,
    "detached": lambda x: F.exp(x) * F.sin(x).array + Variable(F.exp(x).array) * np.tanh(F.relu(x).data),
}


def xs(n: int = 5) -> list[Any]:
    return [np.random.RandomState(i).randn(3, 4).astype("f") for i in range(n)]


def make_of(body: Any) -> Any:
    return lambda decorate: decorate(lambda x: body(x))


@pytest.mark.parametrize("name", CONSTANT)
def test_constants(both: Any, name: str) -> None:
    both(make_of(CONSTANT[name]), xs())


def from_generator(x: Any) -> Any:
    a = np.zeros(x.shape, "f")
    a[...] = np.random.default_rng().random(x.shape) < 0  # equal today
    return F.relu(x) + a


def shuffled(x: Any) -> Any:
    a = np.zeros(4, "f")
    RNG.shuffle(a)
    return F.relu(x) + a


def filled_by_generator(x: Any) -> Any:
    a = np.zeros(4, "f")
    RNG.random(out=a, dtype="f")
    return F.relu(x) + a * 0


def of_a_file(x: Any) -> Any:
    return F.relu(x) + np.zeros(4, "f") * np.frombuffer(b"abcd", "u1")


def its_memory(x: Any) -> Any:
    a = np.zeros(4, "f")
    memoryview(a)[0] = 0
    return F.relu(x) + a


UNKNOWN: dict[str, tuple[Any, str]] = {
    "numbers of a generator": (lambda x: F.relu(x) * np.random.default_rng().random() * 0, "generator that the call"),
    "the same with a class": (lambda x: F.relu(x) * float(np.random.RandomState().rand()) * 0, "generator that the"),
    "Python's": (lambda x: F.relu(x) * random.Random().random() * 0, "generator that the call makes"),
    "imported by name": (lambda x: F.relu(x) * RandomState().rand() * 0, "generator that the call makes"),
    "the same": (lambda x: F.relu(x) * default_rng().random() * 0, "generator that the call makes"),
    "Python's by name": (lambda x: F.relu(x) * Random().random() * 0, "generator that the call makes"),
    "masked": (lambda x: F.relu(x) * float(np.ma.masked_greater(np.arange(12.0), 5).sum()), "MaskedArray is a class"),
    "the system's": (lambda x: F.relu(x) * (os.urandom(1)[0] * 0), "from the system"),
    "random": (from_generator, "generator that the call"),
    "shuffled": (shuffled, "drawn from a Generator"),
    "filled by a generator": (filled_by_generator, "drawn from a Generator"),
    "of a long list": (lambda x: F.relu(x) + np.array(LONG, "f")[:4], "with 3000 items it is too large"),
    "repeated": (lambda x: F.exp(x) * round(float(x.max())) + np.broadcast_to(np.ones((), "f"), (3, 4)), "of a float"),
    "from elsewhere": (of_a_file, "frombuffer is implemented in C"),
    "memory": (its_memory, "memoryview is implemented in C"),
    "global random": (lambda x: F.relu(x) + np.zeros(4, "f") * np.random.rand(), None),
    "a result twice": (lambda x: (lambda h: (h, h.array))(F.exp(x)), "both returned or stored"),
    "branch on a result": (lambda x: F.relu(x) if round(F.exp(x).array.max()) > 2 else x, "takes data out"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_no_constant(both: Any, name: str) -> None:
    body, aside = UNKNOWN[name]
    both(make_of(body), xs(), aside=aside)


def test_results_are_new_arrays_each_time() -> None:
    @static_graph(strict=True)
    def f(x: Any) -> Any:
        a = np.zeros(2)
        return F.relu(x), a, a[None]
    for _ in range(5):
        _, a, b = f(xs(1)[0])
        assert type(a) is np.ndarray and a.tolist() == [0, 0] and b.tolist() == [[0, 0]]
        a += 1
        b += 2


class Model(Chain):
    """Positions, a mask and a state of zeros, as models have them."""

    n = 0

    def __init__(self) -> None:
        super().__init__()
        self.h: Any = None
        self.scale = np.ones(4, "f")
        with self.init_scope():
            self.l = L.Linear(4, 4)
            self.p = L.EmbedID(6, 4)
            self.r = L.StatelessGRU(4, 4)

    def forward(self, x: Any) -> Any:
        if self.h is None:
            self.h = Variable(self.xp.zeros((len(x), 4), "f"))
        self.h = self.r(self.h, self.l(x) + self.p(self.xp.arange(len(x), dtype="i")))
        self.seen = self.xp.full(2, self.n)
        return F.sum(self.h * self.scale * self.xp.arange(4, dtype="f") * F.sigmoid(x).array)


@pytest.mark.parametrize("whole", [False, True], ids=["call", "step"])
@pytest.mark.parametrize("memory", ["speed", "low"])
def test_models(whole: bool, memory: str) -> None:
    """Gradients, state, attributes: guards see what the constants were made of."""
    def run(decorate: Any) -> Any:
        np.random.seed(0)
        model = type("Net", (Model,), {"forward": decorate(Model.forward)})()
        optimizer = Adam(0.01).setup(model)
        seen: list[Any] = []
        for i in range(10):
            x = np.random.RandomState(i).randn(3 + (i > 7), 4).astype("f")
            if i in (4, 8):
                model.h = None
            if i == 5:
                model.scale[1] = 3
            if i == 6:
                model.n = 5
            if whole:
                optimizer.update(model, x)
            else:
                loss = model(x)
                model.cleargrads()
                loss.backward()
                optimizer.update()
            model.h.unchain_backward()
            seen.append([model.h.array.copy(), model.seen, *[p.array.copy() for p in model.params()]])
            assert type(model.seen) is np.ndarray
        return seen
    for a, b in zip(run(lambda f: f), run(static_graph(strict=True, memory=memory)), strict=True):
        for p, q in zip(a, b, strict=True):
            np.testing.assert_allclose(q, p, rtol=1e-5, atol=1e-6)


def test_a_variable_that_is_stored_has_its_gradient() -> None:
    def body(self: Any, x: Any) -> Any:
        self.noise = Variable(np.ones(4, "f"))
        return F.sum(x * self.noise)
    for i in range(3):
        model = STORED
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            loss = static_graph(body)(model, xs()[i]) if i == 0 else body(model, xs()[i])
        assert (len(seen) == 1 and "asked for its gradient" in str(seen[0].message)) == (i == 0)
        loss.backward()
        np.testing.assert_allclose(model.noise.grad, xs()[i].sum(axis=0), rtol=1e-5)


STORED = Chain()


def test_nothing_stays_behind() -> None:
    """What calls leave in containers, objects and closures are arrays, also where they raise."""
    held: list[Any] = []
    inner = None

    class Box:
        pass

    def body(x: Any, fail: bool = False) -> Any:
        nonlocal inner
        box: Any = Box()
        box.array, box.both = np.zeros(2), {"x": x, "made": np.ones(2)}
        held.append(box)
        held.append(np.arange(3))
        CACHE[len(x)] = F.exp(x).array
        inner = np.ones(3)
        if fail:
            raise KeyError
        return F.exp(x) * np.zeros(4, "f")
    f = static_graph(body)
    with pytest.raises(KeyError):
        f(xs()[0], True)
    with pytest.warns(StaticGraphWarning, match="is given an object that the call has made"):
        f(xs()[0])
    found = [CACHE.pop(3), inner, held[1], held[3]]
    for box in (held[0], held[2]):
        found += [box.array, box.both["x"], box.both["made"]]
    assert {type(x) for x in found} == {np.ndarray}
    assert held[0].both["x"] is held[2].both["x"] or np.array_equal(held[0].both["x"], held[2].both["x"])


def test_errors_hold_arrays() -> None:
    def body(x: Any) -> Any:
        raise ValueError(np.arange(3), "and more")
    with pytest.raises(ValueError, match="and more") as info:
        static_graph(body)(xs()[0])
    assert type(info.value.args[0]) is np.ndarray
    info.value.args[0][0] = 2


def test_numpy_is_what_it_was() -> None:
    """Functions of NumPy are found by other threads and other code while a call is traced, and all are there after."""
    before = dict(vars(np))
    seen: list[Any] = []

    def f(x: Any) -> Any:
        def other() -> None:
            seen.append(type(np.zeros(3)))
            from numpy import ones
            seen.append(type(ones(2)))
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        zeros = np.zeros
        seen.append(type(pickle.loads(pickle.dumps(zeros))(2)))
        seen.append(type(copy.copy(zeros)(1)))
        return F.relu(x) + zeros(4, "f")

    with pytest.warns(StaticGraphWarning, match="is an iterator|implemented in C"):
        static_graph(f)(xs()[0])
    assert seen[:2] == [np.ndarray] * 2
    assert {k: v for k, v in vars(np).items() if k in before} == before
    assert all(vars(np)[k] is v for k, v in before.items())


@pytest.mark.parametrize("name", ["in place", "detached", "with arguments"])
def test_verified(both: Any, name: str) -> None:
    body = CONSTANT[name]
    f = static_graph(lambda x: body(x), verify=1, strict=True)
    for x in xs():
        np.testing.assert_allclose(f(x).array, body(x).array, rtol=1e-5, atol=1e-6)


def test_detached_values_stop_gradients() -> None:
    w = kusari.Parameter(np.linspace(-1, 1, 4, dtype="f"))

    def body(x: Any) -> Any:
        h = F.tanh(x * w)
        return F.sum(h * Variable(h.array) + F.exp(h.array) * w)
    f = static_graph(body, strict=True)
    for x in xs():
        grads = []
        for g in (body, f):
            w.cleargrad()
            g(x).backward()
            grads.append(w.grad)
        np.testing.assert_allclose(grads[1], grads[0], rtol=1e-5)


def test_seeded_generators_of_the_call_write_to_its_arrays() -> None:
    """Rows are shuffled, buffers are filled, as in define-by-run: they are the same in every call."""
    def shuffled_rows(x: Any) -> Any:
        a = np.arange(12, dtype="f").reshape(3, 4)
        np.random.RandomState(0).shuffle(a)
        b = np.empty(4, "f")
        np.random.Generator(np.random.PCG64(0)).random(out=b, dtype="f")
        return F.exp(x) + a + b
    f = static_graph(shuffled_rows, strict=True)
    for x in xs():
        np.testing.assert_allclose(f(x).array, shuffled_rows(x).array, rtol=1e-6)


def test_vectorized_functions_are_observed(both: Any) -> None:
    def make(decorate: Any) -> Any:
        k = 1

        @decorate
        def f(x: Any) -> Any:
            return F.relu(x) * np.vectorize(lambda v: v + k)(np.ones(4, "f"))

        def call(item: Any) -> Any:
            nonlocal k
            k, x = item[0] // 3, item[1]
            return f(x)
        return call

    both(make, list(enumerate(xs(10))))


class Writing(kusari.FunctionNode):
    """Adds to what it is given, in place, where its second input says so."""

    def forward(self, inputs: Any) -> Any:
        a, x = inputs
        if x[0, 0] > 0.5 or self.always:
            a += x
        return a * 2,

    def backward(self, indexes: Any, gys: Any) -> Any:
        return None, gys[0]

    always = False


@pytest.mark.parametrize("always", [False, True])
def test_functions_of_the_users_may_write(always: bool) -> None:
    def f(x: Any) -> Any:
        function = Writing()
        function.always = always
        return function.apply((np.zeros((3, 4), "f"), F.exp(x)))[0] + np.zeros((3, 4), "f")
    static = static_graph(f)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for x in [xs()[0] * 0 - 2, *xs()]:
            np.testing.assert_allclose(static(x).array, f(x).array, rtol=1e-5)
    assert len(seen) == always and all("changes an array that it is given" in str(w.message) for w in seen)
