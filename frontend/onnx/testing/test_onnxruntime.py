"""Test cases run in ONNX Runtime."""
from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..versions import optional_runtime, require_onnx


def load_test_data(data_dir: str, input_names: Sequence[str], output_names: Sequence[str]) -> tuple[
        dict[str, Any], dict[str, Any]]:
    """Return inputs and outputs of one data set by name; tensors without one of these names have them in order."""
    found: list[dict[str, Any]] = []
    for stem, names in (("input", input_names), ("output", output_names)):
        count = len(glob.glob(os.path.join(data_dir, f"{stem}_*.pb")))
        tensors = [require_onnx().load_tensor(os.path.join(data_dir, f"{stem}_{i}.pb")) for i in range(count)]
        rest = iter([n for n in names if n not in {t.name for t in tensors}])
        found.append({t.name if t.name in names else next(rest): require_onnx().numpy_helper.to_array(t)
                      for t in tensors})
    return found[0], found[1]


def check_model_expect(test_path: str, input_names: Sequence[str] | None = None, rtol: float = 1e-5,
                       atol: float = 1e-5) -> None:
    """Run a test case in ONNX Runtime, and compare what it gives with the outputs in the folder.

    Args:
        test_path: Folder that `kusari.onnx.export_testcase` has written.
        input_names: The inputs that the model must have.
        rtol: Relative tolerance.
        atol: Absolute tolerance.

    Raises:
        ImportError: ONNX Runtime is not installed.
        AssertionError: Inputs or results are others.
    """
    runtime = optional_runtime()
    if runtime is None:
        raise ImportError("check_model_expect needs the package onnxruntime: pip install kusari[onnx]")
    session = runtime.InferenceSession(os.path.join(test_path, "model.onnx"), providers=["CPUExecutionProvider"])
    names = [v.name for v in session.get_inputs()]
    if input_names is not None:
        assert sorted(input_names) == sorted(names), f"the model's inputs are {names}, not {list(input_names)}"
    outputs = [v.name for v in session.get_outputs()]
    for folder in sorted(glob.glob(os.path.join(test_path, "test_data_set_*"))):
        feeds, expected = load_test_data(folder, names, outputs)
        for name, y in zip(expected, session.run(list(expected), feeds), strict=True):
            np.testing.assert_allclose(y, expected[name], rtol=rtol, atol=atol, err_msg=name)
