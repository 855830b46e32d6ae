"""Gradients of biases by the product that makes the weight's: cuBLASLt's epilogues BGRADA and BGRADB."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cards.machines import Machine
from cards.test_compiled_products import executable, normal
from cublaslt_double import CublasLt

from kusari.ir import Builder, Value
from kusari.static.card.place import CardPlace

OF = {0: "sums of B", 1: "sums of A"}  # in column-major order the factors change places


def gradients(number: int, first: bool = True) -> Callable[..., tuple[Value, ...]]:
    """A product, and the sums of a factor over the terms, which are the rows of both."""
    def nodes(b: Builder, g: Value, x: Value) -> tuple[Value, ...]:
        factors = (g, x) if number == 0 else (x, g)
        if first:
            return b.matmul(*factors, transa=True), b.reduce("sum", g, (0,))
        return b.reduce("sum", g, (0,)), b.matmul(*factors, transa=True)
    return nodes


def check(card: Machine, number: int, g: np.ndarray, x: np.ndarray, first: bool = True) -> Any:
    """The executable, which has the right results, also in a second run."""
    made, found, _ = executable(card, gradients(number, first), [g, x])
    again = [card.host(y) for y in made.run([card.xp.asarray(g), card.xp.asarray(x)])]
    wide = [a.astype("d") for a in ((g, x) if number == 0 else (x, g))]
    with np.errstate(all="ignore"):
        product, total = wide[0].T @ wide[1], g.astype("d").sum(0, keepdims=True)
    limit = 2e-2 if g.dtype.itemsize == 2 else 1e-4
    for results in (found, again):
        for y, e in zip(results, (product, total) if first else (total, product), strict=True):
            np.testing.assert_allclose(y, e, rtol=limit, atol=limit)
    return made.report


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("number", OF)
def test_sums_come_with_the_product(card: Machine, blas: CublasLt, number: int, first: bool) -> None:
    report = check(card, number, normal(9, 4), normal(9, 6), first)
    assert [call["epilogue"] for call in blas.made] == [OF[number]] * 2
    assert (report.launches, report.kernels, report.refused.total()) == (1, 0, 0)


def test_sums_of_what_is_no_number(card: Machine, blas: CublasLt) -> None:
    g = normal(9, 4)
    g[2, 0], g[3, 1], g[4, 2], g[5, 2] = np.nan, np.inf, np.inf, -np.inf
    made, (_, total), _ = executable(card, gradients(0), [g, normal(9, 6)])
    assert blas.made[-1]["epilogue"] == OF[0]
    np.testing.assert_array_equal(total[0, :3], [np.nan, np.inf, np.nan])


@pytest.mark.parametrize("g, x", [((9, 1), (9, 6)), ((1, 4), (1, 6))], ids=["a single sum", "a single term"])
@pytest.mark.parametrize("number", OF)
def test_sums_that_the_library_does_not_have(card: Machine, blas: CublasLt, number: int, g: Any, x: Any) -> None:
    report = check(card, number, normal(*g), normal(*x))
    assert {call["epilogue"] for call in blas.made} == {""} and report.launches == 2


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_sums_of_other_types_are_kernels(card: Machine, blas: CublasLt, dtype: str) -> None:
    report = check(card, 0, normal(9, 4, dtype=dtype), normal(9, 6, dtype=dtype))
    assert {call["epilogue"] for call in blas.made} == {""} and report.launches == 2


def test_sums_of_rounded_factors_are_kernels(card: Machine, blas: CublasLt) -> None:
    g = np.full((9, 4), 1 + 2 ** -13, "f")
    made, (_, total), _ = executable(card, gradients(0), [g, normal(9, 6)], place=CardPlace(0, "tf32"))
    assert blas.made[-1]["epilogue"] == "" and (total == g.sum(0)).all()


@pytest.mark.parametrize("trouble", ["no algorithm", "none for sums", "fails"])
def test_kernels_do_both_where_the_library_does_not(card: Machine, blas: CublasLt, trouble: str) -> None:
    blas.refuses = lambda m, n, k, epilogue: trouble != "fails" and (bool(epilogue) or trouble == "no algorithm")
    blas.fails = lambda: trouble == "fails"
    report = check(card, 0, normal(9, 4), normal(9, 6))
    assert (report.launches, report.calls.total()) == (2, trouble == "none for sums")
    assert report.refused.total() == (trouble != "none for sums")


def test_sums_that_change_state_are_guarded_kernels(card: Machine, blas: CublasLt) -> None:
    def nodes(b: Builder, g: Value, x: Value, state: Value) -> tuple[Value, ...]:
        b.assign(state, b.reduce("sum", g, (0,)))
        return b.matmul(g, x, transa=True),
    g, x = normal(9, 4), normal(9, 6)
    made, (product,), (state,) = executable(card, nodes, [g, x], [normal(1, 4)])
    np.testing.assert_allclose(product, g.T @ x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(card.host(state), g.sum(0, keepdims=True), rtol=1e-4, atol=1e-5)
    assert blas.made[-1]["epilogue"] == "" and made.report.guarded == 1


def test_sums_at_addresses_that_are_not_aligned(card: Machine, blas: CublasLt) -> None:
    """The library writes whole words: sums that a caller wants elsewhere are written by a kernel."""
    made, _, _ = executable(card, gradients(0), [normal(9, 4), normal(9, 6)])
    g, x = normal(9, 4), normal(9, 6)
    frame = made.acquire()
    frame.put(0, card.xp.asarray(g))
    frame.put(1, card.xp.asarray(x))
    frame.fresh_outputs()
    room = card.xp.zeros(16, "f")
    index = next(i for i, v in enumerate(made.plan.externals) if v.shape == (1, 4))
    frame.bind(index, room[1:5].reshape(1, 4))
    frame.run()
    np.testing.assert_allclose(card.host(room)[1:5], g.sum(0), rtol=1e-4, atol=1e-5)
    assert {reason for _, reason in made.report.refused} == {"the sums are aligned to 4 bytes only"}
