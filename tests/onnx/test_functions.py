"""Every row of the functions' table, and its gradient: exported, checked, run, equal to define-by-run."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from functions import table
from functions.rows import PARTS, ROWS
from functions.table import Row
from opsets import NEWEST, OLDEST, OPSETS

import kusari
import kusari.functions as F
import kusari.onnx

X = table.draw(3, 4)
# Functions that need more than the first opset.
SINCE = {"roi_average_align_2d None": 10, "det": 11, "batch_det": 11}
# Any form: what it computes is of a shape that depends on data, or ONNX has no operator.
WITHOUT = {"roi_max_align_2d None", "roi_max_align_2d (None, 3)", "roi_average_align_2d (None, 3)", "inv", "batch_inv",
           "cholesky", "decorrelated_batch_normalization"}
WITHOUT_GRADIENT = {  # and why
    "roi_pooling_2d": "its output 1 is read", "roi_max_pooling_2d": "its output 1 is read",
    "roi_average_align_2d None": "no ONNX form", "det": "no ONNX form", "batch_det": "no ONNX form"}
LIMITS = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()


def since(row: Row) -> int:
    return SINCE.get(row.name, SINCE.get(row.name.split()[0], OLDEST))


def gradients_of(row: Row) -> Any:
    def gradients(*xs: Any) -> Any:
        with kusari.using_config("enable_backprop", True):
            ys = row.call(*xs)
            wanted = [x for i, x in enumerate(xs) if x.dtype.kind == "f" and i not in row.fixed]
            found = kusari.grad(ys if isinstance(ys, tuple) else (ys,), wanted)
            return tuple(g for g in found if g is not None)
    return gradients


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_export(row: Row) -> None:
    if row.name in WITHOUT:
        with pytest.raises(kusari.onnx.UnsupportedFunctionsError):
            kusari.onnx.export(row.call, list(row.inputs))
        return
    made: Any = kusari.onnx.export(row.call, list(row.inputs))
    assert len(made.graph.output) >= 1


DIFFERENTIABLE = [row for row in ROWS if row.gradient and row.name not in WITHOUT]


@pytest.mark.filterwarnings("ignore:(?s).*Could not find an implementation for Cos")  # of float64, in older runtimes
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=str)
def test_export_of_the_gradient(row: Row) -> None:
    if row.name in WITHOUT_GRADIENT:
        with pytest.raises(kusari.onnx.UnsupportedFunctionsError, match=WITHOUT_GRADIENT[row.name]):
            kusari.onnx.export(gradients_of(row), list(row.inputs))
        return
    made: Any = kusari.onnx.export(gradients_of(row), list(row.inputs))
    assert len(made.graph.output) >= 1


def scores(function: Any) -> Any:
    return lambda x: function(x, np.array([0, 1, -1], np.int32))


# Functions that draw, and others that the table has not; in training mode.
OTHERS: dict[str, Any] = {
    "dropout": F.dropout, "zoneout": lambda x: F.zoneout(x, x * 2), "gaussian": lambda x: F.gaussian(x, x),
    "rrelu": F.rrelu, "gumbel_softmax": F.gumbel_softmax,
    "simplified_dropconnect": lambda x: F.simplified_dropconnect(x, table.draw(5, 4)),
    "forget": lambda x: F.forget(lambda y: F.exp(y) * 2, x), "get_item": lambda x: F.get_item(x, (slice(1, 3), 2)),
    "classification_summary": scores(F.classification_summary), "precision": scores(F.precision),
    "recall": scores(F.recall), "f1_score": scores(F.f1_score),
}
SAMPLERS = {"negative_sampling": "NegativeSampling", "black_out": "BlackOut"}  # any code, so there is no form
# What they return are arrays, or what they take: no part of a graph.
READERS = {"argmax_crf1d", "sparse_matmul"}


@pytest.mark.filterwarnings("ignore::kusari.onnx.OnnxRuntimeWarning")
@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    for opset in (OLDEST, 18, NEWEST):
        kusari.onnx.export(OTHERS[name], X, train=True, opset_version=opset)


def test_every_function_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is in no table, and in no list of exceptions, fails here."""
    called: set[str] = set()
    public = [name for name, f in vars(F).items() if callable(f) and not isinstance(f, type) and name[0] != "_"]
    for name in public:
        def spied(*args: Any, _name: str = name, _function: Any = getattr(F, name), **kwargs: Any) -> Any:
            called.add(_name)
            return _function(*args, **kwargs)
        monkeypatch.setattr(F, name, spied)
    for part in PARTS:
        for row in part():
            row.call(*row.inputs)
    assert len(public) > 180 and set(public) - called - OTHERS.keys() - SAMPLERS.keys() - READERS == set()
    for link in (*SAMPLERS.values(), *READERS):
        assert f"`{link}`" in LIMITS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kusari.onnx.OnnxRuntimeWarning")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_opset(row: Row) -> None:
    for opset in OPSETS:
        if opset < since(row) or row.name in WITHOUT:
            with pytest.raises(kusari.onnx.UnsupportedFunctionsError):
                kusari.onnx.export(row.call, list(row.inputs), opset_version=opset)
        else:
            kusari.onnx.export(row.call, list(row.inputs), opset_version=opset)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kusari.onnx.OnnxRuntimeWarning")
@pytest.mark.parametrize("row", [row for row in DIFFERENTIABLE if row.name not in WITHOUT_GRADIENT], ids=str)
def test_gradients_in_the_oldest_and_the_newest_opset(row: Row) -> None:
    for opset in (since(row), NEWEST):
        kusari.onnx.export(gradients_of(row), list(row.inputs), opset_version=opset)


def test_the_documentation_says_what_is_missing() -> None:
    for name, opset in SINCE.items():
        assert f"`{name.split()[0]}` needs opset {opset}" in LIMITS
    for name in WITHOUT_GRADIENT:
        assert f"`{name.split()[0]}`" in LIMITS
    for name in WITHOUT:
        assert f"`{name.split()[0]}`" in LIMITS
