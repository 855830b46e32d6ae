"""Rows of the table applied to results of a static function: values and gradients equal define-by-run's."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from functions.rows import LONG, ROWS
from functions.table import Row

import kusari
import kusari.functions as F
from kusari.static.follow import follow


def _floats(row: Row) -> list[int]:
    return [i for i, x in enumerate(row.inputs) if isinstance(x, np.ndarray) and x.dtype.kind == "f"]


def _run(row: Row, before: Any, data: list[Any], static: bool) -> list[Any]:
    np.random.seed(5)
    floats = _floats(row)
    with kusari.using_config("use_static_graph", static):
        leaves = [kusari.Variable(data[i].copy()) for i in floats]
        inputs = list(data)
        for i, y in zip(floats, before(*leaves), strict=True):
            inputs[i] = data[i] if i in row.fixed else y
        ys = row.call(*inputs)
        ys = list(ys) if isinstance(ys, (tuple, list)) else [ys]
        loss: Any = 0
        for k, y in enumerate(ys):
            loss += F.sum(y * np.random.RandomState(k).uniform(-1, 1, y.shape).astype(y.dtype))
        loss.backward()
        return [y.array for y in ys] + [x.grad for x in leaves]


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ROWS if row.gradient and _floats(row) and row.name not in LONG
                                 and "convolution" not in row.name][::3], ids=str)
def test_behind_a_static_call(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "CHEAP_NUMPY_CALLS", 0)  # whatever has a kernel is compiled
    before = kusari.static_graph(lambda *xs: tuple([x * 1.0 for x in xs]))
    for step in range(4):
        scale = np.float32(1 + 0.01 * step)
        data = [np.asarray(x * scale) if step and getattr(x, "dtype", None) == np.float32 else x for x in row.inputs]
        with kusari.using_config("keep_define_by_run", False):
            found, expected = _run(row, before, data, True), _run(row, before, data, False)
        for y, e in zip(found, expected, strict=True):
            if e is None:
                assert y is None
                continue
            assert (y.dtype, y.shape) == (e.dtype, e.shape)
            np.testing.assert_allclose(y, e, rtol=2e-4, atol=1e-4 * max(1, abs(e).max(initial=0)))
