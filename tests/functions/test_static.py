"""Every row of the table compiled: outputs and gradients equal define-by-run's, with new data at every call."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from functions import table
from functions.rows import FAMILIES, ROWS
from functions.table import Row

import kusari
import kusari.functions as F

# These make an array in the call of one that they are given, or one that a function updates, which a static function
# may not do silently: it warns and runs define-by-run. Other arrays made of numbers and shapes are constants.
MAKING = {"batch_normalization running": "changes after functions have read it"}


def _is_long(row: Row) -> bool:
    """Whether the row is for the slow tests: of each function the first case and every third are left."""
    family = FAMILIES[ROWS.index(row)]
    return family is None or FAMILIES[:ROWS.index(row)].count(family) % 3 > 0


def _run(f: Any, row: Row, data: list[np.ndarray]) -> list[Any]:
    xs = [kusari.Variable(x.copy()) if x.dtype.kind == "f" else x for x in data]
    ys = f(*xs)
    ys = list(ys) if isinstance(ys, tuple) else [ys]
    if row.gradient:
        for i, y in enumerate(ys):
            y.grad = np.random.RandomState(i).uniform(-1, 1, y.shape).astype(y.dtype)
        kusari.backward(ys)
    return [y.array for y in ys] + [x.grad for i, x in enumerate(xs)
                                    if isinstance(x, kusari.Variable) and i not in row.fixed]


@pytest.mark.parametrize("row", [pytest.param(row, marks=pytest.mark.slow) if _is_long(row) else row
                                 for row in ROWS if row.name not in MAKING], ids=str)
def test_compiled(row: Row) -> None:
    static = kusari.static_graph(lambda *xs: row.call(*xs))
    for step in range(3):
        data = [x * np.float32(1 + 0.01 * step) if x.dtype.kind == "f" and step else x for x in row.inputs]
        data = [np.asarray(x) for x in data]
        expected, found = _run(row.call, row, data), _run(static, row, data)
        for e, y in zip(expected, found, strict=True):
            if e is None:
                assert y is None
                continue
            assert (y.dtype, y.shape) == (e.dtype, e.shape)
            np.testing.assert_allclose(y, e, rtol=2e-5, atol=2e-5)
    if not row.name.startswith(SPREADING):
        _check_odd_numbers(static, row)


# Matrices whose zeros are multiplied in compiled code, of which NumPy's routines leave out others or all; and what
# cannot be computed of such numbers at all.
SPREADING = ("fft", "ifft", "roi_", "det", "inv", "batch_det", "batch_inv", "cholesky", "decorrelated_batch")


def _check_odd_numbers(static: Any, row: Row) -> None:
    """NaN and infinity reach what they reach define-by-run."""
    r = np.random.RandomState(len(row.name))
    for value in (np.nan, np.inf, -np.inf):
        data = [np.array(x) for x in row.inputs]
        some = [x.reshape(-1) for x in data if x.dtype.kind == "f" and x.size]
        if not some:
            return
        one = some[r.randint(len(some))]
        one[r.randint(one.size)] = value
        with np.errstate(all="ignore"):
            expected, found = _run(row.call, row, data), _run(static, row, data)
        for e, y in zip(expected, found, strict=True):
            for kind in (np.isnan, np.isposinf, np.isneginf) if e is not None and e.dtype.kind == "f" else ():
                np.testing.assert_array_equal(kind(y), kind(e))


X, W, LABELS = table.draw(4, 3), table.draw(5, 3, seed=2), np.array([0, 2, -1, 1], np.int32)
# Functions that draw, score or sample, which the table has not: inputs, those without a gradient, the function.
OTHERS: dict[str, tuple[tuple[np.ndarray, ...], tuple[int, ...], Any]] = {
    "simplified_dropconnect": ((X, W), (), F.simplified_dropconnect),
    "simplified_dropconnect of all": ((X, W), (), lambda x, w: F.simplified_dropconnect(
        x, w, ratio=0.3, use_batchwise_mask=False)),
    "forget": ((X,), (), lambda x: F.forget(lambda y: F.exp(y) * 2, x)),
    "get_item": ((X,), (), lambda x: F.get_item(x, (slice(1, 3), 2))),
    "classification_summary": ((X, LABELS), (0,), lambda x, t: F.classification_summary(x, t, ignore_label=-1)[:3]),
    "precision": ((X, LABELS), (0,), lambda x, t: F.precision(x, t, label_num=3, ignore_label=-1)[0]),
    "recall": ((X, LABELS), (0,), lambda x, t: F.recall(x, t, label_num=3, ignore_label=-1)[0]),
    "f1_score": ((X, LABELS), (0,), lambda x, t: F.f1_score(x, t, label_num=3, ignore_label=-1)[0]),
    "black_out": ((X, abs(LABELS), W, table.ints(5, 4, 2)), (), F.black_out),
    "negative_sampling": ((X, abs(LABELS), W), (), lambda x, t, w: F.negative_sampling(
        x, t, w, lambda shape: np.random.randint(0, 5, shape).astype("i"), 2)),
    "rrelu": ((X,), (), F.rrelu), "gumbel_softmax": ((X,), (), F.gumbel_softmax),
    "zoneout": ((X, X * 2), (), lambda h, x: F.zoneout(h, x, 0.3)), "gaussian": ((X, X / 2), (), F.gaussian),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_compiled(name: str) -> None:
    inputs, fixed, function = OTHERS[name]
    row = Row(name, function, inputs, function, not fixed, fixed=fixed)
    static = kusari.static_graph(lambda *xs: function(*xs))
    for step in range(3):
        found = []
        for f in (function, static):
            np.random.seed(step)
            found.append(_run(f, row, list(inputs)))
        for e, y in zip(*found, strict=True):
            assert (e is None) == (y is None)
            if e is not None:
                np.testing.assert_allclose(y, e, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ROWS if row.name not in MAKING], ids=str)
def test_compiled_in_another_dtype(row: Row) -> None:
    """Of a function's rows one is float16, the next float64."""
    half = FAMILIES[:ROWS.index(row)].count(FAMILIES[ROWS.index(row)]) % 2 == 0
    dtype, bound = (np.float16, 2e-2) if half else (np.float64, 1e-10)
    static = kusari.static_graph(lambda *xs: row.call(*xs))
    data = [x.astype(dtype) if x.dtype.kind == "f" else x for x in row.inputs]
    for _ in range(2):
        with np.errstate(all="ignore"):
            both = zip(_run(row.call, row, data), _run(static, row, data), strict=True)
        for e, y in both:
            if e is None or e.dtype.kind != "f":
                np.testing.assert_array_equal(y, e)
                continue
            assert (y.dtype, y.shape) == (e.dtype, e.shape)
            near = max(bound, {4: 2e-5, 2: 2e-2}.get(e.dtype.itemsize, 0))
            size = abs(np.where(np.isfinite(e), e, 0)).max(initial=1)
            np.testing.assert_allclose(y, e, rtol=near, atol=near * size)


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in MAKING], ids=str)
def test_making_an_array_is_told(row: Row) -> None:
    static = kusari.static_graph(lambda *xs: row.call(*xs))
    with pytest.warns(kusari.static.StaticGraphWarning, match=MAKING[row.name]):
        expected, found = _run(row.call, row, list(row.inputs)), _run(static, row, list(row.inputs))
    for e, y in zip(expected, found, strict=True):
        np.testing.assert_array_equal(y, e)
