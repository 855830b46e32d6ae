"""Which ONNX operators convolutions and poolings become; the models are run and compared by the export itself."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from functions.table import draw

import kusari.functions as F
import kusari.links as L
import kusari.onnx

X = draw(2, 4, 5, 6)
W, D = draw(6, 4, 3, 3), draw(4, 6, 3, 3)

CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...], list[str]]] = [
    ("Conv", lambda x, w: F.convolution_2d(x, w, stride=2, pad=1), (X, W), ["Conv"]),
    ("Conv cover_all", lambda x, w: F.convolution_2d(x, w, stride=2, cover_all=True), (X, W), ["Conv"]),
    ("Conv groups", lambda x, w: F.convolution_2d(x, w, dilate=2, groups=2), (X, draw(6, 2, 2, 2)), ["Conv"]),
    ("ConvTranspose", lambda x, w: F.deconvolution_2d(x, w, stride=2, pad=1), (X, D), ["ConvTranspose"]),
    ("ConvTranspose outsize", lambda x, w: F.deconvolution_2d(x, w, stride=2, pad=1, outsize=(10, 12)), (X, D),
     ["ConvTranspose"]),
    ("MaxPool", lambda x: F.max_pooling_2d(x, 3, 2, 1, cover_all=False), (X,), ["MaxPool"]),
    ("MaxPool 1d", lambda x: F.max_pooling_1d(x, 2), (draw(2, 3, 8),), ["MaxPool"]),
    ("AveragePool", lambda x: F.average_pooling_2d(x, 3, 2, 1), (X,), ["AveragePool"]),
    ("AveragePool valid", lambda x: F.average_pooling_nd(x, 3, 2, 1, None), (X,), ["AveragePool"]),
]


def _operators(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node if node.op_type != "Identity"]


@pytest.mark.parametrize("opset", [9, 12, 18])
@pytest.mark.parametrize("call,inputs,operators", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_one_operator(call: Any, inputs: Any, operators: list[str], opset: int) -> None:
    assert _operators(kusari.onnx.export(call, list(inputs), opset_version=opset)) == operators


@pytest.mark.parametrize("call,operators", [
    (lambda x: F.max_pooling_2d(x, 2), ["MaxPool"]), (lambda x: F.max_pooling_2d(x, 3, 2, 1), ["MaxPool"]),
    (lambda x: F.unpooling_2d(x, 2, cover_all=False), ["Resize"]),
    (lambda x: F.resize_images(x, (3, 8)), ["Resize"]), (lambda x: F.resize_images(x, 9, mode="nearest"), ["Resize"]),
    (lambda x: F.resize_images(x, (3, 8), align_corners=False), ["Resize"]),
])
def test_one_operator_of_newer_opsets(call: Any, operators: list[str]) -> None:
    assert _operators(kusari.onnx.export(call, [X], opset_version=13)) == operators
    kusari.onnx.export(call, [X], opset_version=9)


def test_batches_of_any_size() -> None:
    """A small network of images: its sizes stay proved when the batch is open."""
    np.random.seed(0)
    net = kusari.Sequential(L.Convolution2D(1, 3, 3), F.relu, lambda x: F.max_pooling_2d(x, 2),
                            L.Convolution2D(3, 4, 2, pad=1), lambda x: F.average_pooling_2d(x, x.shape[2:]),
                            L.Linear(4, 2))
    model = kusari.onnx.export(net, [draw(2, 1, 9, 9)], input_shapes=[("b", 1, 9, 9)])
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "b"
    assert [n for n in _operators(model) if "Pool" in n or n == "Conv"] == ["Conv", "MaxPool", "Conv", "AveragePool"]


def test_images_of_any_size() -> None:
    """Padding and the way of covering say the same for every size."""
    np.random.seed(0)
    net = kusari.Sequential(L.Convolution2D(1, 3, 3, 1, 1), F.relu, lambda x: F.max_pooling_2d(x, 2),
                            lambda x: F.max_pooling_2d(x, 3, 2, 1, cover_all=False), L.Deconvolution2D(3, 1, 4, 2, 1))
    model = kusari.onnx.export(net, [draw(1, 1, 9, 12)], input_shapes=[(1, 1, "h", "w")])
    assert _operators(model) == ["Conv", "Relu", "MaxPool", "MaxPool", "ConvTranspose"]
