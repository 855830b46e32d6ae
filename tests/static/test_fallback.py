"""Without kernels in LLVM IR: products by OpenBLAS, loop nests by Numba, everything else by NumPy."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kusari
from kusari import Chain, Variable, optimizers, static_graph, using_config
from kusari import functions as F
from kusari import links as L
from kusari.ir import Program
from kusari.runtime.blas import find_blas
from kusari.static.compile import compile as module

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]] = {
    "linear": (lambda x, w, b: F.relu(F.linear(x, w, b)), ((7, 5), (4, 5), (4,)), "float32"),
    "batched product": (lambda a, b: F.matmul(a, b, transb=True) * 2, ((3, 4, 5), (3, 6, 5)), "float64"),
    "broadcast product": (lambda a, b: F.matmul(a, b) * 2, ((2, 1, 4, 5), (1, 3, 5, 2)), "float32"),
    "half": (lambda a, b: F.relu(F.matmul(a, b)) * 2, ((4, 5), (5, 2)), "float16"),
    "convolution": (
        lambda x, w, b: F.relu(F.convolution_2d(x, w, b, 1, 1)), ((2, 8, 9, 9), (8, 8, 3, 3), (8,)), "float32"),
    "groups": (
        lambda x, w: F.convolution_2d(x, w, stride=2, groups=2, dilate=2) * 2, ((2, 4, 9, 8), (6, 2, 3, 2)), "float32"),
    "deconvolution": (lambda x, w: F.deconvolution_2d(x, w, stride=2) * 2, ((2, 3, 4, 5), (3, 2, 3, 3)), "float32"),
    "pooling": (
        lambda x: F.max_pooling_2d(x, 2) * F.average_pooling_2d(x, 3, 2, 1), ((2, 3, 7, 7),), "float32"),
    "moves": (lambda x: F.concat([F.transpose(x)[2:5], x[:, ::-1][:3] * 2], axis=1), ((5, 5),), "float32"),
    "cumulative": (lambda x: F.cumsum(x * 2, 1) + F.cumsum(x, 0), ((4, 5),), "float32"),
    "large sum": (lambda x, y: F.sum(abs(x) ** y), ((300_007,), (300_007,)), "float32"),
    "gates": (lambda c, x: F.concat(F.lstm(c, x)), ((3, 4), (3, 16)), "float32"),
    "rows": (lambda x, w: F.embed_id(F.argmax(x, 1), w) * x, ((3, 4), (5, 4)), "float32"),
    "draw": (lambda x: F.dropout(x * 2), ((6, 7),), "float32"),
}
QUICK = ("batched product", "half", "groups", "deconvolution")  # those with few loop nests, which take time to compile


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Program]]:
    """The programs that are loaded meanwhile, with IR kernels switched off."""
    found: list[Program] = []
    load = module.Executable

    def noted(plan: Any, program: Program) -> Any:
        found.append(program)
        return load(plan, program)

    monkeypatch.setattr(module, "Executable", noted)
    with using_config("cpu_codegen", "numba"), using_config("keep_define_by_run", False):
        yield found
    assert found and {k.language for p in found for k in p.kernels} <= {"numba"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in FUNCTIONS])
def test_functions(name: str, programs: list[Program]) -> None:
    function, shapes, dtype = FUNCTIONS[name]
    rng = np.random.RandomState(0)
    arrays = [rng.randn(*s).astype(dtype) for s in shapes]

    def results(f: Callable[..., Any]) -> list[np.ndarray]:
        np.random.seed(0)
        xs = [Variable(a.copy()) for a in arrays]
        y = f(*xs)
        y.grad = np.linspace(-1, 1, y.size).reshape(y.shape).astype(y.dtype)
        y.backward()
        return [y.array, *(x.grad for x in xs)]

    want, compiled = results(function), static_graph(function)
    for _ in range(3):
        for a, e in zip(results(compiled), want, strict=True):
            assert a.dtype == e.dtype
            np.testing.assert_allclose(a, e, **({"rtol": 1e-4, "atol": 1e-5} if dtype != "float16" else {"rtol": 4e-3}))


class Perceptron(Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(6, 8), L.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.l2(F.relu(self.l1(x)))


class Images(Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.conv, self.norm = L.Convolution2D(1, 4, 3, 1, 1, nobias=True), L.BatchNormalization(4)
            self.last = L.Linear(16, 3)

    def forward(self, x: Any) -> Any:
        h = F.max_pooling_2d(F.relu(self.norm(self.conv(F.reshape(x, (-1, 1, 4, 4))))), 2)
        return self.last(F.dropout(h, 0.2))


class Loop(Chain):
    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.embed, self.cell, self.last = L.EmbedID(9, 5), L.StatelessLSTM(5, 4), L.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        c = h = None
        for t in range(x.shape[1]):
            c, h = self.cell(c, h, self.embed(x[:, t]))
        return self.last(h)


def train(model: type[Chain], x: np.ndarray, static: bool) -> list[np.ndarray]:
    np.random.seed(0)
    net = model()
    optimizer = optimizers.Adam().setup(net)
    t = np.arange(len(x), dtype="i") % 3

    @static_graph
    def loss(x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(net(x), t)

    with using_config("use_static_graph", static):
        for _ in range(4):
            optimizer.update(loss, x, t)
    return [np.array(p.array) for _, p in sorted(net.namedparams())]


@pytest.mark.parametrize(("model", "x"), [
    pytest.param(Perceptron, np.random.RandomState(1).randn(5, 6).astype("f"), marks=pytest.mark.slow),
    pytest.param(Images, np.random.RandomState(1).randn(6, 16).astype("f"), marks=pytest.mark.slow),
    pytest.param(Loop, np.random.RandomState(1).randint(0, 9, (4, 3)).astype("i"), marks=pytest.mark.slow),
], ids=["perceptron", "images", "loop"])
def test_steps(model: type[Chain], x: np.ndarray, programs: list[Program]) -> None:
    for a, e in zip(train(model, x, True), train(model, x, False), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(find_blas() is None, reason="NumPy has another BLAS")
def test_blas_multiplies(programs: list[Program]) -> None:
    function = static_graph(lambda x, w: F.tanh(F.linear(x, w)))
    x = np.ones((3, 2), "f")
    with kusari.no_backprop_mode():
        for _ in range(3):
            np.testing.assert_allclose(function(x, x).array, np.tanh(np.full((3, 3), 2, "f")), rtol=1e-6)
    assert [r.node.op.name for p in programs for r in p.instructions if r.kernel is None] == ["matmul"]
    text = str(function.explain("plan"))
    assert "2 instructions (0 of Python)" in text and "product_by_blas" in text
