"""Signatures that differ in extents: from the third on they have their kernels in common."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari
import kusari.functions as F
import kusari.links as L
from kusari import Chain, static_graph
from kusari.optimizers import SGD
from kusari.runtime import Loader, ObjectCache
from kusari.runtime import loader as loading
from kusari.static.compile import families

LOADERS: list[Loader] = []  # the pool's own code is theirs, too
TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Loader]:
    """A loader with an empty cache, for tests that count what is compiled."""
    own = Loader(ObjectCache(tmp_path))
    LOADERS.append(own)
    monkeypatch.setattr(loading, "_default", own)
    yield own


class Perceptron(Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.a, self.b = L.Linear(20, 48), L.Linear(48, 5)

    @static_graph
    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.b(F.tanh(self.a(x))), t)

    @staticmethod
    def arguments(n: int) -> tuple[Any, ...]:
        return normal(n, 20), labels(n)


class Pictures(Chain):
    """Convolutions by Winograd's algorithm, directly and with strides, pooling and batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.a, self.n = L.Convolution2D(3, 8, 3, pad=1), L.BatchNormalization(8)
            self.b, self.c = L.Convolution2D(8, 16, 3, pad=1), L.Convolution2D(16, 16, 3, stride=2)
            self.d = L.Linear(16 * 9, 5)

    @static_graph
    def loss(self, x: Any, t: Any) -> Any:
        h = F.max_pooling_2d(F.relu(self.n(self.a(x))), 2)
        h = F.average_pooling_2d(F.relu(self.b(h)), 1)
        return F.softmax_cross_entropy(self.d(F.relu(self.c(h))), t)

    @staticmethod
    def arguments(n: int) -> tuple[Any, ...]:
        return normal(n, 3, 16, 16)[..., :15, :15], labels(n)


class Block(Chain):
    """A transformer's layer on a batch of 3 and any length."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.q, self.k, self.v, self.o = (L.Linear(16, 16) for _ in range(4))
            self.n, self.f = L.LayerNormalization(16), L.Linear(16, 16)

    @static_graph
    def loss(self, x: Any, t: Any) -> Any:
        b, n, d = x.shape
        h = F.reshape(x, (b * n, d))
        q, k, v = (F.transpose(F.reshape(f(self.n(h)), (b, n, 2, d // 2)), (0, 2, 1, 3))
                   for f in (self.q, self.k, self.v))
        a = F.softmax(F.matmul(q, k, transb=True) * (d // 2) ** -0.5, axis=3)
        h += self.o(F.reshape(F.transpose(F.matmul(a, v), (0, 2, 1, 3)), (b * n, d)))
        h += F.relu(self.f(F.dropout(h, 0.2)))
        return F.mean_squared_error(h, F.reshape(t, (b * n, d)))

    @staticmethod
    def arguments(n: int) -> tuple[Any, ...]:
        return normal(3, n, 16), normal(3, n, 16)


class Words(Chain):
    """Convolutions over words, and their sums along the sentence."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.e, self.c, self.o = L.EmbedID(30, 12), L.Convolution1D(12, 16, 3, pad=1), L.Linear(16, 5)

    @static_graph
    def loss(self, x: Any, t: Any) -> Any:
        h = F.relu(self.c(F.transpose(self.e(x), (0, 2, 1))))
        h = F.max(h, axis=2) + F.mean(F.cumsum(h, axis=2), axis=2) / x.shape[1]
        return F.softmax_cross_entropy(self.o(h), t)

    @staticmethod
    def arguments(n: int) -> tuple[Any, ...]:
        return np.random.randint(0, 30, (4, n)).astype("i"), labels(4)


class Sentences(Chain):
    """A recurrent layer, which is another program for each length."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.e, self.r, self.o = L.EmbedID(30, 8), L.NStepLSTM(1, 8, 8, 0.0), L.Linear(8, 5)

    @static_graph
    def loss(self, xs: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.o(self.r(None, None, [self.e(x) for x in xs])[0][-1]), t)

    @staticmethod
    def arguments(n: int) -> tuple[Any, ...]:
        return [np.random.randint(0, 30, n).astype("i") for _ in range(3)], labels(3)


def normal(*shape: int) -> np.ndarray:
    return np.random.standard_normal(shape).astype("f")


def labels(n: int) -> np.ndarray:
    return np.random.randint(0, 5, n).astype("i")


def pair(model: Callable[[], Any]) -> tuple[Any, Any]:
    """Two equal models with optimizers."""
    one, other = model(), model()
    other.copyparams(one)
    for m in (one, other):
        m.optimizer = SGD(0.05)
        m.optimizer.setup(m)
    return one, other


def step(model: Any, arguments: tuple[Any, ...], whole: bool, static: bool) -> None:
    np.random.seed(5)
    with kusari.using_config("use_static_graph", static):
        if whole:
            model.optimizer.update(model.loss, *arguments)
        else:
            model.cleargrads()
            model.loss(*arguments).backward()
            model.optimizer.update()


def train(model: Callable[[], Any], extents: list[int], whole: bool) -> None:
    """Train on each extent a few times, and compare with define-by-run."""
    np.random.seed(0)
    ours, reference = pair(model)
    for n in extents:
        given = ours.arguments(n)
        for _ in range(3):
            step(ours, given, whole, True)
            step(reference, given, whole, False)
            for (name, p), (_, q) in zip(sorted(ours.namedparams()), sorted(reference.namedparams()), strict=True):
                np.testing.assert_allclose(p.array, q.array, err_msg=f"{name} at {n}", **TOLERANCE)
                np.testing.assert_allclose(p.grad, q.grad, err_msg=f"gradient of {name} at {n}", **TOLERANCE)


# 0 and 1 broadcast, 5 is the number of classes, 16 and 48 are widths of layers, 3 is a batch.
ODD = [4, 9, 7, 5, 1, 16, 3, 2, 48, 17, 33, 20]


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "parts"])
@pytest.mark.parametrize("model", [Perceptron, Pictures, Block, Words, Sentences])
def test_extents_that_hazards_have(model: Callable[[], Any], whole: bool) -> None:
    train(model, ODD if model not in (Pictures, Sentences) else ODD[:9], whole)


# A few more than with vectors of 8 or of 16 lanes, and with the code of the thread pool.
MANY = [(Perceptron, 60, 66, 3), (Pictures, 30, 158, 22), (Block, 60, 170, 18), (Words, 60, 144, 26)]


@pytest.mark.usefixtures("loader")
@pytest.mark.slow
@pytest.mark.parametrize("model, count, most, late", MANY)
def test_many_extents_have_few_kernels(model: Callable[[], Any], count: int, most: int, late: int) -> None:
    """``most`` kernels are compiled for ``count`` extents, ``late`` of them for the last third."""
    report = loading.default_loader().report
    np.random.seed(0)
    ours, _ = pair(model)
    compiled: list[int] = []
    for n in np.random.permutation(np.arange(10, 10 + count)):
        before, given = report.compiled, ours.arguments(int(n))
        for _ in range(2):
            step(ours, given, True, True)
        compiled.append(report.compiled - before)
    assert sum(compiled) <= most and sum(compiled[-count // 3:]) <= late, (sum(compiled), compiled)


def test_two_extents_have_kernels_of_their_own(loader: Loader) -> None:
    np.random.seed(0)
    model, _ = pair(Perceptron)
    for n in (10, 11, 12):
        for _ in range(2):
            step(model, model.arguments(n), True, True)
    steps = [s for c in Perceptron.loss.static.caches(model) for e in c.entries.values() for s, _ in c.steps(e)]
    assert [any(r.numbers for r in s.compiled.program.instructions) for s in steps] == [False, False, True]
    assert "any extents" in str(model.loss.explain())


@pytest.mark.usefixtures("loader")
def test_an_extent_that_comes_often_gets_kernels_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "SHARED_CALLS", 3)
    for whole in (True, False):
        np.random.seed(0)
        ours, reference = pair(Perceptron)
        for n in (10, 11, 12):
            given = ours.arguments(n)
            for _ in range(8):
                step(ours, given, whole, True)
                step(reference, given, whole, False)
        cache, = Perceptron.loss.static.caches(ours)
        entry = list(cache.entries.values())[-1]
        compiled = cache.steps(entry)[0][0].compiled if whole else entry.schedule.forward
        assert not any(r.numbers for r in compiled.program.instructions)
        np.testing.assert_allclose(ours.a.W.array, reference.a.W.array, **TOLERANCE)


@pytest.mark.usefixtures("loader")
def test_more_signatures_are_traced_at_once_where_kernels_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Perceptron.loss.static, "soon", 4)
    np.random.seed(0)
    model, _ = pair(Perceptron)
    for n in range(10, 18):
        given = model.arguments(n)
        for _ in range(2):
            step(model, given, True, True)
    cache, = Perceptron.loss.static.caches(model)
    assert len(cache.entries) == 8 and not cache.waiting
