"""The example models export with an open batch, and match at two other batch sizes."""
from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from opsets import NEWEST

import kusari
import kusari.onnx
from kusari.static.trees import flatten

_SPEC = importlib.util.spec_from_file_location(
    "onnx_models", Path(__file__).parents[2] / "examples" / "onnx_models.py")
assert _SPEC is not None and _SPEC.loader is not None
models: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(models)

# The same models, narrow: name -> (arguments, shape of the input, an operator that must be there from opset 17 on).
NARROW: dict[str, tuple[dict[str, int], tuple[int, ...], str]] = {
    "mlp": ({"n_units": 20}, (1, 784), "Gemm"),
    "lenet": ({}, (1, 1, 28, 28), "AveragePool"),
    "vgg16": ({"width": 2, "n_units": 16, "n_out": 10, "size": 32}, (1, 3, 32, 32), "MaxPool"),
    "resnet50": ({"width": 2, "n_out": 10}, (1, 3, 33, 33), "BatchNormalization"),
    "language_model": ({"n_words": 30, "n_units": 6}, (1, 5), "LSTM"),
    "transformer": ({"n_units": 16, "n_heads": 2}, (1, 6, 16), "LayerNormalization"),
    "generator": ({"width": 8}, (1, 100), "ConvTranspose"),
    "vae": ({"n_units": 16}, (1, 784), "Exp"),
}


def test_all_are_here() -> None:
    assert set(NARROW) == set(models.MODELS)


@pytest.mark.parametrize("opset", [9, pytest.param(18, marks=pytest.mark.slow), NEWEST])
@pytest.mark.parametrize("name", NARROW)
def test_model(name: str, opset: int) -> None:
    options, shape, operator = NARROW[name]
    make, _, dtype = models.MODELS[name]
    np.random.seed(0)
    model = make(**options)
    rs = np.random.RandomState(0)

    def data(batch: int) -> Any:
        full = (batch, *shape[1:])
        return rs.randint(0, 30, full).astype(dtype) if dtype == "int32" else rs.uniform(0, 1, full).astype(dtype)
    made: Any = kusari.onnx.export(
        model, (data(1),), opset_version=opset, input_names="x", dynamic_shapes={"x": {0: "batch"}})
    assert opset < 17 or operator in {node.op_type for node in made.graph.node}
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), session_options, providers=["CPUExecutionProvider"])
    for batch in (5, 7):
        x = data(batch)
        expected: list[Any] = []
        with kusari.using_config("train", False), kusari.no_backprop_mode():
            flatten(model(x), expected)
        for a, e in zip(session.run(None, {"x": x}), expected, strict=True):
            np.testing.assert_allclose(a, e.array, rtol=1e-4, atol=1e-4)
