"""What cuBLASLt does not document is tried before it is used: gradients of ReLU, GELU and its gradients."""
from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import cupy_memory
import numpy as np
import pytest
from cards.machines import Machine
from cards.test_compiled_products import executable, normal
from cublaslt_double import CublasLt, gelu, slope

import kusari
import kusari.functions as F
import kusari.links as L
from kusari.commands import doctor
from kusari.ir import Arg, Builder, Call, Lit, Value
from kusari.runtime.card import cublaslt as library
from kusari.runtime.card.launches import Refused
from kusari.runtime.card.probes import PROBES, Probe, require
from kusari.runtime.card.products import Products
from kusari.static.card.place import CardPlace

ROOM = library.WORKSPACE_BYTES


def passes(what: Probe) -> str:
    """Why a probe of the library is not passed, if it is not."""
    found = library.library(12)
    assert not isinstance(found, str)
    try:
        require(found, 0, what, "", ROOM)
    except Refused as error:
        return str(error)
    return ""


def relu_and_gradient(sums: bool = False) -> Callable[..., tuple[Value, ...]]:
    """A layer with a ReLU and one behind it, the gradient of one through both, and that of the first one's bias."""
    def nodes(b: Builder, x: Value, W: Value, bias: Value, g: Value, V: Value) -> tuple[Value, ...]:
        y = b.matmul(x, W, transb=True)
        y = b.call("maximum", b.call("add", y, b.broadcast_to(bias, y.shape)), 0)
        g = b.call("add", b.matmul(y, V, transb=True), g)
        d = b.map(Call("where", (Call("greater", (Arg(1), Lit(0))), Arg(0), Lit(0))), b.matmul(g, V), y)
        return (y, d, b.reduce("sum", d, (0,))) if sums else (y, d)
    return nodes


def arrays(m: int = 9, n: int = 6) -> list[np.ndarray]:
    """Operands of which some rows give a ReLU zeros, NaN and infinities, and gradients that are none."""
    x, g = normal(m, 7), normal(m, 4)
    x[0], x[1], x[2] = 0, np.nan, -1e30
    g[2], g[0] = np.inf, np.nan
    return [x, normal(n, 7), np.zeros(n, "f"), g, normal(4, n)]


def expected(x: Any, W: Any, bias: Any, g: Any, V: Any) -> tuple[Any, Any]:
    """The same by NumPy."""
    with np.errstate(all="ignore"):
        y = np.maximum(x @ W.T + bias, 0)
        return y, np.where(y > 0, (y @ V.T + g) @ V, 0)


def check(card: Machine, given: list[np.ndarray], runs: int = 4) -> Any:
    """The executable, which has the right results in all runs."""
    made, found, _ = executable(card, relu_and_gradient(), given)
    for _ in range(runs):
        for y, e in zip(found, expected(*given), strict=True):
            np.testing.assert_allclose(y, e, rtol=1e-4, atol=1e-5)
        found = [card.host(y) for y in made.run([card.xp.asarray(a) for a in given])]
    return made.report


def epilogues(blas: CublasLt, begin: int = 0) -> list[str]:
    return [call["epilogue"] for call in blas.made[begin:]]


@pytest.mark.parametrize("shape", [(9, 6), (3, 129)], ids=str)
def test_a_gradient_of_relu_comes_with_its_product(card: Machine, blas: CublasLt, shape: tuple[int, int]) -> None:
    report = check(card, arrays(*shape), 1)
    assert epilogues(blas)[-3:] == ["relu bias kept", "", "gradient of relu"]
    assert (report.launches, report.kernels, report.refused.total()) == (3, 0, 0)


OTHERS: dict[str, tuple[Callable[[CublasLt], Any], str]] = {
    "zero": (lambda blas: setattr(blas, "mask", lambda x: x >= 0), "where, and only where, the ReLU is not positive"),
    "NaN": (lambda blas: setattr(blas, "mask", lambda x: ~(x <= 0)), "where, and only where, the ReLU is not positive"),
    "not zero": (lambda blas: setattr(blas, "mask", lambda x: x != 0), "where, and only where"),
    "a factor": (lambda blas: setattr(blas, "masked", lambda y, bits: y * bits), "where, and only where"),
    "no NaN": (lambda blas: setattr(blas, "swallows_nan", True), "ReLU that keeps bits has other results"),
    "elsewhere": (lambda blas: setattr(blas, "stray_bytes", 1), "writes to memory that is not its own"),
    "fails": (lambda blas: setattr(blas, "fails", lambda: True), "failed when it was tried: cublasLtMatmul:"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_gradient_of_relu_is_a_kernel(card: Machine, blas: CublasLt, name: str) -> None:
    change, reason = OTHERS[name]
    change(blas)
    report = check(card, arrays(), 1)
    assert [(kind, reason in text) for kind, text in report.refused if kind == "gradients of ReLU"] == [
        ("gradients of ReLU", True)]
    used = len(blas.made)
    check(card, arrays(5, 10), 1)
    assert not {"relu bias kept", "gradient of relu"} & set(epilogues(blas, used)), "it is not tried again"


def test_bits_that_no_call_writes_are_not_read(card: Machine, blas: CublasLt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward's call that cannot be made, for another reason than a refusal, leaves a kernel that keeps no bits."""
    make = Products._chosen

    def chosen(self: Products, work: Any, *args: Any) -> Any:
        if work.keeps:
            raise RuntimeError("no stack is left")
        return make(self, work, *args)
    monkeypatch.setattr(Products, "_chosen", chosen)
    report = check(card, arrays(), 1)
    assert report.refused[("products", "no stack is left")] == 1 and "gradient of relu" not in epilogues(blas)[-2:]


def test_readers_of_bits_are_asked_for_these_alone(card: Machine, blas: CublasLt,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as a whole: a layer's forward would ask that of the next one, through all layers."""
    def nodes(b: Builder, x: Value, W: Value) -> tuple[Value, ...]:
        for _ in range(12):
            x = b.call("maximum", b.matmul(x, W), 0)
        return x,
    asked: list[Any] = []
    choose = Products.choose
    monkeypatch.setattr(Products, "choose", lambda self, node: asked.append(node) or choose(self, node))
    executable(card, nodes, [normal(9, 6), normal(6, 6)])
    assert len(asked) == 12


def test_epilogues_are_tried_once(card: Machine, blas: CublasLt) -> None:
    check(card, arrays(), 1)
    used = len(blas.made)
    check(card, arrays(5, 10), 1)
    assert epilogues(blas, used).count("gradient of relu") == 2  # its runs


def test_nothing_is_tried_in_a_capture(card: Machine, blas: CublasLt) -> None:
    stream = card.xp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        assert passes("gradient of ReLU") == "a graph is being captured"
        with pytest.raises(RuntimeError, match="an empty graph"):
            stream.end_capture()
    assert not blas.made and not passes("gradient of ReLU")


def test_what_has_no_memory_is_tried_again(card: Machine, blas: CublasLt) -> None:
    cupy_memory.pool.set_limit(cupy_memory.pool.used_bytes() + (1 << 20))
    try:
        assert "no memory is left" in passes("gradient of ReLU")
    finally:
        cupy_memory.pool.set_limit(0)
    assert not passes("gradient of ReLU")


def test_doctor_says_what_is_used(card: Machine, blas: CublasLt) -> None:
    blas.slope = lambda x: x
    found = [finding.found for finding in doctor.epilogues(12, 0, 90)]
    assert found[:3] == [f"{what}: cuBLASLt's is used" for what in (
        "gradient of ReLU", "gradient of ReLU with sums", "GELU")]
    assert all("by kernels of Kusari's own: cuBLASLt's gradient of GELU is not" in text for text in found[3:])


@pytest.mark.parametrize("graphs", ["1", "0"])
@pytest.mark.parametrize("number", [1, 3, 4, 6])
def test_a_call_that_fails_has_no_gradient_of_others(card: Machine, blas: CublasLt, number: int, graphs: str,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bits of this run a gradient is a kernel: bits of an earlier run would be others."""
    monkeypatch.setenv("KUSARI_CUDA_GRAPH", graphs)
    assert not passes("gradient of ReLU")
    given = arrays()
    made, _, _ = executable(card, relu_and_gradient(), given)
    count = [0]

    def fails() -> bool:
        count[0] += 1
        return count[0] == number
    blas.fails = fails
    for _ in range(5):
        given[0] = -given[0]
        found = [card.host(y) for y in made.run([card.xp.asarray(a) for a in given])]
        for y, e in zip(found, expected(*given), strict=True):
            np.testing.assert_allclose(y, e, rtol=1e-4, atol=1e-5)
    assert made.report.calls.total() == (2 if number % 3 == 0 else 1)


def test_sums_of_gradients_where_factors_are_rounded(card: Machine, blas: CublasLt) -> None:
    """Sums of factors are those of rounded ones, perhaps; those of results are not."""
    given = [np.round(a * 8) / 8 for a in (normal(9, 7), normal(6, 7), normal(6), normal(9, 4), normal(4, 6))]
    made, (_, d, total), _ = executable(card, relu_and_gradient(True), given, place=CardPlace(0, "tf32"))
    assert epilogues(blas)[-3:] == ["relu bias kept", "", "gradient of relu and sums"] and made.report.launches == 3
    np.testing.assert_allclose(d, expected(*given)[1], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(total, d.sum(0, keepdims=True), rtol=1e-5, atol=1e-6)


class Layers(kusari.Chain):
    """Two layers with a ReLU between them, whose loss is somewhere else."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(7, 6, initialW=0.3), L.Linear(6, 3, initialW=0.2)

    @kusari.static_graph
    def forward(self, x: Any) -> Any:
        return self.l2(F.relu(self.l1(x)))


class Parts:
    """Forwards and backwards of their own, some in flight at the same time, compiled and define-by-run."""

    def __init__(self, card: Machine) -> None:
        self.card, self.models = card, [Layers() for _ in range(2)]
        for model in self.models:
            model.to_device("@cupy:0")

    def step(self) -> None:
        """Two calls, their backwards in either order, and a comparison."""
        given = [normal(5, 7) for _ in range(2)]
        for x in given:
            x[0] = 0
        grads = [normal(5, 3) for _ in given]
        for model, static in zip(self.models, (True, False), strict=True):
            model.cleargrads()
            with kusari.using_config("use_static_graph", static):
                results = [model.forward(self.card.xp.asarray(x)) for x in given]
                for y, g in zip(results[::-1], grads, strict=True):
                    y.grad = self.card.xp.asarray(g)
                    y.backward()
        for (_, p), (_, q) in zip(*[sorted(m.namedparams()) for m in self.models], strict=True):
            np.testing.assert_allclose(self.card.host(p.grad), self.card.host(q.grad), rtol=1e-4, atol=1e-6)


def test_forwards_keep_bits_for_backwards_of_their_own(card: Machine, blas: CublasLt,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_CUDA_GRAPH", "0")
    parts = Parts(card)
    for _ in range(3):
        blas.made.clear()
        parts.step()
    assert epilogues(blas) == 2 * ["relu bias kept", "bias"] + 2 * ["sums of B", "gradient of relu", "sums of B"]
    assert "of Kusari's own" not in str(parts.models[0].static.explain("plan"))


@pytest.mark.parametrize("number", range(1, 8))
def test_backwards_have_kernels_where_their_forward_fails(card: Machine, blas: CublasLt, number: int,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_CUDA_GRAPH", str(number % 2))
    assert not passes("gradient of ReLU")
    parts, count = Parts(card), [0]
    parts.step()
    parts.step()

    def fails() -> bool:
        count[0] += 1
        return count[0] == number
    blas.fails = fails
    for _ in range(4):
        parts.step()


def test_forwards_keep_no_bits_that_no_backward_may_read(card: Machine, blas: CublasLt) -> None:
    blas.mask = lambda x: x >= 0
    parts = Parts(card)
    for _ in range(3):
        parts.step()
    report = str(parts.models[0].static.explain()) + str(parts.models[0].static.explain("plan"))
    assert "relu_kept" not in report and "1 gradients of ReLU by kernels of Kusari's own" in report


SPELLINGS: dict[str, Callable[[Any], Any]] = {
    "power": lambda h: 0.5 * h * (1 + F.tanh(0.7978845608028654 * (h + 0.044715 * h ** 3))),
    "products": lambda h: h * (F.tanh((h * h * h * 0.044715 + h) * 0.79788456) + 1.0) / 2,
    "sums": lambda h: (u := 0.5 * h) + u * F.tanh(h * (0.7978845608028654 + 0.0356774081363001 * F.square(h))),
}


class Net(kusari.Chain):
    """Two layers with a GELU between them."""

    def __init__(self, gelu: Callable[[Any], Any]) -> None:
        super().__init__()
        with self.init_scope():
            self.l1, self.l2 = L.Linear(7, 16, initialW=0.3), L.Linear(16, 3, initialW=0.2)
        self.gelu = gelu

    def forward(self, x: Any) -> Any:
        return self.l2(self.gelu(self.l1(x)))

    @kusari.static_graph
    def loss(self, x: Any, t: Any) -> Any:
        return F.softmax_cross_entropy(self.forward(x), t)


X, T = normal(5, 7), np.array([0, 1, 2, 1, 0], "i")


class Training:
    """The same steps, compiled and define-by-run."""

    def __init__(self, card: Machine, spelling: str = "power") -> None:
        self.card, self.models = card, [Net(SPELLINGS[spelling]) for _ in range(2)]
        for model in self.models:
            model.to_device("@cupy:0")
        self.updaters = [kusari.optimizers.MomentumSGD(0.1).setup(m) for m in self.models]
        self.given = card.xp.asarray(X), card.xp.asarray(T)

    def step(self, count: int) -> None:
        """Train, and compare."""
        for _ in range(count):
            self.updaters[0].update(self.models[0].loss, *self.given)
            with kusari.using_config("use_static_graph", False):
                self.updaters[1].update(self.models[1].loss, *self.given)
        for (_, p), (_, q) in zip(*[sorted(m.namedparams()) for m in self.models], strict=True):
            np.testing.assert_allclose(self.card.host(p.array), self.card.host(q.array), rtol=1e-4, atol=1e-6)

    @property
    def report(self) -> str:
        """Its plan in words."""
        return str(self.models[0].static.explain()) + str(self.models[0].static.explain("plan"))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_gelu_and_its_gradient_come_with_their_products(card: Machine, blas: CublasLt, spelling: str,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_CUDA_GRAPH", "0")
    training = Training(card, spelling)
    training.step(2)
    blas.made.clear()
    training.step(1)
    assert epilogues(blas) == ["gelu bias kept", "bias", "sums of B", "gradient of gelu and sums", ""]
    assert ", 5 calls of cuBLASLt" in training.report and "of Kusari's own" not in training.report


GELUS: dict[str, tuple[Callable[[CublasLt], Any], str]] = {
    "erf": (lambda blas: setattr(blas, "gelu", lambda x: (0.5 * x * (1 + np.vectorize(erf)(x / 2 ** 0.5))).astype("f")),
            "GELU is not the one by tanh to 4 ulps of its argument"),
    "imprecise": (lambda blas: setattr(blas, "gelu", lambda x: gelu(x) * np.float32(1 + 2e-6)), "to 4 ulps"),
    "without NaN": (lambda blas: setattr(blas, "gelu", lambda x: np.where(np.isnan(x), 0, gelu(x))), "to 4 ulps"),
    "slope": (lambda blas: setattr(blas, "slope", lambda x: slope(x) * np.float32(1 + 4e-6)), "gradient of GELU is"),
}


@pytest.mark.parametrize("name", GELUS)
def test_another_gelu_is_a_kernel(card: Machine, blas: CublasLt, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUSARI_CUDA_GRAPH", "0")
    change, reason = GELUS[name]
    change(blas)
    training = Training(card)
    training.step(2)
    report = training.report
    assert "1 GELUs by kernels of Kusari's own" in report and reason in report
    blas.made.clear()
    training.step(1)
    assert not {"gelu bias kept", "gradient of gelu and sums"} & set(epilogues(blas))
    assert not passes("GELU") if name == "slope" else reason in passes("GELU")


@pytest.mark.parametrize("number", range(1, 6))
def test_a_gelu_that_fails_leaves_its_gradient_what_it_reads(card: Machine, blas: CublasLt, number: int) -> None:
    """Its tanh, which calls leave out, is there if kernels take their places."""
    training = Training(card)
    training.step(1)
    count = [0]
    for what in PROBES:
        assert not passes(what)

    def fails() -> bool:
        count[0] += 1
        return count[0] == number
    blas.fails = fails
    training.step(5)
    assert count[0] >= number


def test_gelu_of_an_inference(card: Machine, blas: CublasLt) -> None:
    net = Net(SPELLINGS["products"])
    net.to_device("@cupy:0")
    function = kusari.static_graph(net.forward)
    for _ in range(3):
        with kusari.no_backprop_mode():
            y = function(card.xp.asarray(X))
    with kusari.no_backprop_mode(), kusari.using_config("use_static_graph", False):
        e = net.forward(card.xp.asarray(X))
    np.testing.assert_allclose(card.host(y.array), card.host(e.array), rtol=1e-5, atol=1e-6)
    assert epilogues(blas)[-2:] == ["gelu bias", "bias"]
