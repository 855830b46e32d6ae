"""Products whose factors in float32 are rounded, as CuPy is told: to bfloat16 or TF32, by cuBLASLt or our own tiles."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cards.machines import Machine
from cards.test_compiled_products import Net, T, executable, normal, x
from cublaslt_double import CublasLt
from rounding import rounded

import kusari
import kusari.functions as F
from kusari.ir import Builder, Value
from kusari.static.card.place import CardPlace
from kusari.static.card.place import card as card_now

COMPUTE = {"": 68, "bf16": 75, "tf32": 77}
TYPES = {"": 1, "bf16": 6, "tf32": 7}  # CuPy's


@pytest.fixture(autouse=True)
def restored(card: Machine) -> Iterator[None]:
    """CuPy's setting is what it was."""
    before = card.xp._core.get_compute_type(np.dtype("f"))
    yield
    card.xp._core.set_compute_type(np.dtype("f"), before)


def multiply_in(card: Machine, kind: str) -> None:
    card.xp._core.set_compute_type(np.dtype("f"), TYPES[kind])


def expected(a: np.ndarray, b: np.ndarray, kind: str) -> np.ndarray:
    return rounded(a, kind).astype("d") @ rounded(b, kind).astype("d")


@pytest.mark.parametrize("kind", COMPUTE)
@pytest.mark.parametrize("trouble", ["", "at first", "in a run", "no library"])
def test_products_are_those_of_rounded_factors(card: Machine, blas: CublasLt, kind: Any, trouble: str,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by our own kernels, where the library is not there or refuses; doubles are never rounded."""
    blas.refuses = lambda *_: trouble == "at first"
    blas.fails = lambda: trouble == "in a run"
    if trouble == "no library":
        monkeypatch.setenv("KUSARI_CUDA_LIBRARIES", "0")
    multiply_in(card, kind)
    assert card_now(0) == CardPlace(0, kind)

    def nodes(b: Builder, p: Value, q: Value, r: Value, s: Value) -> tuple[Value, ...]:
        return b.call("tanh", b.matmul(p, q)), b.matmul(r, s)
    p, q = normal(5, 70), normal(70, 6)
    made, (single, double), _ = executable(card, nodes, [p, q, p.astype("d"), q.astype("d")], place=card_now(0))
    np.testing.assert_allclose(single, np.tanh(expected(p, q, kind)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(double, p.astype("d") @ q.astype("d"), rtol=1e-12)
    assert [call["compute"] for call in blas.made] == ([] if trouble else [COMPUTE[kind], 70])
    assert made.report.calls.total() == (0 if trouble else 2)


@pytest.mark.parametrize("libraries", ["1", "0"])
def test_changes_between_calls_are_noticed(card: Machine, blas: CublasLt, libraries: str,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call multiplies as CuPy is told when it begins, and so does its backward, without traces anew."""
    monkeypatch.setenv("KUSARI_CUDA_LIBRARIES", libraries)
    function = kusari.static_graph(lambda a, b: F.matmul(a, b))
    p, q, g = normal(5, 70), normal(70, 6), normal(5, 6)
    for kind in ("", "bf16", "tf32", "bf16", "", "tf32"):
        for _ in range(3):
            multiply_in(card, kind)
            a, b = (kusari.Variable(card.xp.asarray(v)) for v in (p, q))
            y = function(a, b)
            y.grad = card.xp.asarray(g)
            multiply_in(card, "")
            y.backward()
        np.testing.assert_allclose(card.host(y.array), expected(p, q, kind), rtol=1e-5, atol=1e-5, err_msg=kind)
        np.testing.assert_allclose(card.host(a.grad), expected(g, np.ascontiguousarray(q.T), kind), rtol=1e-5,
                                   atol=1e-5, err_msg=kind)
    assert "3 schedules in" in str(function.static.explain())


def test_whole_steps_notice_changes(card: Machine, blas: CublasLt) -> None:
    model = Net()
    model.to_device("@cupy:0")
    optimizer = kusari.optimizers.SGD(0.1).setup(model)
    given = card.xp.asarray(x), card.xp.asarray(T)
    for kind in ("", "bf16", "", "bf16"):
        multiply_in(card, kind)
        before = len(blas.made)
        for _ in range(4):
            optimizer.update(model.loss, *given)
        made = {call["compute"] for call in blas.made[before:]}
        assert made <= {COMPUTE[kind]}, "in graphs that are made already nothing is called"
    assert {call["compute"] for call in blas.made} == {68, 75}
    report = str(model.static.explain())
    assert "2 whole steps" in report and "2 traced" in report and "on card 0 (factors rounded to bf16)" in report
    assert "the rounding of factors in float32 (cupy._core.set_compute_type) ('' became 'bf16')" in report


@pytest.mark.parametrize("kind", ["bf16", "tf32"])
def test_convolutions_of_our_own(card: Machine, kind: Any) -> None:
    multiply_in(card, kind)
    images, weights = normal(2, 3, 6, 6), normal(4, 3, 3, 3)
    function = kusari.static_graph(lambda x, W: F.convolution_2d(x, W))
    sent = card.xp.asarray(images), card.xp.asarray(weights)
    with kusari.no_backprop_mode():
        for _ in range(3):
            y = function(*sent)
        exact = F.convolution_2d(*(rounded(v, kind).astype("d") for v in (images, weights))).array
    if card.simulated:
        np.testing.assert_allclose(card.host(y.array), exact, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(card.host(y.array), exact, rtol=1e-1, atol=1e-1)
