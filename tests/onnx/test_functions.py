"""Every row of the functions' table, and its gradient: exported, checked, run, equal to define-by-run."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from functions import table
from functions.rows import ROWS
from functions.table import Row

import kusari
import kusari.links as L
import kusari.onnx
from kusari.onnx.versions import IR_VERSIONS

X, IMAGES, LABELS = table.draw(3, 4), table.draw(2, 4, 5, 6), table.ints(4, 3)
SINCE = {"einsum": 12, "roi_average_align_2d None": 10}  # functions that need more than the first opset
WITHOUT = {"roi_max_align_2d None"}  # any form: what it computes is of a shape that depends on data
WITHOUT_GRADIENT = {  # and why
    "roi_pooling_2d": "its output 1 is read", "roi_max_pooling_2d": "its output 1 is read",
    "roi_average_align_2d None": "no ONNX form"}
LIMITS = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()


def since(row: Row) -> int:
    return SINCE.get(row.name, SINCE.get(row.name.split()[0], min(IR_VERSIONS)))


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


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=str)
def test_export_of_the_gradient(row: Row) -> None:
    if row.name in WITHOUT_GRADIENT:
        with pytest.raises(kusari.onnx.UnsupportedFunctionsError, match=WITHOUT_GRADIENT[row.name]):
            kusari.onnx.export(gradients_of(row), list(row.inputs))
        return
    made: Any = kusari.onnx.export(gradients_of(row), list(row.inputs))
    assert len(made.graph.output) >= 1


LINKS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "GroupNormalization": (lambda: L.GroupNormalization(2), (IMAGES,)), "PReLU": (L.PReLU, (X,)),
    "Swish": (lambda: L.Swish((4,)), (X,)), "Maxout": (lambda: L.Maxout(4, 3, 2), (X,)),
    "Bilinear": (lambda: L.Bilinear(4, 4, 3), (X, X * 2)), "Highway": (lambda: L.Highway(4), (X,)),
    "Inception": (lambda: L.Inception(4, 2, 2, 2, 2, 2, 2), (IMAGES,)),
    "BinaryHierarchicalSoftmax": (lambda: L.BinaryHierarchicalSoftmax(4, ((0, (1, 2)), 3)), (X, LABELS)),
}


@pytest.mark.parametrize("name", LINKS)
def test_links(name: str) -> None:
    make, arrays = LINKS[name]
    link = make()
    for opset in (9, 18, 26):
        kusari.onnx.export(link, list(arrays), opset_version=opset)


@pytest.mark.parametrize("name", ["NegativeSampling", "BlackOut"])
def test_losses_that_draw_from_a_sampler(name: str) -> None:
    link = getattr(L, name)(4, [3, 1, 2, 5], 2)
    with pytest.raises(kusari.onnx.UnsupportedFunctionsError, match="DrawSamples"):
        kusari.onnx.export(link, [X, LABELS])
    assert f"`{name}`" in LIMITS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kusari.onnx.OnnxRuntimeWarning")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_opset(row: Row) -> None:
    for opset in sorted(IR_VERSIONS):
        if opset < since(row) or row.name in WITHOUT:
            with pytest.raises(kusari.onnx.UnsupportedFunctionsError):
                kusari.onnx.export(row.call, list(row.inputs), opset_version=opset)
        else:
            kusari.onnx.export(row.call, list(row.inputs), opset_version=opset)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kusari.onnx.OnnxRuntimeWarning")
@pytest.mark.parametrize("row", [row for row in DIFFERENTIABLE if row.name not in WITHOUT_GRADIENT], ids=str)
def test_gradients_in_the_oldest_and_the_newest_opset(row: Row) -> None:
    for opset in (since(row), max(IR_VERSIONS)):
        kusari.onnx.export(gradients_of(row), list(row.inputs), opset_version=opset)


def test_the_documentation_says_what_is_missing() -> None:
    for name, opset in SINCE.items():
        assert f"`{name.split()[0]}` needs opset {opset}" in LIMITS
    for name in WITHOUT_GRADIENT:
        assert f"`{name.split()[0]}`" in LIMITS
    for name in WITHOUT:
        assert f"`{name.split()[0]}`" in LIMITS
