"""Every row of the table compiled: outputs and gradients equal define-by-run's, with new data at every call."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from functions.rows import ROWS
from functions.table import Row

import kusari

# These make an array in the call, which a static function may not do silently: it warns and runs define-by-run.
MAKING = {"array right", "permutate", "permutate inv", "select_item", "scatter_add", "batch_normalization running",
          "item mask", "item table"}


# The most expensive to compile, each of which has a smaller relation among the other rows or in tests/static.
LONG = {"n_step_gru", "n_step_bilstm", "n_step_bigru", "polygamma", "zeta", "connectionist_temporal_classification",
        "crf1d", "im2col", "shift dilate", "n_step_rnn", "resize_images borders", "resize_images one",
        "roi_max_align_2d (2, 3)"}


def _is_long(row: Row) -> bool:
    """Whether the row is for the slow tests; convolutions have their own in tests/codegen: every third is left."""
    convolutions = [r.name for r in ROWS if "convolution_" in r.name and "deformable" not in r.name]
    return row.name in LONG or row.name in convolutions and convolutions.index(row.name) % 3 > 0


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


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in MAKING], ids=str)
def test_making_an_array_is_told(row: Row) -> None:
    static = kusari.static_graph(lambda *xs: row.call(*xs))
    with pytest.warns(kusari.static.StaticGraphWarning, match="neither an argument"):
        expected, found = _run(row.call, row, list(row.inputs)), _run(static, row, list(row.inputs))
    for e, y in zip(expected, found, strict=True):
        np.testing.assert_array_equal(y, e)
