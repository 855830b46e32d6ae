"""Every row of the tables with arrays of a card: values and gradients of both orders are the CPU's, and stay there."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cards.machines import SWEEP, Machine
from functions.rows import ROWS, as_tuple, directions, is_sample
from functions.table import POSITIVE, Row, X, draw, ints

import kusari
import kusari.functions as F
from kusari.utils import CooMatrix, WalkerAlias

# What the host has to know: how many elements a mask takes, where regions lie, whether a matrix is singular.
WAITING = ("item mask", "roi_", "det", "batch_det", "inv", "batch_inv", "cholesky", "classification_summary",
           "precision", "recall", "f1_score", "argmax_crf1d")
LEAVES = {"copy"}  # for the CPU
MANY_KERNELS = ("normalization", "sampler", "roi_", "crf", "ctc", "lstm")  # to compile for gradients of both orders


def computed(row: Row, call: Any, send: Callable[[Any], Any], host: Callable[[Any], Any]) -> list[Any]:
    """Outputs, gradients and gradients of these, as NumPy's arrays."""
    xs = [kusari.Variable(send(x)) if x.dtype.kind == "f" else send(x) for x in row.inputs]
    ys = as_tuple(call(*xs))
    found = [y.array for y in ys]
    if row.gradient:
        free = [x for i, x in enumerate(xs) if isinstance(x, kusari.Variable) and i not in row.fixed]
        gys = [kusari.Variable(send(g)) for g in directions([y.array for y in ys], 1)]
        gxs = kusari.grad(ys, free, gys, enable_double_backprop=row.double)
        found += [None if g is None else g.array for g in gxs]
        if row.double:
            some = [g for g in gxs if g is not None]
            seeds = [kusari.Variable(send(g)) for g in directions([g.array for g in some], 2)]
            found += [None if g is None else g.array for g in kusari.grad(some, [*free, *gys], seeds)]
    return [None if x is None else host(x) for x in found]


LABELS, H = ints(4, 3), draw(3, 4, seed=9)
# What the tables leave out: draws, which on a card are CuPy's, judgements, and what takes other things than arrays.
DRAWN = [Row(name, call, inputs, np.array, double=double) for name, call, inputs, double in (
    ("dropout", lambda x: F.dropout(x, 0.4), (X,), True), ("gaussian", F.gaussian, (X, H), True),
    ("rrelu", F.rrelu, (X,), True), ("gumbel_softmax", F.gumbel_softmax, (POSITIVE,), True),
    ("zoneout", lambda h, x: F.zoneout(h, x, 0.4), (X, H), True),
    ("simplified_dropconnect", lambda x, w: F.simplified_dropconnect(x, w, None, 0.4), (X, draw(5, 4)), False),
)]
OTHERS = [Row(name, call, inputs, np.array, gradient=gradient, double=name != "forget")
          for name, call, inputs, gradient in (
    ("classification_summary", F.classification_summary, (X, LABELS), False),
    ("precision", F.precision, (X, LABELS), False), ("recall", F.recall, (X, LABELS), False),
    ("f1_score", F.f1_score, (X, LABELS), False),
    ("black_out", F.black_out, (X, LABELS, draw(6, 4), ints(6, 3, 2, seed=3)), True),
    ("forget", lambda x: F.forget(F.tanh, x), (X,), True),
    ("argmax_crf1d", lambda c, *xs: tuple(map(F.identity, F.argmax_crf1d(c, xs)[1])), (H.T @ H, X, H), False),
    ("sparse_matmul", lambda data, x: F.sparse_matmul(CooMatrix(data, ROW, COLUMN, (2, 4), "other"), x),
     (draw(3), draw(4, 5)), True),
    ("sparse_matmul batch", lambda data, x: F.sparse_matmul(
        CooMatrix(data, ROW[None], COLUMN[None], (2, 4), "other"), x), (draw(1, 3), draw(1, 4, 5)), True),
)]
ROW, COLUMN = np.array([0, 1, 1], np.int32), np.array([3, 0, 2], np.int32)


def marks(row: Row) -> Any:
    """The sweep has rows beyond the sample, and those of many kernels, some of which test_rows_compiled.py runs."""
    return SWEEP if row in ROWS and not is_sample(row) or any(part in row.name for part in MANY_KERNELS) else []


@pytest.mark.parametrize("row", [pytest.param(row, marks=marks(row)) for row in (*ROWS, *DRAWN, *OTHERS)
                                 if row.name not in LEAVES], ids=str)
def test_row(row: Row, card: Machine) -> None:
    if row in DRAWN and not card.simulated:
        pytest.skip("CuPy draws other numbers than NumPy")
    np.random.seed(0)
    expected = computed(row, row.call, np.array, np.array)
    card.xp.random.seed(0)
    found = computed(row, card.sent(row.call), card.xp.array, lambda x: x)
    waits = dict(card.waits)
    for y, e in zip([None if x is None else card.host(x) for x in found], expected, strict=True):
        assert (y is None) == (e is None)
        if e is not None:
            assert y.dtype == e.dtype
            np.testing.assert_allclose(y, e, rtol=max(1e-4, row.tolerance), atol=max(1e-5, row.tolerance))
    assert not waits or row.name.startswith(WAITING), waits


def test_samples_are_drawn_on_the_card(card: Machine) -> None:
    sampler = WalkerAlias([1, 2, 3, 0.5, 0, 1])
    arrays = X, LABELS, draw(6, 4)
    np.random.seed(0)
    expected = F.negative_sampling(*arrays, sampler.sample, 3, return_samples=True)
    sampler.to_device("@cupy:0")
    card.xp.random.seed(0)
    loss, samples = F.negative_sampling(*card.sent(arrays), sampler.sample, 3, return_samples=True)
    assert not card.waits and samples.shape == (3, 4)
    if card.simulated:
        np.testing.assert_allclose(card.host(loss.array), expected[0].array, rtol=1e-5)
    assert set(card.host(samples[:, 1:]).ravel()) <= {0, 1, 2, 3, 5}


def test_a_copy_goes_to_the_cpu_and_its_gradient_comes_back(card: Machine) -> None:
    x = kusari.Variable(card.xp.asarray(X))
    y = F.copy(x, -1)
    y.grad = X * 2
    y.backward()
    assert type(y.array) is np.ndarray
    np.testing.assert_array_equal(card.host(x.grad), X * 2)


def test_an_index_of_numpys_is_taken_on_the_card(card: Machine) -> None:
    x = kusari.Variable(card.xp.asarray(X))
    for index in ([2, 0], np.array([2, 0]), (slice(None), np.array([1, -1])), np.array([True, False, True])):
        np.testing.assert_array_equal(card.host(x[index].array), X[index])
    np.testing.assert_array_equal(card.host(F.permutate(x, np.array([2, 0, 1])).array), X[[2, 0, 1]])
    with pytest.raises(kusari.errors.ArrayTypeError, match="mixed in the forward input"):
        F.add(x, X)
