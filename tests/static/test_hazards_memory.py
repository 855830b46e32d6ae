"""Arrays that lie in the same memory, schedules without kernels, and processes that fork."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from static.hazards import xs

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.optimizers import SGD, Adam, MomentumSGD

VIEWS: dict[str, Any] = {
    "itself": lambda w: w, "reversed": lambda w: w[::-1], "transposed": lambda w: w.T, "a part": lambda w: w[:8],
    "bytes": lambda w: w.view(np.int32).view("f"),
}


@pytest.mark.parametrize("size", [4, 128], ids=["small", "large"])
@pytest.mark.parametrize("view", VIEWS)
def test_arguments_in_the_memory_of_a_parameter(both: Any, view: str, size: int) -> None:
    """The step updates what it reads."""
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.W = kusari.Parameter(np.random.randn(size, size).astype("f") * 0.05)

            loss = decorate(lambda self, x: F.sum(F.tanh(x @ self.W) * x))

        model = Decorated()
        optimizer = MomentumSGD(0.01).setup(model)

        def call(x: Any) -> Any:
            optimizer.update(model.loss, VIEWS[view](model.W.array))
            return model.W.array.copy(), model.W.grad.copy()
        return call

    both(make, xs(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", [SGD, Adam])
@pytest.mark.parametrize("second", ["transposed", "a part"])
def test_parameters_in_the_same_memory(both: Any, second: str, optimizer: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                buffer = np.linspace(-1, 1, 32).astype("f").reshape(8, 4)
                with self.init_scope():
                    self.a = kusari.Parameter(buffer[:4])
                    self.b = kusari.Parameter(buffer[:4].T if second == "transposed" else buffer[2:6])

            loss = decorate(lambda self, x: F.sum(F.tanh(x @ self.a) * F.sin(x @ self.b)))

        model = Decorated()
        opt = optimizer(0.1).setup(model)

        def call(x: Any) -> Any:
            opt.update(model.loss, x)
            return model.a.array.copy(), model.b.array.copy()
        return call

    both(make, xs(), rtol=1e-4, atol=1e-5)


def test_arguments_in_the_memory_of_statistics(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.norm = L.BatchNormalization(4)

            forward = decorate(lambda self, x, y: (F.sum(self.norm(x) * y) + F.sum(y * 2), y * 3))

        model = Decorated()
        return lambda x: (*model(x, model.norm.avg_mean[:]), model.norm.avg_mean.copy())

    both(make, xs(), aside="shares memory with a persistent array")


def test_two_arguments_in_the_same_memory(both: Any) -> None:
    def make(decorate: Any) -> Any:
        f = decorate(lambda x, y: (F.tanh(x) + y, x * 2))
        buffer = np.arange(40000).astype("f")

        def call(x: Any) -> Any:
            buffer[:] += x[0, 0]
            return f(buffer[:20000], buffer[10000:30000])
        return call

    both(make, xs())


class Cube(kusari.FunctionNode):
    def forward(self, inputs: Any) -> Any:
        return inputs[0] ** 3,


def test_what_only_python_would_run_is_not_compiled() -> None:
    @kusari.static_graph(strict=True)
    def f(x: Any) -> Any:
        return Cube().apply(Cube().apply((x,)))[0]

    for x in xs(4):
        np.testing.assert_array_equal(f(x).array, (x ** 3) ** 3)
    text = str(f.explain("all"))
    assert "Python runs all functions of it" in text and "kernels" not in text


FORKS = """
import os, sys, threading
import numpy as np
import kusari, kusari.functions as F, kusari.links as L
from kusari.runtime.thread_pool import default_pool

class Model(kusari.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l, self.m = L.Linear(200, 200), L.Linear(200, 200)
    @kusari.static_graph
    def forward(self, x):
        return F.sum(F.tanh(self.m(F.relu(self.l(x)))))

def train(model, x):
    model.cleargrads()
    y = model(x)
    y.backward()
    return float(y.array), model.l.W.grad.copy()

x = np.random.RandomState(0).randn(300, 200).astype("f")
model = Model()
for _ in range(3):
    before = train(model, x)
assert default_pool().size == 2, default_pool().size

others = kusari.static_graph(lambda x: F.exp(F.sin(x)))
others(x), others(x)  # modules that a thread is importing when the process forks stay locked in the child

def compile_others():
    for n in range(50, 60):
        f = kusari.static_graph(lambda x: F.exp(F.sin(x) * 2) + 1)
        for _ in range(2):
            f(np.ones((3, n), "f"))

threading.Thread(target=compile_others, daemon=True).start()
for k in range(3):
    pid = os.fork()
    if pid == 0:
        ok = default_pool().size == 1
        for _ in range(2):
            after = train(model, x)
            ok = ok and abs(after[0] - before[0]) < 1e-2 and np.allclose(after[1], before[1], atol=1e-4)
        ok = ok and default_pool().size == 2
        f = kusari.static_graph(lambda x: F.cos(x) * (k + 2))
        for _ in range(3):
            f(np.ones((3, 70 + k), "f"))
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0, k
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forks_with_schedules_and_while_others_compile(tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    done = subprocess.run([sys.executable, "-W", "ignore", script], timeout=120, capture_output=True, text=True,
                          env={**os.environ, "KUSARI_NUM_THREADS": "2"})
    assert done.returncode == 0, done.stderr


SPAWNED = """
import multiprocessing
import numpy as np
import kusari, kusari.functions as F, kusari.links as L

class Model(kusari.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.l = L.Linear(4, 4)
    @kusari.static_graph
    def forward(self, x):
        return F.sum(F.tanh(self.l(x)))

def evaluate(model, x):
    return [float(model(x).array) for _ in range(3)]

if __name__ == "__main__":
    model, x = Model(), np.ones((3, 4), "f")
    here = evaluate(model, x)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        there = pool.starmap(evaluate, [(model, x)] * 2)
    assert np.allclose(there, [here, here]), (here, there)
"""


@pytest.mark.slow
def test_models_are_sent_to_spawned_processes(tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    done = subprocess.run([sys.executable, "-W", "ignore", script], timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_is_printed(capfd: Any) -> None:
    @kusari.static_graph
    def f(x: Any) -> Any:
        return F.sum(F.tanh(x))

    for n in (2, 3, 2, 3, 3):
        v = kusari.Variable(np.ones((n, 4), "f"))
        f(v).backward()
    assert capfd.readouterr() == ("", "")


def test_mixed_precision(both: Any) -> None:
    def make(decorate: Any) -> Any:
        class Decorated(kusari.Chain):
            def __init__(self) -> None:
                super().__init__()
                with self.init_scope():
                    self.l, self.norm = L.Linear(4, 4), L.BatchNormalization(4)

            loss = decorate(lambda self, x: F.sum(F.tanh(self.norm(self.l(x)))) * 0.5)

        with kusari.using_config("dtype", kusari.mixed16):
            model = Decorated()
        optimizer = SGD(0.1).setup(model)

        def call(x: Any) -> Any:
            with kusari.using_config("dtype", kusari.mixed16):
                optimizer.update(model.loss, x)
                return model.loss(x), [p.array.copy() for p in model.params()], model.norm.avg_mean.copy()
        return call

    both(make, [x.astype("e") for x in xs()], rtol=2e-2, atol=2e-2)


def test_arrays_that_come_again_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from kusari.static.arrays.overlap import Spans

    looked: list[int] = []
    touch = Spans.touch
    monkeypatch.setattr(Spans, "touch", lambda self, array: (looked.append(1), touch(self, array))[1])
    model = L.Linear(3, 2)
    optimizer = kusari.optimizers.SGD().setup(model)
    loss = kusari.static_graph(lambda x: F.sum(model(x) ** 2))
    x = np.ones((4, 3), "f")
    for i in range(6):
        if i == 4:
            looked.clear()
        model.cleargrads()
        loss(x).backward()
        optimizer.update()
    assert looked == []
