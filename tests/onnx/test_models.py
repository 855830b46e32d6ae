"""The example models export with an open batch, and match at two other batch sizes."""
from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from narrow_models import NARROW, data_of, models
from opsets import NEWEST

import kusari
import kusari.onnx
from kusari.static.trees import flatten


def test_all_are_here() -> None:
    assert set(NARROW) == set(models.MODELS)


@pytest.mark.parametrize("opset", [9, pytest.param(18, marks=pytest.mark.slow), NEWEST])
@pytest.mark.parametrize("name", NARROW)
def test_model(name: str, opset: int) -> None:
    options, _, operator = NARROW[name]
    make = models.MODELS[name][0]
    np.random.seed(0)
    model = make(**options)
    made: Any = kusari.onnx.export(
        model, (data_of(name, 1),), opset_version=opset, input_names="x", dynamic_shapes={"x": {0: "batch"}})
    assert opset < 17 or operator in {node.op_type for node in made.graph.node}
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), session_options, providers=["CPUExecutionProvider"])
    for batch in (5, 7):
        x = data_of(name, batch)
        expected: list[Any] = []
        with kusari.using_config("train", False), kusari.no_backprop_mode():
            flatten(model(x), expected)
        for a, e in zip(session.run(None, {"x": x}), expected, strict=True):
            np.testing.assert_allclose(a, e.array, rtol=1e-4, atol=1e-4)
