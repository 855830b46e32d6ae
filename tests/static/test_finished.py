"""Programs on disk: the passes run once for a graph, and again where what is kept does not fit."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kusari
from kusari import functions as F
from kusari import links as L
from kusari.passes import PIPELINE, name_of
from kusari.runtime import ObjectCache, default_loader
from kusari.runtime.cache import Entry
from kusari.static.compile import finished

X = np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float32)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the graphs that the passes were run on, with a cache of its own."""
    ran: list[str] = []
    run = finished.run_pipeline

    def counted(graph: Any, steps: Any, *more: Any) -> Any:
        if "fuse" in map(name_of, steps):
            ran.append(graph.name)
        return run(graph, steps, *more)

    monkeypatch.setattr(finished, "run_pipeline", counted)
    monkeypatch.setattr(default_loader(), "cache", ObjectCache(tmp_path))
    return ran


def compiled(scale: float = 2.0) -> Any:
    """What a new static function gives when it is replayed, with its gradient."""
    x = kusari.Variable(X.copy())

    def f(x: Any) -> Any:
        return F.sum(F.tanh(x * scale) * x)

    static = kusari.static_graph(f)
    for _ in range(3):
        x.cleargrad()
        y = static(x)
        y.backward()
    return float(y.array), x.grad


def same(a: Any, b: Any) -> bool:
    return a[0] == b[0] and np.array_equal(a[1], b[1])


def test_the_passes_run_once(passes: list[str]) -> None:
    first = compiled()
    assert passes == ["f", "f_backward"]
    assert same(first, compiled()) and passes == ["f", "f_backward"]
    compiled(3.0)
    assert len(passes) == 4


def test_without_a_pass_another_program_is_kept(passes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled()
    for _ in range(2):
        monkeypatch.setenv("KUSARI_PASSES", "-simplify_algebra")
        assert same(first, compiled()) and len(passes) == 4
        monkeypatch.setenv("KUSARI_PASSES", "")
        assert same(first, compiled()) and len(passes) == 4


class Switched(kusari.Chain):
    """Something for every pass to do."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(1, 4, 3, pad=2, dilate=2, nobias=True)
            self.norm = L.BatchNormalization(4)
            self.lstm, self.out = L.LSTM(4, 4), L.Linear(4, 3)

    def loss(self, x: Any, t: Any) -> Any:
        h = F.mean(F.dropout(F.relu(self.norm(self.conv(x))), 0.3), axis=3)
        self.lstm.reset_state()
        for i in range(3):
            y = self.lstm(h[:, :, i])
        return F.softmax_cross_entropy(self.out(y), t)


def trained() -> list[Any]:
    """What comes out of a little training of a new model."""
    np.random.seed(0)
    net = type("Net", (Switched,), {"loss": kusari.static_graph(Switched.loss)})()
    optimizer = kusari.optimizers.Adam().setup(net)
    x, t = np.random.randn(5, 1, 4, 4).astype(np.float32), np.arange(5, dtype=np.int32) % 3
    for _ in range(3):
        optimizer.update(net.loss, x, t)
    return [*(p.array for p in net.params()), net.norm.avg_mean, np.random.rand(2)]


@pytest.fixture(scope="module")
def with_all_passes() -> list[Any]:
    """The same with every pass."""
    return trained()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*dict.fromkeys(map(name_of, PIPELINE)), "recompute"])
def test_any_pass_may_be_left_out(monkeypatch: pytest.MonkeyPatch, with_all_passes: list[Any], name: str) -> None:
    ran: set[str] = set()
    run = finished.run_pipeline
    monkeypatch.setattr(finished, "run_pipeline", lambda graph, steps, *rest: (
        ran.update(map(name_of, steps)), run(graph, steps, *rest))[1])
    monkeypatch.setenv("KUSARI_PASSES", f"-{name}")
    for expected, found in zip(with_all_passes, trained(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    assert ran and name not in ran


class Deep(kusari.Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.layers = kusari.ChainList(*(L.Linear(64, 64) for _ in range(6)))

    def loss(self, x: Any) -> Any:
        for layer in self.layers:
            x = F.tanh(layer(x)) * x
        return F.sum(x * x)


@pytest.mark.parametrize("memory", ["low", *(pytest.param(m, marks=pytest.mark.slow) for m in ("balanced", 0.6))])
def test_so_does_the_search_for_what_to_compute_again(passes: list[str], monkeypatch: pytest.MonkeyPatch,
                                                      memory: Any) -> None:
    searched: list[str] = []
    search = finished.recompute
    monkeypatch.setattr(finished, "recompute", lambda g, *rest: searched.append(g.name) or search(g, *rest))

    def train() -> tuple[list[Any], str]:
        np.random.seed(0)
        net = type("Net", (Deep,), {"loss": kusari.static_graph(Deep.loss, memory=memory)})()
        optimizer = kusari.optimizers.SGD(1e-3).setup(net)
        for _ in range(3):
            optimizer.update(net.loss, np.linspace(-1, 1, 128 * 64).reshape(128, 64).astype(np.float32))
        lines = str(net.loss.explain("plan")).split("\n")
        return [p.array for p in net.params()], next(x for x in lines if "memory=" in x)

    (first, told), (second, again) = train(), train()
    assert passes == ["loss_step"] == searched and told == again and "computed again" in told
    assert all(map(np.array_equal, first, second))


def damaged(data: bytes) -> bytes:
    first, _, rest = data.partition(b"\n")
    found = json.loads(rest)
    found["graph"]["nodes"][0][1] = [99]
    return first + b"\n" + json.dumps(found).encode()


@pytest.mark.parametrize("damage", [
    lambda e: Entry(e.symbol, b"{", e.facts), lambda e: Entry(e.symbol, b"{}", e.facts),
    lambda e: Entry(e.symbol, b"[]", e.facts), lambda e: Entry(e.symbol, damaged(e.code), e.facts),
    lambda e: Entry(e.symbol, b"[1]\n" + e.code, e.facts), lambda e: Entry("plan 0", e.code, e.facts),
    lambda e: Entry(e.symbol, b"\xff", e.facts),
], ids=["no JSON", "nothing", "a list", "unknown values", "other numbers", "another format", "bytes"])
def test_what_does_not_fit_is_made_anew(passes: list[str], damage: Callable[[Entry], Entry]) -> None:
    first = compiled()
    cache = default_loader().cache
    assert cache.directory is not None
    plans = 0
    for file in cache.directory.glob("*.o"):
        entry = cache.get(file.stem)
        assert entry is not None
        if entry.symbol == finished._WHAT:
            cache.put(file.stem, damage(entry))
            plans += 1
    assert plans == 2 and same(first, compiled()) and len(passes) == 4
    assert same(first, compiled()) and len(passes) == 4  # and stays


@pytest.mark.parametrize("name", ["KUSARI_DUMP", "KUSARI_LOG", "KUSARI_CHECK"])
def test_who_wants_to_see_the_passes_sees_them(passes: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                               name: str) -> None:
    compiled()
    monkeypatch.setenv(name, {"KUSARI_DUMP": str(tmp_path / "dump"), "KUSARI_LOG": "passes", "KUSARI_CHECK": "1"}[name])
    assert compiled() and len(passes) > 2


def test_functions_that_python_runs_are_not_kept(passes: list[str]) -> None:
    class Mine(kusari.FunctionNode):
        def forward(self, inputs: Any) -> Any:
            return inputs[0] * 2,

        def backward(self, indexes: Any, gys: Any) -> Any:
            return gys[0] * 2,

    for _ in range(2):
        static = kusari.static_graph(lambda x: F.tanh(Mine().apply((F.sin(x),))[0]))
        with kusari.no_backprop_mode():
            for _ in range(3):
                y = static(X)
        np.testing.assert_allclose(y.array, np.tanh(2 * np.sin(X)), rtol=1e-6)
    assert len(passes) == 2


STORES = """
import sys
import numpy as np
import kusari
from kusari import functions as F, links as L
from kusari.static.compile import finished

class Net(kusari.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.zeta, self.alpha, self.mu = L.LSTM(2, 2), L.LSTM(2, 2), L.LSTM(2, 2)

    @kusari.static_graph
    def loss(self, x):
        self.kept, self.also = F.sin(x), F.cos(x)
        return F.sum(self.zeta(self.alpha(self.mu(x))))

net = Net()
finished._key = lambda graph, *rest: print(finished.digest_of(graph))
for _ in range(3):
    net.loss(np.ones((3, 2), np.float32)).backward()
"""


@pytest.mark.slow
def test_a_graph_is_the_same_in_every_process() -> None:
    """What it hands out is in an order that does not depend on the hashes of names: every process has others."""
    found = {subprocess.run([sys.executable, "-c", STORES], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                            capture_output=True, text=True).stdout for seed in "01"}
    assert len(found) == 1 and found.pop().count("\n") == 2
