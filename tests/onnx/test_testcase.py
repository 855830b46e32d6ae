"""A test case on the disk is what ONNX's backend tests read."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import kusari
import kusari.functions as F
import kusari.links as L
import kusari.onnx

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)


def load(path: Path) -> Any:
    tensor = onnx.load_tensor(os.fspath(path))
    return tensor.name, onnx.numpy_helper.to_array(tensor)


def test_inputs_outputs_and_gradients(tmp_path: Path) -> None:
    model = kusari.Sequential(L.Linear(4, 3), F.tanh)
    kusari.onnx.export_testcase(model, [X], tmp_path / "case", output_grad=True)
    data = tmp_path / "case" / "test_data_set_0"
    assert sorted(os.listdir(data)) == ["gradient_0.pb", "gradient_1.pb", "input_0.pb", "output_0.pb"]
    name, x = load(data / "input_0.pb")
    np.testing.assert_array_equal(x, X)
    y, = ReferenceEvaluator(os.fspath(tmp_path / "case" / "model.onnx")).run(None, {name: x})
    np.testing.assert_allclose(y, load(data / "output_0.pb")[1], atol=1e-6)
    model.cleargrads()
    F.sum(model(X)).backward()
    found = dict(load(data / f"gradient_{i}.pb") for i in range(2))
    assert found.keys() == {"/0/W", "/0/b"}
    for path, p in model.namedparams():
        np.testing.assert_allclose(found[path], p.grad, atol=1e-6)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "case").write_text("a file")
    with pytest.raises(kusari.onnx.ExportFileError, match="cannot make the folder"):
        kusari.onnx.export_testcase(F.relu, [X], tmp_path / "case")


def test_gradients_need_a_link(tmp_path: Path) -> None:
    with pytest.raises(kusari.onnx.ExportError, match="needs a link"):
        kusari.onnx.export_testcase(F.relu, [X], tmp_path / "case", output_grad=True)
    assert not (tmp_path / "case").exists()
