"""Test cases in a folder for each opset."""
from __future__ import annotations

import os
from typing import Any

from ..dialect import ONNX_CHAINER
from ..testcase import export_testcase

TEST_OUT_DIR = "out"


def gen_test_data_set(model: Any, args: Any, name: str, opset_version: int, **kwargs: Any) -> str:
    """Write a model with inputs and outputs, as `kusari.onnx.export_testcase` does, in ONNX-Chainer's dialect.

    Args:
        model: The model.
        args: Its arguments.
        name: Name of the case.
        opset_version: The opset.
        **kwargs: Further arguments of `kusari.onnx.export_testcase`.

    Returns:
        str: The folder, ``out/opset11/NAME``.
    """
    path = os.path.join(TEST_OUT_DIR, f"opset{opset_version}", name)
    export_testcase(model, args, path, **{"dialect": ONNX_CHAINER, **kwargs}, opset_version=opset_version)
    return path
